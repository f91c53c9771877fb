"""One tensor in, one out, element by element: the primitives and what is written with them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal import dtypes
from luminal.errors import DTypeError
from luminal.frontend.binary import where
from luminal.frontend.derivatives import differentiated
from luminal.frontend.handle import apply, in_float
from luminal.frontend.polynomial import bits_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def cast(x: Tensor, dtype: Any) -> Tensor:
    """`x` converted: floats to ints truncate and saturate, narrowing rounds to nearest even."""
    return x.graph.wrap(x.graph.builder.cast(x.value, dtypes.dtype_of(dtype)))


def bitcast(x: Tensor, dtype: Any) -> Tensor:
    """The same bits read as another dtype of the same width."""
    return x.graph.wrap(x.graph.builder.bitcast(x.value, dtypes.dtype_of(dtype)))


def stop_gradient(x: Tensor) -> Tensor:
    """`x`, taken as a constant by differentiation."""
    return apply("Detach", x)


@in_float
def exp(x: Tensor) -> Tensor:
    """e ** x."""
    return apply("Exp", x)


@in_float
def exp2(x: Tensor) -> Tensor:
    """2 ** x."""
    return apply("Exp2", x)


@in_float
def log(x: Tensor) -> Tensor:
    """The natural logarithm; NaN below 0."""
    return apply("Log", x)


@in_float
def log2(x: Tensor) -> Tensor:
    """The logarithm to base 2; NaN below 0."""
    return apply("Log2", x)


@in_float
def sqrt(x: Tensor) -> Tensor:
    """The square root; NaN below 0."""
    return apply("Sqrt", x)


@in_float
def reciprocal(x: Tensor) -> Tensor:
    """1 / x, correctly rounded."""
    return apply("Recip", x)


@in_float
def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x)."""
    return reciprocal(sqrt(x))


@in_float
def sin(x: Tensor) -> Tensor:
    """The sine of x in radians."""
    return apply("Sin", x)


@in_float
def cos(x: Tensor) -> Tensor:
    """The cosine of x in radians."""
    return apply("Cos", x)


def neg(x: Tensor) -> Tensor:
    """-x; -0.0 for 0.0. Unsigned integers wrap."""
    if x.dtype is dtypes.bool_:
        raise DTypeError("neg: bool has no sign; use ~x for not")
    if x.dtype.is_signed:
        return x * -1
    return x * x.graph.constant(np.iinfo(x.dtype.numpy).max, x.dtype)  # -1 modulo 2**bits


def logical_not(x: Tensor) -> Tensor:
    """True where x is 0."""
    return invert(x.cast(dtypes.bool_))


def invert(x: Tensor) -> Tensor:
    """Not of bools, the complement of every bit of integers."""
    if x.dtype.is_float:
        raise DTypeError(f"~: {x.dtype.name} has no bitwise complement; cast to an integer first")
    ones = np.ones((), bool) if x.dtype is dtypes.bool_ else np.asarray(-1).astype(x.dtype.numpy)
    return x ^ x.graph.constant(ones)


def abs(x: Tensor) -> Tensor:
    """|x|; +0.0 for -0.0. The lowest integer, which has no negative, is unchanged."""
    if x.dtype.kind in ("bool", "uint"):
        return x
    return x.maximum(-x)


@differentiated(lambda g, y, x: None)
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1 in x's dtype; 0 of both zeros; NaN stays."""
    if x.dtype.kind in ("bool", "uint"):
        return x.cast(dtypes.bool_).cast(x.dtype)
    return where(x > 0, 1, where(x < 0, -1, where(x == 0, 0, x)))


def square(x: Tensor) -> Tensor:
    """x * x; bools give int64, as PyTorch's power 2."""
    return x * x if x.dtype is not dtypes.bool_ else x.cast(dtypes.int64)


def isnan(x: Tensor) -> Tensor:
    """True where x is NaN."""
    return x != x


def isinf(x: Tensor) -> Tensor:
    """True where x is infinite: |x| == inf."""
    return abs(x) == math.inf if x.dtype.is_float else _nowhere(x)


def isposinf(x: Tensor) -> Tensor:
    """True where x is +inf."""
    return x == math.inf if x.dtype.is_float else _nowhere(x)


def isneginf(x: Tensor) -> Tensor:
    """True where x is -inf."""
    return x == -math.inf if x.dtype.is_float else _nowhere(x)


def isfinite(x: Tensor) -> Tensor:
    """True where x is neither infinite nor NaN: |x| < inf."""
    return abs(x) < math.inf if x.dtype.is_float else ~_nowhere(x)


def _nowhere(x: Tensor) -> Tensor:
    return x.graph.full(x.extents, False)


def signbit(x: Tensor) -> Tensor:
    """True where the sign bit is set, also of -0.0 and NaN."""
    return bits_of(x.cast(x.dtype.compute)) < 0 if x.dtype.is_float else x < 0


def nan_to_num(
    x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN replaced by `nan`, infinities by `posinf` and `neginf` (None: the largest finite)."""
    if not x.dtype.is_float:
        return x
    largest = x.dtype.largest
    x = where(x == math.inf, largest if posinf is None else posinf, x)
    x = where(x == -math.inf, -largest if neginf is None else neginf, x)
    return where(x == x, x, nan)
