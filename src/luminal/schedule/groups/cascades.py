"""The choices of a cascade run by groups: a group per block of rows.

Rows of lanes take positions of the block (queries), the lanes of a row the steps (keys), whose
maxima and sums they fold, then the further axes of sums (features). What they share lies in shared
memory.
"""

from __future__ import annotations

from luminal.algebra.frames import extent_of
from luminal.kernel.cascade import Cascade, lane_axis
from luminal.kernel.cascade_work import CascadeTiling
from luminal.kernel.knobs import Choices
from luminal.kernel.lanes import Lanes
from luminal.kernel.loops import estimate
from luminal.schedule.groups.powers import ceiling

ROW = 32  # lanes of a row, which most devices step together
ROWS = 4  # positions of the block for each row of lanes: each element read serves so many
STEPS = 4  # steps of a block for each lane
CHAINS = 2  # parts of a sum that a lane folds side by side
DOTS = 4  # positions and steps of a lane's tile of dot products


def is_narrow(cascade: Cascade) -> bool:
    """Are there so few positions that lanes do little between two barriers?"""
    return _positions(cascade) < ROWS


def _positions(cascade: Cascade) -> int:
    """How many positions the block's axis has."""
    lane = lane_axis(cascade)
    return 1 if lane is None else estimate(extent_of((lane,)))


def blocks(cascade: Cascade, choices: Choices, group: int) -> CascadeTiling:
    """The blocks of a cascade, by groups of so many lanes."""
    lane, positions = lane_axis(cascade), _positions(cascade)
    most = min(group, ceiling(positions))
    rule = min(most, max(1, group // ROW))
    rows = choices.pick("rows", rule, [n for n in (2 * rule, rule // 2) if 0 < n <= most])
    across = group // rows
    unroll = min(ROWS, -(-positions // rows))
    unroll = choices.pick("tile", unroll, [n for n in (1, 2, 4, 8) if n * rows < 2 * positions])
    steps = choices.pick("steps", STEPS, (2, 8))
    return CascadeTiling(
        lane,
        1,
        rows * unroll,
        steps * across,
        rows=unroll,
        vectors=1,
        chains=CHAINS,
        dots=DOTS,
        row_lanes=Lanes(rows, across),
        lanes=Lanes(across),
    )
