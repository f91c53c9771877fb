"""Dots as LLVM IR: their factors are words, their instructions as wide as registers."""

from __future__ import annotations

from luminal.codegen.llvm_builder import FunctionBuilder, IRType, IRValue

WIDTHS = (4, 8, 16)  # lanes of the accumulator that there is an instruction for


def bf16_pairs(b: FunctionBuilder, acc: IRValue, a: IRValue, x: IRValue) -> IRValue:
    """`acc + a * x` for words of two bfloat16 each, in f32, with subnormals taken as zero."""
    return _dot(b, "avx512bf16.dpbf16ps", IRType("bfloat", 2), acc, a, x)


def bytes_by_signed(b: FunctionBuilder, acc: IRValue, a: IRValue, x: IRValue) -> IRValue:
    """`acc + a * x` for words of four u8 and of four i8, in i32."""
    return _dot(b, "avx512.vpdpbusd", IRType("i8", 4), acc, a, x)


def _dot(
    b: FunctionBuilder, name: str, word: IRType, acc: IRValue, a: IRValue, x: IRValue
) -> IRValue:
    lanes = acc.type.lanes
    width = next(n for n in WIDTHS if n >= lanes)
    wide = [_widened(b, value, width) for value in (acc, a, x)]
    words = [b.cast("bitcast", each, word.with_lanes(word.lanes * width)) for each in wide[1:]]
    type_ = acc.type.with_lanes(width)
    out = b.intrinsic(f"llvm.x86.{name}.{32 * width}", type_, [wide[0], *words], ())
    if lanes == width:
        return out
    return b.extract(out, 0) if lanes == 1 else b.shuffle(out, out, range(lanes))


def _widened(b: FunctionBuilder, value: IRValue, width: int) -> IRValue:
    """The value's lanes first among `width`, the rest of no meaning."""
    lanes = value.type.lanes
    if lanes == width:
        return value
    if lanes == 1:
        vector = value.type.with_lanes(width)
        return b.insert(b.zero(vector), value, 0)
    return b.shuffle(value, value, [*range(lanes), *([0] * (width - lanes))])
