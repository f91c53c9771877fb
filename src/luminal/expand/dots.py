"""Dots of words once expanded: by the machine's instruction, or product by product in its order."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.dots import HALVES, UNSIGNED, Dot, Rounding
from luminal.expand.builder import Builder
from luminal.expand.casts import cast, neighbours
from luminal.expand.fold import constant
from luminal.expand.ir import Operand, Value
from luminal.kernel.tile_ir import Contract, Statement


def multiply_add(b: Builder, dot: Dot, x: Operand, y: Operand, acc: Operand) -> Operand:
    """The sum with a product added by the machine's instruction; of words without one, product
    by product in its order.
    """
    half = HALVES.get(dot)
    if half is not None:  # of one row, half a word after the other
        for bits in (half.word.bits, 0):
            one, other = (b.cast(b.op("shr", word, bits), half.word) for word in (x, y))
            acc = multiply_add(b, half, one, other, acc)
        return acc
    if dot.k > 1 and b.has(dot.name, acc.type):
        return b.op(dot.name, acc, x, y)
    unsigned = UNSIGNED.get(dot)
    if unsigned is not None and b.has(unsigned.name, acc.type):
        return _shifted(b, unsigned, x, y, acc)
    pairs = [(x, y)]
    if dot.k > 1:
        parts = [neighbours(b, word, dtype) for word, dtype in ((x, dot.a), (y, dot.b))]
        wide = [
            [cast(b, dtype, part, dot.accumulator) for part in factor_parts]
            for factor_parts, dtype in zip(parts, (dot.a, dot.b), strict=True)
        ]
        # From the last product to the first: so AVX-512's instruction for bf16 adds them
        # (VDPBF16PS), and the bits are to be those of machines that have it.
        pairs = [*zip(*wide, strict=True)][::-1]
    for one, other in pairs:
        if dot.rounding is Rounding.EACH:
            acc = b.op("fma", one, other, acc)
        else:
            acc = b.op("add", acc, b.op("mul", one, other))
    return acc


def _shifted(b: Builder, dot: Dot, x: Operand, y: Operand, acc: Operand) -> Operand:
    """The sum by a dot that takes the first factor for unsigned: with its sign bits flipped it
    is 128 more, so the other one counts 128 times too often.
    """
    origin = b.made.get(y.id) if isinstance(y, Value) else None
    if origin is not None and origin.op == "splat":
        x, y = y, x  # what is subtracted is the same for all rows, if it is of the columns
    flips = constant(x.type, int.from_bytes(b"\x80" * dot.k))
    extra = b.op(dot.name, constant(acc.type, 0), flips, y)
    return b.op("sub", b.op(dot.name, acc, b.op("xor", x, flips), y), extra)


def sums_together(body: Sequence[Statement]) -> list[list[Statement]]:
    """The statements one by one, but sums over the same axes that follow each other as one."""
    groups: list[list[Statement]] = []
    for statement in body:
        if groups and _are_beside(groups[-1], statement):
            groups[-1].append(statement)
        else:
            groups.append([statement])
    return groups


def _are_beside(group: Sequence[Statement], last: Statement) -> bool:
    """Are they sums over the same axes, of which the last needs none of the others?"""
    if not isinstance(last, Contract):
        return False
    operands = (last.acc, last.a, last.b)
    return all(
        isinstance(other, Contract)
        and other.out.axes == last.out.axes
        and other.out not in operands
        for other in group
    )
