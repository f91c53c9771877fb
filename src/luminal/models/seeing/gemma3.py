"""Gemma 3: means of squares of patches; the tokens of an image see each other. arXiv 2503.19786."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.dtypes import float32
from luminal.base.errors import LoadError
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.loaders.image import preparation_of
from luminal.models.architectures.settings import refuse
from luminal.models.families.renaming import Names
from luminal.models.seeing.metadata import image_values, vision_config
from luminal.models.seeing.record import Prepare, Prepared, ProjectorFile, Said, Seeing
from luminal.models.seeing.tower import NAMES, ImageTower, check_size, runs_of, siglip
from luminal.nn import Module, RMSNorm, init

if TYPE_CHECKING:
    from PIL.Image import Image

_FIRST, _LAST = ("boi_token_index", 255_999), ("eoi_token_index", 256_000)
_IMAGE = ("image_token_index", 262_144)


class Projector(Module):
    """Means of squares of `factor` x `factor` patches, a norm and a projection."""

    def __init__(
        self, side: int, factor: int, width: int, hidden: int, eps: float, dtype: Any = float32
    ) -> None:
        self.side, self.factor = side, factor
        self.mm_soft_emb_norm = RMSNorm(width, eps, dtype=dtype, zero_centered=True)
        self.mm_input_projection_weight = init.parameter((width, hidden), init.normal, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, patches, width) to (batch, patches / factor**2, hidden)."""
        count, size = self.side // self.factor, self.factor
        means = x.unflatten(1, (count, size, count, size)).mean((2, 4)).flatten(1, 2)
        weight = self.read(self.mm_input_projection_weight, x).cast(x.dtype)
        projected: Tensor = self.mm_soft_emb_norm(means) @ weight
        return projected


def _sizes(fields: Fields) -> tuple[int, int, int]:
    """Patches along a side, how many of those are one token, and tokens of an image."""
    vision, count = (
        siglip(fields.section("vision_config")),
        fields.integer("mm_tokens_per_image", 256),
    )
    side, tokens = vision.image_size // vision.patch_size, math.isqrt(count)
    if tokens**2 != count or side % tokens:
        raise LoadError(
            f"{fields.path}: mm_tokens_per_image is {count}; it must be the square of a divisor of "
            f"{side}, the patches along a side"
        )
    return side, side // tokens, count


def _tower(fields: Fields, hidden: int) -> ImageTower:
    refuse(fields.section("vision_config"), vision_use_head=False)
    config = siglip(fields.section("vision_config"))
    side, factor, _ = _sizes(fields)
    layers = config.layers
    projector = Projector(side, factor, layers.hidden_size, hidden, layers.norm_eps)
    return ImageTower(config, projector)


def _names(fields: Fields) -> Names:
    return (
        (r"^(model\.)?vision_tower\.(vision_model\.)?", "vision."),
        (r"^vision\.head\.", None),
        (r"^(model\.)?multi_modal_projector\.", "projector."),
        *NAMES,
    )


def _prepare(fields: Fields, processor: Fields, name: Callable[[int], str]) -> Prepare:
    refuse(processor, do_pan_and_scan=False)
    values, (_, _, count) = preparation_of(processor), _sizes(fields)
    check_size(values.shape, siglip(fields.section("vision_config")).image_size, processor)
    first, image_token, last = (
        name(fields.integer(*default)) for default in (_FIRST, _IMAGE, _LAST)
    )
    text = f"\n\n{first}{image_token * count}{last}\n\n"

    def prepare(image: Image) -> Prepared:
        return Prepared(runs_of([values(image)]), text, count)

    return prepare


def _said(metadata: Fields) -> Said:
    """Files say how many patches along a side are one token, where these are not four."""
    vision = vision_config(metadata, "gelu_pytorch_tanh")
    size = vision["image_size"]
    factor = metadata.integer("clip.vision.projector.scale_factor", 4)
    count = (size // vision["patch_size"] // factor) ** 2
    settings = {**image_values(metadata), "size": {"height": size, "width": size}}
    return Said({"vision_config": vision, "mm_tokens_per_image": count}, settings)


GEMMA3 = Seeing(
    _tower,
    ("vision_tower.", "multi_modal_projector.", "model.vision", "model.multi_modal"),
    _names,
    _prepare,
    tokens=("image_token_index", "image_token_id"),
    placeholders=("boi_token_index", "boi_token_id"),
    whole=True,
    file=ProjectorFile(
        tower="model.vision_tower.vision_model.",
        projector="model.multi_modal_projector.",
        names={
            "mm.soft_emb_norm.weight": "mm_soft_emb_norm.weight",
            "mm.input_projection.weight": "mm_input_projection_weight",
        },
        output=("mm.input_projection.weight", 1),
        read=_said,
        tokens={
            "boi_token_index": ("<start_of_image>",),
            "eoi_token_index": ("<end_of_image>",),
            # Files leave out rows behind the tokenizer's own, and this one's may be the first.
            "image_token_index": ("<image_soft_token>", "<pad>"),
        },
        # As all norms of Gemma's: the factor here, what it is more than 1 there.
        changes={"mm.soft_emb_norm.weight": lambda array: array.astype(np.float32) - 1},
    ),
)
