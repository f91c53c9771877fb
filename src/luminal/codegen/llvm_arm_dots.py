"""Dots of AArch64 as LLVM IR: a register of sums by an instruction, longer vectors in parts."""

from __future__ import annotations

from typing import NamedTuple

from luminal.base.dots import (
    BF16_BLOCKS,
    BF16_PAIRS,
    INT8_BLOCKS,
    INT8_FOURS,
    UINT8_BLOCKS,
    UINT8_BY_INT8,
    UINT8_FOURS,
    Dot,
)
from luminal.codegen.llvm_builder import I64, FunctionBuilder, IRType, IRValue
from luminal.codegen.llvm_dots import narrowed, widened

BLOCK = 4  # lanes of a register of 128 bits, and of a block of SVE's
SVE_LANES = 8  # of its registers of 256 bits, the only ones that code is made for
WIDTHS = (1, 2, 4, 8, 16)
"""Lanes, of columns where there are such, that this writes."""


class Instruction(NamedTuple):
    """The feature that brings a dot, its names among LLVM's intrinsics for registers of 128 bits
    and for SVE's, and the word of a factor.
    """

    feature: str
    neon: str
    sve: str
    word: IRType


INSTRUCTIONS = {
    INT8_FOURS: Instruction("dotprod", "sdot.v4i32.v16i8", "sdot.nxv4i32", IRType("i8", 4)),
    UINT8_FOURS: Instruction("dotprod", "udot.v4i32.v16i8", "udot.nxv4i32", IRType("i8", 4)),
    UINT8_BY_INT8: Instruction("i8mm", "usdot.v4i32.v16i8", "usdot.nxv4i32", IRType("i8", 4)),
    BF16_PAIRS: Instruction("bf16", "bfdot.v4f32.v8bf16", "bfdot", IRType("bfloat", 2)),
    INT8_BLOCKS: Instruction("i8mm", "smmla.v4i32.v16i8", "smmla.nxv4i32", IRType("i8", 8)),
    UINT8_BLOCKS: Instruction("i8mm", "ummla.v4i32.v16i8", "ummla.nxv4i32", IRType("i8", 8)),
    BF16_BLOCKS: Instruction("bf16", "bfmmla", "bfmmla", IRType("bfloat", 4)),
}


def dot_of_words(b: FunctionBuilder, dot: Dot, acc: IRValue, a: IRValue, x: IRValue) -> IRValue:
    """`acc + a * x` for factors of words, by the machine's instruction for the dot."""
    row, lanes = INSTRUCTIONS[dot], acc.type.lanes
    is_long = "sve" in b.features and lanes >= SVE_LANES
    one, width = (_by_sve, SVE_LANES) if is_long else (_by_neon, BLOCK)
    parts = []
    for start in range(0, lanes, width):
        column = _part(b, x, start // dot.m, width // dot.m)
        # The results of two rows by two columns lie by the first factor: by columns.
        factors = (column, a) if dot.is_pair else (_part(b, a, start, width), column)
        words = [
            b.cast("bitcast", f, row.word.with_lanes(row.word.lanes * f.type.lanes))
            for f in factors
        ]
        parts.append(one(b, row, _part(b, acc, start, width), words))
    while len(parts) > 1:
        parts = [
            b.shuffle(low, high, range(2 * low.type.lanes))
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
    (whole,) = parts
    return narrowed(b, whole, lanes)


# LLVM loads and spreads a word by an instruction that takes no distance from a pointer, so that
# each row of a tile would need an address of its own. Of a longer value it sees what a dot can do:
# take one lane of a register for all.
def word_in_lanes(b: FunctionBuilder, word: IRValue, lanes: int) -> IRValue:
    """The word in every lane, in a way that dots of one register multiply by a lane of."""
    if lanes != BLOCK or "sve" in b.features:
        return b.splat(word, lanes)
    long = b.insert(b.poison(IRType("i64", 2)), b.cast("zext", word, I64), 0)
    first = b.cast("bitcast", long, word.type.with_lanes(lanes))
    return b.shuffle(first, first, [0] * lanes)


def _part(b: FunctionBuilder, value: IRValue, start: int, width: int) -> IRValue:
    """So many lanes of a value from one on; where it has fewer, the rest mean nothing."""
    if value.type.lanes > width:
        return b.shuffle(value, value, range(start, start + width))
    return widened(b, value, width)


def _by_neon(b: FunctionBuilder, row: Instruction, acc: IRValue, words: list[IRValue]) -> IRValue:
    return b.intrinsic(f"llvm.aarch64.neon.{row.neon}", acc.type, [acc, *words], ())


# Where the registers' width is known, a fixed vector and one of SVE's types are the same register.
def _by_sve(b: FunctionBuilder, row: Instruction, acc: IRValue, words: list[IRValue]) -> IRValue:
    operands = [_as_scalable(b, value) for value in (acc, *words)]
    name = f"llvm.aarch64.sve.{row.sve}"
    total = b.intrinsic(name, operands[0].type, operands, ())
    start = b.const(I64, 0)
    return b.intrinsic("llvm.vector.extract", acc.type, [total, start], (acc.type, total.type))


def _as_scalable(b: FunctionBuilder, value: IRValue) -> IRValue:
    """The value as a register, or a block of it as every block of one."""
    type_, start = IRType(value.type.scalar, 128 // value.type.bits, scalable=True), b.const(I64, 0)
    operands = [b.poison(type_), value, start]
    register = b.intrinsic("llvm.vector.insert", type_, operands, (type_, value.type))
    if value.type.lanes > type_.lanes:
        return register
    return b.intrinsic("llvm.aarch64.sve.dupq.lane", type_, [register, start], (type_,))
