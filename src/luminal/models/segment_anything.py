"""Masks of things in images, which points and boxes ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.image import MOST_LENGTH, Preparation, preparation_of
from luminal.loaders.shown import shown
from luminal.models.checkpoint import folder_processor
from luminal.models.image_model import opened
from luminal.models.sam import NOTHING, Sam
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from PIL.Image import Image

    from luminal.models.image_model import Picture

Array = np.ndarray[Any, Any]
THINGS = 64  # at once
MOST_POINTS = 256  # of one thing
_CORNERS = (2, 3)  # the kinds of a box's corners


@dataclass(frozen=True, slots=True)
class Mask:
    """Which pixels are of a thing, bools (height, width), and how well they are thought to fit."""

    pixels: Array
    score: float

    @property
    def box(self) -> tuple[int, int, int, int] | None:
        """Left, top, right, bottom, in pixels; None where there are none."""
        rows, columns = np.nonzero(self.pixels)
        if not len(rows):
            return None
        edges = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        left, top, right, bottom = (int(edge) for edge in edges)
        return left, top, right, bottom

    def __str__(self) -> str:
        box = " ".join(map(str, self.box or ("empty",)))
        return f"{self.score:6.3f}  {self.pixels.mean():7.2%}  {box}"


class SegmentAnything:
    """A loaded SAM: one program for images, one for all numbers of points and boxes."""

    def __init__(
        self,
        model: Sam,
        prepare: Preparation,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.prepare = model, prepare
        self.mode, self.backend = mode, chosen_device(backend)
        self._programs: dict[str, Executable] = {}

    @classmethod
    def of_folder(cls, folder: Path, model: Sam, mode: Any, backend: str) -> SegmentAnything:
        """With the preparation of its folder. Raises LoadError."""
        fields = folder_processor(folder, "image_processor")
        pixels = model.encoder.config.pixels
        longest = fields.section("size").integer("longest_edge", pixels)
        if longest != pixels:
            raise LoadError(f"{fields.path}: longest_edge is {longest}, the model takes {pixels}")
        # All images get a size of their own, so the settings' is not read as one.
        size = {"height": pixels, "width": pixels}
        prepare = preparation_of(Fields({**fields.values, "size": size}, fields.path))
        return cls(model, prepare, mode, backend)

    def __repr__(self) -> str:
        config = self.model.encoder.config
        return (
            f"SegmentAnything({len(config.windows)} layers of {config.hidden}, images of "
            f"{config.pixels}; {self.backend})"
        )

    def prepared(self, image: Image) -> tuple[Array, tuple[int, int]]:
        """(3, pixels, pixels) in float32, zeros on the right or below, and (height, width) of what
        is no zero.
        """
        pixels = self.model.encoder.config.pixels
        longest = max(image.size)
        width, height = (max(int(side * pixels / longest + 0.5), 1) for side in image.size)
        filled = np.zeros((3, pixels, pixels), np.float32)
        filled[:, :height, :width] = replace(self.prepare, size=(height, width))(image)
        return filled, (height, width)

    def encode(self, image: Picture) -> EncodedImage:
        """An image, or a file's, ready for many questions. Raises InputError, LoadError."""
        picture = opened(image)
        pixels, used = self.prepared(picture)
        encoded = np.asarray(self.program("image")(image=pixels[None])["encoded"])
        return EncodedImage(self, encoded, picture.size, used)

    def program(self, kind: str) -> Executable:
        """The program for an "image", or for "masks", compiled when it is first needed."""
        if kind not in self._programs:
            graph = Graph(kind)
            (self._record_image if kind == "image" else self._record_masks)(graph)
            self._programs[kind] = compile(graph, backend=self.backend, mode=self.mode)
        return self._programs[kind]

    def _record_image(self, graph: Graph) -> None:
        config = self.model.encoder.config
        shape = 1, config.channels, config.pixels, config.pixels
        self.model.encode(graph.tensor(shape, dtypes.float32, "image")).output("encoded")

    def _record_masks(self, graph: Graph) -> None:
        """Points (t, n, 2) and kinds (t, n), where rows and columns of the prepared image are used,
        to masks of the image's own size (h, w), and scores.
        """
        config = self.model.encoder.config
        shape = 1, config.outputs, config.side, config.side
        encoded = graph.tensor(shape, dtypes.float32, "encoded")
        asked = graph.dim("t", 1, THINGS), graph.dim("n", 1, MOST_POINTS)
        points = graph.tensor((*asked, 2), dtypes.float32, "points")
        masks, scores = self.model(encoded, points, graph.tensor(asked, dtypes.int32, "kinds"))
        rows, columns = (graph.dim(name, 1, config.pixels) for name in ("rows", "columns"))
        size = [graph.dim(name, 1, MOST_LENGTH) for name in ("h", "w")]
        whole = masks.interpolate((config.pixels,) * 2, mode="bilinear")
        fitted = whole[:, :, :rows, :columns].interpolate(size, mode="bilinear")
        (fitted > 0).output("masks")
        scores.output("scores")


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image that `SegmentAnything.encode` has seen; `size`: (width, height) in pixels."""

    model: SegmentAnything
    encoded: Array
    size: tuple[int, int]
    used: tuple[int, int]

    def masks(
        self,
        points: Sequence[Sequence[float]] = (),
        boxes: Sequence[Sequence[float]] = (),
        labels: Sequence[int] | None = None,
        single: bool = False,
    ) -> list[list[Mask]]:
        """For each thing its masks, the one that is thought to fit best first.

        `points`: (x, y) in pixels, all on one thing, or beside it where their `labels` are 0 (by
        default all are 1). `boxes`: (left, top, right, bottom), a thing each; with points, one.
        There are several masks for a thing, as a point may mean a part or the whole; `single`: one
        for all, better where points are many. Raises InputError.
        """
        at, kinds = self._prompts(_array("points", points, 2), _array("boxes", boxes, 4), labels)
        old = np.array(self.size)
        scaled = (at * (np.array(self.used[::-1]) / old)).astype(np.float32)
        things = []
        dims = dict(zip(("rows", "columns", "w", "h"), (*self.used, *self.size), strict=True))
        for first in range(0, len(at), THINGS):
            rows = slice(first, first + THINGS)
            inputs = {"encoded": self.encoded, "points": scaled[rows], "kinds": kinds[rows]}
            outputs = self.model.program("masks")(inputs, dims=dims)
            for masks, scores in zip(outputs["masks"], outputs["scores"], strict=True):
                chosen = range(1) if single else range(1, len(scores))
                answers = [Mask(masks[n].astype(bool), float(scores[n])) for n in chosen]
                things.append(sorted(answers, key=lambda mask: -mask.score))
        return things

    def _prompts(
        self, points: Array, boxes: Array, labels: Sequence[int] | None
    ) -> tuple[Array, Array]:
        """All that is asked as points (t, n, 2) of kinds (t, n)."""
        if not len(points) and not len(boxes):
            raise InputError("masks: there are no points and no boxes; give some")
        if len(points) and len(boxes) > 1:
            raise InputError(
                f"masks: {len(boxes)} boxes with points; points are of one thing, give one box"
            )
        if len(points) >= MOST_POINTS - 2:
            raise InputError(f"masks: {len(points)} points are too many; give {MOST_POINTS - 3}")
        kinds = np.ones(len(points), np.int32) if labels is None else np.asarray(labels)
        if kinds.shape != (len(points),) or not np.isin(kinds, (0, 1)).all():
            raise InputError(
                f"masks: labels are {shown(labels)}; there must be a 0 or 1 for each of the "
                f"{len(points)} points"
            )
        if len(boxes):
            corners = boxes.reshape(-1, 2, 2)
            filled = np.broadcast_to(points, (len(boxes), *points.shape))
            all_kinds = np.concatenate((kinds, np.array(_CORNERS)))
            at = np.concatenate((filled, corners), 1)
        else:
            # Without a box one prompt more says that there is none.
            at = np.concatenate((points, np.zeros((1, 2))))[None]
            all_kinds = np.append(kinds, NOTHING)
        rows = np.broadcast_to(all_kinds, at.shape[:2]).astype(np.int32)
        return at, rows


def _array(name: str, values: Any, width: int) -> Array:
    """(count, width) finite numbers. Raises InputError."""
    try:
        array = np.asarray(values, np.float64).reshape(-1, width) if len(values) else None
    except (TypeError, ValueError):
        raise InputError(
            f"masks: {name} are {shown(values)}; give a list of {width} numbers each"
        ) from None
    if array is None:
        return np.zeros((0, width))
    if np.ndim(values) != 2 or not np.isfinite(array).all():
        raise InputError(f"masks: {name} are {shown(values)}; give a list of {width} numbers each")
    return array
