"""Cube roots and hypotenuses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from luminal.frontend.binary import unified, where
from luminal.frontend.derivatives import differentiated
from luminal.frontend.handle import Operand, in_float
from luminal.frontend.polynomial import odd

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@in_float
@differentiated(lambda g, y, x: g / (3 * y * y))
def cbrt(x: Tensor) -> Tensor:
    """The cube root with x's sign, within 1 ulp: exp2(log2(|x|) / 3), then a step of Newton's."""
    a = abs(x)
    root = (a.log2() * (1 / 3)).exp2()
    root = root - (root - a / (root * root)) * (1 / 3)
    return odd(where((a == 0) | (a == math.inf), a, root), x)


def hypot(a: Operand, b: Operand) -> Tensor:
    """sqrt(a**2 + b**2) without overflow, within 3 ulp: max * sqrt(1 + (min / max)**2).

    Infinite where either is, even with NaN; integers give float32.
    """
    (x, y), result = unified("hypot", (a, b), floating=True)
    return _length(x, y).cast(result)


def _length_derivative(g: Tensor, z: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """0 at the origin, as of a norm."""
    length = where(z == 0, 1, z)
    return g * (x / length), g * (y / length)


@differentiated(_length_derivative)
def _length(x: Tensor, y: Tensor) -> Tensor:
    x, y = abs(x), abs(y)
    large, small = x.maximum(y), x.minimum(y)
    ratio = where(large == 0, 0, small / large)
    length = large * (1 + ratio * ratio).sqrt()
    infinite = (x == math.inf) | (y == math.inf)
    return where(infinite, math.inf, length)
