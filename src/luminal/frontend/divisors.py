"""gcd and lcm: common divisors and multiples of integers."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from luminal import dtypes
from luminal.dtypes import DType
from luminal.errors import DTypeError
from luminal.frontend.binary import unified, where
from luminal.frontend.handle import Operand
from luminal.hlir.attributes import Body
from luminal.shape.expression import const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

# The longest runs of Euclid's algorithm are those of Fibonacci's numbers, which grow by this factor
# (Knuth, The Art of Computer Programming, 4.5.3): log(2) / log((1 + sqrt(5)) / 2) steps a bit.
STEPS_A_BIT = 1.4405
STEPS_A_TRIP = 8  # of a Loop: few passes over memory, and little code (93 steps take a second)


def gcd(a: Operand, b: Operand) -> Tensor:
    """The greatest common divisor of integers, at least 0; gcd(x, 0) = |x|.

    Euclid's algorithm in a Loop of as many steps as the dtype may take, 94 for 64 bits.
    """
    x, y, result = _magnitudes("gcd", a, b)
    return _euclid(x, y).cast(result)


def lcm(a: Operand, b: Operand) -> Tensor:
    """The least common multiple of integers, at least 0; 0 where one is 0.

    It wraps where the dtype does not hold it, in 8 and 16 bits to negative numbers, as PyTorch's.
    """
    x, y, result = _magnitudes("lcm", a, b)
    product = (x // _euclid(x, y) * y).cast(result)
    return (
        where(product < 0, -product, product) if result.is_signed and result.size > 2 else product
    )


def _euclid(x: Tensor, y: Tensor) -> Tensor:
    """The Loop carries both numbers; each trip makes some steps."""
    steps = ceil(STEPS_A_BIT * x.dtype.bits) + 1
    body = x.graph.nested()
    arguments = [body.wrap(body.builder.input(name, *x.value.type)) for name in ("x", "y")]
    a, b = arguments
    for _ in range(STEPS_A_TRIP):
        a, b = where(b == 0, a, b), a % b  # a % 0 is 0
    block = Body(tuple(each.value.node for each in arguments), (a.value, b.value))
    trips = const(ceil(steps / STEPS_A_TRIP))
    return x.graph.wrap(x.graph.builder.loop(trips, block, [x.value, y.value], [], [])[0])


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
