"""Activations as layers, for use in Sequential. `inplace` is accepted and changes nothing."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from luminal.base.dtypes import float32
from luminal.base.errors import ShapeError
from luminal.frontend.handle import describe, is_tensor
from luminal.frontend.random.drawing import rrelu
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.misuse import no_tensor
from luminal.nn.module import Module


class _Activation(Module):
    """Calls one method of Tensor with the options it was made with; the shape stays (but GLU's)."""

    method: ClassVar[str]
    options: tuple[Any, ...] = ()

    def __init__(self, inplace: bool = False) -> None:
        pass  # a result never takes its operand's place in a graph; the compiler may reuse buffers

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        if not is_tensor(x):
            raise no_tensor(self, x)
        return getattr(x, self.method)(*self.options)  # type: ignore[no-any-return]


# --- without options ------------------------------------------------------------------------------


class ReLU(_Activation):
    """The rectified linear unit: max(x, 0)."""

    method = "relu"


class ReLU6(_Activation):
    """The rectified linear unit up to 6: min(max(x, 0), 6)."""

    method = "relu6"


class SELU(_Activation):
    """elu with the scale and alpha that keep mean and variance. arXiv 1706.02515."""

    method = "selu"


class SiLU(_Activation):
    """The sigmoid linear unit, or swish: x * sigmoid(x)."""

    method = "silu"


class Mish(_Activation):
    """x * tanh(softplus(x)). Misra, arXiv 1908.08681."""

    method = "mish"


class Tanh(_Activation):
    """The hyperbolic tangent, element by element."""

    method = "tanh"


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))."""

    method = "sigmoid"


class LogSigmoid(_Activation):
    """The logarithm of the sigmoid: log(sigmoid(x))."""

    method = "logsigmoid"


class Softsign(_Activation):
    """x / (1 + |x|)."""

    method = "softsign"


class Tanhshrink(_Activation):
    """The difference to the hyperbolic tangent: x - tanh(x)."""

    method = "tanhshrink"


class Hardsigmoid(_Activation):
    """min(max(x + 3, 0), 6) / 6."""

    method = "hardsigmoid"


class Hardswish(_Activation):
    """x * hardsigmoid(x). Howard et al., arXiv 1905.02244."""

    method = "hardswish"


# --- with options ---------------------------------------------------------------------------------


class LeakyReLU(_Activation):
    """x above 0, else negative_slope * x."""

    method = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.options = (negative_slope,)


class ELU(_Activation):
    """x above 0, else alpha * (exp(x) - 1). Clevert et al., arXiv 1511.07289."""

    method = "elu"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.options = (alpha,)


class CELU(_Activation):
    """x above 0, else alpha * (exp(x / alpha) - 1). Barron, arXiv 1704.07483."""

    method = "celu"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.options = (alpha,)


class GELU(_Activation):
    """x times the normal distribution's probability below x; `approximate` "none" or "tanh"."""

    method = "gelu"

    def __init__(self, approximate: str = "none") -> None:
        self.options = (approximate,)


class Softplus(_Activation):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""

    method = "softplus"

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.options = beta, threshold


class Hardtanh(_Activation):
    """x held in [min_val, max_val]."""

    method = "hardtanh"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        self.options = min_val, max_val


class Softshrink(_Activation):
    """x moved by `lambd` toward 0, and 0 within."""

    method = "softshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        self.options = (lambd,)


class Hardshrink(_Activation):
    """x where |x| > lambd, else 0."""

    method = "hardshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        self.options = (lambd,)


class Threshold(_Activation):
    """x above `threshold`, else `value`."""

    method = "threshold"

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self.options = threshold, value


class Softmax(_Activation):
    """exp(x) / sum(exp(x)) along `dim`."""

    method = "softmax"

    def __init__(self, dim: int = -1) -> None:
        self.options = (dim,)


class LogSoftmax(_Activation):
    """The logarithm of the softmax along `dim`: log(softmax(x))."""

    method = "log_softmax"

    def __init__(self, dim: int = -1) -> None:
        self.options = (dim,)


class Softmin(_Activation):
    """The softmax of negated elements along `dim`: softmax(-x)."""

    method = "softmin"

    def __init__(self, dim: int = -1) -> None:
        self.options = (dim,)


class Softmax2d(_Activation):
    """Softmax over the channels of ([batch,] channels, height, width)."""

    method = "softmax"
    options = (-3,)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        if x.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: {describe(x)}; it takes 3 or 4 dims")
        return super().forward(x)


class GLU(_Activation):
    """The first half of `dim` times the sigmoid of the second."""

    method = "glu"

    def __init__(self, dim: int = -1) -> None:
        self.options = (dim,)


class PReLU(Module):
    """x above 0, else weight * x: one weight, or one per channel (dim 1). arXiv 1502.01852."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = float32) -> None:
        self.weight = _filled(num_parameters, init, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        return x.prelu(self.read(self.weight, x))


def _filled(count: int, value: float, dtype: Any) -> init.DrawnParameter:
    return init.parameter((count,), partial(init.constant, val=value), dtype)


class RReLU(Module):
    """x above 0, else x times a slope: in training random in lower..upper, else their middle.

    Xu et al., arXiv 1505.00853.
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        self.lower, self.upper = lower, upper

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        return rrelu(x, self.lower, self.upper, self.training)
