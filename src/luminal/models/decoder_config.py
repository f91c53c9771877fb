"""What a decoder is made of: plain sizes and choices, and how layers differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.nn import LayerNorm, Module, MoE, RMSNorm, RotaryEmbedding
from luminal.nn.attention import Temperature
from luminal.nn.feed_forward import clamped_swiglu, gated
from luminal.nn.moe import Groups, Router
from luminal.nn.norm import HeadNorm


# By identity: scalings hold lists, which have no hash, and a record is made once for all its
# layers.
@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """A rotary embedding; layers with the same one share its angles.

    `head_dim`: the decoder's by default; `dims`: all of a head. `sections`: see
    `luminal.nn.RotaryEmbedding`.
    """

    theta: float = 10000.0
    scaling: Mapping[str, Any] | None = None
    dims: int | None = None
    interleaved: bool = False
    head_dim: int | None = None
    sections: tuple[int, ...] | None = None


class Mixer(Protocol):
    """What takes the place of a layer's attention; the module is called as `Attention` is.

    It has `make_cache(max_len, dtype, name, batch)` as well.
    """

    def make(self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any) -> Module:
        """The module of one layer."""
        ...


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """What may differ between layers: which keys a query sees, rotary positions, experts.

    `window`, `chunk` and `temperature` are those of `luminal.nn.Attention`, unless there is a
    `mixer`. `feed_forward`: False where the layer is a mixer alone. `intermediate_size`: the
    decoder's by default. `keys_of`: the number of an earlier layer, whose keys and values are
    attended. `block` makes a layer that is no plain `DecoderLayer`, and is called as that is.
    """

    window: int | None = None
    rotary: Rotary | None = None
    experts: bool = False
    chunk: int | None = None
    temperature: Temperature | None = None
    mixer: Mixer | None = None
    feed_forward: bool = True
    intermediate_size: int | None = None
    keys_of: int | None = None
    block: Callable[..., Module] | None = None


Layers = tuple[LayerConfig, ...]


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """A feed-forward part of `count` gated experts, of which every token takes `top_k`.

    `shared_size`: the width of a block that sees every token, 0 without one. `swiglu_limit`: gates
    and what they let through are clamped to it (`luminal.nn.feed_forward.clamped_swiglu`). The
    other fields are those of `luminal.nn.MoE` and its `Router`.
    """

    count: int
    top_k: int
    intermediate_size: int
    normalize: bool = True
    scoring: str = "softmax"
    scale: float = 1.0
    correction: bool = False
    groups: Groups | None = None
    shared_size: int = 0
    shared_gate: bool = False
    bias: bool = False
    swiglu_limit: float | None = None
    swiglu_slope: float = 1.702
    weighted_inputs: bool = False

    def make_router(self, hidden: int, dtype: Any) -> Module:
        """What chooses a token's experts."""
        return Router(
            hidden,
            self.count,
            self.top_k,
            self.scoring,
            self.normalize,
            self.scale,
            dtype,
            bias=self.bias,
            correction=self.correction,
            groups=self.groups,
        )

    def make(self, hidden: int, activation: str, dtype: Any) -> MoE:
        """The feed-forward part of a layer of `hidden` features."""
        combined = gated(activation)
        if self.swiglu_limit is not None:
            combined = clamped_swiglu(self.swiglu_limit, self.swiglu_slope)
        return MoE(
            hidden,
            self.intermediate_size,
            self.count,
            self.top_k,
            self.shared_size,
            self.shared_gate,
            dtype=dtype,
            router=self.make_router(hidden, dtype),
            activation=combined,
            bias=self.bias,
            weighted_inputs=self.weighted_inputs,
        )


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """A decoder of `len(layers)` layers.

    `norm`: "rms" or "layer", "zero_centered_rms" or "zero_centered_layer" (factors are 1 + weight),
    or a layer norm with less: "layer_without_bias", "layer_without_weight". `norm_place`:
    "before" attention and feed-forward, "after" them, or "both". `parallel`: both read the layer's
    input, after norms of their own or a "shared" one. `qk_norm`: over each "head" of queries and
    keys, or their whole "projection"; "unlike_heads" are layer norms, each with weights of its own;
    "turned_heads" are norms without weights, in rotary layers. `attention_gate`, `sinks`: see
    `luminal.nn.Attention`, as is `turned_first`.
    `projection_limit` clamps queries, keys and values. `residual_scale`: what attention and
    feed-forward add is times it. `positions`: "learned" ones are added to the embedding, "alibi"
    lowers the scores of distant keys; rotary ones are the layers'. `layer_inputs`: the vocabulary
    and the width of what each layer reads of the ids by itself. `passing`: what a layer gives
    beside x goes to the next one. `streams`: how many states of a token the layers pass on
    (`luminal.nn.altup`). Scales, limits and soft-caps are None where there are none.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: Layers
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    activation: str = "silu"
    gated: bool = True
    norm: str = "rms"
    norm_eps: float = 1e-6
    norm_place: str = "before"
    parallel: str | None = None
    qk_norm: str | None = None
    turned_first: bool = False
    projection_limit: float | None = None
    attention_gate: bool = False
    sinks: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    positions: str | None = None
    embedding_norm: bool = False
    embedding_scale: float | None = None
    residual_scale: float | None = None
    query_scale: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    logit_scale: float | None = None
    tie_word_embeddings: bool = False
    experts: ExpertsConfig | None = None
    layer_inputs: tuple[int, int] | None = None
    passing: bool = False
    streams: int = 1

    # A word that is misspelt would otherwise be the default in silence, and the model wrong.
    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                choices = ", ".join(map(repr, allowed))
                raise InputError(f"decoder: {name} is {value!r}; it is one of {choices}")
        if self.parallel and self.norm_place != "before":
            raise InputError(f"decoder: parallel with norms {self.norm_place!r}; use 'before'")
        if self.experts is None and any(layer.experts for layer in self.layers):
            raise InputError(
                "decoder: a layer has experts, but `experts` is None; give their sizes"
            )

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers."""
        return len(self.layers)

    def make_norm(self, size: int, dtype: Any) -> Module:
        """A norm over `size` features."""
        if self.norm in _LAYER_NORMS:
            weight, bias = _LAYER_NORMS[self.norm]
            centered = self.norm == "zero_centered_layer"
            return LayerNorm(size, self.norm_eps, weight, bias, dtype, centered)
        return self.make_rms_norm(size, dtype)

    def make_rms_norm(self, size: int, dtype: Any) -> RMSNorm:
        """An RMS norm over `size` features, as those of queries and keys mostly are."""
        centered = self.norm == "zero_centered_rms"
        return RMSNorm(size, self.norm_eps, dtype=dtype, zero_centered=centered)

    def make_qk_norm(self, heads: int, turned: bool, dtype: Any) -> RMSNorm | HeadNorm | None:
        """The norm of so many heads of queries, or of keys; None without one."""
        if self.qk_norm is None or (self.qk_norm == "turned_heads" and not turned):
            return None
        if self.qk_norm == "turned_heads":
            return RMSNorm(self.head_dim, self.norm_eps, elementwise_affine=False)
        if self.qk_norm == "unlike_heads":
            return HeadNorm(heads, self.head_dim, self.norm_eps, dtype)
        return self.make_rms_norm(
            self.head_dim * (heads if self.qk_norm == "projection" else 1), dtype
        )


_LAYER_NORMS: Mapping[str, tuple[bool, bool]] = {
    "layer": (True, True),
    "zero_centered_layer": (True, True),
    "layer_without_bias": (True, False),
    "layer_without_weight": (False, False),
}
"""Which have a weight, and which a bias."""
_CHOICES: Mapping[str, tuple[str | None, ...]] = {
    "norm": ("rms", "zero_centered_rms", *_LAYER_NORMS),
    "norm_place": ("before", "after", "both"),
    "parallel": (None, "separate", "shared"),
    "qk_norm": (None, "head", "projection", "unlike_heads", "turned_heads"),
    "positions": (None, "learned", "alibi"),
}
