"""gcd and lcm: common divisors and multiples of integers."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from luminal import dtypes
from luminal.dtypes import DType
from luminal.errors import DTypeError
from luminal.frontend.binary import unified, where
from luminal.frontend.handle import Operand

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

# The longest runs of Euclid's algorithm are those of Fibonacci's numbers, which grow by this factor
# (Knuth, The Art of Computer Programming, 4.5.3): log(2) / log((1 + sqrt(5)) / 2) steps a bit.
STEPS_A_BIT = 1.4405


def gcd(a: Operand, b: Operand) -> Tensor:
    """The greatest common divisor of integers, at least 0; gcd(x, 0) = |x|.

    Euclid's algorithm, as many steps as the dtype may take (93 for 64 bits), without a branch.
    """
    x, y, result = _magnitudes("gcd", a, b)
    return _euclid(x, y).cast(result)


def lcm(a: Operand, b: Operand) -> Tensor:
    """The least common multiple of integers, at least 0; 0 where one is 0. It wraps."""
    x, y, result = _magnitudes("lcm", a, b)
    divisor = _euclid(x, y)
    product = (x // divisor * y).cast(result)
    return where(product < 0, -product, product) if result.is_signed else product


def _euclid(x: Tensor, y: Tensor) -> Tensor:
    for _ in range(ceil(STEPS_A_BIT * x.dtype.bits) + 1):
        x, y = where(y == 0, x, y), x % y  # x % 0 is 0
    return x


def _magnitudes(what: str, a: Operand, b: Operand) -> tuple[Tensor, Tensor, DType]:
    """|a| and |b| in an unsigned dtype, which holds the least integer's, and the result's dtype."""
    (x, y), result = unified(what, (a, b))
    if not result.is_int:
        raise DTypeError(f"{what}: {result.name} operands; it takes integers")
    if not result.is_signed:
        return x, y, result
    wide = dtypes.dtype_of(f"uint{result.bits}")
    first, second = (
        where(t < 0, 0 - t.cast(wide), t.cast(wide)) for t in (x.cast(result), y.cast(result))
    )
    return first, second, result
