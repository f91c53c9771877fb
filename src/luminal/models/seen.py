"""What the images in a text are to a decoder: vectors in place of some tokens' embeddings.

A text with images has a placeholder token for each vector that a vision tower made of them. So a
decoder reads it as any text, and needs to be told three things: the vectors, for some models which
tokens belong to one image and see all of it, and for others where in the image each of them lies.
`Images` has them of one text, as arrays; `Seen` those of the ids that one run of a program reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from luminal.base.dtypes import float32, int32
from luminal.base.records import dataclass
from luminal.frontend.handle import Array, Extent
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor

AXES = 3  # of places: time, row, column


class Seen(NamedTuple):
    """What images add to a run of ids (..., s).

    `rows` (..., s): which of `vectors` (n, hidden) stands in the place of an id, none where it is
    negative. `spans` (..., 2, s): of the tokens of an image, the positions of the first and behind
    the last one; an empty range for other tokens. `places` (..., 3, s): the positions by which
    queries and keys turn, in time, rows and columns.
    """

    rows: Tensor | None = None
    vectors: Tensor | None = None
    spans: Tensor | None = None
    places: Tensor | None = None

    @classmethod
    def declared(cls, ids: Tensor, names: Sequence[str], hidden: int, most: int) -> Seen:
        """Inputs of these names for the ids, with at most so many vectors of `hidden` numbers."""
        *batch, s = ids.extents
        shapes: dict[str, Sequence[Extent]] = {
            "rows": (*batch, s),
            "spans": (*batch, 2, s),
            "places": (*batch, AXES, s),
        }
        graph: Any = ids.graph  # programs are recorded in a Graph, which has inputs
        if "vectors" in names:
            shapes["vectors"] = graph.dim("vectors", 1, most), hidden
        return cls(
            **{
                name: graph.tensor(shapes[name], float32 if name == "vectors" else int32, name)
                for name in names
            }
        )

    def placed(self, x: Tensor) -> Tensor:
        """The embeddings (..., s, hidden), with vectors where there are some."""
        if self.rows is None or self.vectors is None:
            return x
        vectors = self.rows.clamp(0).embedding(self.vectors.cast(x.dtype))
        return where(self.rows.unsqueeze(-1) >= 0, vectors, x)


class Span(NamedTuple):
    """The tokens of one image: positions `first` up to before `end`, and a digest of what is there.

    `grid`: its rows and columns of vectors.
    """

    first: int
    end: int
    digest: bytes
    grid: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Images:
    """The images of one text, whose tokens are `prompt` and others that come later.

    `vectors` (n, hidden) lie in the order of the tokens they replace. `whole`: the tokens of an
    image see all of it. `places` (3, prompt): see `Seen`.
    """

    vectors: Array
    spans: tuple[Span, ...]
    whole: bool = False
    places: Array | None = None

    def outside(self, count: int) -> int:
        """`count`, or the beginning of the image that it would cut in two."""
        for span in self.spans:
            if span.first < count < span.end:
                return span.first
        return count

    def reaches(self, start: int) -> bool:
        """Does an image lie at positions from `start` on?"""
        return any(span.end > start for span in self.spans)

    def rows(self, start: int, stop: int) -> Array:
        """The vector of each position from `start` to `stop`, -1 for none."""
        rows, used = np.full(stop - start, -1, np.int32), 0
        for first, end, *_ in self.spans:
            low, high = max(first, start), min(end, stop)
            if low < high:
                rows[low - start : high - start] = np.arange(low, high) - first + used
            used += end - first
        return rows

    def ranges(self, start: int, stop: int) -> Array:
        """The span of each position from `start` to `stop`, (2, stop - start)."""
        ranges = np.zeros((2, stop - start), np.int32)
        for first, end, *_ in self.spans:
            low, high = max(first, start) - start, min(end, stop) - start
            if low < high:
                ranges[:, low:high] = [[first], [end]]
        return ranges

    def placed(self, start: int, stop: int) -> Array:
        """The places of positions from `start` to `stop`, (3, stop - start)."""
        assert self.places is not None
        prompt = self.places.shape[1]
        further = self.places.max() + 1 + np.arange(max(stop - prompt, 0), dtype=np.int32)
        every = np.concatenate((self.places, np.tile(further, (AXES, 1))), 1)
        return every[:, start:stop]


def common(one: Images | None, other: Images | None, count: int) -> int:
    """How many of `count` tokens that two texts share lie before the first other image."""
    spans = [() if images is None else images.spans for images in (one, other)]
    for pair in zip_longest(*spans):
        if pair[0] != pair[1]:
            return min([count, *(span.first for span in pair if span is not None)])
    return count


class Part(NamedTuple):
    """What a run reads of a text: the positions `start` up to before `stop`."""

    images: Images | None
    start: int
    stop: int


def names_of(parts: Sequence[Part]) -> tuple[str, ...]:
    """The inputs that these need: none where no images are, and none are behind."""
    with_images = [part for part in parts if part.images is not None]
    names: set[str] = set()
    for images, start, _ in with_images:
        assert images is not None
        if images.reaches(start):
            names |= {"rows", "vectors", "spans"} if images.whole else {"rows", "vectors"}
        if images.places is not None:
            names.add("places")
    return tuple(sorted(names))


def inputs_of(parts: Sequence[Part], names: Sequence[str], width: int) -> dict[str, Array]:
    """The arrays of these inputs, a row a part, each `width` ids long."""
    inputs: dict[str, Array] = {}
    shapes = {"rows": (), "spans": (2,), "places": (AXES,)}
    for name in names:
        if name != "vectors":
            fill = -1 if name == "rows" else 0
            inputs[name] = np.full((len(parts), *shapes[name], width), fill, np.int32)
    vectors: list[Array] = []
    used = 0
    for row, (images, start, stop) in enumerate(parts):
        count = stop - start
        if "places" in names:
            places = np.arange(start, stop, dtype=np.int32)
            if images is not None and images.places is not None:
                places = images.placed(start, stop)
            inputs["places"][row, :, :count] = places
        if images is None or "rows" not in names or not images.reaches(start):
            continue
        rows = images.rows(start, stop)
        inputs["rows"][row, :count] = np.where(rows < 0, -1, rows + used)
        if "spans" in names:
            inputs["spans"][row, :, :count] = images.ranges(start, stop)
        vectors.append(images.vectors)
        used += len(images.vectors)
    if vectors:
        inputs["vectors"] = np.concatenate(vectors)
    return inputs
