"""The choices of a cascade run by groups: a group per block of rows.

Rows of lanes take positions of the block (queries), the lanes of a row the steps (keys), whose
maxima and sums they fold, then the further axes of sums (features). What they share lies in shared
memory.

By a dot the lanes that multiply together have rows to themselves, as many as the dot, and hold what
a step computes in registers (`cascade_fragments.py`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import Reduction
from luminal.base.dots import Dot
from luminal.base.records import dataclass
from luminal.kernel.cascade import Cascade, lane_axis
from luminal.kernel.cascade_fragments import ByFragments
from luminal.kernel.cascade_steps import across_steps, near_axes
from luminal.kernel.cascade_work import CascadeTiling
from luminal.kernel.fused import Fused
from luminal.kernel.knobs import Choices
from luminal.kernel.lanes import ONE_LANE, Lanes
from luminal.kernel.loops import LoopAxis, accesses, estimate
from luminal.kernel.streamed import (
    FragmentTiling,
    Streamed,
    blocks_of,
    has_lengths,
    lie_whole,
    rounded,
    shared_bytes,
    streamed,
)
from luminal.memory.alignment import ACCESS
from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.powers import ceiling, floor
from luminal.schedule.groups.runs import longest_run
from luminal.schedule.vectors.vector_target import VectorTarget

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


def blocks(
    fused: Fused, cascade: Cascade, choices: Choices, groups: Groups, group: int
) -> CascadeTiling:
    """The blocks of a cascade, by groups of so many lanes."""
    lane, positions = lane_axis(cascade), _positions(cascade)
    most = min(group, ceiling(positions))
    sums = ONE_LANE if groups.in_vectors else lanes_of_sums(fused, cascade, group)
    if sums.count > 1 and choices.pick("sums", "shared", ("alone",)) == "alone":
        sums = ONE_LANE
    rule = min(most, max(1, group // ROW)) if sums.count == 1 else 1
    rows = choices.pick("rows", rule, [n for n in (2 * rule, rule // 2) if 0 < n <= most])
    across = group // rows
    unroll = min(ROWS, -(-positions // rows))
    unroll = choices.pick("tile", unroll, [n for n in (1, 2, 4, 8) if n * rows < 2 * positions])
    steps = choices.pick("steps", STEPS, (2, 8))
    # Vectors of lanes read rows of their own as CPUs do.
    near = sums.count == 1 and not groups.in_vectors and positions > DOTS
    size = near_bytes(fused, cascade, steps * across)
    near = near and 0 < size <= groups.shared_bytes // 2
    near = near and choices.pick("factors", "near", ("far",)) == "near"
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
        sum_lanes=sums,
        dot_lanes=Lanes(across // sums.count, sums.count) if sums.count > 1 else None,
        near=near,
    )


def near_bytes(fused: Fused, cascade: Cascade, steps: int) -> int:
    """The shared memory of copies of what lies across so many steps; 0 if nothing does, or if its
    length is not known.
    """
    total = 0
    for factor in dict.fromkeys(across_steps(fused, cascade, cascade.inner)):
        length = extent_of(near_axes(fused, factor, cascade))
        if not length.is_const:
            return 0
        total += steps * (length.value + 1) * factor.dtype.size
    return total


# A lane that reads a row of its own touches a sector for each element, as all lanes beside it do.
# Where a few positions share what is read, folding their sums over lanes costs less than that.
def lanes_of_sums(fused: Fused, cascade: Cascade, group: int) -> Lanes:
    """The lanes that share each dot product of few positions, so that they read a row of what all
    positions share side by side; one where it does not lie so.
    """
    attrs = {r.attrs for r in cascade.inner}
    if _positions(cascade) > DOTS or len(attrs) != 1:
        return ONE_LANE
    ((*_, along),) = attrs
    loop = LoopAxis(along, (along,))
    bound = [a for r in fused.reductions for a in r.attrs]
    axes = dict.fromkeys((*(a for store in fused.stores for a in store.axes), *bound))
    read = accesses(fused, tuple(LoopAxis(a, (a,)) for a in axes))
    read = [a for a in read if a.reduction in cascade.inner]
    run = longest_run(loop, read)
    if not loop.extent.is_const or any(a.moves(loop) and a.stride(loop) != 1 for a in read):
        return ONE_LANE
    count = min(ROW, group // 2, floor(loop.extent.value // run))
    return Lanes(count, 1, run) if count > 1 else ONE_LANE


NO_DOT = "none"
MOST_LANES = 384  # of a unit, by the registers that fragments take
FETCHED = 21  # rows that a unit could compute in the time in which a block comes from the caches,
WAITED = 54  # and while a step of a group waits for what it loads and multiplies


def fragments(
    fused: Fused, cascade: Cascade, choices: Choices, groups: Groups, target: VectorTarget
) -> ByFragments | None:
    """The blocks of a cascade by fragments; None where lanes do not multiply together."""
    stream = streamed(fused, cascade)
    if stream is None or not has_lengths(stream):
        return None
    positions = _positions(cascade)
    others = math.prod(estimate(extent_of((a,))) for a in cascade.rows - {stream.lane})
    left = Lefts(stream, groups, positions, others, target.cores)
    ways = {dot.family: dot for dot in (*left.dots, stream.dot)}
    tall = [
        name for name, dot in ways.items() if positions > (dot.m // 2 if dot.is_from_memory else 1)
    ]
    chosen = choices.pick("dot", (*tall, NO_DOT)[0], (*ways, NO_DOT))
    if chosen == NO_DOT:
        return None
    if ways[chosen].is_from_memory:
        return left.blocks(ways[chosen], choices)
    dot = stream.dot
    teams = [n for n in (4, 2, 8, 1, 16) if n * dot.together <= groups.most]
    teams = [n for n in teams if n == 1 or n * dot.m < 2 * positions]
    steps = [n * dot.k for n in (4, 2, 8, 1)]

    def made(teams: int, steps: int, stages: int = 1) -> FragmentTiling:
        return FragmentTiling(teams * dot.m, steps, teams, stages)

    def fits(tiling: FragmentTiling) -> bool:
        return shared_bytes(stream, tiling) <= groups.shared_bytes

    teams = [n for n in teams if any(fits(made(n, s)) for s in steps)]
    if not teams:
        return None

    def time(n: int) -> float:
        """Rows that a unit could compute in the time in which it does one step of its groups."""
        share = -(-others * -(-positions // (n * dot.m)) // target.cores)
        taken = shared_bytes(stream, made(n, steps[0], 2))
        most = min(MOST_LANES // (n * dot.together), target.l1_bytes // taken)
        held = min(share, max(1, most))
        busy, waits = share * max(n * dot.m, FETCHED), -(-share // held) * WAITED
        return max(busy, waits) + min(busy, waits) / held

    number = choices.pick("teams", min(teams, key=time), teams)
    able = [n for n in steps if fits(made(number, n))]
    size = choices.pick("steps", able[0], able)
    stages = [1]
    if copies_whole(stream, made(number, size), groups) and fits(made(number, size, 2)):
        stages = [2, 1]
    return ByFragments(stream, made(number, size, choices.pick("stages", stages[0], stages)))


def copies_whole(stream: Streamed, tiling: FragmentTiling, groups: Groups) -> bool:
    """Can lanes copy what lies along the steps without registers?"""
    copied = [b for (_, side), b in blocks_of(stream, tiling).items() if side]
    return groups.copies == ACCESS and not groups.copies_beside and lie_whole(stream, copied)


REGISTERS = 64 << 10  # of a unit, of which a lane has what it multiplies and some more,
MOST_REGISTERS, OTHERS, FURTHER = 255, 48, 16  # further ones by each contraction beside the first
LOADS, COPIED = 128, 32  # bytes that a unit reads in shared memory, and gets from the last cache
RUNS_ON = 3  # stages, of which one is multiplied with, one is computed of and one is on its way
WAIT = 700  # cycles from asking for a block to having it
COMPUTED = 8  # numbers of a block of which a unit computes what is multiplied, in a cycle


@dataclass(frozen=True, slots=True)
class Lefts:
    """The blocks of a cascade by dots that read shared memory, for so many positions, and other
    rows, on a device of these groups and units.
    """

    stream: Streamed
    groups: Groups
    positions: int
    others: int
    units: int

    @property
    def dots(self) -> tuple[Dot, ...]:
        """The dot that takes least for it, if there is one that can; of several that of most
        columns.
        """
        rows = [row for row in self.groups.left if row.replaces(self.stream.dot) and row.chains]
        tilings = {row: self.tilings(row) for row in sorted(rows, key=lambda row: -row.n)}
        able = [row for row in tilings if tilings[row]]
        return (min(able, key=lambda row: self.time(row, tilings[row][0])),) if able else ()

    def further(self, dot: Dot) -> int:
        """The columns of all sums."""
        return sum(self.columns(r, dot) for r in self.stream.sums)

    def columns(self, r: Reduction, dot: Dot) -> int:
        """The columns of a sum."""
        return rounded(self.stream.further(r), dot.n)

    def sweeps(self) -> list[list[Reduction]]:
        """The sums of each sweep: what lanes hold at a time."""
        members = self.stream.cascade.members
        of = {m.term: m.sweep for m in members if m.term in self.stream.sums}
        return [[r for r in of if of[r] == sweep] for sweep in {*of.values()}]

    def blocks(self, dot: Dot, choices: Choices) -> ByFragments:
        """The blocks that are chosen, by rule the best."""
        tilings = self.tilings(dot)
        for name in ("teams", "steps", "stages"):
            able = [*dict.fromkeys(getattr(tiling, name) for tiling in tilings)]
            chosen = choices.pick(name, able[0], able)
            tilings = [tiling for tiling in tilings if getattr(tiling, name) == chosen]
        return ByFragments(replace(self.stream, dot=dot), tilings[0])

    def tilings(self, dot: Dot) -> list[FragmentTiling]:
        """All that there is room for, the best first."""
        stream, groups = replace(self.stream, dot=dot), self.groups
        sweeps = self.sweeps()
        held = max(sum(self.columns(r, dot) for r in sweep) for sweep in sweeps)

        def fits(tiling: FragmentTiling) -> bool:
            # Of a step lanes have what it contracts and, in half as many registers, parts of it.
            words = max(map(len, sweeps)) * stream.parts / 2
            columns = (len(stream.contractions) + words) * tiling.steps + held
            others = OTHERS + FURTHER * (len(stream.contractions) - 1)
            registers = others + columns * dot.m / dot.together
            most = min(MOST_REGISTERS, REGISTERS / (tiling.teams * dot.together))
            is_ring = tiling.stages == 1 or copies_whole(stream, tiling, groups)
            lies = all(block.swizzle for block in blocks_of(stream, tiling).values())
            near = lies and shared_bytes(stream, tiling) <= groups.shared_bytes
            return registers <= most and near and is_ring

        tilings = [
            FragmentTiling(teams * dot.m, steps, teams, stages, runs_on=stages >= RUNS_ON)
            for teams in (2, 1, 4)
            for steps in (n * dot.n for n in (1, 2, 4))
            for stages in (4, 3, 2, 1)
            if teams == 1 or teams * dot.m < 2 * self.positions
            if teams * dot.together <= groups.most
        ]
        return sorted(filter(fits, tilings), key=partial(self.time, dot))

    def time(self, dot: Dot, tiling: FragmentTiling) -> float:
        """Cycles of a unit, about."""
        rows, steps, size = tiling.rows, tiling.steps, dot.b.size
        further, parts = self.further(dot), self.stream.parts
        depth = sum(rounded(r.attrs, dot.k) for r in self.stream.contractions)
        multiplied = rows * steps * (depth + parts * further) / self.groups.pipes.left
        # Both factors of contractions, and the second one of sums.
        both = depth * (1 / dot.m + 1 / dot.n)
        read = rows * steps * (both + parts * further / dot.m) * size / LOADS
        copied = steps * (depth + further) * size / COPIED
        late = WAIT / (2 * tiling.stages - 1)
        if not tiling.runs_on:
            late += rows * steps / COMPUTED
        share = -(-self.others * -(-self.positions // rows) // self.units)
        blocks = -(-estimate(extent_of(self.stream.steps)) // steps)
        return share * blocks * (max(multiplied, read, copied) + late)
