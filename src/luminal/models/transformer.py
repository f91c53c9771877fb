"""The layers of models that are no causal decoders: text, audio and image encoders, and decoders
that attend to an encoder's output. Vaswani et al., arXiv 1706.03762.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.base.dtypes import float32
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.frontend.handle import Extent
from luminal.frontend.tensor import Tensor
from luminal.nn import (
    FeedForward,
    GatedFeedForward,
    Identity,
    KVCache,
    LayerNorm,
    MaskedAttention,
    Module,
    ModuleList,
    RMSNorm,
    RotaryEmbedding,
    init,
)
from luminal.nn.masked_attention import KeysValues
from luminal.nn.rotary import Angles

NORM_PLACES = ("before", "after")


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What may differ between layers. `reach`: tokens further away are not seen. `theta`: that of
    rotary positions, which there are none of by default.
    """

    reach: int | None = None
    theta: float | None = None


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """`norm_place`: "before" attention and feed-forward, with one more norm at the end, or "after"
    each sum. `rms`: RMS norms, else layer norms. Biases of keys and outputs are as the others of
    attention by default. `cross_attention`: layers attend to a memory, too.
    `layer_scale`: what a layer adds is times a vector (Touvron et al., arXiv 2103.17239).
    `kinds`: one for each layer, where they are not all plain. `first_norm`: False where what comes
    in is normalised already; `last_norm`: False where what goes out is not.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    activation: str = "gelu"
    gated: bool = False
    rms: bool = False
    norm_eps: float = 1e-12
    norm_place: str = "before"
    attention_bias: bool = True
    key_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool = True
    scale: float | None = None
    cross_attention: bool = False
    layer_scale: bool = False
    norm_bias: bool = True
    first_norm: bool = True
    last_norm: bool = True
    kinds: tuple[LayerKind, ...] = ()

    def __post_init__(self) -> None:
        if self.norm_place not in NORM_PLACES:
            raise InputError(
                f"transformer: norm_place is {self.norm_place!r}; it is one of "
                f"{', '.join(map(repr, NORM_PLACES))}"
            )

    def make_norm(self, dtype: Any) -> Module:
        """A norm over the features."""
        if self.rms:
            return RMSNorm(self.hidden_size, self.norm_eps, dtype=dtype)
        return LayerNorm(self.hidden_size, self.norm_eps, bias=self.norm_bias, dtype=dtype)

    def make_attention(self, dtype: Any, rotary: RotaryEmbedding | None = None) -> MaskedAttention:
        """Attention of one layer."""
        return MaskedAttention(
            self.hidden_size,
            self.num_attention_heads,
            self.head_dim,
            self.attention_bias,
            dtype,
            key_bias=self.key_bias,
            output_bias=self.output_bias,
            scale=self.scale,
            rotary=rotary,
        )


class Residual(Module):
    """A part whose output is added to its input, with the norm before it or after the sum."""

    def __init__(
        self, config: TransformerConfig, part: Module, dtype: Any, normed: bool = True
    ) -> None:
        hidden = config.hidden_size
        self.before = config.norm_place == "before"
        self.part = part
        self.norm = config.make_norm(dtype) if normed else Identity()
        self.scale = init.parameter((hidden,), init.ones, dtype) if config.layer_scale else None

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """(..., s, hidden) to the same shape; further arguments are the part's."""
        output = self.part(self.norm(x) if self.before else x, *args)
        if self.scale is not None:
            output = output * self.read(self.scale, output)
        added: Tensor = x + output
        return added if self.before else self.norm(added)


class TransformerLayer(Module):
    """Attention to itself, then to the memory if there is one, then a feed-forward part."""

    def __init__(
        self,
        config: TransformerConfig,
        dtype: Any,
        rotary: RotaryEmbedding | None = None,
        normed: bool = True,
    ) -> None:
        kind = GatedFeedForward if config.gated else FeedForward
        sizes = config.hidden_size, config.intermediate_size
        mlp = kind(*sizes, config.activation, config.mlp_bias, dtype)
        crossed = config.cross_attention
        self.attention = Residual(config, config.make_attention(dtype, rotary), dtype, normed)
        self.cross = Residual(config, config.make_attention(dtype), dtype) if crossed else None
        self.mlp = Residual(config, mlp, dtype)

    def memory(self, encoded: Tensor) -> KeysValues:
        """What it attends to in an encoder's output (..., k, hidden)."""
        assert self.cross is not None
        assert isinstance(self.cross.part, MaskedAttention)
        return self.cross.part.keys_values(encoded)

    def forward(
        self,
        x: Tensor,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
        memory: KeysValues | None = None,
        memory_visible: Tensor | None = None,
        cache: KVCache | None = None,
        past: Extent = 0,
        angles: Angles | None = None,
    ) -> Tensor:
        """(..., s, hidden) to the same shape; see Transformer."""
        x = self.attention(x, None, visible, bias, cache, past, angles)
        if self.cross is not None:
            x = self.cross(x, memory, memory_visible)
        y: Tensor = self.mlp(x)
        return y


class Transformer(Module):
    """Layers, and the last norm where norms come before the parts."""

    def __init__(self, config: TransformerConfig, dtype: Any = float32) -> None:
        self.config = config
        self.kinds = config.kinds or (LayerKind(),) * config.num_hidden_layers
        # One for each base and not for each layer: a run then computes few angles.
        self.rotaries = {
            kind.theta: RotaryEmbedding(config.head_dim, kind.theta)
            for kind in self.kinds
            if kind.theta is not None
        }
        self.layers = ModuleList(
            TransformerLayer(
                config,
                dtype,
                None if kind.theta is None else self.rotaries[kind.theta],
                config.first_norm or number > 0,
            )
            for number, kind in enumerate(self.kinds)
        )
        normed = config.norm_place == "before" and config.last_norm
        self.norm = config.make_norm(dtype) if normed else None

    def memories(self, encoded: Tensor) -> list[KeysValues]:
        """What each layer attends to in an encoder's output (..., k, hidden)."""
        return [
            layer.memory(encoded) for layer in self.layers if isinstance(layer, TransformerLayer)
        ]

    def forward(
        self,
        x: Tensor,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
        memories: Sequence[KeysValues] | None = None,
        memory_visible: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        past: Extent = 0,
    ) -> Tensor:
        """(..., s, hidden) to the same shape.

        `visible` and `bias` are as those of MaskedAttention. `memories` are one a layer, and so are
        `caches`: with them, x has no batch and is at the positions past .. past + s - 1.
        """
        graph, count = x.graph, x.extents[-2]
        angles = {key: rotary.angles(graph, count, past) for key, rotary in self.rotaries.items()}
        # Likewise one mask for each kind of layer.
        seen = {kind: _within_reach(kind, visible, x) for kind in self.kinds}
        for number, (kind, layer) in enumerate(zip(self.kinds, self.layers, strict=True)):
            memory = memories[number] if memories else None
            cache = caches[number] if caches else None
            turned = None if kind.theta is None else angles[kind.theta]
            x = layer(x, seen[kind], bias, memory, memory_visible, cache, past, turned)
        return x if self.norm is None else self.norm(x)


def _within_reach(kind: LayerKind, visible: Tensor | None, x: Tensor) -> Tensor | None:
    """What layers of this kind see of what is visible; padding sees itself, or it were NaN."""
    if kind.reach is None:
        return visible
    places = x.graph.arange(x.extents[-2])
    distances = (places - places.unsqueeze(-1)).abs()
    near = distances <= kind.reach
    return near if visible is None else near & (visible | (distances == 0))
