"""Dots of AArch64 as LLVM IR: four lanes of sums by an instruction, wider vectors in parts."""

from __future__ import annotations

from luminal.base.dots import BF16_PAIRS, INT8_FOURS, UINT8_BY_INT8, Dot
from luminal.codegen.llvm_builder import FunctionBuilder, IRType, IRValue
from luminal.codegen.llvm_dots import narrowed, widened

LANES = 4  # of a register of 128 bits
WIDTHS = (1, 2, 4, 8, 16)
"""Lanes of the accumulator that this writes."""
INSTRUCTIONS: dict[Dot, tuple[str, str, IRType]] = {
    INT8_FOURS: ("dotprod", "sdot.v4i32.v16i8", IRType("i8", 4)),
    UINT8_BY_INT8: ("i8mm", "usdot.v4i32.v16i8", IRType("i8", 4)),
    BF16_PAIRS: ("bf16", "bfdot.v4f32.v8bf16", IRType("bfloat", 2)),
}
"""Of each dot the feature that brings it, LLVM's intrinsic and the word of a factor."""


def dot_of_words(b: FunctionBuilder, dot: Dot, acc: IRValue, a: IRValue, x: IRValue) -> IRValue:
    """`acc + a * x` for factors of words, by the machine's instruction for the dot."""
    _, name, word = INSTRUCTIONS[dot]
    lanes = acc.type.lanes
    parts = []
    for start in range(0, lanes, LANES):
        operands = [_part(b, value, start) for value in (acc, a, x)]
        words = [b.cast("bitcast", factor, word.with_lanes(word.lanes * LANES))
                 for factor in operands[1:]]  # fmt: skip
        type_ = acc.type.with_lanes(LANES)
        parts.append(b.intrinsic(f"llvm.aarch64.neon.{name}", type_, [operands[0], *words], ()))
    while len(parts) > 1:
        parts = [
            b.shuffle(low, high, range(2 * low.type.lanes))
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
    (whole,) = parts
    return narrowed(b, whole, lanes)


def _part(b: FunctionBuilder, value: IRValue, start: int) -> IRValue:
    """Four lanes of a value from one on; where it has fewer, the rest mean nothing."""
    if value.type.lanes > LANES:
        return b.shuffle(value, value, range(start, start + LANES))
    return widened(b, value, LANES)
