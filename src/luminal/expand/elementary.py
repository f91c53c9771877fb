"""exp, log, exp2, log2, sin and cos of f32 and f64 as polynomials: fma by fma, so that the bits
depend neither on lanes nor on the machine. Sines of huge angles are reduced in integers, or, in f64
and where the machine has sines of f64 to spare (`Builder.has`), are the machine's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from luminal.base.dtypes import float64, int32
from luminal.expand.angles import huge_angle
from luminal.expand.builder import Builder
from luminal.expand.ir import Operand, Type
from luminal.expand.polynomials import TABLES, TWO_OVER_PI, Table


def exp(b: Builder, x: Operand) -> Operand:
    """e**x: n = round(x/ln 2), then 2**n * e**(x - n ln 2)."""
    table = TABLES[x.type.dtype]
    x = _clamped(b, x, *table.exp_ends)  # keeps n finite
    # Adding a number with as many bits below the point as there are to lose rounds to an integer,
    # which then also lies in the low bits: no conversion is needed.
    shifted = b.op("fma", x, table.log2e[0], table.round)
    n = b.op("sub", shifted, table.round)
    # ln 2 in two pieces (Cody and Waite): the first has few bits, so that its product with n is
    # exact.
    r = b.op("fma", n, -table.ln2[1], b.op("fma", n, -table.ln2[0], x))
    q = b.op("fma", b.op("mul", r, r), _horner(b, r, table.exp), r)
    return _scaled(b, table, b.op("add", q, 1.0), n, shifted)


def exp2(b: Builder, x: Operand) -> Operand:
    """2**x: n = round(x), then 2**n * 2**(x - n); or the machine's own, where it has one."""
    if b.has("power_of_two", x.type):
        return b.op("power_of_two", x)
    table = TABLES[x.type.dtype]
    x = _clamped(b, x, *table.exp2_ends)  # keeps n finite
    shifted = b.op("add", x, table.round)
    n = b.op("sub", shifted, table.round)
    r = b.op("sub", x, n)
    return _scaled(b, table, b.op("fma", r, _horner(b, r, table.exp2), 1.0), n, shifted)


def log(b: Builder, x: Operand) -> Operand:
    """log(x) = e ln 2 + log(1 + f)."""
    table = TABLES[x.type.dtype]
    e, f, tail = _log_parts(b, table, x)
    low = b.op("fma", e, table.ln2[1], tail)
    return _log_special(b, x, b.op("fma", e, table.ln2[0], b.op("add", f, low)))


def log2(b: Builder, x: Operand) -> Operand:
    """log2(x) = e + log(1 + f) / ln 2, the factor in two pieces."""
    table = TABLES[x.type.dtype]
    e, f, tail = _log_parts(b, table, x)
    high, low = table.log2e
    rest = b.op("fma", tail, high, b.op("mul", f, low))
    return _log_special(b, x, b.op("add", e, b.op("fma", f, high, rest)))


def sin(b: Builder, x: Operand) -> Operand:
    """The sine of x, in radians."""
    return _sine(b, "sin", x)


def cos(b: Builder, x: Operand) -> Operand:
    """The cosine of x, in radians."""
    return _sine(b, "cos", x)


# --- exponential and logarithm --------------------------------------------------------------------


def _clamped(b: Builder, x: Operand, low: float, high: float) -> Operand:
    """Within both; NaN stays."""
    x = b.op("select", b.op("lt", high, x), high, x)
    return b.op("select", b.op("lt", x, low), low, x)


def _scaled(b: Builder, table: Table, value: Operand, n: Operand, shifted: Operand) -> Operand:
    """`value * 2**n` rounded once; the integer n lies in the low bits of `shifted` too. By two
    factors 2**(n/2), of which the first product is exact, as the value is near 1.
    """
    if b.has("scale", value.type):
        return b.op("scale", value, n)
    whole = b.op("sub", b.bitcast(shifted, table.signed), table.bits(table.round))
    half = b.op("shr", whole, 1)
    for exponent in (half, b.op("sub", whole, half)):
        power = b.op("shl", b.op("add", exponent, table.bias), table.mantissa)
        value = b.op("mul", value, b.bitcast(power, table.dtype))
    return value


def _log_parts(b: Builder, table: Table, x: Operand) -> tuple[Operand, Operand, Operand]:
    """(e, f, log(1 + f) - f) with x = 2**e * (1 + f), 1 + f in [sqrt(1/2), sqrt(2))."""
    # Subnormal numbers have no exponent to take off, so they are made normal first and counted
    # back.
    subnormal = b.op("lt", x, table.least_normal)
    shift = table.mantissa + 2
    bits = b.bitcast(b.op("select", subnormal, b.op("mul", x, 2.0**shift), x), table.signed)
    exponent = b.op("shr", b.op("sub", bits, table.bits(math.sqrt(0.5))), table.mantissa)
    power = b.op("shl", exponent, table.mantissa)
    mantissa = b.bitcast(b.op("sub", bits, power), table.dtype)
    e = b.cast(b.cast(exponent, int32), table.dtype)  # few machines convert vectors of i64
    e = b.op("select", subnormal, b.op("sub", e, shift), e)
    f = b.op("sub", mantissa, 1.0)
    bracket = b.op("fma", f, _horner(b, f, table.log), -0.5)
    return e, f, b.op("mul", b.op("mul", f, f), bracket)


def _log_special(b: Builder, x: Operand, result: Operand) -> Operand:
    """-inf at zeros, NaN below, inf and NaN as they are."""
    other = b.op("select", b.op("lt", x, 0.0), math.nan, x)
    other = b.op("select", b.op("eq", x, 0.0), -math.inf, other)
    regular = b.op("and", b.op("lt", 0.0, x), b.op("lt", x, math.inf))
    return b.op("select", regular, result, other)


# --- sine and cosine ------------------------------------------------------------------------------


# The C library's functions take one element at a time, two to four times as long. Polynomials that
# are written fma by fma give the same bits for scalars, for any number of lanes, and on every
# device.
def _sine(b: Builder, name: str, x: Operand) -> Operand:
    """Reduced by multiples of pi/2, then by the polynomial of that quadrant. Huge angles seldom
    occur: they are reduced in a branch, or, where the machine has a sine of f64, computed by it.
    """
    table, wide = TABLES[x.type.dtype], Type(float64, x.type.lanes)
    r, quadrant = _angle(b, table, x)
    body = b.op("and", b.bitcast(x, table.unsigned), (1 << table.dtype.bits - 1) - 1)
    first, end = table.bits(table.huge), table.bits(math.inf)
    huge = b.op("lt", b.op("sub", body, first), end - first)
    any_huge = huge if x.type.lanes == 1 else b.op("any", huge)
    if x.type == wide or b.has(name, wide):
        near = _sine_in(b, table, name, x, r, quadrant)
        with b.branch(any_huge, seldom=True) as choose:
            far = b.cast(b.op(name, b.cast(x, float64)), table.dtype)
            return choose(b.op("select", huge, far, near), near)
    with b.branch(any_huge, seldom=True) as choose:
        reduced, turns = huge_angle(b, x)
        r = choose(b.op("select", huge, reduced, r), r)
        quadrant = choose(b.op("select", huge, turns, quadrant), quadrant)
    return _sine_in(b, table, name, x, r, quadrant)


def _angle(b: Builder, table: Table, x: Operand) -> tuple[Operand, Operand]:
    """(r, n) with x = n*pi/2 + r, for angles that are not huge; of n the last bits count."""
    shifted = b.op("fma", x, TWO_OVER_PI, table.round)
    n = b.op("sub", shifted, table.round)
    r = x
    for piece in table.half_pi:
        r = b.op("fma", n, -piece, r)
    return r, b.bitcast(shifted, table.unsigned)


def _sine_in(
    b: Builder, table: Table, name: str, x: Operand, r: Operand, quadrant: Operand
) -> Operand:
    """Both polynomials, picked by the quadrant."""
    rr = b.op("mul", r, r)
    sine = b.op("fma", b.op("mul", r, rr), _horner(b, rr, table.sin), r)
    cosine = b.op("fma", rr, b.op("fma", rr, _horner(b, rr, table.cos), -0.5), 1.0)
    if name == "cos":
        quadrant = b.op("add", quadrant, 1)
    odd = b.op("ne", b.op("and", quadrant, 1), 0)
    sign = b.op("shl", b.op("and", quadrant, 2), table.dtype.bits - 2)
    # Both polynomials are computed and one is chosen: lanes lie in different quadrants, and a
    # branch for each would cost more.
    bits = b.bitcast(b.op("select", odd, cosine, sine), table.unsigned)
    result = b.bitcast(b.op("xor", bits, sign), table.dtype)
    if name == "cos":
        return result
    return b.op("select", b.op("eq", x, 0.0), x, result)  # sin(-0) is -0


def _horner(b: Builder, x: Operand, coefficients: Sequence[float]) -> Operand:
    """c0 + x*(c1 + x*(...)), each step one fma."""
    # Horner's scheme and no shorter chain: its order fixes the bits, and other vectors in flight
    # fill the time between two steps.
    first, *others = reversed(coefficients)
    value = b.op("fma", x, first, others[0])
    for coefficient in others[1:]:
        value = b.op("fma", value, x, coefficient)
    return value
