"""The pointwise primitives of HLIR as LLVM IR: total, vectorised, the same bits at every width.

`POINTWISE[op](b, dtype_in, args, dtype_out)` emits one op on values of any lane count (scalars
too) in any dtype the op takes. No input traps and none gives poison: SIMD evaluates both arms of a
Select. `dtype_in` is the dtype of the operands (of the arms, for Select), `dtype_out` of the
result. Emitters may open blocks: read `b.current` again before naming the block in a phi.
"""

from collections.abc import Callable

from luminal.codegen import llvm_minima as minima
from luminal.codegen.llvm_builder import FunctionBuilder, IRValue
from luminal.codegen.llvm_cast import emit_bitcast, emit_cast
from luminal.codegen.llvm_elementary import (
    Emit1,
    emit_cos,
    emit_exp,
    emit_exp2,
    emit_log,
    emit_log2,
    emit_sin,
)
from luminal.dtypes import DType, bool_
from luminal.errors import CompileError

Emit = Callable[[FunctionBuilder, DType, list[IRValue], DType], IRValue]


def _float_only(op: str, dtype: DType) -> None:
    if not dtype.is_float or dtype.is_storage:
        raise CompileError(f"{op}: takes f32 or f64, got {dtype}; Cast the operand first")


def _number_only(op: str, dtype: DType) -> None:
    if dtype.is_storage or dtype == bool_:
        raise CompileError(
            f"{op}: takes f32, f64 or integers, got {dtype}; Cast the operands first"
        )


def _function(op: str, emit: Emit1) -> Emit:
    """A float function of one operand."""

    def emitter(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
        _float_only(op, dtype)
        return emit(b, args[0])

    return emitter


def _arithmetic(op: str, float_op: str, int_op: str) -> Emit:
    """One instruction for floats, one (wrapping) for ints."""

    def emitter(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
        _number_only(op, dtype)
        return b.binary(float_op if dtype.is_float else int_op, args[0], args[1])

    return emitter


def _logical(op: str, instruction: str) -> Emit:
    """One bitwise instruction on ints or bools."""

    def emitter(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
        if dtype.is_float:
            raise CompileError(f"{op}: takes integers or bool, got {dtype}; Bitcast the operands")
        return b.binary(instruction, args[0], args[1])

    return emitter


def _comparison(op: str, float_predicate: str, signed: str, unsigned: str) -> Emit:
    """IEEE for floats: false where an operand is NaN."""

    def emitter(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
        if dtype.is_storage:
            raise CompileError(f"{op}: takes f32, f64, integers or bool, got {dtype}; Cast first")
        if dtype.is_float:
            return b.fcmp(float_predicate, args[0], args[1])
        return b.icmp(signed if dtype.is_signed else unsigned, args[0], args[1])

    return emitter


def _sqrt(b: FunctionBuilder, x: IRValue) -> IRValue:
    return b.intrinsic("llvm.sqrt", x.type, [x])


def _floor(b: FunctionBuilder, x: IRValue) -> IRValue:
    return b.intrinsic("llvm.floor", x.type, [x])


def _recip(b: FunctionBuilder, x: IRValue) -> IRValue:
    return b.binary("fdiv", b.const(x.type, 1.0), x)


def _div(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
    _float_only("Div", dtype)
    return b.binary("fdiv", args[0], args[1])


def _maximum(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
    """NaN if an operand is NaN; +0 above -0."""
    if dtype.is_storage:
        raise CompileError(f"Maximum: takes f32, f64, integers or bool, got {dtype}; Cast first")
    if dtype == bool_:
        return b.binary("or", args[0], args[1])
    if dtype.is_float:
        return minima.greater(b, args[0], args[1])
    return b.intrinsic("llvm.smax" if dtype.is_signed else "llvm.umax", args[0].type, args)


def _mul(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
    _number_only("Mul", dtype)
    if not dtype.is_float:
        return b.binary("mul", args[0], args[1])
    return minima.product(b, args[0], args[1])


def _floor_div(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
    _number_only("FloorDiv", dtype)
    if dtype.is_float:
        return _float_floor_div(b, args[0], args[1])
    return _int_floor_div(b, dtype, args[0], args[1])


def _mod(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
    _number_only("Mod", dtype)
    if dtype.is_float:
        return _float_mod(b, args[0], args[1])
    return _int_mod(b, dtype, args[0], args[1])


# ---- integer division --------------------------------------------------------------------


def _truncated(b: FunctionBuilder, dtype: DType, x: IRValue, y: IRValue) -> tuple[IRValue, IRValue]:
    """(quotient toward zero, remainder) where y is neither 0 nor -1; by 1 elsewhere.

    x86 has no vector division of ints. A float quotient of n-bit ints that has more than 2n bits
    of precision to spare truncates to the exact one: f32 up to 16 bits, f64 up to 32.
    """
    type_ = x.type
    unsafe = b.icmp("eq", y, b.const(type_, 0))
    if dtype.is_signed:
        unsafe = b.binary("or", unsafe, b.icmp("eq", y, b.const(type_, -1)))
    y = b.select(unsafe, b.const(type_, 1), y)
    kind = "s" if dtype.is_signed else "u"
    if type_.lanes == 1 or dtype.bits == 64:
        quotient = b.binary(f"{kind}div", x, y)
    else:
        wide = type_.with_scalar("double" if dtype.bits == 32 else "float")
        ratio = b.binary("fdiv", b.cast(f"{kind}itofp", x, wide), b.cast(f"{kind}itofp", y, wide))
        quotient = b.cast(f"fpto{kind}i", ratio, type_)
    return quotient, b.binary("sub", x, b.binary("mul", quotient, y))


def _wrong_sign(b: FunctionBuilder, remainder: IRValue, y: IRValue) -> IRValue:
    """Where the truncated remainder is not 0 and its sign is not the divisor's."""
    zero = b.const(y.type, 0)
    differ = b.icmp("slt", b.binary("xor", remainder, y), zero)
    return b.binary("and", differ, b.icmp("ne", remainder, zero))


def _int_floor_div(b: FunctionBuilder, dtype: DType, x: IRValue, y: IRValue) -> IRValue:
    """Rounds down; by 0 gives 0; the lowest value // -1 wraps to itself."""
    zero = b.const(x.type, 0)
    quotient, remainder = _truncated(b, dtype, x, y)
    if dtype.is_signed:
        below = b.cast("sext", _wrong_sign(b, remainder, y), x.type)
        quotient = b.binary("add", quotient, below)
        negated = b.binary("sub", zero, x)
        quotient = b.select(b.icmp("eq", y, b.const(x.type, -1)), negated, quotient)
    return b.select(b.icmp("eq", y, zero), zero, quotient)


def _int_mod(b: FunctionBuilder, dtype: DType, x: IRValue, y: IRValue) -> IRValue:
    """The sign of y; by 0 gives 0 (as by 1: the remainder is 0 already)."""
    _, remainder = _truncated(b, dtype, x, y)
    if not dtype.is_signed:
        return remainder
    moved = b.binary("add", remainder, y)
    return b.select(_wrong_sign(b, remainder, y), moved, remainder)


# ---- float division: the steps of np.floor_divide and np.remainder ------------------------


def _float_floor_div(b: FunctionBuilder, x: IRValue, y: IRValue) -> IRValue:
    """(x - fmod(x, y)) / y, snapped to an integer; the plain quotient where y is 0."""
    zero, one = b.const(x.type, 0.0), b.const(x.type, 1.0)
    mod = b.binary("frem", x, y)
    ratio = b.binary("fdiv", x, y)
    quotient = b.binary("fdiv", b.binary("fsub", x, mod), y)
    lowered = b.binary("fsub", quotient, one)
    quotient = b.select(_opposite(b, mod, y), lowered, quotient)
    floor = _floor(b, quotient)
    rest = b.binary("fsub", quotient, floor)
    snap = b.fcmp("ogt", rest, b.const(x.type, 0.5))
    floor = b.select(snap, b.binary("fadd", floor, one), floor)
    signed_zero = b.intrinsic("llvm.copysign", x.type, [zero, ratio])
    floor = b.select(b.fcmp("oeq", quotient, zero), signed_zero, floor)
    return b.select(b.fcmp("oeq", y, zero), ratio, floor)


def _float_mod(b: FunctionBuilder, x: IRValue, y: IRValue) -> IRValue:
    """fmod(x, y), moved by y where the signs differ; a zero gets the sign of y."""
    zero = b.const(x.type, 0.0)
    mod = b.binary("frem", x, y)
    moved = b.select(_opposite(b, mod, y), b.binary("fadd", mod, y), mod)
    signed_zero = b.intrinsic("llvm.copysign", x.type, [zero, y])
    return b.select(b.fcmp("oeq", mod, zero), signed_zero, moved)


def _opposite(b: FunctionBuilder, mod: IRValue, y: IRValue) -> IRValue:
    """Where mod is not 0 and (mod < 0) != (y < 0)."""
    zero = b.const(y.type, 0.0)
    differ = b.binary("xor", b.fcmp("olt", mod, zero), b.fcmp("olt", y, zero))
    return b.binary("and", differ, b.fcmp("une", mod, zero))


# ---- shifts and Select -------------------------------------------------------------------


def _int_only(op: str, dtype: DType) -> None:
    if not dtype.is_int:
        raise CompileError(f"{op}: takes integers, got {dtype}; Cast the operands first")


def _shl(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
    """0 where the count is negative or not below the width."""
    _int_only("Shl", dtype)
    x, count = args
    zero = b.const(x.type, 0)
    within = b.icmp("ult", count, b.const(x.type, dtype.bits))  # a negative count is a huge one
    shifted = b.binary("shl", x, b.select(within, count, zero))
    return b.select(within, shifted, zero)


def _shr(b: FunctionBuilder, dtype: DType, args: list[IRValue], _out: DType) -> IRValue:
    """Arithmetic for signed ints; 0 or -1 by sign where the count is negative or too large."""
    _int_only("Shr", dtype)
    x, count = args
    if dtype.is_signed:
        last = b.const(x.type, dtype.bits - 1)
        return b.binary("ashr", x, b.intrinsic("llvm.umin", x.type, [count, last]))
    zero = b.const(x.type, 0)
    within = b.icmp("ult", count, b.const(x.type, dtype.bits))
    return b.select(within, b.binary("lshr", x, b.select(within, count, zero)), zero)


def _select(b: FunctionBuilder, _in: DType, args: list[IRValue], _out: DType) -> IRValue:
    return b.select(*args)


POINTWISE: dict[str, Emit] = {
    "Exp": _function("Exp", emit_exp),
    "Log": _function("Log", emit_log),
    "Exp2": _function("Exp2", emit_exp2),
    "Log2": _function("Log2", emit_log2),
    "Sin": _function("Sin", emit_sin),
    "Cos": _function("Cos", emit_cos),
    "Sqrt": _function("Sqrt", _sqrt),
    "Recip": _function("Recip", _recip),
    "Floor": _function("Floor", _floor),
    "Cast": emit_cast,
    "Bitcast": emit_bitcast,
    "Add": _arithmetic("Add", "fadd", "add"),
    "Mul": _mul,
    "Div": _div,
    "FloorDiv": _floor_div,
    "Mod": _mod,
    "Maximum": _maximum,
    "LessThan": _comparison("LessThan", "olt", "slt", "ult"),
    "Equal": _comparison("Equal", "oeq", "eq", "eq"),
    "And": _logical("And", "and"),
    "Or": _logical("Or", "or"),
    "Xor": _logical("Xor", "xor"),
    "Shl": _shl,
    "Shr": _shr,
    "Select": _select,
}
