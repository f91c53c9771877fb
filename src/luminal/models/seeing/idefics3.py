"""Idefics3 and SmolVLM: large images are cut into tiles, neighbouring patches are one vector.

Laurençon et al., arXiv 2408.12637; Marafioti et al., arXiv 2504.05299.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from luminal.base.errors import InputError, LoadError
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.loaders.image import LANCZOS, values_of
from luminal.models.architectures.settings import refuse
from luminal.models.seeing.metadata import image_values, vision_config
from luminal.models.seeing.record import Prepare, Prepared, ProjectorFile, Said, Seeing
from luminal.models.seeing.tower import NAMES, ImageTower, check_size, runs_of, siglip
from luminal.nn import Linear, Module

if TYPE_CHECKING:
    from PIL.Image import Image

_MOST_SIDE = 4096  # of an image before it is cut into tiles
_MOST_TILES = 256  # of one image
_IMAGE, _AROUND, _WHOLE = "<image>", "<fake_token_around_image>", "<global-img>"
_VISION = {
    "hidden_size": 1152,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 32,
}


class Shuffle(Module):
    """Squares of `factor` x `factor` patches, each as one vector, and a projection of that."""

    def __init__(self, side: int, factor: int, width: int, hidden: int) -> None:
        self.grid = side // factor, factor
        self.proj = Linear(width * factor**2, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, patches, width) to (batch, patches / factor**2, hidden)."""
        rows = x.unflatten(1, (*self.grid, *self.grid))  # (batch, row, in it, column, in it, width)
        squares = rows.transpose(2, 3).flatten(3).flatten(1, 2)
        return self.proj(squares)  # type: ignore[no-any-return]


def _vision(fields: Fields) -> Fields:
    """Files may leave out what is a default."""
    section = fields.section("vision_config")
    return replace(section, values={**_VISION, **section.values})


def _sizes(fields: Fields) -> tuple[int, int]:
    """Patches along a side of a tile, and how many of those along a side are one vector."""
    vision, factor = _vision(fields), fields.integer("scale_factor", 2)
    side = vision.integer("image_size") // vision.integer("patch_size")
    if side % factor:
        raise LoadError(f"{fields.path}: {side} patches a side do not divide by {factor}")
    return side, factor


def _tower(fields: Fields, hidden: int) -> ImageTower:
    config = siglip(_vision(fields))
    return ImageTower(config, Shuffle(*_sizes(fields), config.layers.hidden_size, hidden))


def _prepare(fields: Fields, processor: Fields, name: Callable[[int], str]) -> Prepare:
    """Images of at most `size`, cut into tiles of `max_image_size`, with the whole one behind."""
    values = values_of(processor, LANCZOS)
    splits = processor.flag("do_image_splitting", True)
    tile = processor.section("max_image_size").integer("longest_edge", 364)
    size = processor.section("size")
    side, factor = _sizes(fields)
    taken = _vision(fields).integer("image_size")
    check_size((tile, tile), taken, processor)
    refuse(processor, do_resize=True)
    refuse(size, height=None, width=None)
    longest = size.integer("longest_edge", 4 * tile)
    count = (side // factor) ** 2

    def prepare(image: Image) -> Prepared:
        image = image.resize(_bounded(image.size, longest), values.resample)
        if not splits:
            whole = image.resize((tile, tile), values.resample)
            return Prepared(runs_of([values(whole)]), _tokens(0, 0, count), count)
        columns, rows = _tiles(image.size, tile)
        if rows * columns > _MOST_TILES:
            raise InputError(
                f"images: one of {image.size} pixels has {rows * columns} tiles, more than "
                f"{_MOST_TILES}; give a smaller one"
            )
        image = image.resize((columns * tile, rows * tile), values.resample)
        if rows == columns == 1:
            return Prepared(runs_of([values(image)]), _tokens(0, 0, count), count)
        corners = [(x * tile, y * tile) for y in range(rows) for x in range(columns)]
        parts = [image.crop((x, y, x + tile, y + tile)) for x, y in corners]
        parts.append(image.resize((tile, tile), values.resample))
        runs = runs_of([values(part) for part in parts])
        return Prepared(runs, _tokens(rows, columns, count), count * len(parts))

    return prepare


def _bounded(size: tuple[int, int], longest: int) -> tuple[int, int]:
    """(width, height) with this longest side, the other one even; then within _MOST_SIDE."""
    even = _with_longest(size, longest, 2)
    return _with_longest(even, _MOST_SIDE, 1) if max(even) > _MOST_SIDE else even


def _with_longest(size: tuple[int, int], longest: int, step: int) -> tuple[int, int]:
    """(width, height) with this longest side, in the ratio of `size`; the other side is cut off to
    an integer, then rounded up to a multiple of `step`.
    """
    width, height = size
    ratio = width / height
    other = int(longest / ratio) if width >= height else int(longest * ratio)
    other = max(1, -(-other // step) * step)
    return (longest, other) if width >= height else (other, longest)


def _tiles(size: tuple[int, int], tile: int) -> tuple[int, int]:
    """How many tiles along the width and the height, all of them whole."""
    width, height = size
    # The shorter side follows the longer one, which has become whole tiles first.
    if width >= height:
        columns = math.ceil(width / tile)
        return columns, math.ceil(int(columns * tile / (width / height)) / tile)
    rows = math.ceil(height / tile)
    return math.ceil(int(rows * tile * (width / height)) / tile), rows


def _tokens(rows: int, columns: int, count: int) -> str:
    """The text of an image: of its tiles, row by row, and of the whole."""
    tiles = "".join(
        "".join(
            f"{_AROUND}<row_{row}_col_{column}>{_IMAGE * count}" for column in range(1, columns + 1)
        )
        + "\n"
        for row in range(1, rows + 1)
    )
    return f"{tiles}{chr(10) * (rows > 0)}{_AROUND}{_WHOLE}{_IMAGE * count}{_AROUND}"


def _said(metadata: Fields) -> Said:
    vision = vision_config(metadata, "gelu_pytorch_tanh")
    tile = vision["image_size"]
    longest = metadata.integer("clip.vision.preproc_image_size", 4 * tile)
    settings = {
        **image_values(metadata),
        "size": {"longest_edge": longest},
        "max_image_size": {"longest_edge": tile},
    }
    factor = metadata.integer("clip.vision.projector.scale_factor")
    return Said({"vision_config": vision, "scale_factor": factor}, settings)


IDEFICS3 = Seeing(
    _tower,
    ("model.vision_model.", "model.connector."),
    lambda fields: (
        (r"^model\.vision_model\.", "vision."),
        (r"^model\.connector\.modality_projection\.", "projector."),
        *NAMES,
    ),
    _prepare,
    file=ProjectorFile(
        tower="model.vision_model.",
        projector="model.connector.modality_projection.",
        names={"mm.model.fc.weight": "proj.weight"},
        output=("mm.model.fc.weight", 0),
        read=_said,
        # The last two are in the text of every image.
        tokens={
            "image_token_id": (_IMAGE,),
            "around_token_id": (_AROUND,),
            "whole_token_id": (_WHOLE,),
        },
    ),
)
