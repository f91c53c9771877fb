"""How many neighbours a lane takes of an axis: as many as it reads and writes at once."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.kernel.loops import Access, LoopAxis
from luminal.memory.alignment import ACCESS
from luminal.shape.divisors import is_multiple
from luminal.shape.expression import ONE, ZERO, axis, opaque

RUNS = (16, 8, 4, 2, 1)


def longest_run(loop: LoopAxis, accesses: Sequence[Access]) -> int:
    """A run that fills an access of the widest operand along an axis: of runs longer than that the
    lanes of a row would touch every other 16 bytes. 1 where something is not side by side along the
    axis, or not surely aligned: lanes beside each other touch whole lines then, runs would not.
    """
    moving = [access for access in accesses if access.moves(loop)]
    if not moving or any(a.neighbours > 1 or loop.symbol in a.chosen for a in moving):
        return 1
    return next(run for run in RUNS if all(is_wide(access, loop, run) for access in moving))


def is_wide(access: Access, loop: LoopAxis, run: int) -> bool:
    """Is a run along the axis touched at once, or one element?"""
    beside = axis("beside", run)
    offset = access.offset.substitute({loop.symbol: opaque("turn", 0) * run + beside})
    step = offset.coefficient(beside)
    if run == 1 or step is ZERO:
        return True
    first = offset.substitute({beside: ZERO})
    return step is ONE and run * access.place.dtype.size <= ACCESS and is_multiple(first, run)
