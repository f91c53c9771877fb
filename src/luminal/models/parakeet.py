"""Parakeet: log-mel frames to logits of pieces of text, one set each 80 ms.

Fast Conformer, Rekesh et al., arXiv 2305.05084; Conformer, Gulati et al., arXiv 2005.08100.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.handle import Extent
from luminal.frontend.movement.views import stack
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.nn import (
    BatchNorm1d,
    Conv1d,
    Conv2d,
    FeedForward,
    LayerNorm,
    Linear,
    Module,
    ModuleList,
    ReLU,
    init,
)
from luminal.nn.feed_forward import activation_of
from luminal.nn.relative_positions import by_key

Count = TypeVar("Count", int, Tensor)


@dataclass(frozen=True, slots=True)
class ParakeetConfig:
    """`steps` convolutions of `step_channels` channels, `step_kernel` and `step_stride` make one
    position of so many frames, of `mels` numbers each. `kernel`: of the convolution of a layer.
    `input_scale`: of what the layers get. `outputs`: pieces of text; that of id `blank` says
    nothing.
    """

    mels: int
    steps: int
    step_channels: int
    step_kernel: int
    step_stride: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    kernel: int
    outputs: int
    blank: int
    activation: str = "silu"
    bias: bool = True
    conv_bias: bool = True
    input_scale: float = 1.0

    @property
    def hop(self) -> int:
        """Frames from one position to the next."""
        return int(self.step_stride**self.steps)

    @property
    def bands(self) -> int:
        """What the convolutions leave of `mels`."""
        left = self.mels
        for _ in range(self.steps):
            left = self.shorter(left)
        return left

    def shorter(self, count: Count) -> Count:
        """How many positions one convolution makes of so many."""
        lost = self.step_kernel - (self.step_kernel - 1) // 2 * 2
        return (count - lost) // self.step_stride + 1


class Subsampling(Module):
    """Convolutions over frames and bands, all but the first depthwise; zeros after a sound's end
    stay zeros.
    """

    def __init__(self, config: ParakeetConfig, dtype: Any = float32) -> None:
        self.config = config
        channels, kernel, stride = config.step_channels, config.step_kernel, config.step_stride
        layers: list[Module] = []
        for step in range(config.steps):
            inputs, groups = (channels, channels) if step else (1, 1)
            sizes = kernel, stride, (kernel - 1) // 2
            layers.append(Conv2d(inputs, channels, *sizes, groups=groups, dtype=dtype))
            if step:
                layers.append(Conv2d(channels, channels, 1, dtype=dtype))
            layers.append(ReLU())
        self.layers = ModuleList(layers)
        self.linear = Linear(channels * config.bands, config.hidden_size, dtype=dtype)

    def forward(self, frames: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(batch, frames, mels) to (batch, positions, hidden), and how many of these are heard."""
        x = _heard(frames.unsqueeze(1), lengths)
        for layer in self.layers:
            x = layer(x)
            if isinstance(layer, Conv2d):
                x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
                if lengths is not None and layer.stride != (1, 1):
                    lengths = self.config.shorter(lengths)
                x = _heard(x, lengths)
        return self.linear(x.transpose(1, 2).flatten(2)), lengths


def _heard(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x (batch, channels, positions, bands), with zeros from `lengths` (batch,) on."""
    if lengths is None:
        return x
    there = x.graph.arange(x.extents[2]) < lengths.unsqueeze(-1)
    return where(there.unsqueeze(1).unsqueeze(-1), x, 0.0)


class RelativeAttention(Module):
    """Attention whose scores are those of the keys and those of their distances.

    Dai et al., arXiv 1901.02860, section 3.3.
    """

    def __init__(self, config: ParakeetConfig, dtype: Any = float32) -> None:
        hidden, heads = config.hidden_size, config.num_attention_heads
        self.heads, self.head_dim = heads, hidden // heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            Linear(hidden, hidden, config.bias, dtype) for _ in range(4)
        )
        self.relative_k_proj = Linear(hidden, hidden, False, dtype)
        self.bias_u, self.bias_v = (
            init.parameter((heads, self.head_dim), init.zeros, dtype) for _ in range(2)
        )

    def forward(self, x: Tensor, distances: Tensor, visible: Tensor | None) -> Tensor:
        """x (batch, s, hidden) to the same shape; `distances` (2 s - 1, hidden) are 1 - s ..
        s - 1, `visible` (batch, s) bools of keys.
        """
        queries = self._heads(self.q_proj(x))
        keys, values = self._heads(self.k_proj(x)), self._heads(self.v_proj(x))
        by_keys = (queries + self.read(self.bias_u, x).unsqueeze(1)) @ keys.mT
        relative = self._heads(self.relative_k_proj(distances))
        by_distances = (queries + self.read(self.bias_v, x).unsqueeze(1)) @ relative.mT
        scores = by_keys + by_key(by_distances, x.extents[1] - 1)
        scores = scores * (1 / math.sqrt(self.head_dim))
        if visible is not None:
            scores = where(visible.unsqueeze(1).unsqueeze(1), scores, -math.inf)
        merged = (scores.softmax(-1) @ values).transpose(-2, -3).flatten(-2)
        return self.o_proj(merged)  # type: ignore[no-any-return]

    def _heads(self, x: Tensor) -> Tensor:
        """(..., s, heads * head_dim) to (..., heads, s, head_dim)."""
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(-2, -3)


class ConvolutionPart(Module):
    """A gate, a depthwise convolution over time, a norm of channels, an activation."""

    def __init__(self, config: ParakeetConfig, dtype: Any = float32) -> None:
        hidden, bias = config.hidden_size, config.conv_bias
        self.gate = Linear(hidden, 2 * hidden, bias, dtype)
        self.conv = Conv1d(
            hidden,
            hidden,
            config.kernel,
            padding=config.kernel // 2,
            groups=hidden,
            bias=bias,
            dtype=dtype,
        )
        self.norm = BatchNorm1d(hidden, dtype=dtype)
        self.activation = activation_of(config.activation)
        self.output = Linear(hidden, hidden, bias, dtype)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """(batch, s, hidden) to the same shape."""
        x = self.gate(x).glu(-1)
        if visible is not None:
            x = where(visible.unsqueeze(-1), x, 0.0)
        y: Tensor = self.output(self.activation(self.norm(self.conv(x.mT))).mT)
        return y


class ConformerLayer(Module):
    """Half a feed-forward part, attention, a convolution, the other half, a norm."""

    def __init__(self, config: ParakeetConfig, dtype: Any = float32) -> None:
        hidden = config.hidden_size
        sizes = hidden, config.intermediate_size, config.activation, config.bias, dtype
        self.before, self.after = (FeedForward(*sizes) for _ in range(2))
        self.attention = RelativeAttention(config, dtype)
        self.convolution = ConvolutionPart(config, dtype)
        self.before_norm, self.attention_norm, self.convolution_norm, self.after_norm, self.norm = (
            LayerNorm(hidden, dtype=dtype) for _ in range(5)
        )

    def forward(self, x: Tensor, distances: Tensor, visible: Tensor | None) -> Tensor:
        """(batch, s, hidden) to the same shape."""
        x = x + self.before(self.before_norm(x)) * 0.5
        x = x + self.attention(self.attention_norm(x), distances, visible)
        x = x + self.convolution(self.convolution_norm(x), visible)
        y: Tensor = self.norm(x + self.after(self.after_norm(x)) * 0.5)
        return y


class Parakeet(Module):
    """Convolutions that make few positions of many frames, Conformer layers, logits of pieces."""

    def __init__(self, config: ParakeetConfig, dtype: Any = float32) -> None:
        self.config = config
        self.subsampling = Subsampling(config, dtype)
        pairs = np.arange(0, config.hidden_size, 2) / config.hidden_size
        self.frequencies = (1e4**-pairs).astype(np.float32)
        self.layers = ModuleList(
            ConformerLayer(config, dtype) for _ in range(config.num_hidden_layers)
        )
        self.head = Linear(config.hidden_size, config.outputs, dtype=dtype)

    def forward(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(batch, frames, mels) to logits (batch, positions, outputs).

        `lengths` (batch,): how many frames a sound has; what follows them changes nothing, and
        its logits mean nothing.
        """
        x, lengths = self.subsampling(frames, lengths)
        x = x * self.config.input_scale
        visible = None
        if lengths is not None:
            visible = x.graph.arange(x.extents[1]) < lengths.unsqueeze(-1)
        distances = self._distances(x, x.extents[1])
        for layer in self.layers:
            x = layer(x, distances, visible)
        logits: Tensor = self.head(x)
        return logits

    def _distances(self, x: Tensor, count: Extent) -> Tensor:
        """Sines and cosines of how far a key comes after the query, (2 count - 1, hidden)."""
        graph, count = x.graph, x.graph.extent(count)
        before = graph.constant(count - 1) - graph.arange(count * 2 - 1)
        angles = before.cast(float32).unsqueeze(-1) * self.frequencies
        return stack([angles.sin(), angles.cos()], -1).flatten(-2)
