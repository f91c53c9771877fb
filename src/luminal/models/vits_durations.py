"""How long VITS says each token: as a network predicts, or drawn by a flow that is run backwards.

Kim, Kong and Son, arXiv 2106.06103; the splines are those of Durkan et al., arXiv 1906.04032.
"""

from __future__ import annotations

import math
from typing import Any

from luminal.base.dtypes import float32
from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.exponential import softplus
from luminal.frontend.tensor import Tensor
from luminal.models.vits_flow import masked
from luminal.nn import Conv1d, LayerNorm, Module, ModuleDict, ModuleList, init

LEAST = 1e-3
"""The least width, height and slope of a bin, of the whole spline and of 1."""


@dataclass(frozen=True, slots=True)
class DurationsConfig:
    """`kernel`: of convolutions. `channels`: of a predictor that draws nothing. `flows` splines of
    `bins` bins each, which change what is between -`bound` and `bound`, by `layers` convolutions.
    """

    kernel: int
    channels: int
    flows: int
    bins: int
    bound: float
    layers: int
    norm_eps: float = 1e-5


def _over_channels(norm: Module, x: Tensor) -> Tensor:
    """A norm over the channels of x (batch, channels, s)."""
    y: Tensor = norm(x.mT).mT
    return y


class Durations(Module):
    """Two convolutions with norms, and a number for each token."""

    def __init__(
        self, config: DurationsConfig, hidden: int, voice: int, dtype: Any = float32
    ) -> None:
        width = config.channels
        self.first, self.second = (
            Conv1d(inputs, width, config.kernel, padding="same", dtype=dtype)
            for inputs in (hidden, width)
        )
        self.first_norm, self.second_norm = (
            LayerNorm(width, config.norm_eps, dtype=dtype) for _ in range(2)
        )
        self.output = Conv1d(width, 1, 1, dtype=dtype)
        self.condition = Conv1d(voice, hidden, 1, dtype=dtype) if voice else None

    def forward(
        self, x: Tensor, noise: Tensor, visible: Tensor | None, voice: Tensor | None
    ) -> Tensor:
        """x (batch, hidden, s) to log-durations (batch, 1, s); no `noise` is used."""
        if self.condition is not None and voice is not None:
            x = x + self.condition(voice)
        x = _over_channels(self.first_norm, self.first(masked(x, visible)).relu())
        x = _over_channels(self.second_norm, self.second(masked(x, visible)).relu())
        return masked(self.output(masked(x, visible)), visible)


class DilatedConvs(Module):
    """Depthwise convolutions that see further and further, each with one over the channels."""

    def __init__(self, config: DurationsConfig, hidden: int, dtype: Any = float32) -> None:
        size, count = config.kernel, config.layers
        self.dilated = ModuleList(
            Conv1d(
                hidden,
                hidden,
                size,
                padding="same",
                dilation=size**number,
                groups=hidden,
                dtype=dtype,
            )
            for number in range(count)
        )
        self.pointwise = ModuleList(Conv1d(hidden, hidden, 1, dtype=dtype) for _ in range(count))
        self.first_norms, self.second_norms = (
            ModuleList(LayerNorm(hidden, dtype=dtype) for _ in range(count)) for _ in range(2)
        )

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """(batch, hidden, s) to the same shape."""
        layers = self.dilated, self.first_norms, self.pointwise, self.second_norms
        for dilated, first_norm, pointwise, second_norm in zip(*layers, strict=True):
            inner = _over_channels(first_norm, dilated(masked(x, visible))).gelu()
            x = x + _over_channels(second_norm, pointwise(inner)).gelu()
        return masked(x, visible)


class SplineFlow(Module):
    """One of two channels changed by a spline that the other one and the text describe."""

    def __init__(self, config: DurationsConfig, hidden: int, dtype: Any = float32) -> None:
        self.config, self.hidden = config, hidden
        self.before = Conv1d(1, hidden, 1, dtype=dtype)
        self.convs = DilatedConvs(config, hidden, dtype)
        self.after = Conv1d(hidden, 3 * config.bins - 1, 1, dtype=dtype)

    def forward(self, x: Tensor, text: Tensor, visible: Tensor | None) -> Tensor:
        """x (batch, 2, s) and text (batch, hidden, s) to x's shape."""
        first, second = x[:, :1], x[:, 1:]
        inner = self.convs(self.before(first) + text, visible)
        knots, bins = masked(self.after(inner), visible).mT, self.config.bins
        scale = 1 / math.sqrt(self.hidden)
        widths, heights = knots[..., :bins] * scale, knots[..., bins : 2 * bins] * scale
        values = inverse_spline(
            second.squeeze(1), widths, heights, knots[..., 2 * bins :], self.config.bound
        )
        return masked(concat([first, values.unsqueeze(1)], 1), visible)


def inverse_spline(
    y: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, bound: float
) -> Tensor:
    """The x at which a growing curve of quotients of parabolas has the value y (...).

    `widths`, `heights` (..., bins) become shares of the range from -bound to bound by a softmax,
    `slopes` (..., bins - 1) those between bins by a softplus. Outside the range x is y.
    """
    bins = widths.extents[-1]
    # At both ends the slope is 1, as outside.
    inner = softplus(slopes) + LEAST
    left, right = _with_ends(inner, 1.0, 1.0)
    x_low, x_high = _with_ends(_edges(widths, bound), -bound, bound)
    y_low, y_high = _with_ends(_edges(heights, bound), -bound, bound)
    # Outside, the curve is not used, but must not become NaN.
    value = y.clip(-bound, bound).unsqueeze(-1)
    last = y.graph.arange(bins).eq(bins - 1)
    here = (value >= y_low) & ((value < y_high) | last)

    def of_bin(x: Tensor) -> Tensor:
        # Of ten bins a sum with zeros is cheaper than ten numbers looked up.
        return where(here, x, 0.0).sum(-1)

    width, height, low = of_bin(x_high - x_low), of_bin(y_high - y_low), of_bin(x_low)
    first, second, above = of_bin(left), of_bin(right), value.squeeze(-1) - of_bin(y_low)
    slope = height / width
    bend = above * (first + second - slope * 2)
    a, b, c = height * (slope - first) + bend, height * first - bend, -(slope * above)
    root = (b * b - a * c * 4).relu().sqrt()
    x = (c * 2) / (-b - root) * width + low
    return where((y >= -bound) & (y <= bound), x, y)


def _edges(shares: Tensor, bound: float) -> Tensor:
    """Where bins meet, (..., bins - 1)."""
    count = shares.shape[-1]
    assert isinstance(count, int)
    wide = shares.softmax(-1) * (1 - LEAST * count) + LEAST
    return wide.cumsum(-1)[..., :-1] * (2 * bound) - bound


def _with_ends(inner: Tensor, first: float, last: float) -> tuple[Tensor, Tensor]:
    """The values at the beginning and at the end of each bin, of those where bins meet."""
    return inner.pad((1, 0), value=first), inner.pad((0, 1), value=last)


class Affine(Module):
    """(x - shift) / e**log_scale of two channels."""

    def __init__(self, dtype: Any = float32) -> None:
        self.shift, self.log_scale = (init.parameter((2, 1), init.zeros, dtype) for _ in range(2))

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """(batch, 2, s) to the same shape."""
        scale = (-self.read(self.log_scale, x)).exp()
        return masked((x - self.read(self.shift, x)) * scale, visible)


class StochasticDurations(Module):
    """Noise that a flow, run backwards, makes the logarithms of durations.

    Of the flow's splines the first is left out, as in the authors' program.
    """

    def __init__(
        self, config: DurationsConfig, hidden: int, voice: int, dtype: Any = float32
    ) -> None:
        self.before, self.after = (Conv1d(hidden, hidden, 1, dtype=dtype) for _ in range(2))
        self.convs = DilatedConvs(config, hidden, dtype)
        self.condition = Conv1d(voice, hidden, 1, dtype=dtype) if voice else None
        self.affine = Affine(dtype)
        # By the numbers that files have, of which 0 is the affine one.
        self.flows = ModuleDict(
            {str(n): SplineFlow(config, hidden, dtype) for n in range(2, config.flows + 1)}
        )

    def forward(
        self, x: Tensor, noise: Tensor, visible: Tensor | None, voice: Tensor | None
    ) -> Tensor:
        """x (batch, hidden, s) and noise (batch, 2, s) to log-durations (batch, 1, s)."""
        x = self.before(x)
        if self.condition is not None and voice is not None:
            x = x + self.condition(voice)
        x = masked(self.after(self.convs(x, visible)), visible)
        latents = noise
        for flow in reversed([*self.flows.values()]):
            latents = flow(latents.flip(1), x, visible)
        return self.affine(latents.flip(1), visible)[:, :1]  # type: ignore[no-any-return]
