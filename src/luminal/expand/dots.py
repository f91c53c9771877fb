"""Dots of words once expanded: by the machine's instruction, or product by product in its order."""

from __future__ import annotations

from luminal.base.dots import HALVES, UNSIGNED, Dot, Rounding
from luminal.expand.builder import Builder
from luminal.expand.casts import cast, neighbours
from luminal.expand.fold import constant
from luminal.expand.ir import Operand, Value


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
