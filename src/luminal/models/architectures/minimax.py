"""MiniMax-01: lightning attention, some layers of attention, experts. arXiv 2501.08313."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture, Tensors
from luminal.models.architectures.layers import kinds_of, rotary_of
from luminal.models.architectures.mixtral import MIXTRAL
from luminal.models.architectures.settings import integer, layer_count
from luminal.models.decoder import DecoderLayer
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Layers
from luminal.nn import RotaryEmbedding
from luminal.nn.cache import Cache, Positions
from luminal.nn.lightning_attention import LightningAttention
from luminal.nn.rotary import Angles

_DERIVED = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
"""What files hold although it follows from a layer's number."""


@dataclass(frozen=True, slots=True)
class LightningConfig:
    """The number of a layer of lightning attention, by which its memory decays."""

    number: int
    count: int

    def make(
        self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any
    ) -> LightningAttention:
        """The mixer of one layer: the later, the longer it remembers."""
        heads = config.num_attention_heads
        share = 1 - self.number / (self.count - 1 + 1e-5) + 1e-5
        rates = 2.0 ** (-8 / heads * np.arange(1, heads + 1)) * share
        return LightningAttention(
            config.hidden_size, config.head_dim, rates, config.activation, dtype=dtype
        )


@dataclass(frozen=True, slots=True)
class Weighing:
    """Makes layers whose parts are added to what they read, a norm: that times the first number of
    each pair, what they give times the second.
    """

    attention: tuple[float, float]
    feed_forward: tuple[float, float]

    def __call__(
        self, config: DecoderConfig, layer: LayerConfig, rotary: Any, dtype: Any
    ) -> WeighedLayer:
        """The layer of a decoder of this configuration."""
        return WeighedLayer(self, config, layer, rotary, dtype)


class WeighedLayer(DecoderLayer):
    """A layer that adds to its norms, not to its input."""

    def __init__(
        self, weighing: Weighing, config: DecoderConfig, layer: LayerConfig, rotary: Any, dtype: Any
    ) -> None:
        super().__init__(config, layer, rotary, dtype)
        self.weighing = weighing

    def forward(
        self,
        x: Tensor,
        angles: Angles | None,
        cache: Cache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """(..., s, hidden) to the same shape."""
        kept, added = self.weighing.attention
        normed = self.input_layernorm(x)  # type: ignore[misc]
        x = normed * kept + self.self_attn(normed, angles, cache, positions) * added
        kept, added = self.weighing.feed_forward
        normed = self.post_attention_layernorm(x)  # type: ignore[misc]
        return normed * kept + self.mlp(normed) * added  # type: ignore[misc, no-any-return]


def _layers(fields: Fields) -> Layers:
    """Every other layer is lightning attention where nothing says it."""
    count = layer_count(fields)
    kinds = kinds_of(fields, count, "full_attention", "linear_attention")
    if kinds is None:
        kinds = ["linear_attention" if number % 2 else "full_attention" for number in range(count)]

    def weighing(kind: str) -> Weighing:
        pairs = [
            tuple(fields.number(f"{part}_{end}_factor", 1.0) for end in ("alpha", "beta"))
            for part in (f"{kind}_attn", "mlp")
        ]
        return Weighing(*pairs)  # type: ignore[arg-type]

    windowed = fields.values.get("sliding_window") is not None
    window = fields.integer("sliding_window") if windowed else None
    full = LayerConfig(window, rotary_of(fields, theta=1e6), True, block=weighing("full"))
    lightning = LayerConfig(experts=True, block=weighing("linear"))
    return tuple(
        full if kind == "full_attention" else replace(lightning, mixer=LightningConfig(n, count))
        for n, kind in enumerate(kinds)
    )


def _without_derived(tensors: Tensors) -> Tensors:
    return {
        name: array for name, array in tensors.items() if name.rpartition(".")[2] not in _DERIVED
    }


MINIMAX = Architecture(
    "MiniMaxForCausalLM",
    {**MIXTRAL.settings, "max_position_embeddings": integer("max_position_embeddings", 131072)},
    {**MIXTRAL.names, ".self_attn.qkv_proj.": ".self_attn.in_proj."},
    layers=_layers,
    experts=MIXTRAL.experts,
    unpacked=_without_derived,
)
