"""exp, log, exp2, log2, sin and cos of f32 as polynomials: fma by fma, so that the bits depend
neither on lanes nor on the machine. In f64 they are the functions of the machine's library, and so
are f32 sines of huge arguments where it has f64 sines to spare (`Builder.has`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from luminal.dtypes import float32, float64, int32, uint32
from luminal.expand import polynomials as table
from luminal.expand.angles import huge_angle
from luminal.expand.builder import Builder
from luminal.expand.ir import Operand, Type


def exp(b: Builder, x: Operand) -> Operand:
    """e**x: n = round(x/ln 2), then 2**n * e**(x - n ln 2)."""
    if x.type.dtype is float64:
        return b.op("exp", x)
    x = _clamped(b, x, -110.0, 100.0)  # 0 below, inf above; keeps n finite
    shifted = b.op("fma", x, table.LOG2E_HI, table.ROUND)
    n = b.op("sub", shifted, table.ROUND)
    r = b.op("fma", n, -table.LN2_LO, b.op("fma", n, -table.LN2_HI, x))
    q = b.op("fma", b.op("mul", r, r), _horner(b, r, table.EXP), r)
    return _scaled(b, b.op("add", q, 1.0), n, shifted)


def exp2(b: Builder, x: Operand) -> Operand:
    """2**x: n = round(x), then 2**n * 2**(x - n)."""
    if x.type.dtype is float64:
        return b.op("exp2", x)
    x = _clamped(b, x, -160.0, 160.0)  # 0 below, inf above; keeps n finite
    shifted = b.op("add", x, table.ROUND)
    n = b.op("sub", shifted, table.ROUND)
    r = b.op("sub", x, n)
    return _scaled(b, b.op("fma", r, _horner(b, r, table.EXP2), 1.0), n, shifted)


def log(b: Builder, x: Operand) -> Operand:
    """log(x) = e ln 2 + log(1 + f)."""
    if x.type.dtype is float64:
        return b.op("log", x)
    e, f, tail = _log_parts(b, x)
    low = b.op("fma", e, table.LN2_LO, tail)
    return _log_special(b, x, b.op("fma", e, table.LN2_HI, b.op("add", f, low)))


def log2(b: Builder, x: Operand) -> Operand:
    """log2(x) = e + log(1 + f) / ln 2, the factor in two pieces."""
    if x.type.dtype is float64:
        return b.op("log2", x)
    e, f, tail = _log_parts(b, x)
    low = b.op("fma", tail, table.LOG2E_HI, b.op("mul", f, table.LOG2E_LO))
    return _log_special(b, x, b.op("add", e, b.op("fma", f, table.LOG2E_HI, low)))


def sin(b: Builder, x: Operand) -> Operand:
    """sin(x)."""
    return _sine(b, "sin", x)


def cos(b: Builder, x: Operand) -> Operand:
    """cos(x)."""
    return _sine(b, "cos", x)


# --- exponential and logarithm --------------------------------------------------------------------


def _clamped(b: Builder, x: Operand, low: float, high: float) -> Operand:
    """Within both; NaN stays."""
    x = b.op("select", b.op("lt", high, x), high, x)
    return b.op("select", b.op("lt", x, low), low, x)


def _scaled(b: Builder, value: Operand, n: Operand, shifted: Operand) -> Operand:
    """`value * 2**n` rounded once; the integer n lies in the low bits of `shifted` too. By two
    factors 2**(n/2), of which the first product is exact, as the value is near 1.
    """
    if b.has("scale", value.type):
        return b.op("scale", value, n)
    whole = b.op("sub", b.bitcast(shifted, int32), table.ROUND_BITS)
    half = b.op("shr", whole, 1)
    for exponent in (half, b.op("sub", whole, half)):
        power = b.op("shl", b.op("add", exponent, 127), 23)
        value = b.op("mul", value, b.bitcast(power, float32))
    return value


def _log_parts(b: Builder, x: Operand) -> tuple[Operand, Operand, Operand]:
    """(e, f, log(1 + f) - f) with x = 2**e * (1 + f), 1 + f in [sqrt(1/2), sqrt(2))."""
    subnormal = b.op("lt", x, 2.0**-126)
    normal = b.op("select", subnormal, b.op("mul", x, 2.0**25), x)
    offset = b.op("sub", b.bitcast(normal, int32), table.SQRT_HALF_BITS)
    exponent = b.op("shr", offset, 23)
    power = b.op("shl", exponent, 23)
    mantissa = b.bitcast(b.op("sub", b.bitcast(normal, int32), power), float32)
    e = b.cast(exponent, float32)
    e = b.op("select", subnormal, b.op("add", e, -25.0), e)
    f = b.op("sub", mantissa, 1.0)
    bracket = b.op("fma", f, _horner(b, f, table.LOG), -0.5)
    return e, f, b.op("mul", b.op("mul", f, f), bracket)


def _log_special(b: Builder, x: Operand, result: Operand) -> Operand:
    """-inf at zeros, NaN below, inf and NaN as they are."""
    other = b.op("select", b.op("lt", x, 0.0), math.nan, x)
    other = b.op("select", b.op("eq", x, 0.0), -math.inf, other)
    regular = b.op("and", b.op("lt", 0.0, x), b.op("lt", x, math.inf))
    return b.op("select", regular, result, other)


# --- sine and cosine ------------------------------------------------------------------------------


def _sine(b: Builder, name: str, x: Operand) -> Operand:
    """Reduced by multiples of pi/2, then by the polynomial of that quadrant. Huge angles seldom
    occur: they are reduced in a branch, or, where the machine has a sine of f64, computed by it.
    """
    if x.type.dtype is float64:
        return b.op(name, x)
    r, quadrant = _angle(b, x)
    body = b.op("and", b.bitcast(x, uint32), 0x7FFFFFFF)
    huge = b.op("lt", b.op("sub", body, table.HUGE_BITS), table.INF_BITS - table.HUGE_BITS)
    found = huge if x.type.lanes == 1 else b.op("any", huge)
    if b.has(name, Type(float64, x.type.lanes)):
        near = _sine_in(b, name, x, r, quadrant)
        with b.branch(found, seldom=True) as choose:
            far = b.cast(b.op(name, b.cast(x, float64)), float32)
            return choose(b.op("select", huge, far, near), near)
    with b.branch(found, seldom=True) as choose:
        reduced, turns = huge_angle(b, x)
        r = choose(b.op("select", huge, reduced, r), r)
        quadrant = choose(b.op("select", huge, turns, quadrant), quadrant)
    return _sine_in(b, name, x, r, quadrant)


def _angle(b: Builder, x: Operand) -> tuple[Operand, Operand]:
    """(r, n) with x = n*pi/2 + r, for angles that are not huge; of n the last bits count."""
    shifted = b.op("fma", x, table.TWO_OVER_PI, table.ROUND)
    n = b.op("sub", shifted, table.ROUND)
    r = x
    for piece in table.HALF_PI:
        r = b.op("fma", n, -piece, r)
    return r, b.bitcast(shifted, uint32)


def _sine_in(b: Builder, name: str, x: Operand, r: Operand, quadrant: Operand) -> Operand:
    """Both polynomials, picked by the quadrant."""
    rr = b.op("mul", r, r)
    sine = b.op("fma", b.op("mul", r, rr), _horner(b, rr, table.SIN), r)
    cosine = b.op("fma", rr, b.op("fma", rr, _horner(b, rr, table.COS), -0.5), 1.0)
    if name == "cos":
        quadrant = b.op("add", quadrant, 1)
    odd = b.op("ne", b.op("and", quadrant, 1), 0)
    sign = b.op("shl", b.op("and", quadrant, 2), 30)
    bits = b.bitcast(b.op("select", odd, cosine, sine), uint32)
    result = b.bitcast(b.op("xor", bits, sign), float32)
    if name == "cos":
        return result
    return b.op("select", b.op("eq", x, 0.0), x, result)  # sin(-0) is -0


def _horner(b: Builder, x: Operand, coefficients: Sequence[float]) -> Operand:
    """c0 + x*(c1 + x*(...)), each step one fma."""
    first, *others = reversed(coefficients)
    value = b.op("fma", x, first, others[0])
    for coefficient in others[1:]:
        value = b.op("fma", value, x, coefficient)
    return value
