"""How many neighbours a lane takes of an axis: as many as it reads and writes at once."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.kernel.loops import Access, LoopAxis
from luminal.shape.divisors import is_multiple
from luminal.shape.expression import ONE, ZERO, axis, opaque

WIDE = 16  # bytes that a lane touches at once
MOST = 32  # bytes of a lane's run, of the widest of what it touches


def longest_run(loop: LoopAxis, accesses: Sequence[Access]) -> int:
    """A run that fills an access of the narrowest operand along an axis. 1 where something is not
    side by side along the axis, or not surely aligned: lanes beside each other touch whole lines
    then, runs would not.
    """
    moving = [access for access in accesses if access.moves(loop)]
    sizes = [access.place.dtype.size for access in moving]
    if not moving or max(access.neighbours for access in moving) > 1:
        return 1
    run = min(WIDE // min(sizes), MOST // max(sizes))
    while run > 1 and not all(_is_wide(access, loop, run) for access in moving):
        run //= 2
    return run


def _is_wide(access: Access, loop: LoopAxis, run: int) -> bool:
    """Is a run along the axis touched at once, or one element?"""
    if loop.symbol in access.chosen:
        return False
    beside = axis("beside", run)
    offset = access.offset.substitute({loop.symbol: opaque("turn", 0) * run + beside})
    step = offset.coefficient(beside)
    first = offset.substitute({beside: ZERO})
    width = min(run, WIDE // access.place.dtype.size)
    return step is ZERO or (step is ONE and is_multiple(first, width))
