"""Dots as LLVM IR: their factors are words, their instructions as wide as registers."""

from __future__ import annotations

from luminal.codegen.llvm_builder import FunctionBuilder, IRType, IRValue

WIDTHS = (4, 8, 16)  # lanes of the accumulator that there is an instruction for


def bf16_pairs(b: FunctionBuilder, acc: IRValue, a: IRValue, x: IRValue) -> IRValue:
    """`acc + a * x` for words of two bfloat16 each, in f32, with subnormals taken as zero."""
    lanes = acc.type.lanes
    width = next(n for n in WIDTHS if n >= lanes)
    wide = [_widened(b, value, width) for value in (acc, a, x)]
    words = [b.cast("bitcast", value, IRType("bfloat", 2 * width)) for value in wide[1:]]
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * width}"
    out = b.intrinsic(name, IRType("float", width), [wide[0], *words], ())
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
