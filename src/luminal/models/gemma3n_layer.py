"""A layer of Gemma 3n: several states of each token, a low-rank residual, sparse gates."""

from __future__ import annotations

import math
from functools import partial
from statistics import NormalDist
from typing import Any

from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.models.decoder import DecoderLayer, applied
from luminal.models.decoder_config import DecoderConfig, LayerConfig
from luminal.nn import GatedFeedForward, Linear, Module
from luminal.nn.altup import AltUp
from luminal.nn.cache import Cache, Positions
from luminal.nn.feed_forward import ACTIVATIONS, activation_of
from luminal.nn.rotary import Angles


@dataclass(frozen=True, slots=True)
class Gemma3nBlock:
    """Makes the layers. `active`: the state of a token that a layer computes; `scaled`: what its
    own input is added to is scaled first; `rank`: of the residual; `sparsity`: of the gates.
    """

    active: int
    scaled: bool
    rank: int
    sparsity: float

    def __call__(
        self, config: DecoderConfig, layer: LayerConfig, rotary: Any, dtype: Any
    ) -> Gemma3nLayer:
        """The layer of a decoder of this configuration."""
        return Gemma3nLayer(self, config, layer, rotary, dtype)


def _sparse_gate(name: str, deviations: float, gate: Tensor, up: Tensor) -> Tensor:
    """Only gates so many standard deviations above the mean let something through."""
    # As if gates were normal: the share of those above is known without sorting them.
    deviation = gate.var(-1, correction=0, keepdim=True).sqrt()
    cut = gate.mean(-1, keepdim=True) + deviation * deviations
    return activation_of(name)((gate - cut).relu()) * up


class LowRankResidual(Module):
    """x and a norm of its product by a matrix of low `rank` (Menghani et al., arXiv 2411.07501)."""

    def __init__(self, config: DecoderConfig, rank: int, dtype: Any) -> None:
        self.linear_left = Linear(config.hidden_size, rank, False, dtype)
        self.linear_right = Linear(rank, config.hidden_size, False, dtype)
        self.post_laurel_norm = config.make_norm(config.hidden_size, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) to the same shape."""
        return x + self.post_laurel_norm(self.linear_right(self.linear_left(x)))  # type: ignore[no-any-return]


class Gemma3nLayer(DecoderLayer):
    """Names as in Hugging Face's, but for those of `DecoderLayer`."""

    def __init__(
        self,
        block: Gemma3nBlock,
        config: DecoderConfig,
        layer: LayerConfig,
        rotary: Any,
        dtype: Any,
    ) -> None:
        super().__init__(config, layer, rotary, dtype)
        assert config.layer_inputs is not None
        hidden, width = config.hidden_size, config.layer_inputs[1]
        self.block, self.activation = block, config.activation
        self.altup = AltUp(hidden, config.streams, block.active, config.norm_eps, dtype)
        self.laurel = LowRankResidual(config, block.rank, dtype)
        if block.sparsity:
            deviations = NormalDist().inv_cdf(block.sparsity)
            gate = partial(_sparse_gate, config.activation, deviations)
            inner = layer.intermediate_size or config.intermediate_size
            self.mlp = GatedFeedForward(hidden, inner, gate, dtype=dtype)
        self.per_layer_input_gate = Linear(hidden, width, False, dtype)
        self.per_layer_projection = Linear(width, hidden, False, dtype)
        self.post_per_layer_input_norm = config.make_norm(hidden, dtype)

    def forward(
        self,
        x: Tensor,
        angles: Angles | None,
        cache: Cache | None = None,
        positions: Positions = 0,
        layer_input: Tensor | None = None,
    ) -> Tensor:
        """(..., s, streams, hidden) to the same shape; `layer_input` (..., s, width): its own."""
        assert layer_input is not None
        states = self.altup.predicted(x)
        active = states[..., self.block.active, :]
        normed = applied(self.input_layernorm, active)
        attended = self.self_attn(normed, angles, cache, positions)
        attended = active + applied(self.attention_output_norm, attended)
        between = (attended + self.laurel(normed)) * math.sqrt(0.5)
        fed = applied(self.mlp, applied(self.post_attention_layernorm, between))
        computed = between + applied(self.mlp_output_norm, fed)
        states = self.altup.corrected(states, computed)
        update = states[..., self.block.active, :]
        if self.block.scaled:
            update = update * self.read(self.altup.correct_output_scale, update)
        update = ACTIVATIONS[self.activation](self.per_layer_input_gate(update)) * layer_input
        update = self.post_per_layer_input_norm(self.per_layer_projection(update)).unsqueeze(-2)
        # The first state is what is read in the end; the others carry what is a layer's own.
        return concat((states[..., :1, :], states[..., 1:, :] + update), -2)
