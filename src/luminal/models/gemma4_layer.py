"""A layer of Gemma 4: experts beside the feed-forward part, an input of its own, a scale."""

from __future__ import annotations

from typing import Any

from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.models.decoder import DecoderLayer, applied
from luminal.models.decoder_config import DecoderConfig, LayerConfig
from luminal.nn import Attention, Linear, Module, RMSNorm, RotaryEmbedding, init
from luminal.nn.attention import CausalAttention
from luminal.nn.cache import Cache, Positions
from luminal.nn.feed_forward import ACTIVATIONS, gated
from luminal.nn.moe import Experts, Router, Routes
from luminal.nn.rotary import Angles


@dataclass(frozen=True, slots=True)
class Gemma4Attention:
    """A mixer: queries, keys and values are normed, scores are not scaled.

    `key_values`: see `Attention`; `reads`: keys and values are an earlier layer's.
    """

    head_dim: int
    kv_heads: int
    window: int | None
    key_values: bool
    reads: bool

    def make(self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any) -> Module:
        """The attention of one layer."""
        if self.reads:
            return ReadingAttention(self, config, rotary, dtype)
        q_norm, k_norm = (RMSNorm(self.head_dim, config.norm_eps, dtype=dtype) for _ in "qk")
        return Attention(
            config.hidden_size,
            config.num_attention_heads,
            self.kv_heads,
            self.head_dim,
            rotary,
            config.attention_bias,
            dtype,
            q_norm=q_norm,
            k_norm=k_norm,
            v_norm=RMSNorm(self.head_dim, config.norm_eps, elementwise_affine=False),
            key_values=self.key_values,
            scale=1.0,
            window=self.window,
        )


class ReadingAttention(CausalAttention):
    """Queries alone: the cache is that of the layer whose keys and values they attend."""

    def __init__(
        self, sizes: Gemma4Attention, config: DecoderConfig, rotary: Any, dtype: Any
    ) -> None:
        heads, bias = config.num_attention_heads, config.attention_bias
        super().__init__(heads, sizes.kv_heads, 1.0, dtype, window=sizes.window)
        self.rotary = rotary
        self.q_proj = Linear(config.hidden_size, heads * sizes.head_dim, bias, dtype)
        self.q_norm = RMSNorm(sizes.head_dim, config.norm_eps, dtype=dtype)
        self.o_proj = Linear(heads * sizes.head_dim, config.hidden_size, bias, dtype)

    def forward(self, x: Tensor, angles: Angles, cache: Cache, positions: Positions = 0) -> Tensor:
        """x (..., s, hidden) to the same shape."""
        q = self.q_norm(self.q_proj(x).unflatten(-1, (self.heads, -1))).transpose(-2, -3)
        attended = cache.attend_kept(self, self.rotary(q, angles), positions)
        return self.o_proj(attended.transpose(-2, -3).flatten(-2))  # type: ignore[no-any-return]


class NormedRouter(Router):
    """A Router of normed states; the weights of what it chose are scaled by expert."""

    def __init__(self, hidden: int, experts: int, top_k: int, eps: float, dtype: Any) -> None:
        super().__init__(hidden, experts, top_k, dtype=dtype)
        self.norm = RMSNorm(hidden, eps, elementwise_affine=False)
        self.input_scale = init.parameter((hidden,), init.ones, dtype)
        self.per_expert_scale = init.parameter((experts,), init.ones, dtype)
        self.factor = hidden**-0.5

    def forward(self, x: Tensor) -> Routes:
        """The chosen experts of each token of x (tokens, hidden), and their weights."""
        scaled = self.norm(x) * self.read(self.input_scale, x) * self.factor
        experts, weights = super().forward(scaled)
        return Routes(experts, weights * self.read(self.per_expert_scale, x).take(experts, 0))


class Gemma4Layer(DecoderLayer):
    """Names as in Hugging Face's, but for those of `DecoderLayer`."""

    def __init__(self, config: DecoderConfig, layer: LayerConfig, rotary: Any, dtype: Any) -> None:
        experts, hidden, self.activation = config.experts, config.hidden_size, config.activation
        super().__init__(config, layer, rotary, dtype)
        self.layer_scalar = init.parameter((1,), init.ones, dtype)
        self.router: NormedRouter | None = None
        if experts is not None:
            sizes = experts.count, experts.top_k
            self.router = NormedRouter(hidden, *sizes, config.norm_eps, dtype)
            self.experts = Experts(
                hidden,
                experts.intermediate_size,
                experts.count,
                dtype,
                activation=gated(config.activation),
            )
            self.post_feedforward_layernorm_1 = config.make_norm(hidden, dtype)
            self.post_feedforward_layernorm_2 = config.make_norm(hidden, dtype)
            self.pre_feedforward_layernorm_2 = config.make_norm(hidden, dtype)
        if config.layer_inputs is not None:
            width = config.layer_inputs[1]
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
        """(..., s, hidden) to the same shape; `layer_input` (..., s, width): what is its own."""
        attended = self.self_attn(applied(self.input_layernorm, x), angles, cache, positions)
        x = x + applied(self.attention_output_norm, attended)
        fed = applied(self.mlp, applied(self.post_attention_layernorm, x))
        if self.router is not None:
            fed = self.post_feedforward_layernorm_1(fed) + self._routed(x, self.router)
        x = x + applied(self.mlp_output_norm, fed)
        if layer_input is not None:
            # Each layer looks the token up again in a small table of its own and adds what the
            # state lets through: parameters that cost a row of memory a token instead of a product.
            let = ACTIVATIONS[self.activation](self.per_layer_input_gate(x)) * layer_input
            x = x + self.post_per_layer_input_norm(self.per_layer_projection(let))
        return x * self.read(self.layer_scalar, x)

    def _routed(self, x: Tensor, router: NormedRouter) -> Tensor:
        """What the experts give, normed."""
        tokens = x.reshape(-1, x.extents[-1])
        expert_sum = self.experts(self.pre_feedforward_layernorm_2(tokens), router(tokens))
        whole: Tensor = self.post_feedforward_layernorm_2(expert_sum).reshape(x.extents)
        return whole
