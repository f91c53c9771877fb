"""A layer of Falcon-H1: attention and a state space read the same norm, side by side."""

from __future__ import annotations

from functools import partial
from typing import Any

from luminal.base.dtypes import float32
from luminal.base.records import dataclass
from luminal.frontend.handle import Extent
from luminal.frontend.tensor import Tensor
from luminal.memory.state import State
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Mixer
from luminal.nn import Attention, Module
from luminal.nn.cache import KVCache, Positions
from luminal.nn.feed_forward import GatedFeedForward, activation_of
from luminal.nn.recurrent_cache import RecurrentCache
from luminal.nn.rotary import Angles


@dataclass(frozen=True, slots=True)
class HybridCache(RecurrentCache):
    """What a state space keeps of the positions before, and the keys and values of attention."""

    keys: State
    values: State
    reach: Extent | None = None

    @property
    def of_attention(self) -> KVCache:
        """The part that attention reads and writes."""
        return KVCache(self.keys, self.values, self.reach)

    def within(self, reach: Extent) -> HybridCache:
        """A cache of these States; see `KVCache`."""
        return HybridCache(self.states, self.keys, self.values, reach)


@dataclass(frozen=True, slots=True)
class FalconH1Block:
    """Makes the layers: `mixer` is the state space; what enters or leaves a part is times a number.

    `read`, `attended`: before attention and after it; `keys`: of keys; `entered`, `scanned`: before
    the state space and after it; `gates`, `fed`: of the gates of the feed-forward part, and after
    it.
    """

    mixer: Mixer
    read: float
    attended: float
    keys: float
    entered: float
    scanned: float
    gates: float
    fed: float

    def __call__(
        self, config: DecoderConfig, layer: LayerConfig, rotary: Any, dtype: Any
    ) -> FalconH1Layer:
        """The layer of a decoder of this configuration."""
        return FalconH1Layer(self, config, rotary, dtype)


def _scaled_gate(name: str, scale: float, gate: Tensor, up: Tensor) -> Tensor:
    return activation_of(name)(gate * scale) * up


class FalconH1Layer(Module):
    """Names as in Hugging Face's, but for those of a `DecoderLayer`."""

    def __init__(
        self, block: FalconH1Block, config: DecoderConfig, rotary: Any, dtype: Any
    ) -> None:
        hidden, heads = config.hidden_size, config.num_attention_heads
        self.block = block
        self.input_layernorm = config.make_norm(hidden, dtype)
        self.mamba: Any = block.mixer.make(config, None, dtype)
        # A number of all keys is one of all scores: their turn does not change what it scales.
        self.self_attn = Attention(
            hidden,
            heads,
            config.num_key_value_heads,
            config.head_dim,
            rotary,
            config.attention_bias,
            dtype,
            scale=block.keys * config.head_dim**-0.5,
        )
        self.post_attention_layernorm = config.make_norm(hidden, dtype)
        gated = partial(_scaled_gate, config.activation, block.gates)
        self.mlp = GatedFeedForward(hidden, config.intermediate_size, gated, config.mlp_bias, dtype)

    def forward(
        self,
        x: Tensor,
        angles: Angles | None,
        cache: HybridCache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """(..., s, hidden) to the same shape."""
        normed = self.input_layernorm(x)
        block, keys = self.block, None if cache is None else cache.of_attention
        scanned = self.mamba(normed * block.entered, None, cache, positions) * block.scanned
        attended = self.self_attn(normed * block.read, angles, keys, positions)
        x = x + scanned + attended * block.attended
        fed: Tensor = self.mlp(self.post_attention_layernorm(x))
        return x + fed * block.fed

    def make_cache(
        self, max_len: int, dtype: Any = float32, name: str = "cache", batch: int | None = None
    ) -> HybridCache:
        """What the layer keeps of `max_len` positions, of one text or a batch of them."""
        kept = self.mamba.make_cache(max_len, dtype, name, batch)
        attention = self.self_attn.make_cache(max_len, dtype, name, batch)
        return HybridCache(kept.states, attention.keys, attention.values)
