"""exp, log, exp2, log2, sin and cos as LLVM IR, for any number of lanes.

In f32 they are polynomials evaluated with explicit fma, the same operations in the same order for
scalars and vectors and on every target, so the bits never depend on either. The coefficients are
minimax in relative error, made by Remez exchange in 80-bit floats: one coefficient after the other
was rounded to f32 and the rest fitted again. In f64, and for f32 sines of huge arguments, libm is
called lane by lane.

Largest error measured on 2**26 to 2**27 arguments of all magnitudes against libm in f64, in ulp of
the f32 result (subnormal ones too): exp 1.00, exp2 0.86, log 0.86, log2 1.10; sin and cos up to
|x| = 2**20 1.61, or 2**-23.7 absolute. What is beyond there is libm's f64 result rounded: 0.50.
"""

from collections.abc import Callable, Sequence

from luminal.codegen.llvm_builder import (
    F64,
    I32,
    I64,
    FunctionBuilder,
    IRType,
    IRValue,
    ModuleBuilder,
)

Emit1 = Callable[[FunctionBuilder, IRValue], IRValue]

_LN2_HI, _LN2_LO = float.fromhex("0x1.62e43p-1"), float.fromhex("-0x1.05c61p-29")
_LOG2E_HI, _LOG2E_LO = float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0cp-26")

# e**r = 1 + r + r*r*Q(r) on |r| <= ln(2)/2; relative error 2**-28.2
_EXP = (0.49999994, 0.16666517, 0.041668106, 0.00836914, 0.0013836714)
# 2**r = 1 + r*Q(r) on |r| <= 1/2; relative error 2**-27.5
_EXP2 = (0.69314724, 0.24022655, 0.055502728, 0.009617065, 0.0013417751, 0.00015825259)
# log(1 + f) = f - f*f/2 + f*f*f*Q(f) on sqrt(1/2) <= 1 + f <= sqrt(2); relative error 2**-27.3
_LOG = (
    *(0.3333333, -0.25000823, 0.2000126, -0.16623345),
    *(0.14201072, -0.13159549, 0.1276573, -0.076411806),
)
# sin(r) = r + r*r*r*Q(r*r) on |r| <= 0.85; relative error 2**-27.0
_SIN = (-0.16666648, 0.008331745, -0.00019461509)
# cos(r) = 1 - r*r/2 + r**4*Q(r*r) on |r| <= 0.85; relative error 2**-31.7
_COS = (0.041666634, -0.0013886781, 2.4374356e-05)
# pi/2 in three f32 pieces: with fma the first product cancels exactly for |x| < 2**20
_HALF_PI = (1.5707964, -4.371139e-08, -1.7150994e-15)
_TWO_OVER_PI = 0.63661975

_ROUND = 1.5 * 2.0**23  # adding it rounds to an integer that sits in the low bits of the sum
_HUGE_BITS = 0x49800000  # 2**20: from here on sin and cos go to libm
_INF_BITS = 0x7F800000
_SQRT_HALF_BITS = 0x3F3504F3
_INF, _NAN = float("inf"), float("nan")


def emit_exp(b: FunctionBuilder, x: IRValue) -> IRValue:
    """e**x: n = round(x/ln 2), then 2**n * e**(x - n ln 2)."""
    if x.type.scalar == "double":
        return libm(b, "exp", x)
    x = _clamp(b, x, -110.0, 100.0)  # 0 below, inf above; keeps n finite
    shifted = _fma(b, x, _const(b, x, _LOG2E_HI), _const(b, x, _ROUND))
    n = b.binary("fsub", shifted, _const(b, x, _ROUND))
    r = _fma(b, n, _const(b, x, -_LN2_LO), _fma(b, n, _const(b, x, -_LN2_HI), x))
    p = _fma(b, b.binary("fmul", r, r), _horner(b, r, _EXP), r)
    return _scale(b, b.binary("fadd", p, _const(b, x, 1.0)), n, shifted)


def emit_exp2(b: FunctionBuilder, x: IRValue) -> IRValue:
    """2**x: n = round(x), then 2**n * 2**(x - n)."""
    if x.type.scalar == "double":
        return libm(b, "exp2", x)
    x = _clamp(b, x, -160.0, 160.0)  # 0 below, inf above; keeps n finite
    shifted = b.binary("fadd", x, _const(b, x, _ROUND))
    n = b.binary("fsub", shifted, _const(b, x, _ROUND))
    r = b.binary("fsub", x, n)
    return _scale(b, _fma(b, r, _horner(b, r, _EXP2), _const(b, x, 1.0)), n, shifted)


def emit_log(b: FunctionBuilder, x: IRValue) -> IRValue:
    """log(x) = e ln 2 + log(1 + f)."""
    if x.type.scalar == "double":
        return libm(b, "log", x)
    e, f, tail = _log_parts(b, x)
    low = _fma(b, e, _const(b, x, _LN2_LO), tail)
    return _log_special(b, x, _fma(b, e, _const(b, x, _LN2_HI), b.binary("fadd", f, low)))


def emit_log2(b: FunctionBuilder, x: IRValue) -> IRValue:
    """log2(x) = e + log(1 + f) / ln 2, the factor in two pieces."""
    if x.type.scalar == "double":
        return libm(b, "log2", x)
    e, f, tail = _log_parts(b, x)
    low = b.binary("fmul", f, _const(b, x, _LOG2E_LO))
    low = _fma(b, tail, _const(b, x, _LOG2E_HI), low)
    high = _fma(b, f, _const(b, x, _LOG2E_HI), low)
    return _log_special(b, x, b.binary("fadd", e, high))


def emit_sin(b: FunctionBuilder, x: IRValue) -> IRValue:
    """sin(x); opens new blocks in f32."""
    return _sine(b, "sin", x)


def emit_cos(b: FunctionBuilder, x: IRValue) -> IRValue:
    """cos(x); opens new blocks in f32."""
    return _sine(b, "cos", x)


# ---- exponential and logarithm -----------------------------------------------------------


def _clamp(b: FunctionBuilder, x: IRValue, low: float, high: float) -> IRValue:
    """min and max written so that NaN passes and each is one x86 instruction."""
    upper, lower = _const(b, x, high), _const(b, x, low)
    x = b.select(b.fcmp("olt", upper, x), upper, x)
    return b.select(b.fcmp("ogt", lower, x), lower, x)


def _scale(b: FunctionBuilder, p: IRValue, n: IRValue, shifted: IRValue) -> IRValue:
    """p * 2**n rounded once; `shifted` holds the integer n in its low bits.

    Without `vscalef`: two factors 2**(n/2); the first product is exact as p is near 1.
    """
    if p.type.lanes == 16 and "avx512f" in b.features:
        mask = b.const(IRType("i16"), -1)
        current_rounding = b.const(I32, 4)
        args = [p, n, p, mask, current_rounding]
        return b.intrinsic("llvm.x86.avx512.mask.scalef.ps.512", p.type, args, ())
    bits = b.cast("bitcast", shifted, p.type.with_scalar("i32"))
    whole = b.binary("sub", bits, b.const(bits.type, 0x4B400000))  # the bits of _ROUND
    half = b.binary("ashr", whole, b.const(bits.type, 1))
    rest = b.binary("sub", whole, half)
    for exponent in (half, rest):
        biased = b.binary("add", exponent, b.const(bits.type, 127))
        power = b.binary("shl", biased, b.const(bits.type, 23))
        p = b.binary("fmul", p, b.cast("bitcast", power, p.type))
    return p


def _log_parts(b: FunctionBuilder, x: IRValue) -> tuple[IRValue, IRValue, IRValue]:
    """(e, f, log(1 + f) - f) with x = 2**e * (1 + f), 1 + f in [sqrt(1/2), sqrt(2))."""
    subnormal = b.fcmp("olt", x, _const(b, x, 2.0**-126))
    normal = b.select(subnormal, b.binary("fmul", x, _const(b, x, 2.0**25)), x)
    bias = b.select(subnormal, _const(b, x, -25.0), _const(b, x, 0.0))
    bits = b.cast("bitcast", normal, x.type.with_scalar("i32"))
    offset = b.binary("sub", bits, b.const(bits.type, _SQRT_HALF_BITS))
    exponent = b.binary("ashr", offset, b.const(bits.type, 23))
    power = b.binary("shl", exponent, b.const(bits.type, 23))
    mantissa = b.cast("bitcast", b.binary("sub", bits, power), x.type)
    e = b.binary("fadd", b.cast("sitofp", exponent, x.type), bias)
    f = b.binary("fsub", mantissa, _const(b, x, 1.0))
    bracket = _fma(b, f, _horner(b, f, _LOG), _const(b, x, -0.5))
    return e, f, b.binary("fmul", b.binary("fmul", f, f), bracket)


def _log_special(b: FunctionBuilder, x: IRValue, result: IRValue) -> IRValue:
    """-inf at zeros, NaN below, inf and NaN as they are."""
    zero = _const(b, x, 0.0)
    other = b.select(b.fcmp("olt", x, zero), _const(b, x, _NAN), x)
    other = b.select(b.fcmp("oeq", x, zero), _const(b, x, -_INF), other)
    above = b.fcmp("ogt", x, zero)
    regular = b.binary("and", above, b.fcmp("olt", x, _const(b, x, _INF)))
    return b.select(regular, result, other)


# ---- sine and cosine ---------------------------------------------------------------------


def _sine(b: FunctionBuilder, name: str, x: IRValue) -> IRValue:
    if x.type.scalar == "double":
        return libm(b, name, x)
    fast = _sine_fast(b, name, x)
    bits = b.cast("bitcast", x, x.type.with_scalar("i32"))
    body = b.binary("and", bits, b.const(bits.type, 0x7FFFFFFF))
    above = b.binary("sub", body, b.const(bits.type, _HUGE_BITS))
    huge = b.icmp("ult", above, b.const(bits.type, _INF_BITS - _HUGE_BITS))
    start, slow, done = b.current, b.label("huge"), b.label("done")
    b.cond_br(_any(b, huge), slow, done, unlikely=True)
    b.block(slow)
    wide = libm(b, name, b.cast("fpext", x, x.type.with_scalar("double")))
    slowly = b.select(huge, b.cast("fptrunc", wide, x.type), fast)
    slow_end = b.current
    b.block(done)
    return b.phi(x.type, [(fast, start), (slowly, slow_end)])


def _sine_fast(b: FunctionBuilder, name: str, x: IRValue) -> IRValue:
    """Reduce by multiples of pi/2, then both polynomials, picked by the quadrant."""
    shifted = _fma(b, x, _const(b, x, _TWO_OVER_PI), _const(b, x, _ROUND))
    n = b.binary("fsub", shifted, _const(b, x, _ROUND))
    r = x
    for piece in _HALF_PI:
        r = _fma(b, n, _const(b, x, -piece), r)
    rr = b.binary("fmul", r, r)
    sine = _fma(b, b.binary("fmul", r, rr), _horner(b, rr, _SIN), r)
    bracket = _fma(b, rr, _horner(b, rr, _COS), _const(b, x, -0.5))
    cosine = _fma(b, rr, bracket, _const(b, x, 1.0))
    quadrant = b.cast("bitcast", shifted, x.type.with_scalar("i32"))
    one, zero = b.const(quadrant.type, 1), b.const(quadrant.type, 0)
    if name == "cos":
        quadrant = b.binary("add", quadrant, one)
    odd = b.icmp("ne", b.binary("and", quadrant, one), zero)
    half_turn = b.binary("and", quadrant, b.const(quadrant.type, 2))
    sign = b.binary("shl", half_turn, b.const(quadrant.type, 30))
    bits = b.cast("bitcast", b.select(odd, cosine, sine), quadrant.type)
    result = b.cast("bitcast", b.binary("xor", bits, sign), x.type)
    if name == "cos":
        return result
    return b.select(b.fcmp("oeq", x, _const(b, x, 0.0)), x, result)  # sin(-0) is -0


def _any(b: FunctionBuilder, mask: IRValue) -> IRValue:
    if mask.type.lanes == 1:
        return mask
    bits = b.cast("bitcast", mask, IRType(f"i{mask.type.lanes}"))
    return b.icmp("ne", bits, b.const(bits.type, 0))


# ---- pieces ------------------------------------------------------------------------------


def libm(b: FunctionBuilder, name: str, x: IRValue) -> IRValue:
    """libm's f64 function on each lane: one loop in a helper function per name and width."""
    if x.type.lanes == 1:
        return b.call(name, F64, [x])

    def build(module: ModuleBuilder, helper: str) -> None:
        _write_lane_loop(FunctionBuilder(module, helper, x.type, [("x", x.type)], "internal"), name)

    return b.call(b.module.helper(f"luminal.{name}.v{x.type.lanes}", build), x.type, [x])


def _write_lane_loop(f: FunctionBuilder, name: str) -> None:
    (x,) = f.params
    lanes = f.alloca(F64, x.type.lanes)
    f.store(x, lanes, 64)
    entry, loop, done = f.current, f.label("loop"), f.label("done")
    f.block(loop)
    index = f.phi(I64, [(f.const(I64, 0), entry)])
    address = f.gep(lanes, index, F64)
    f.store(f.call(name, F64, [f.load(F64, address, 8)]), address, 8)
    following = f.binary("add", index, f.const(I64, 1))
    f.add_incoming(index, following, f.current)
    f.cond_br(f.icmp("ult", following, f.const(I64, x.type.lanes)), loop, done)
    f.block(done)
    f.ret(f.load(x.type, lanes, 64))


def _const(b: FunctionBuilder, like: IRValue, value: float) -> IRValue:
    return b.const(like.type, value)


def _fma(b: FunctionBuilder, x: IRValue, y: IRValue, z: IRValue) -> IRValue:
    return b.intrinsic("llvm.fma", x.type, [x, y, z])


def _horner(b: FunctionBuilder, x: IRValue, coefficients: Sequence[float]) -> IRValue:
    """c0 + x*(c1 + x*(...)), each step one fma."""
    value = _const(b, x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = _fma(b, value, x, _const(b, x, c))
    return value
