"""A layer of RWKV-7, which hands the first layer's values on to the next."""

from __future__ import annotations

from typing import Any

from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.models.decoder_config import DecoderConfig, LayerConfig
from luminal.nn.cache import Positions
from luminal.nn.recurrent_cache import RecurrentCache, RecurrentLayer
from luminal.nn.rwkv import ChannelMix, TimeMix


@dataclass(frozen=True, slots=True)
class Rwkv7Block:
    """Makes one layer; `ranks` are those of `TimeMix`."""

    ranks: tuple[int, int, int | None, int]

    def __call__(
        self, config: DecoderConfig, layer: LayerConfig, rotary: None, dtype: Any
    ) -> Rwkv7Layer:
        """The layer of these ranks, for a decoder of this configuration."""
        return Rwkv7Layer(config, self.ranks, dtype)


class Rwkv7Layer(RecurrentLayer):
    """Time and channel mixing, each after a norm and added to what came in."""

    def __init__(
        self, config: DecoderConfig, ranks: tuple[int, int, int | None, int], dtype: Any
    ) -> None:
        hidden = config.hidden_size
        self.input_layernorm = config.make_norm(hidden, dtype)
        self.self_attn = TimeMix(hidden, config.head_dim, ranks, config.norm_eps, dtype)
        self.post_attention_layernorm = config.make_norm(hidden, dtype)
        self.mlp = ChannelMix(hidden, config.intermediate_size, dtype)
        heads = config.num_attention_heads
        self.shapes = (1, hidden), (1, hidden), (heads, config.head_dim, config.head_dim)

    def forward(
        self,
        x: Tensor,
        angles: None,
        cache: RecurrentCache | None = None,
        positions: Positions = 0,
        first: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(..., s, hidden) to the same shape, and the first layer's values."""
        timed, mixed, memory = self.before(cache, x, positions)
        normed = self.input_layernorm(x)
        y, timed, memory, first = self.self_attn(normed, timed, memory, first)
        x = x + y
        y, mixed = self.mlp(self.post_attention_layernorm(x), mixed)
        if cache is not None:
            cache.keep((timed, mixed, memory))
        return x + y, first
