"""Dots as LLVM IR: their factors are words, their instructions as wide as registers."""

from __future__ import annotations

from luminal.codegen.llvm_builder import FunctionBuilder, IRType, IRValue

WIDTHS = (4, 8, 16)  # lanes of the accumulator that there is an instruction for

_PAIRS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def bf16_pairs(b: FunctionBuilder, acc: IRValue, a: IRValue, x: IRValue) -> IRValue:
    """`acc + a * x` for words of two bfloat16 each, in f32, with subnormals taken as zero."""
    return _dot(b, "avx512bf16.dpbf16ps", IRType("bfloat", 2), acc, a, x)


# AVX2's own instruction for u8 by i8 adds pairs of products in 16 bits, which saturates. So bytes
# at even and at odd places are widened and multiplied apart: four instructions, exact.
def bytes_by_signed(b: FunctionBuilder, acc: IRValue, a: IRValue, x: IRValue) -> IRValue:
    """The value of `acc + a * x` for words of four u8 and of four i8, in i32: by one instruction,
    or by those for pairs of i16, of the bytes at even and at odd places.
    """
    if "avx512vnni" in b.features:
        return _dot(b, "avx512.vpdpbusd", IRType("i8", 4), acc, a, x)
    halves = IRType("i16", 2 * acc.type.lanes)
    a, x = (b.cast("bitcast", factor, halves) for factor in (a, x))
    eight, low = (b.const(halves, n) for n in (8, 255))
    pairs = (
        (b.binary("and", a, low), b.binary("ashr", b.binary("shl", x, eight), eight)),
        (b.binary("lshr", a, eight), b.binary("ashr", x, eight)),
    )
    for one, other in pairs:
        acc = b.binary("add", acc, _sums_of_pairs(b, one, other))
    return acc


def _sums_of_pairs(b: FunctionBuilder, a: IRValue, x: IRValue) -> IRValue:
    """`a[2n] * x[2n] + a[2n+1] * x[2n+1]` of i16, in i32."""
    lanes = a.type.lanes // 2
    width = next(n for n in WIDTHS if n >= lanes)
    wide = [widened(b, value, 2 * width) for value in (a, x)]
    out = b.intrinsic(f"llvm.x86.{_PAIRS[width]}", IRType("i32", width), wide, ())
    return narrowed(b, out, lanes)


def _dot(
    b: FunctionBuilder, name: str, word: IRType, acc: IRValue, a: IRValue, x: IRValue
) -> IRValue:
    lanes = acc.type.lanes
    width = next(n for n in WIDTHS if n >= lanes)
    wide = [widened(b, value, width) for value in (acc, a, x)]
    words = [b.cast("bitcast", factor, word.with_lanes(word.lanes * width)) for factor in wide[1:]]
    type_ = acc.type.with_lanes(width)
    out = b.intrinsic(f"llvm.x86.{name}.{32 * width}", type_, [wide[0], *words], ())
    return narrowed(b, out, lanes)


def narrowed(b: FunctionBuilder, value: IRValue, lanes: int) -> IRValue:
    """The first lanes of a value."""
    if lanes == value.type.lanes:
        return value
    return b.extract(value, 0) if lanes == 1 else b.shuffle(value, value, range(lanes))


def widened(b: FunctionBuilder, value: IRValue, width: int) -> IRValue:
    """The value's lanes first among `width`, the rest of no meaning."""
    lanes = value.type.lanes
    if lanes == width:
        return value
    if lanes == 1:
        vector = value.type.with_lanes(width)
        return b.insert(b.zero(vector), value, 0)
    return b.shuffle(value, value, [*range(lanes), *([0] * (width - lanes))])
