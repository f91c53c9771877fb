"""Casts as LLVM IR, total on every input, and how dtypes sit in registers and in memory.

A bool is `i1` in registers and `i8` 0/1 in memory; f16 and bf16 are only converted. Their
conversions use the hardware only where it is IEEE: AVX-512's bf16 convert flushes subnormals and
compiler libcalls for f16 need not exist in the process, so bf16 (and f16 without F16C) is done on
the bits. Every float narrowing rounds once, to nearest even, also from f64 and from 64-bit ints.
"""

from luminal.codegen.llvm_builder import F32, FunctionBuilder, IRType, IRValue
from luminal.dtypes import DType, bool_, float16, float32, float64
from luminal.errors import CompileError

_FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


def register_type(dtype: DType, lanes: int = 1) -> IRType:
    """The type of `lanes` values in registers."""
    if dtype.is_float:
        return IRType(_FLOATS[dtype.short], lanes)
    return IRType("i1" if dtype == bool_ else f"i{dtype.bits}", lanes)


def memory_type(dtype: DType, lanes: int = 1) -> IRType:
    """The type of `lanes` values in memory: as in registers, but `i8` for bool."""
    return IRType("i8", lanes) if dtype == bool_ else register_type(dtype, lanes)


def from_memory(b: FunctionBuilder, dtype: DType, value: IRValue) -> IRValue:
    """Register form of a value just loaded."""
    return _nonzero(b, value) if dtype == bool_ else value


def to_memory(b: FunctionBuilder, dtype: DType, value: IRValue) -> IRValue:
    """Memory form of a value about to be stored."""
    return b.cast("zext", value, value.type.with_scalar("i8")) if dtype == bool_ else value


def emit_cast(b: FunctionBuilder, source: DType, args: list[IRValue], target: DType) -> IRValue:
    """Cast: float to int saturates and NaN gives 0, int narrowing wraps, to bool is `x != 0`."""
    (value,) = args
    if source == target:
        return value
    if source.is_storage:
        wide = _widen(b, source, value)
        return emit_cast(b, float32, [wide], target)
    if target.is_storage:
        return _narrow(b, target, _storage_operand(b, source, value, target))
    type_ = register_type(target, value.type.lanes)
    if target == bool_:
        return _nonzero(b, value)
    if source == bool_:
        return b.select(value, b.const(type_, 1), b.const(type_, 0))
    if source.is_float and target.is_float:
        return b.cast("fpext" if target.size > source.size else "fptrunc", value, type_)
    if source.is_float:
        return _saturate(b, value, target)
    if target.is_float:
        return b.cast("sitofp" if source.is_signed else "uitofp", value, type_)
    if target.size <= source.size:
        return b.cast("trunc", value, type_)
    return b.cast("sext" if source.is_signed else "zext", value, type_)


def emit_bitcast(b: FunctionBuilder, source: DType, args: list[IRValue], target: DType) -> IRValue:
    """The same bytes under a dtype of the same size; a byte read as bool is `byte != 0`."""
    if source.size != target.size:
        raise CompileError(
            f"Bitcast: {source} has {source.size} bytes, {target} has {target.size}; use Cast"
        )
    if bool_ in (source, target):
        return from_memory(b, target, to_memory(b, source, args[0]))
    return b.cast("bitcast", args[0], register_type(target, args[0].type.lanes))


def _saturate(b: FunctionBuilder, value: IRValue, target: DType) -> IRValue:
    """Float to int toward zero, clamped, NaN to 0 (LLVM's `fptosi.sat` goes lane by lane)."""
    type_ = register_type(target, value.type.lanes)
    lowest = -(1 << target.bits - 1) if target.is_signed else 0
    highest = lowest + (1 << target.bits) - 1
    low, end = b.const(value.type, lowest), b.const(value.type, highest + 1)  # powers of two: exact
    below, above = b.fcmp("olt", value, low), b.fcmp("oge", value, end)
    inside = b.binary("and", b.fcmp("oge", value, low), b.fcmp("olt", value, end))
    safe = b.select(inside, value, b.const(value.type, 0.0))
    whole = b.cast("fptosi" if target.is_signed else "fptoui", safe, type_)
    whole = b.select(below, b.const(type_, lowest), whole)
    return b.select(above, b.const(type_, highest), whole)


def _nonzero(b: FunctionBuilder, value: IRValue) -> IRValue:
    if value.type.is_float:
        return b.fcmp("une", value, b.const(value.type, 0.0))
    return value if value.type.scalar == "i1" else b.icmp("ne", value, b.const(value.type, 0))


# ---- storage floats ----------------------------------------------------------------------


def _storage_operand(b: FunctionBuilder, source: DType, value: IRValue, target: DType) -> IRValue:
    """An f32 that rounds to f16 or bf16 as `value` itself does.

    Ints go to f16 through f32: those that f32 cannot hold overflow f16. To bf16 they go through
    f64 and then, as f64 does, to f32 by rounding to odd, which no second rounding can notice.
    """
    if source == float32:
        return value
    if source != float64 and (source.size <= 2 or target == float16):
        return emit_cast(b, source, [value], float32)
    if source.is_int and source.size == 8:
        value = _sticky(b, value)
    return _round_to_odd(b, emit_cast(b, source, [value], float64))


def _sticky(b: FunctionBuilder, value: IRValue) -> IRValue:
    """A 64-bit int beyond 2**30 with its low 12 bits as one sticky bit: exact in f64."""
    type_ = value.type
    lost = b.icmp("ne", b.binary("and", value, b.const(type_, 4095)), b.const(type_, 0))
    kept = b.binary("and", value, b.const(type_, -4096))
    sticky = b.select(lost, b.const(type_, 2048), b.const(type_, 0))
    shifted = b.binary("add", value, b.const(type_, 1 << 30))
    large = b.icmp("ugt", shifted, b.const(type_, 1 << 31))
    return b.select(large, b.binary("or", kept, sticky), value)


def _round_to_odd(b: FunctionBuilder, value: IRValue) -> IRValue:
    """f64 to f32, rounded toward zero with the last bit set if inexact (NaN stays NaN)."""
    type_ = F32.with_lanes(value.type.lanes)
    bits_type = type_.with_scalar("i32")
    near = b.cast("fptrunc", value, type_)
    back = b.cast("fpext", near, value.type)
    inexact = b.fcmp("one", back, value)
    away = b.fcmp("ogt", _absolute(b, back), _absolute(b, value))
    bits = b.cast("bitcast", near, bits_type)
    bits = b.binary("sub", bits, b.cast("zext", away, bits_type))
    bits = b.binary("or", bits, b.cast("zext", inexact, bits_type))
    return b.cast("bitcast", bits, type_)


def _absolute(b: FunctionBuilder, value: IRValue) -> IRValue:
    return b.intrinsic("llvm.fabs", value.type, [value])


def _widen(b: FunctionBuilder, source: DType, value: IRValue) -> IRValue:
    """f16 or bf16 to f32: exact."""
    type_ = F32.with_lanes(value.type.lanes)
    if source == float16 and "f16c" in b.features:
        return b.cast("fpext", value, type_)
    words = b.cast("bitcast", value, value.type.with_scalar("i16"))
    bits = b.cast("zext", words, type_.with_scalar("i32"))
    if source == float16:
        return _widen_half_bits(b, bits)
    return b.cast("bitcast", _shift(b, "shl", bits, 16), type_)


def _widen_half_bits(b: FunctionBuilder, bits: IRValue) -> IRValue:
    """Move exponent and mantissa into an f32, then multiply by 2**112 to correct the bias."""
    int_type, type_ = bits.type, bits.type.with_scalar("float")
    body = _shift(b, "shl", b.binary("and", bits, b.const(int_type, 0x7FFF)), 13)
    scaled = b.binary("fmul", b.cast("bitcast", body, type_), b.const(type_, 2.0**112))
    special = b.icmp("uge", body, b.const(int_type, 0x7C00 << 13))
    full = b.binary("or", body, b.const(int_type, 0x7F800000))
    magnitude = b.select(special, full, b.cast("bitcast", scaled, int_type))
    sign = _shift(b, "shl", b.binary("and", bits, b.const(int_type, 0x8000)), 16)
    return b.cast("bitcast", b.binary("or", magnitude, sign), type_)


def _narrow(b: FunctionBuilder, target: DType, value: IRValue) -> IRValue:
    """f32 to f16 or bf16, to nearest even."""
    type_ = register_type(target, value.type.lanes)
    if target == float16 and "f16c" in b.features:
        return b.cast("fptrunc", value, type_)
    narrow = _narrow_half_bits if target == float16 else _narrow_bfloat_bits
    words = b.cast("trunc", narrow(b, value), type_.with_scalar("i16"))
    return b.cast("bitcast", words, type_)


def _narrow_bfloat_bits(b: FunctionBuilder, value: IRValue) -> IRValue:
    """Add just under half a unit (exactly half if the kept part is odd), keep the upper half."""
    bits = b.cast("bitcast", value, value.type.with_scalar("i32"))
    upper = _shift(b, "lshr", bits, 16)
    odd = b.binary("and", upper, b.const(bits.type, 1))
    rounded = b.binary("add", bits, b.binary("add", odd, b.const(bits.type, 0x7FFF)))
    quiet = b.binary("or", upper, b.const(bits.type, 0x40))
    return b.select(b.fcmp("uno", value, value), quiet, _shift(b, "lshr", rounded, 16))


def _narrow_half_bits(b: FunctionBuilder, value: IRValue) -> IRValue:
    """Subnormal results round in an f32 addition to 0.5; the others by adding to the bits."""
    type_, int_type = value.type, value.type.with_scalar("i32")
    bits = b.cast("bitcast", value, int_type)
    body = b.binary("and", bits, b.const(int_type, 0x7FFFFFFF))
    moved = b.binary("fadd", b.cast("bitcast", body, type_), b.const(type_, 0.5))
    subnormal = b.binary("sub", b.cast("bitcast", moved, int_type), b.const(int_type, 0x3F000000))
    odd = b.binary("and", _shift(b, "lshr", body, 13), b.const(int_type, 1))
    rebias = b.const(int_type, 0xFFF - (112 << 23))
    normal = _shift(b, "lshr", b.binary("add", b.binary("add", body, rebias), odd), 13)
    small = b.icmp("ult", body, b.const(int_type, 113 << 23))
    half = b.select(small, subnormal, normal)
    overflows = b.icmp("uge", body, b.const(int_type, 143 << 23))
    half = b.select(overflows, b.const(int_type, 0x7C00), half)
    nan = b.binary("or", _shift(b, "lshr", body, 13), b.const(int_type, 0x7E00))
    nan = b.binary("and", nan, b.const(int_type, 0x7FFF))
    half = b.select(b.fcmp("uno", value, value), nan, half)
    sign = b.binary("and", _shift(b, "lshr", bits, 16), b.const(int_type, 0x8000))
    return b.binary("or", half, sign)


def _shift(b: FunctionBuilder, op: str, value: IRValue, count: int) -> IRValue:
    return b.binary(op, value, b.const(value.type, count))
