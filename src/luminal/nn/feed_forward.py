"""The feed-forward part of a transformer block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from luminal.base.dtypes import float32
from luminal.base.errors import InputError
from luminal.frontend.pointwise.binary import minimum, where
from luminal.frontend.tensor import Tensor
from luminal.loaders.shown import shown
from luminal.nn import init
from luminal.nn.linear import Linear
from luminal.nn.module import Module


def _gelu_by_tanh(x: Tensor) -> Tensor:
    return x.gelu("tanh")


def _same(x: Tensor) -> Tensor:
    return x


def _quick_gelu(x: Tensor) -> Tensor:
    return x * (x * 1.702).sigmoid()


def _squared_relu(x: Tensor) -> Tensor:
    return x.relu().square()


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": Tensor.gelu,
    "gelu_fast": _gelu_by_tanh,
    "gelu_new": _gelu_by_tanh,
    "gelu_pytorch_tanh": _gelu_by_tanh,
    "gelu_python": Tensor.gelu,
    "leaky_relu": Tensor.leaky_relu,
    "linear": _same,
    "mish": Tensor.mish,
    "quick_gelu": _quick_gelu,
    "relu": Tensor.relu,
    "relu2": _squared_relu,
    "relu6": Tensor.relu6,
    "sigmoid": Tensor.sigmoid,
    "silu": Tensor.silu,
    "swish": Tensor.silu,
    "tanh": Tensor.tanh,
}
"""Activations by the names that configurations of models use; functions of modules, as all that
modules hold: they are pickled.
"""


def activation_of(name: str) -> Callable[[Tensor], Tensor]:
    """The activation of this name among ACTIVATIONS; raises InputError for another name."""
    if name not in ACTIVATIONS:
        raise InputError(
            f"activation {shown(name)} is not known; known are {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


GatedActivation: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""A function of a gate and of what it lets through."""


def gated(name: str) -> GatedActivation:
    """The function `activation(gate) * up`, with the activation of this name."""
    return partial(_gated, activation_of(name))


def _gated(activation: Callable[[Tensor], Tensor], gate: Tensor, up: Tensor) -> Tensor:
    return activation(gate) * up


def clamped_swiglu(limit: float, slope: float) -> GatedActivation:
    """`gate * sigmoid(slope * gate) * (up + 1)` of both within -limit .. limit; gates may be lower.

    OpenAI, arXiv 2508.10925.
    """
    return partial(_clamped_swiglu, limit, slope)


def _clamped_swiglu(limit: float, slope: float, gate: Tensor, up: Tensor) -> Tensor:
    # Low gates need no bound: their sigmoid is 0.
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * (gate * slope).sigmoid() * (up + 1)


class XIELU(Module):
    """A parabola above 0 and an integrated ELU below, both with slopes that are learned.

    Huang and Schlag, arXiv 2411.13010. Names as in Hugging Face's.
    """

    def __init__(self, dtype: Any = float32) -> None:
        # The logarithms of e ** x - 1, of which `softplus` is the inverse: 0.8 above, 0.3 below,
        # where `beta` is added.
        starts = math.log(math.expm1(0.8)), math.log(math.expm1(0.3)), 0.5, -1e-6
        self.alpha_p, self.alpha_n, self.beta, self.eps = (
            init.parameter((1,), partial(init.constant, val=start), dtype) for start in starts
        )

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        # Cast first: a softplus of 16-bit numbers would be rounded to 16 bits.
        above, below, beta, eps = (
            self.read(held, x).cast(x.dtype)
            for held in (self.alpha_p, self.alpha_n, self.beta, self.eps)
        )
        curve = where(
            x > 0,
            above.softplus() * x * x,
            (minimum(x, eps).expm1() - x) * (beta + below.softplus()),
        )
        return curve + beta * x


LEARNED: Mapping[str, Callable[[Any], Module]] = {"xielu": XIELU}
"""Activations with Parameters of their own, by the same names; made of a dtype."""


class FeedForward(Module):
    """Two linear layers with an activation between them: `down(activation(up(x)))`."""

    def __init__(
        self, hidden: int, inner: int, activation: str, bias: bool = True, dtype: Any = float32
    ) -> None:
        learned = LEARNED.get(activation)
        self.activation = activation_of(activation) if learned is None else learned(dtype)
        self.up_proj = Linear(hidden, inner, bias, dtype)
        self.down_proj = Linear(inner, hidden, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) to the same shape."""
        down: Tensor = self.down_proj(self.activation(self.up_proj(x)))
        return down


class GatedFeedForward(Module):
    """`down(activation(gate(x)) * up(x))`, or of what an `activation` of both makes of them.

    Shazeer, arXiv 2002.05202.
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        activation: str | GatedActivation,
        bias: bool = False,
        dtype: Any = float32,
    ) -> None:
        self.activation = gated(activation) if isinstance(activation, str) else activation
        self.gate_proj = Linear(hidden, inner, bias, dtype)
        self.up_proj = Linear(hidden, inner, bias, dtype)
        self.down_proj = Linear(inner, hidden, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) to the same shape."""
        down: Tensor = self.down_proj(self.activation(self.gate_proj(x), self.up_proj(x)))
        return down


class SwiGLU(GatedFeedForward):
    """`down(silu(gate(x)) * up(x))`. Shazeer, arXiv 2002.05202."""

    def __init__(self, hidden: int, inner: int, bias: bool = False, dtype: Any = float32) -> None:
        super().__init__(hidden, inner, "silu", bias, dtype)
