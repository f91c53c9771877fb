"""Towers of images of one size: a vision transformer, whose vectors a projector makes a decoder's.

Dosovitskiy et al., arXiv 2010.11929; Zhai et al., arXiv 2303.15343 (SigLIP).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.base.dtypes import float32
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


def siglip(fields: Fields, last_norm: bool = True) -> VisionConfig:
    """The tower that a `vision_config` describes: as SigLIP's, without a first token."""
    layers = TransformerConfig(
        hidden_size=fields.integer("hidden_size", 768),
        intermediate_size=fields.integer("intermediate_size", 3072),
        num_hidden_layers=layer_count(fields) if "num_hidden_layers" in fields.values else 12,
        num_attention_heads=fields.integer("num_attention_heads", 12),
        head_dim=head_dim(fields, "hidden_size", "num_attention_heads"),
        activation=fields.text("hidden_act", "gelu_pytorch_tanh"),
        norm_eps=fields.number("layer_norm_eps", 1e-6, most=1),
        last_norm=last_norm,
    )
    return VisionConfig(
        fields.integer("image_size", 224),
        fields.integer("patch_size", 16),
        fields.integer("num_channels", 3),
        layers,
        first_token=False,
    )
