"""Named functions of several tensors, element by element: fmod, lerp, copysign, isclose, gcd."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, TypeAlias

from luminal.base import dtypes
from luminal.base.dtypes import DType, bool_
from luminal.base.errors import DTypeError
from luminal.frontend.handle import Operand, apply
from luminal.frontend.pointwise.binary import (
    div,
    equal,
    fill_value,
    floor_div,
    graph_of,
    maximum,
    minimum,
    mod,
    sub,
    unified,
    where,
)
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.exponential import pow
from luminal.frontend.pointwise.unary import odd, trunc, with_sign
from luminal.hlir.attributes import Body
from luminal.shape.expression import const

if TYPE_CHECKING:
    from luminal.base.dtypes import DType
    from luminal.frontend.tensor import Tensor


Pair: TypeAlias = "tuple[Tensor, Tensor]"


# --- order ----------------------------------------------------------------------------------------


def fmax(a: Operand, b: Operand) -> Tensor:
    """The greater; where one is NaN, the other."""
    (x, y), result = unified("fmax", (a, b))
    return _greater(x, y).cast(result)


def _chosen(g: Tensor, is_first: Tensor) -> Pair:
    return where(is_first, g, 0), where(is_first, 0, g)


@differentiated(lambda g, z, x, y: _chosen(g, (x >= y) | (y != y)))
def _greater(x: Tensor, y: Tensor) -> Tensor:
    return where(x != x, y, where(y != y, x, maximum(x, y)))


def fmin(a: Operand, b: Operand) -> Tensor:
    """The lesser; where one is NaN, the other."""
    (x, y), result = unified("fmin", (a, b))
    return _lesser(x, y).cast(result)


@differentiated(lambda g, z, x, y: _chosen(g, (x <= y) | (y != y)))
def _lesser(x: Tensor, y: Tensor) -> Tensor:
    return where(x != x, y, where(y != y, x, minimum(x, y)))


def isclose(
    a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """|a - b| <= atol + rtol * |b|; infinities are close to themselves, NaN if `equal_nan`."""
    (x, y), result = unified("isclose", (a, b))
    same = equal(x, y)
    if result.is_float:
        distance = abs(x - y)
        same = same | ((distance <= atol + rtol * abs(y)) & y.isfinite() & x.isfinite())
        return same | ((x != x) & (y != y)) if equal_nan else same
    # The difference of two integers may not fit their dtype.
    wide = x.cast(dtypes.float64), y.cast(dtypes.float64)
    return same | (abs(wide[0] - wide[1]) <= atol + rtol * abs(wide[1]))


def allclose(
    a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """True (0-d) where `isclose` everywhere."""
    return isclose(a, b, rtol, atol, equal_nan).all()


# --- truth ----------------------------------------------------------------------------------------


def _truths(what: str, a: Operand, b: Operand) -> list[Tensor]:
    return [x.cast(dtypes.bool_) for x in unified(what, (a, b))[0]]


def logical_and(a: Operand, b: Operand) -> Tensor:
    """True where both are not 0."""
    x, y = _truths("logical_and", a, b)
    return x & y


def logical_or(a: Operand, b: Operand) -> Tensor:
    """True where either is not 0."""
    x, y = _truths("logical_or", a, b)
    return x | y


def logical_xor(a: Operand, b: Operand) -> Tensor:
    """True where one of the two is not 0."""
    x, y = _truths("logical_xor", a, b)
    return x ^ y


# --- arithmetic -----------------------------------------------------------------------------------


def divide(a: Operand, b: Operand, rounding_mode: str | None = None) -> Tensor:
    """a / b; rounded down with "floor", toward 0 with "trunc" (integers then stay integers)."""
    if rounding_mode is None:
        return div(a, b)
    if rounding_mode == "floor":
        return floor_div(a, b)
    if rounding_mode != "trunc":
        raise DTypeError(f'div: rounding_mode={rounding_mode!r}; use None, "floor" or "trunc"')
    (x, y), result = unified("div", (a, b))
    if result.is_float:
        return trunc(x / y).cast(result)
    # Truncation is one above the floor where signs differ and something is left over.
    down = floor_div(x, y)
    return where((mod(x, y) != 0) & ((x < 0) != (y < 0)), down + 1, down).cast(result)


def rsub(a: Operand, b: Operand, alpha: float = 1) -> Tensor:
    """b - alpha * a."""
    return sub(b, a, alpha=alpha)


def float_power(a: Operand, b: Operand) -> Tensor:
    """a ** b in float64."""
    (x, y), _ = unified("float_power", (a, b))
    return pow(x.cast(dtypes.float64), y.cast(dtypes.float64))


def divmod(a: Operand, b: Operand) -> Pair:
    """(a // b, a % b)."""
    return floor_div(a, b), mod(a, b)


def copysign(a: Operand, b: Operand) -> Tensor:
    """|a| with the sign bit of b; integers give float32."""
    (x, y), result = unified("copysign", (a, b), floating=True)
    return _signed(x, y).cast(result)


@differentiated(lambda g, z, x, y: (where(x == 0, 0, where((x < 0) == (z < 0), g, -g)), None))
def _signed(x: Tensor, y: Tensor) -> Tensor:
    return with_sign(x, y)


def heaviside(x: Operand, values: Operand) -> Tensor:
    """0 below 0, 1 above, `values` at 0; NaN stays."""
    (a, b), result = unified("heaviside", (x, values))
    return where(a == 0, b, where(a < 0, 0, where(a > 0, 1, a))).cast(result)


def lerp(start: Tensor, end: Operand, weight: Operand) -> Tensor:
    """start + weight * (end - start), exact at both ends: from the nearer one, as PyTorch."""
    (x, y, w), result = unified("lerp", (start, end, weight), floating=True)
    step = y - x
    return where(abs(w) < 0.5, x + w * step, y - step * (1 - w)).cast(result)


def addcmul(x: Tensor, a: Operand, b: Operand, value: float = 1) -> Tensor:
    """x + value * a * b."""
    (base, p, q), result = unified("addcmul", (x, a, b))
    return (base + (p * q if value == 1 else p * value * q)).cast(result)


def addcdiv(x: Tensor, a: Operand, b: Operand, value: float = 1) -> Tensor:
    """x + value * a / b; integers give float32."""
    (base, p, q), result = unified("addcdiv", (x, a, b), floating=True)
    return (base + value * (p / q)).cast(result)


def masked_fill(x: Tensor, mask: Operand, value: Operand) -> Tensor:
    """`value` where `mask` is true, else x, in x's dtype.

    A bool tensor takes any number; DTypeError for a fraction among integers.
    """
    graph = graph_of("masked_fill", (x, mask, value))
    return where(mask, fill_value("masked_fill", graph, value, x.dtype), x)


# --- divisors -------------------------------------------------------------------------------------


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
    block = Body(tuple(argument.value.node for argument in arguments), (a.value, b.value))
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


# --- remainders and neighbours --------------------------------------------------------------------


def remainder(a: Operand, b: Operand) -> Tensor:
    """a % b with the sign of b, as Python's; integers by 0 give 0."""
    return mod(a, b)


def fmod(a: Operand, b: Operand) -> Tensor:
    """The exact remainder with the sign of a, as C's; integers by 0 give 0.

    |a| % |b| with a's sign.
    """
    (x, y), result = unified("fmod", (a, b))
    if result is bool_:
        raise DTypeError("fmod: bools have no remainder; cast to an integer")
    if result.is_float:
        return odd(apply("Mod", abs(x), abs(y)), x).cast(result)
    # Mod has the sign of b; C's remainder that of a: one b less where they differ.
    rest = apply("Mod", x, y)
    if not result.is_signed:
        return rest
    return where((rest != 0) & ((x < 0) != (y < 0)), rest - y, rest)


def ldexp(x: Tensor, exponent: Operand) -> Tensor:
    """`x` times a power of 2: x * 2**exponent."""
    (a, b), result = unified("ldexp", (x, exponent), floating=True)
    return (a * b.exp2()).cast(result)


def nextafter(a: Operand, b: Operand) -> Tensor:
    """The float next to a in the direction of b, in their common dtype; b where they are equal.

    By the bits: one more is the next magnitude.
    """
    (x, y), result = unified("nextafter", (a, b), floating=True)
    return _next(x, y, result)


@differentiated(lambda g, z, x, y, result: (g, None))
def _next(x: Tensor, y: Tensor, result: DType) -> Tensor:
    stored = x.cast(result)
    bits = stored.bitcast(f"int{result.bits}")
    # Bits of floats count magnitudes up in order (IEEE 754), so one more or one less is the
    # neighbour.
    away = (x > 0) == (y > x)  # the magnitude grows
    moved = where(away, bits + 1, bits - 1)
    least = (
        x.graph.constant(1, bits.dtype),
        x.graph.constant(1 - 2 ** (result.bits - 1), bits.dtype),
    )
    smallest = where(y > 0, *least)  # subnormal, with y's sign
    neighbour = where(x == 0, smallest, moved).bitcast(result)
    neighbour = where(x == y, y.cast(result), neighbour)
    return where(x != x, stored, where(y != y, y.cast(result), neighbour))
