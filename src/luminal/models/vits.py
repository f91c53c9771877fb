"""VITS: ids of a text to how long each is said, and to samples of a voice.

Kim, Kong and Son, arXiv 2106.06103; Pratap et al. (MMS), arXiv 2305.13516.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from luminal.base.dtypes import float32
from luminal.base.records import dataclass
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.models.hifi_gan import HifiGan, HifiGanConfig
from luminal.models.vits_durations import Durations, DurationsConfig, StochasticDurations
from luminal.models.vits_flow import Couplings, FlowConfig, masked
from luminal.nn import Conv1d, Embedding, LayerNorm, Linear, Module, ModuleList, init
from luminal.nn.feed_forward import activation_of
from luminal.nn.relative_positions import by_distance, by_key


@dataclass(frozen=True, slots=True)
class VitsConfig:
    """`window`: distances of tokens that attention tells apart. `kernel`: of the feed-forward
    parts. `stochastic`: durations are drawn. `speakers`: voices, of `voice_size` numbers each,
    which are 0 where there is one voice only.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    window: int
    kernel: int
    flow: FlowConfig
    durations: DurationsConfig
    decoder: HifiGanConfig
    stochastic: bool = True
    activation: str = "relu"
    bias: bool = True
    norm_eps: float = 1e-5
    speakers: int = 0
    voice_size: int = 0


class WindowedAttention(Module):
    """Attention with a vector of keys and one of values for each near distance, of all heads.

    Shaw et al., arXiv 1803.02155.
    """

    def __init__(self, config: VitsConfig, dtype: Any = float32) -> None:
        hidden, heads = config.hidden_size, config.num_attention_heads
        self.heads, self.head_dim, self.window = heads, hidden // heads, config.window
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            Linear(hidden, hidden, config.bias, dtype) for _ in range(4)
        )
        shape = 1, 2 * config.window + 1, self.head_dim
        self.near_keys, self.near_values = (
            init.parameter(shape, init.normal, dtype) for _ in range(2)
        )

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """x (batch, s, hidden) to the same shape; `visible` (batch, 1, s) bools of keys."""
        queries = self._heads(self.q_proj(x)) * (1 / math.sqrt(self.head_dim))
        keys, values = self._heads(self.k_proj(x)), self._heads(self.v_proj(x))
        near_keys = self.read(self.near_keys, x)
        scores = queries @ keys.mT + by_key(queries @ near_keys.mT, self.window)
        if visible is not None:
            scores = where(visible.unsqueeze(1), scores, -math.inf)
        weights = scores.softmax(-1)
        near = by_distance(weights, self.window) @ self.read(self.near_values, x)
        merged = (weights @ values + near).transpose(-2, -3).flatten(-2)
        return self.o_proj(merged)  # type: ignore[no-any-return]

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, s, heads * head_dim) to (batch, heads, s, head_dim)."""
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(-2, -3)


class VitsLayer(Module):
    """Attention, then two convolutions over time, each with a norm after its sum."""

    def __init__(self, config: VitsConfig, dtype: Any = float32) -> None:
        hidden, inner, size = config.hidden_size, config.intermediate_size, config.kernel
        self.attention = WindowedAttention(config, dtype)
        self.up = Conv1d(hidden, inner, size, padding="same", dtype=dtype)
        self.down = Conv1d(inner, hidden, size, padding="same", dtype=dtype)
        self.activation = activation_of(config.activation)
        self.attention_norm, self.norm = (
            LayerNorm(hidden, config.norm_eps, dtype=dtype) for _ in range(2)
        )

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """(batch, s, hidden) to the same shape."""
        x = self.attention_norm(x + self.attention(x, visible))
        inner = self.activation(self.up(masked(x.mT, visible)))
        y: Tensor = self.norm(x + masked(self.down(masked(inner, visible)), visible).mT)
        return y


class Read(NamedTuple):
    """What is read of a text: log-durations (batch, s), and the means and logarithms of deviations
    of what is said, each (batch, s, flow_size).
    """

    log_durations: Tensor
    means: Tensor
    log_deviations: Tensor


class Vits(Module):
    """A reader of texts, which says how long each token lasts, and a voice."""

    def __init__(self, config: VitsConfig, dtype: Any = float32) -> None:
        self.config = config
        hidden, voice = config.hidden_size, config.voice_size
        self.embed_tokens = Embedding(config.vocab_size, hidden, dtype=dtype)
        self.layers = ModuleList(VitsLayer(config, dtype) for _ in range(config.num_hidden_layers))
        self.project = Conv1d(hidden, 2 * config.flow.size, 1, dtype=dtype)
        kind = StochasticDurations if config.stochastic else Durations
        self.durations = kind(config.durations, hidden, voice, dtype)
        self.flow = Couplings(config.flow, hidden, voice, dtype)
        self.decoder = HifiGan(config.decoder, config.flow.size, voice, dtype)
        self.embed_speaker = Embedding(config.speakers, voice, dtype=dtype) if voice else None

    def read_text(
        self,
        ids: Tensor,
        noise: Tensor,
        lengths: Tensor | None = None,
        speakers: Tensor | None = None,
    ) -> Read:
        """What is read of ids (batch, s), of which `lengths` (batch,) count.

        `noise` (batch, 2, s) moves the durations where they are stochastic.
        """
        visible = within(ids.extents[1], lengths, ids)
        x = self.embed_tokens(ids).cast(float32) * math.sqrt(self.config.hidden_size)
        for layer in self.layers:
            x = layer(x, visible)
        x = masked(x.mT, visible)
        means, log_deviations = self.project(x).mT.chunk(2, -1)
        logs = self.durations(x, noise, visible, self._voice(speakers))
        return Read(logs.squeeze(1), means, log_deviations)

    def speak(
        self, latents: Tensor, lengths: Tensor | None = None, speakers: Tensor | None = None
    ) -> Tensor:
        """Latents (batch, frames, flow_size), of which `lengths` (batch,) count, to samples
        (batch, frames * hop) from -1 to 1.
        """
        voice = self._voice(speakers)
        visible = within(latents.extents[1], lengths, latents)
        x = masked(self.flow(latents.mT, visible, voice), visible)
        samples: Tensor = self.decoder(x, voice)
        return samples

    def _voice(self, speakers: Tensor | None) -> Tensor | None:
        """The numbers (batch, voice_size, 1) of speakers (batch,)."""
        if self.embed_speaker is None or speakers is None:
            return None
        return self.embed_speaker(speakers).cast(float32).unsqueeze(-1)  # type: ignore[no-any-return]


def within(count: Any, lengths: Tensor | None, x: Tensor) -> Tensor | None:
    """(batch, 1, count) bools: is this one of the first `lengths` (batch,)?"""
    if lengths is None:
        return None
    return (x.graph.arange(count) < lengths.unsqueeze(-1)).unsqueeze(1)
