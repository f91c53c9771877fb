"""exp, log, exp2, log2, sin and cos as LLVM IR, for any number of lanes.

In f32 they are polynomials (`expand/polynomials.py`) evaluated with explicit fma, the same
operations in the same order for scalars and vectors and on every target, so the bits never depend
on either. In f64, and for f32 sines of huge arguments, libm is called lane by lane.
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
from luminal.expand import polynomials as table

Emit1 = Callable[[FunctionBuilder, IRValue], IRValue]

_INF, _NAN = float("inf"), float("nan")


def emit_exp(b: FunctionBuilder, x: IRValue) -> IRValue:
    """e**x: n = round(x/ln 2), then 2**n * e**(x - n ln 2)."""
    if x.type.scalar == "double":
        return libm(b, "exp", x)
    x = _clamp(b, x, -110.0, 100.0)  # 0 below, inf above; keeps n finite
    shifted = _fma(b, x, _const(b, x, table.LOG2E_HI), _const(b, x, table.ROUND))
    n = b.binary("fsub", shifted, _const(b, x, table.ROUND))
    r = _fma(b, n, _const(b, x, -table.LN2_LO), _fma(b, n, _const(b, x, -table.LN2_HI), x))
    p = _fma(b, b.binary("fmul", r, r), _horner(b, r, table.EXP), r)
    return _scale(b, b.binary("fadd", p, _const(b, x, 1.0)), n, shifted)


def emit_exp2(b: FunctionBuilder, x: IRValue) -> IRValue:
    """2**x: n = round(x), then 2**n * 2**(x - n)."""
    if x.type.scalar == "double":
        return libm(b, "exp2", x)
    x = _clamp(b, x, -160.0, 160.0)  # 0 below, inf above; keeps n finite
    shifted = b.binary("fadd", x, _const(b, x, table.ROUND))
    n = b.binary("fsub", shifted, _const(b, x, table.ROUND))
    r = b.binary("fsub", x, n)
    return _scale(b, _fma(b, r, _horner(b, r, table.EXP2), _const(b, x, 1.0)), n, shifted)


def emit_log(b: FunctionBuilder, x: IRValue) -> IRValue:
    """log(x) = e ln 2 + log(1 + f)."""
    if x.type.scalar == "double":
        return libm(b, "log", x)
    e, f, tail = _log_parts(b, x)
    low = _fma(b, e, _const(b, x, table.LN2_LO), tail)
    return _log_special(b, x, _fma(b, e, _const(b, x, table.LN2_HI), b.binary("fadd", f, low)))


def emit_log2(b: FunctionBuilder, x: IRValue) -> IRValue:
    """log2(x) = e + log(1 + f) / ln 2, the factor in two pieces."""
    if x.type.scalar == "double":
        return libm(b, "log2", x)
    e, f, tail = _log_parts(b, x)
    low = b.binary("fmul", f, _const(b, x, table.LOG2E_LO))
    low = _fma(b, tail, _const(b, x, table.LOG2E_HI), low)
    high = _fma(b, f, _const(b, x, table.LOG2E_HI), low)
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
    whole = b.binary("sub", bits, b.const(bits.type, table.ROUND_BITS))
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
    offset = b.binary("sub", bits, b.const(bits.type, table.SQRT_HALF_BITS))
    exponent = b.binary("ashr", offset, b.const(bits.type, 23))
    power = b.binary("shl", exponent, b.const(bits.type, 23))
    mantissa = b.cast("bitcast", b.binary("sub", bits, power), x.type)
    e = b.binary("fadd", b.cast("sitofp", exponent, x.type), bias)
    f = b.binary("fsub", mantissa, _const(b, x, 1.0))
    bracket = _fma(b, f, _horner(b, f, table.LOG), _const(b, x, -0.5))
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
    above = b.binary("sub", body, b.const(bits.type, table.HUGE_BITS))
    huge = b.icmp("ult", above, b.const(bits.type, table.INF_BITS - table.HUGE_BITS))
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
    shifted = _fma(b, x, _const(b, x, table.TWO_OVER_PI), _const(b, x, table.ROUND))
    n = b.binary("fsub", shifted, _const(b, x, table.ROUND))
    r = x
    for piece in table.HALF_PI:
        r = _fma(b, n, _const(b, x, -piece), r)
    rr = b.binary("fmul", r, r)
    sine = _fma(b, b.binary("fmul", r, rr), _horner(b, rr, table.SIN), r)
    bracket = _fma(b, rr, _horner(b, rr, table.COS), _const(b, x, -0.5))
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
