"""Towers of images of one size: a vision transformer, whose vectors a projector makes a decoder's.

Dosovitskiy et al., arXiv 2010.11929; Zhai et al., arXiv 2303.15343 (SigLIP).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from luminal.base.dtypes import float32
from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import layer_count
from luminal.models.families.renaming import Names
from luminal.models.families.settings import head_dim
from luminal.models.transformer import TransformerConfig
from luminal.models.vision_transformer import VisionConfig, VisionTransformer
from luminal.nn import Module

BATCH = 16  # images at once: more gain nothing on a CPU

NAMES: Names = (
    (r"position_ids$", None),
    (r"^vision\.(vision_model\.)?", "vision."),
    (r"^vision\.embeddings\.class_embedding$", "vision.first"),
    (r"^vision\.embeddings\.position_embedding\.weight$", "vision.positions"),
    (r"^vision\.embeddings\.patch_embedding\.", "vision.patches."),
    (r"^vision\.pre_layrnorm\.", "vision.embed_norm."),
    (r"^vision\.post_layernorm\.", "vision.transformer.norm."),
    (r"^vision\.encoder\.", "vision.transformer."),
    (r"\.self_attn\.", ".attention.part."),
    (r"\.out_proj\.", ".o_proj."),
    (r"\.layer_norm1\.", ".attention.norm."),
    (r"\.layer_norm2\.", ".mlp.norm."),
    (r"\.fc1\.", ".part.up_proj."),
    (r"\.fc2\.", ".part.down_proj."),
)
"""Of towers, whose names of Hugging Face's begin with `vision.` by now."""


class ImageTower(Module):
    """Images of one size to vectors."""

    def __init__(self, config: VisionConfig, projector: Module) -> None:
        self.config = config
        self.vision, self.projector = VisionTransformer(config), projector

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, size, size) to (batch, count, hidden)."""
        vectors: Tensor = self.projector(self.vision.tokens(images))
        return vectors

    def recorded(self, graph: Any) -> Tensor:
        """The vectors of "images", an input of the graph."""
        side = self.config.image_size
        shape = graph.dim("b", 1, BATCH), self.config.channels, side, side
        return self(graph.tensor(shape, float32, "images"))  # type: ignore[no-any-return]


def runs_of(images: Sequence[Array]) -> list[Mapping[str, Array]]:
    """The inputs of an ImageTower for prepared images, as many runs as they need."""
    return [{"images": np.stack(images[at : at + BATCH])} for at in range(0, len(images), BATCH)]


def check_size(shape: tuple[int, int] | None, side: int, processor: Fields) -> None:
    """Raises LoadError where images become no squares of this side."""
    if shape != (side, side):
        raise LoadError(
            f"{processor.path}: images become {shape} pixels, the tower takes {side} x {side}; "
            "take the processor of this model"
        )


def siglip(fields: Fields) -> VisionConfig:
    """The tower that a `vision_config` describes: SigLIP's, without a first token."""
    return replace(_vision(fields, "gelu_pytorch_tanh", 1e-6), first_token=False)


def clip(fields: Fields) -> VisionConfig:
    """The tower that a `vision_config` describes: CLIP's, with a norm before its layers."""
    config = _vision(fields, "quick_gelu", 1e-5)
    return replace(config, patch_bias=False, embedding_norm=True)


def _vision(fields: Fields, activation: str, epsilon: float) -> VisionConfig:
    values = {**_BASE, **fields.values}
    fields = replace(fields, values=values)
    layers = TransformerConfig(
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=layer_count(fields),
        num_attention_heads=fields.integer("num_attention_heads"),
        head_dim=head_dim(fields, "hidden_size", "num_attention_heads"),
        activation=fields.text("hidden_act", activation),
        norm_eps=fields.number("layer_norm_eps", epsilon, most=1),
    )
    size, patch, channels = map(fields.integer, ("image_size", "patch_size", "num_channels"))
    return VisionConfig(size, patch, channels, layers)


_BASE = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
}
"""Where a file leaves it out."""
