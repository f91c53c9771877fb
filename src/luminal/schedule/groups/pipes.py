"""What operations of expanded IR take of a lane: instructions, by the pipe that executes them."""

from __future__ import annotations

from collections.abc import Mapping

from luminal.base.dots import TENSOR_ROWS, Dot, Rounding
from luminal.base.dtypes import float32, float64
from luminal.expand.builder import Instructions
from luminal.expand.ir import Type
from luminal.expand.operations import IN_PAIRS

F32, F64, I32, SPECIAL, EXCHANGE, MEMORY = "f32", "f64", "i32", "special", "exchange", "memory"
MATRIX, LEFT = "matrix", "left"  # of factors in registers, and in shared memory
MATRIX_F32, MATRIX_F64 = "matrix f32", "matrix f64"  # of whole f32 (not tf32), and of f64
PRODUCTS = MATRIX, LEFT, MATRIX_F32, MATRIX_F64
FAR = 35
"""Bytes that the last cache gives in a cycle for each unit: products by tiles of 192 x 192, each of
which copies both factors for itself, reach 778 TFLOP/s on an H100 (github.com/pranjalssh/fast.cu,
kernel 6, at 8192 and 12288), which takes 8.1 TB/s of 132 units at 1.755 GHz. It is what has been
seen, not what there is: other things may have bound that kernel.
"""
PORT = 64
"""Bytes that come into a unit in a cycle: two sectors, which is supposed. 42 have been seen, where
groups share boxes (kernel 11 of the same source, 808 TFLOP/s by tiles of 128 x 256 on 128 units).
"""
LONG: Mapping[str, tuple[float, float]] = {
    "div": (9, 1), "sqrt": (7, 1), "max": (4, 0), "min": (4, 0), "fmod": (40, 2), "sin": (90, 0),
    "cos": (90, 0), "power_of_two": (1, 1), "copysign": (2, 0), "floor": (1, 1),
}  # fmt: skip
"""Instructions that operations of floats take, and those among them of the special pipe."""
OWN = frozenset(("max", "min"))
"""What is one instruction, of the integers' pipe, where a machine has its own for floats; so is
what rounds two of them.
"""
LONG_INTEGER = {"quotient": (20, 90), "remainder": (22, 100), "mul": (1, 4), "shl": (1, 3)}
"""Likewise of integers of up to 32 bits, and of 64; others take one and two."""
FREE = frozenset(("extract", "splat", "bitcast", "shuffle", "lower", "upper"))
"""Operations that only rename registers."""


def pipe_of(dot: Dot) -> str:
    """The pipe of a matrix instruction."""
    if dot.is_from_memory:
        return LEFT
    if dot.a is float64:
        return MATRIX_F64
    return MATRIX_F32 if dot.a is float32 and dot.rounding is not Rounding.SHORT else MATRIX


def turns_of(dot: Dot) -> float:
    """How many turns of its pipe a product of a matrix instruction takes: where that counts those
    of 16 bits, wider factors take as many as they have more bits.
    """
    turns = dot.a.size / 2 if pipe_of(dot) in (MATRIX, LEFT) else 1.0
    if dot.scale is not None and not dot.in_tensor:
        turns /= 2  # GeForce chips add other products up in f32 at half the rate
    # Of tensor memory's lanes a block of fewer rows has the first in each part of a unit.
    return turns * (TENSOR_ROWS / dot.m if dot.in_tensor else 1)


def instructions(
    op: str, type_: Type, machine: Instructions = frozenset()
) -> list[tuple[str, float]]:
    """What an operation on values of a type takes of a lane, by pipe, on a machine that has these
    operations of its own.
    """
    if op in FREE:
        return []
    dtype, lanes = type_.dtype, type_.lanes
    if dtype.is_float:
        if op in IN_PAIRS.values() or (op in OWN and (op, type_) in machine):
            return [(I32, lanes)]
        pipe = F64 if dtype.size == 8 else F32
        count, special = LONG.get(op, (1, 1 if op == "cast" else 0))
        return [(pipe, count * lanes), *([(SPECIAL, special * lanes)] if special else [])]
    if dtype.kind == "bool":
        return [(I32, 0.5 * lanes)]  # predicates are set beside
    narrow, wide = LONG_INTEGER.get(op, (1, 2))
    return [(I32, (wide if dtype.size == 8 else narrow) * lanes)]
