"""What sees for a language model: images become vectors, and tokens of a prompt stand for them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.image import as_rgb
from luminal.models.seeing.processor import Processor
from luminal.models.seeing.record import Prepared
from luminal.models.seen import Images, Span
from luminal.nn import Module
from luminal.runtime.executable import Executable
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from luminal.models.image_model import Picture

KEPT_BYTES = 256 << 20
"""Of vectors of the last images, which are kept: a chat shows the same ones at every turn."""


class Look(NamedTuple):
    """What a tower made of an image: a digest of what it took, and vectors (tokens, hidden);
    `grid`: their rows and columns.
    """

    digest: bytes
    vectors: Array
    grid: tuple[int, int]


class Sight:
    """A vision tower with a projector, and the processor of its prompts; see
    `luminal.models.seeing.record`. One program serves all images. `source`: the folder or the
    mmproj file that they are from.
    """

    def __init__(
        self,
        tower: Module,
        processor: Processor,
        *,
        source: Path,
        whole: bool,
        places: Callable[[int, Sequence[Span]], Array] | None,
        mode: Any,
        backend: str,
    ) -> None:
        self.tower, self.processor, self.source = tower, processor, source
        self.whole, self.places = whole, places
        self.mode, self.backend = mode, backend
        self._program: Executable | None = None
        self._kept: OrderedDict[bytes, Array] = OrderedDict()

    def __repr__(self) -> str:
        tower, image = type(self.tower).__name__, self.processor.placeholder
        return f"Sight({tower} of {self.source.name}, {image!r}; {self.backend})"

    def compile(self) -> Executable:
        """The tower's program, compiled at the first image."""
        if self._program is None:
            graph = Graph("images")
            tower: Any = self.tower
            tower.recorded(graph).output("vectors")
            self._program = compile(graph, backend=self.backend, mode=self.mode)
        return self._program

    def read(
        self,
        prompt: str | Sequence[int],
        images: Sequence[Picture],
        bare: bool = False,
        context: int | None = None,
    ) -> tuple[list[int], Images | None]:
        """The ids of a prompt, and its images as a decoder takes them: None where there are none.

        See `Processor.read`, which fails before the tower runs.
        """
        ids, prepared = self.processor.read(prompt, images, bare, context)
        return ids, self.images(ids, [self.look(image) for image in prepared])

    def look(self, prepared: Prepared) -> Look:
        """What the tower makes of an image, once for the last of them. Raises LoadError where
        those are not as many vectors as the image has tokens.
        """
        digest = _digest(prepared)
        vectors = self._kept.pop(digest, None)
        if vectors is None:
            vectors = self.vectors(prepared)
        self._kept[digest] = vectors
        while len(self._kept) > 1 and sum(a.nbytes for a in self._kept.values()) > KEPT_BYTES:
            self._kept.popitem(last=False)
        return Look(digest, vectors, prepared.grid)

    def images(self, ids: Sequence[int], looks: Sequence[Look]) -> Images | None:
        """What takes the place of tokens of a prompt: the vectors of its images."""
        if not looks:
            return None
        spans, used = [], 0
        tokens = np.flatnonzero(np.array(ids) == self.processor.token)
        for digest, vectors, grid in looks:
            its_tokens = tokens[used : used + len(vectors)]
            used += len(vectors)
            # A large image is several ranges of tokens, with words between them.
            for part in np.split(its_tokens, np.flatnonzero(np.diff(its_tokens) != 1) + 1):
                spans.append(Span(int(part[0]), int(part[-1]) + 1, digest, grid))
        places = None if self.places is None else self.places(len(ids), spans)
        vectors = np.concatenate([look.vectors for look in looks])
        return Images(vectors, (*spans,), self.whole, places)

    @property
    def together(self) -> int:
        """So many tokens, at most, have to be read at once: those of an image whose tokens see all
        of it, as many for each image; else 1.
        """
        if not self.whole:
            return 1
        return self.processor.prepare(as_rgb(np.zeros((8, 8, 3), np.uint8))).tokens

    @property
    def names(self) -> tuple[str, ...]:
        """What images may add to a run; see `Seen`."""
        more = ("spans",) * self.whole + ("places",) * (self.places is not None)
        return ("rows", "vectors", *more)

    def vectors(self, prepared: Prepared) -> Array:
        """The vectors (count, hidden) of an image."""
        program = self.compile()
        parts = [np.asarray(program(dict(run))["vectors"], np.float32) for run in prepared.runs]
        vectors = np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])
        if len(vectors) != prepared.tokens:
            raise LoadError(
                f"images: one has {prepared.tokens} tokens, but the tower makes {len(vectors)} "
                "vectors of it; config.json and the processor's settings are of different models"
            )
        return vectors


def _digest(prepared: Prepared) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for run in prepared.runs:
        for name in sorted(run):
            digest.update(f"{name} {run[name].shape};".encode())
            digest.update(np.ascontiguousarray(run[name]).tobytes())
    return digest.digest()
