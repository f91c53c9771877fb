"""The operations of expanded IR as LLVM IR.

`OPERATIONS[op](b, dtype, args, out)` writes one on operands of a dtype (of the arms, for select),
whose result has the type `out`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from luminal.base.dots import BF16_PAIRS, HALVES, INT8_FOURS, UINT8_BY_INT8, UINT8_FOURS, Dot
from luminal.base.dtypes import DType, bool_, float32, float64, int32, int64, uint16, uint32
from luminal.codegen import llvm_arm_dots, llvm_dots
from luminal.codegen.llvm_arm_dots import dot_of_words
from luminal.codegen.llvm_builder import FunctionBuilder, IRType, IRValue
from luminal.codegen.llvm_dots import bf16_pairs, bytes_by_signed
from luminal.codegen.llvm_library import library
from luminal.expand.builder import Instructions
from luminal.expand.ir import Type

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
SCATTERED = (float32, float64, int32, int64)  # of which AVX-512 stores elements of a vector apart
Emit = Callable[[FunctionBuilder, DType, list[IRValue], Type], IRValue]
DotEmit = Callable[[FunctionBuilder, IRValue, IRValue, IRValue], IRValue]


_FLOATS = {4: "float", 8: "double"}


@lru_cache(1024)
def ir_type(type_: Type) -> IRType:
    """The type of a value in registers."""
    dtype = type_.dtype
    if dtype.is_float:
        return IRType(_FLOATS[dtype.size], type_.lanes)
    return IRType("i1" if dtype is bool_ else f"i{dtype.bits}", type_.lanes)


def _by_kind(of_floats: str, signed: str, unsigned: str | None = None) -> Callable[..., str]:
    """The text of an instruction on two operands: one for floats, one for integers, or one for each
    kind of these.
    """

    @lru_cache(256)
    def spelled(dtype: DType, type_: IRType) -> str:
        of_integers = signed if dtype.is_signed else unsigned or signed
        return f"{of_floats if dtype.is_float else of_integers} {type_} %s, %s"

    return spelled


def _instruction(*names: str) -> Emit:
    spelled = _by_kind(*names)

    def emit(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
        x, y = args
        return b.assign(x.type, spelled(dtype, x.type) % (x.name, y.name))

    return emit


def _comparison(of_floats: str, *of_integers: str) -> Emit:
    spelled = _by_kind(f"fcmp {of_floats}", *[f"icmp {predicate}" for predicate in of_integers])

    def emit(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
        x, y = args
        return b.assign(ir_type(out), spelled(dtype, x.type) % (x.name, y.name))

    return emit


def _intrinsic(of_floats: str, signed: str = "", unsigned: str = "") -> Emit:
    @lru_cache(256)
    def named(dtype: DType, type_: IRType) -> str:
        of_integers = signed if dtype.is_signed else unsigned
        return f"llvm.{of_floats if dtype.is_float else of_integers}.{type_.mangled}"

    def emit(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
        type_ = args[0].type
        return b.call(named(dtype, type_), type_, args)

    return emit


def _library(name: str) -> Emit:
    return lambda b, dtype, args, out: library(b, name, args[0])


def _cast(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
    (value,), to = args, out.dtype
    type_ = ir_type(out)
    if dtype is bool_:
        return b.cast("uitofp" if to.is_float else "zext", value, type_)
    if dtype.is_float and to.is_float:
        return b.cast("fpext" if to.size > dtype.size else "fptrunc", value, type_)
    if dtype.is_float:
        return b.cast("fptosi" if to.is_signed else "fptoui", value, type_)
    if to.is_float:
        return b.cast("sitofp" if dtype.is_signed else "uitofp", value, type_)
    if to.size <= dtype.size:
        return b.cast("trunc", value, type_)
    return b.cast("sext" if dtype.is_signed else "zext", value, type_)


def _bitcast(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
    return b.cast("bitcast", args[0], ir_type(out))


def _half(upper: bool) -> Emit:
    def emit(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
        start = out.lanes if upper else 0
        return b.shuffle(args[0], args[0], range(start, start + out.lanes))

    return emit


def _any(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
    bits = b.cast("bitcast", args[0], IRType(f"i{args[0].type.lanes}"))
    return b.icmp("ne", bits, b.const(bits.type, 0))


def _count(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
    # A vector of bools is an integer of that many bits.
    type_ = IRType(f"i{args[0].type.lanes}")
    bits = b.cast("bitcast", args[0], type_)
    ones = bits if type_.bits == 1 else b.intrinsic("llvm.ctpop", type_, [bits])
    return b.cast("zext", ones, ir_type(out))


def _scale(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
    # A factor of 2**n in one instruction, right for subnormal results as well, which an addition to
    # the exponent's bits is not.
    everywhere, current_rounding = b.const(IRType(f"i{out.lanes}"), -1), b.const(IRType("i32"), 4)
    scaled = [*args, args[0], everywhere, current_rounding]
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if dtype is float32 else 'pd'}.512"
    return b.intrinsic(name, args[0].type, scaled, ())


def _splat(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
    if dtype is uint32 and "dotprod" in b.features:
        return llvm_arm_dots.word_in_lanes(b, args[0], out.lanes)
    return b.splat(args[0], out.lanes)


def _widen(narrow: str) -> Emit:
    def emit(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
        return b.cast("fpext", b.cast("bitcast", args[0], IRType(narrow, out.lanes)), ir_type(out))

    return emit


def _narrow(narrow: str) -> Emit:
    def emit(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
        short = b.cast("fptrunc", args[0], IRType(narrow, out.lanes))
        return b.cast("bitcast", short, ir_type(out))

    return emit


def _of_aarch64(features: tuple[str, ...]) -> set[tuple[str, Type]]:
    available = {("max", Type(int32, n)) for n in WIDTHS[1:]}
    available |= {
        (name, Type(float32, n)) for name in ("widen_half", "widen_bfloat") for n in WIDTHS
    }
    narrowed = ("narrow_half", "narrow_bfloat") if "bf16" in features else ("narrow_half",)
    available |= {(name, Type(uint16, n)) for name in narrowed for n in WIDTHS}
    for dot, row in llvm_arm_dots.INSTRUCTIONS.items():
        if row.feature in features:
            available |= {
                (dot.name, Type(dot.accumulator, dot.m * n))
                for n in llvm_arm_dots.WIDTHS
                if n >= dot.n
            }
    return available


def _dot(dot: Dot, of_x86: DotEmit | None = None) -> Emit:
    """By the instruction of AArch64, else as x86-64 has it."""

    def emit(b: FunctionBuilder, dtype: DType, args: list[IRValue], out: Type) -> IRValue:
        if of_x86 is None or "neon" in b.features:
            return dot_of_words(b, dot, *args)
        return of_x86(b, *args)

    return emit


@lru_cache
def instructions(features: tuple[str, ...]) -> Instructions:
    """The operations that only some machines have, for one with these features."""
    # What expanded IR may say of a machine: `expand` writes a plain loop or sequence for all else.
    available = {(name, Type(float64, n)) for name in ("sin", "cos") for n in WIDTHS}
    if "neon" in features:
        available |= _of_aarch64(features)
    if "avx2" in features:
        available |= {("max", Type(int32, n)) for n in WIDTHS[1:]}
    if "avx512f" in features:
        available |= {("scale", Type(float32, 16)), ("scale", Type(float64, 8))}
        available |= {("scatter", Type(dtype, n)) for dtype in SCATTERED for n in WIDTHS[1:]}
        available |= {("max", Type(int64, n)) for n in WIDTHS[1:]}
    if "avx512bf16" in features:
        available |= {(BF16_PAIRS.name, Type(float32, n)) for n in (1, *llvm_dots.WIDTHS)}
    if "avx2" in features:
        widths = llvm_dots.WIDTHS if "avx512bw" in features else llvm_dots.WIDTHS[:-1]
        available |= {(UINT8_BY_INT8.name, Type(int32, n)) for n in (1, *widths)}
    if "f16c" in features:
        available |= {("widen_half", Type(float32, n)) for n in WIDTHS}
        available |= {("narrow_half", Type(uint16, n)) for n in WIDTHS}
    return frozenset(available)


OPERATIONS: Mapping[str, Emit] = {
    "add": _instruction("fadd", "add"),
    "sub": _instruction("fsub", "sub"),
    "mul": _instruction("fmul", "mul"),
    "div": _instruction("fdiv", ""),
    "fma": _intrinsic("fma"),
    "sqrt": _intrinsic("sqrt"),
    "floor": _intrinsic("floor"),
    "abs": _intrinsic("fabs"),
    "copysign": _intrinsic("copysign"),
    "fmod": _instruction("frem", ""),
    "quotient": _instruction("", "sdiv", "udiv"),
    "remainder": _instruction("", "srem", "urem"),
    "max": _intrinsic("maximum", "smax", "umax"),
    "min": _intrinsic("minimum", "smin", "umin"),
    "and": _instruction("", "and"),
    "or": _instruction("", "or"),
    "xor": _instruction("", "xor"),
    "shl": _instruction("", "shl"),
    "shr": _instruction("", "ashr", "lshr"),
    "lt": _comparison("olt", "slt", "ult"),
    "le": _comparison("ole", "sle", "ule"),
    "eq": _comparison("oeq", "eq"),
    "ne": _comparison("une", "ne"),
    "select": lambda b, dtype, args, out: b.select(*args),
    "cast": _cast,
    "bitcast": _bitcast,
    **{name: _library(name) for name in ("sin", "cos")},
    "splat": _splat,
    "lower": _half(upper=False),
    "upper": _half(upper=True),
    "extract": lambda b, dtype, args, out: b.extract(args[0], args[1]),
    "any": _any,
    "count": _count,
    "scale": _scale,
    BF16_PAIRS.name: _dot(BF16_PAIRS, bf16_pairs),
    INT8_FOURS.name: _dot(INT8_FOURS),
    UINT8_FOURS.name: _dot(UINT8_FOURS),
    UINT8_BY_INT8.name: _dot(UINT8_BY_INT8, bytes_by_signed),
    **{dot.name: _dot(dot) for dot in HALVES},
    "widen_half": _widen("half"),
    "narrow_half": _narrow("half"),
    "widen_bfloat": _widen("bfloat"),
    "narrow_bfloat": _narrow("bfloat"),
}
