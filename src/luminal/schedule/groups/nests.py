"""The choices of loop nests run by groups: maps, sums of rows and of columns.

Lanes run along an axis on which what they read lies side by side, so that a group touches whole
lines of memory at once: along the results (maps, sums of columns), or along what is summed (sums of
rows), whose parts the lanes then fold. Each has a run of neighbours, which it reads at once. Where
that axis is short, the rest of a group takes rows beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from luminal.kernel.knobs import Choices
from luminal.kernel.lanes import Lanes
from luminal.kernel.loops import UNKNOWN, LoopAxis
from luminal.kernel.schedule import SINGLE, Schedule, TileChoice
from luminal.memory.alignment import ACCESS
from luminal.schedule.groups.powers import ceiling, floor
from luminal.schedule.groups.runs import is_wide, longest_run
from luminal.schedule.vectors.facts import Facts
from luminal.schedule.vectors.lanes import Lanes as Judge
from luminal.shape.expression import Symbol

STREAMS = 4  # positions of a lane at once: loads under way while others are waited for
RUNS = 2  # likewise where each is a run
SUMS = 8  # likewise of sums, where lanes are a vector's: so many lines of a row side by side
LINE = 32  # lanes that read a whole line of memory side by side
MOST = 1 << 30
SECTOR = 32  # bytes that memory gives at least
TURNED = 16  # positions of a lane across its own axis: registers hold them until they are stored
BUSY = 512  # lanes of a unit that have enough under way, each with some 64 bytes
LONG_STEPS = 16  # of each lane, from which on a larger group is worth its barriers
STEPS = 4  # tiles of a chunk, where there are many
RESULTS = 4  # that are summed side by side where they share a factor, in registers
BESIDE = 8  # sums of all products, likewise
MANY_SUMS = 3  # of a result: two products, and the norm of what they read
FEW_ROWS = 16  # of a product, that a lane sums at once
ROW_RESULTS, ROW_SUMS = 8, 64  # of each such row beside each other, and of all rows, at most
PARTS = 128  # of these sums, one for each neighbour of a lane: as many registers
RESIDENT = 3  # groups for each unit, which have enough under way between them
IDLE = 4  # chunks for each unit, at least, if they can be had
TURNS = 64  # chunks for each unit, which leave none of them idle for long
ROW_STEPS = 8  # of each lane along a row, from which on a group shares no rows


def can_share(facts: Facts) -> bool:
    """Is there an axis for lanes, and nothing that one worker walks in a way of its own?"""
    panels = any(access.panel(x) for access in facts.accesses for x in facts.axes)
    return not panels and bool(facts.grid or facts.sequential)


def busy_lanes(facts: Facts, usual: int, sizes: Collection[int]) -> int:
    """Lanes of a group that keep all units busy where sums are few and long: more than usual then,
    but each with steps enough.
    """
    along = _Rules(facts, Choices(facts.label), usual, False).along()
    if not facts.sequential or along is None:
        return usual
    results = prod(map(_positions, facts.grid))
    chunks = results if along in facts.sequential else -(-results // LINE)
    work = results * prod(map(_positions, facts.sequential))
    lanes = usual
    while (
        2 * lanes in sizes
        and chunks * 2 * lanes <= BUSY * facts.target.cores
        and work >= chunks * 2 * lanes * LONG_STEPS
    ):
        lanes *= 2
    return lanes


def chosen(facts: Facts, choices: Choices, group: int, *, in_vectors: bool) -> Schedule:
    """The schedule of these choices, for groups of so many lanes, which may be a vector's."""
    return _Rules(facts, choices, group, in_vectors).schedule()


class _Rules:
    def __init__(self, facts: Facts, choices: Choices, group: int, in_vectors: bool) -> None:
        self.facts = facts
        self.pick = choices.pick
        self.group = group
        self.in_vectors = in_vectors
        self.tiles: dict[Symbol, TileChoice] = {}
        self.together: dict[LoopAxis, int] = {}  # results of a lane
        self.left = group  # lanes that have no positions of their own yet

    def schedule(self) -> Schedule:
        facts = self.facts
        along, turned, of_dots = self.along(), None, self.of_dots()
        grid = [x for x in facts.grid if x is not along]
        if of_dots:
            grid = list(facts.grid)
            self.left = self.deal_around(of_dots, self.left, 1)
            self.share_factor(grid, self.few_rows(grid))
        elif along in facts.grid and along is not None:
            grid.append(along)
            shares = bool(facts.sequential) and self.has_few(grid)
            run = self.pick("run", *self.runs(along, 0 if shares else self.group))
            if not (facts.reductions or self.in_vectors):
                turned = self.turned(along)
            streams = self.pick("streams", *self.streams(along, run)) if turned is None else 1
            line = min(LINE, self.group)
            widths = (self.group, max(1, line // run), max(1, line // 2 // run), line)
            self.deal(along, streams, self.pick("across", widths[shares], widths), run)
            if self.left > 1 and shares:
                self.deal_inside(())
        elif along is not None:
            few = None if self.in_vectors else self.few_rows(grid)
            by_lines = few is not None or self.has_many_sums(grid)
            rows = 1 if few is None else few.extent.value
            self.deal_inside((along,), LINE if by_lines else MOST, rows)
            if self.left == 1 or by_lines:
                self.share_factor(grid, few)
        for loop in sorted(grid[:-1] if along in grid else grid, key=_longest):
            run = 1
            if turned is not None and loop is turned[0]:
                run = self.pick("turned", turned[1], (1, 4, 8, 16))
            self.deal(loop, self.together.get(loop, 1), run=run)
        steps = self.pick("steps", STEPS if self.has_many(grid) else 1, (1, STEPS, 4 * STEPS))
        return Schedule(
            facts.axes,
            tuple((loop, self.chunk(loop, steps if loop is grid[-1] else 1)) for loop in grid),
            self.summed(),
            tuple(facts.inner),
            self.tiles,
        )

    # Codes of a block are some words side by side, which a lane multiplies alone: it loads them at
    # once, and what it does once for each block it does for all of them. Lanes that shared a block
    # would fold after each.
    def of_dots(self) -> list[LoopAxis]:
        """The axes that lanes share of a sum whose steps are dots of words, neighbours first; none
        of any other sum.
        """
        facts = self.facts
        inner = [r for r in facts.reductions if facts.fused.is_nested(r)]
        if self.in_vectors or not inner or not facts.fused.dots.keys() >= {*inner}:
            return []
        words = [a for a in facts.accesses if a.neighbours > 1]
        totals = [r for r in facts.reductions if r not in inner]
        loops = [x for x in facts.sequential if any(x.is_reduced(r, {}) for r in totals)]
        # Where bits of one word are several codes, a lane had better have all of these.
        same = {x: sum(not a.moves(x) for a in words) for x in loops}
        taken: list[LoopAxis] = []
        for loop in sorted(loops, key=same.__getitem__):
            if prod(x.estimate for x in taken) < self.group:
                taken.append(loop)
        taken.sort(key=lambda x: min(abs(a.stride(x) or MOST) for a in words))
        return taken if self.pick("by_blocks", 1, (0, 1)) else []

    # Lanes that hold all of a short axis, as of a block of packed weights, have no loop over it.
    # Inside of others they would fold at every step: five exchanges for each product.
    def summed(self) -> tuple[LoopAxis, ...]:
        """The axes of reductions, those that lanes hold whole outermost: they are folded once."""
        loops = self.facts.sequential
        if set(loops) & set(self.facts.ordered):
            return tuple(loops)
        shared = [x for x in loops if self.tile(x).lanes.count > 1]
        return tuple(sorted(loops, key=lambda x: (x not in shared, not self.is_held(x))))

    def is_held(self, loop: LoopAxis) -> bool:
        """Do the lanes of a group have all positions of an axis at once?"""
        tile = self.tile(loop)
        return tile.lanes.count > 1 and loop.extent.is_const and loop.estimate <= tile.size

    def along(self) -> LoopAxis | None:
        """The axis of the lanes: on which most of what they touch lies side by side."""
        facts = self.facts
        judge = Judge(self.group, self.group, facts.grid, facts.sequential)
        touched = [a for a in facts.accesses if a.is_store or a.reduction is not None]
        if not facts.reductions:
            touched = facts.accesses
        candidates = [x for x in (*facts.grid, *facts.sequential) if x.estimate > 1]
        ranked = sorted(candidates, key=lambda x: -judge.score(x, touched))
        if not ranked:
            return facts.grid[-1] if facts.grid else None
        rule, *others = map(facts.axes.index, ranked[:3])
        return facts.axes[self.pick("along", rule, others)]

    # A group of one line at a time touches a line of each page in turn. Eight vectors of a row at
    # once make a product of one row three times as fast, if that leaves chunks enough.
    def streams(self, along: LoopAxis, run: int) -> tuple[int, Sequence[int]]:
        """Positions of a lane at once: results that are sums need registers for one each. A vector
        that sums columns reads a line of each row; beside it lie the next ones, on the same page.
        """
        most = max(1, along.estimate // (self.group * run))
        rule = min(STREAMS if run == 1 else RUNS, most)
        if self.facts.reductions:
            others = prod(x.estimate for x in self.facts.grid if x is not along)
            spare = most * others // (IDLE * self.facts.target.cores)
            rule = max(1, min(SUMS, most, spare)) if self.in_vectors else 1
        return floor(rule), [n for n in (1, 2, 4, 8) if n <= most]

    def runs(
        self, loop: LoopAxis, lanes: int = 0, around: Sequence[LoopAxis] = ()
    ) -> tuple[int, Sequence[int]]:
        """Neighbours of a lane: what it reads and writes at once, if results are enough for so many
        lanes in each of all units. Lanes of a line that are left over take positions of loops
        around it.
        """
        if self.in_vectors:
            return 1, ()
        facts = self.facts
        lines = floor(loop.estimate * prod(x.estimate for x in around) // LINE)
        if around:
            lines = min(lines, floor(loop.estimate // 2))
        most = min(longest_run(loop, facts.accesses), lines)
        results = prod(map(_positions, facts.grid))
        rule = min(most, floor(results // (lanes * facts.target.cores))) if lanes else most
        return rule, [n for n in (1, 2, 4, 8, 16) if n <= most]

    # A product of one row reads the row again for each result: that is twice the bytes of a weight
    # in bfloat16. Results side by side read it once, and have as many loads under way. Of few rows
    # a weight is read once for all: one group for each unit, of as many results as there are
    # registers for, reads the rows least often.
    def share_factor(self, grid: Sequence[LoopAxis], rows: LoopAxis | None) -> None:
        """Gives a lane several results at once that one factor is the same for, if enough groups
        are left: all of few rows, and some beside each other.
        """
        shared = self.shared(grid)
        if self.in_vectors or not shared:
            return
        loop = max((x for x in shared if x is not rows), key=lambda x: x.estimate)
        products = len({a.reduction for a in self.facts.accesses if a.is_factor and a.moves(loop)})
        chunks, groups = prod(x.estimate for x in grid) // self.left, self.facts.target.cores
        if rows is None:
            rule = min(RESULTS, BESIDE // products, floor(chunks // (RESIDENT * groups)))
        else:
            self.together[rows] = rows.extent.value
            most = floor(min(ROW_RESULTS, ROW_SUMS // rows.extent.value)) // products
            rule = min(most, floor((chunks // rows.extent.value + groups - 1) // groups))
        choices = [n for n in (1, 2, 4, 8) if n <= loop.estimate]
        self.together[loop] = self.pick("results", max(1, rule), choices)

    # Of those that fold their sums in a line of lanes, without a barrier, each has its own results.
    def has_many_sums(self, grid: Sequence[LoopAxis]) -> bool:
        """Has each result of products so many sums that a group had better not share them?"""
        many = not self.in_vectors and len(self.facts.reductions) >= MANY_SUMS
        return many and bool(self.shared(grid))

    def few_rows(self, grid: Sequence[LoopAxis]) -> LoopAxis | None:
        """The axis of few positions that share a factor, where a lane is to sum all of them: then
        it is read once.
        """
        shared = self.shared(grid)
        if len(shared) < 2:
            return None
        columns = max(shared, key=lambda x: x.estimate)
        moving = [a for a in self.facts.accesses if a.is_factor and a.moves(columns)]
        rows = [x for x in shared if not any(a.moves(x) for a in moving)]
        rows = [x for x in rows if 1 < x.extent.value <= FEW_ROWS]
        return rows[0] if rows and self.pick("rows", 1, (0, 1)) else None

    def shared(self, grid: Sequence[LoopAxis]) -> list[LoopAxis]:
        """The axes along which one factor is the same and another is not."""
        sums = [a for a in self.facts.accesses if a.is_factor]
        shared = [x for x in grid if x.extent.is_const and any(not a.moves(x) for a in sums)]
        return [x for x in shared if any(a.moves(x) for a in sums)]

    # A lane that reads a sector of such a row uses all of it, and stores with its neighbours whole
    # lines: as few are touched as by way of shared memory, without barriers.
    def turned(self, along: LoopAxis) -> tuple[LoopAxis, int] | None:
        """The axis along which lies, and is surely aligned, what does not lie along the lanes' own,
        as of a transposed copy; and how many positions of it are a sector.
        """
        for loop in self.facts.grid:
            across = [
                access
                for access in self.facts.accesses
                if access.stride(loop) == 1 and access.moves(along) and not access.is_near(along)
            ]
            if loop is along or not across:
                continue
            size = min(access.place.dtype.size for access in across)
            if all(is_wide(access, loop, ACCESS // size) for access in across):
                return loop, min(SECTOR // size, TURNED, floor(loop.estimate))
        return None

    def has_few(self, grid: Sequence[LoopAxis]) -> bool:
        """Are there too few results to keep the device busy with one lane for each?"""
        results = 1
        for loop in grid:
            results *= loop.estimate
        return results < self.facts.target.cores * self.group

    def has_many(self, grid: Sequence[LoopAxis]) -> bool:
        """Are there chunks enough that some can be one, and spare finding out where each lies?"""
        chunks = 1
        for loop in grid:
            chunks *= -(-loop.estimate // self.tile(loop).size)
        return chunks >= STEPS * TURNS * self.facts.target.cores

    def tile(self, loop: LoopAxis) -> TileChoice:
        return self.tiles.get(loop.symbol, SINGLE)

    def deal(self, loop: LoopAxis, unroll: int = 1, most: int = MOST, run: int = 1) -> None:
        """Gives lanes that are left, so many at most, positions of an axis of the grid."""
        count = min(self.left, most, ceiling(-(-loop.estimate // run)))
        if count > 1:
            lanes = Lanes(count, self.group // self.left, run)
            self.tiles[loop.symbol] = TileChoice(unroll, 1, lanes)
        elif unroll * run > 1:
            self.tiles[loop.symbol] = TileChoice(unroll * run)
        self.left //= count

    def deal_inside(self, first: tuple[LoopAxis, ...], widest: int = MOST, rows: int = 1) -> None:
        """Gives so many lanes at most positions inside the grid: in each nest of loops along one of
        its axes. Those that sum several rows at once have short runs.
        """
        # Loops that are not inside each other take turns with the same lanes.
        facts, stride = self.facts, self.group // self.left
        ordered = set(facts.ordered)
        wanted = [
            *first,
            *(x for x in (*facts.sequential, *reversed(facts.inner)) if x not in first),
        ]
        most = max((x.estimate for x in wanted if x not in ordered), default=1)
        runs = {loop: self.runs(loop)[0] for loop in wanted}
        run, around = 1, self.around(first[0]) if first and rows == 1 else []
        if first:
            most = first[0].estimate
            rule, others = self.runs(first[0], around=around)
            if rows > 1:
                rule = min(rule, PARTS // min(ROW_SUMS, ROW_RESULTS * ceiling(rows)))
            run = runs[first[0]] = self.pick("run", rule, others)
        rule = self.left if most >= ROW_STEPS * self.left else min(self.left, ceiling(most // run))
        if around and run > 1:
            rule = min(self.left, LINE)
        rule = min(rule, widest)
        shorter = [n for n in (rule // 2, rule // 4, 2 * rule) if 1 < n <= self.left]
        share = self.pick("short", rule, shorter)
        streams = floor(max(1, min(STREAMS if run == 1 else RUNS, most // (share * run))))
        fitting = [n for n in (1, 2, 4, 8) if n * share * run <= most]
        streams = self.pick("row_streams", 1 if rows > 1 else streams, fitting)
        dealt: list[LoopAxis] = []
        nests = facts.nests
        for loop in wanted:
            beside = {x for nest in nests if loop in nest for x in nest}
            if loop in ordered or loop.estimate < 2 or not beside.isdisjoint(dealt):
                continue
            dealt.append(loop)
            run = runs[loop]
            count = min(share, ceiling(-(-loop.estimate // run)))
            unroll = streams if count * run * streams <= loop.estimate else 1
            owned = Lanes(count, stride, run if count > 1 else 1)
            self.tiles[loop.symbol] = TileChoice(unroll, 1, owned)
            if loop in first and run > 1:
                self.deal_around(around, share // count, stride * count)
        self.left //= share

    # A block of packed weights is as short as a line of lanes. With a run for each of them they
    # read several blocks at once, by words, and find a scale once for a run.
    def around(self, loop: LoopAxis) -> list[LoopAxis]:
        """The loops of a short axis's nest that lanes may share with it; none of a longer axis."""
        if not loop.extent.is_const or loop.estimate > LINE:
            return []
        nests = {nest for nest in self.facts.nests if loop in nest}
        if len(nests) != 1:  # of other nests these loops may be outside, where lanes have others
            return []
        others = (
            x for x in self.facts.sequential if all(x in nest for nest in nests) and x is not loop
        )
        return [x for x in others if x.extent.is_const and x not in self.facts.ordered]

    def deal_around(self, loops: Sequence[LoopAxis], left: int, stride: int) -> int:
        """Gives lanes that are left positions of loops, one after the other; returns how many are
        left then.
        """
        for loop in loops:
            count = min(left, floor(loop.estimate))
            if count > 1:
                self.tiles[loop.symbol] = TileChoice(1, 1, Lanes(count, stride))
                left, stride = left // count, stride * count
        return left

    def chunk(self, loop: LoopAxis, steps: int) -> int:
        """Positions of a chunk: what the group takes at once, some times; 0 for all."""
        tile = self.tile(loop).size
        is_known = loop.extent.interval.hi is not None and loop.estimate < UNKNOWN
        count = tile * steps
        return 0 if is_known and count >= loop.estimate > 1 else count


def _positions(loop: LoopAxis) -> int:
    """The positions of an axis; of a dim as many as anybody wants."""
    return loop.extent.value if loop.extent.is_const else MOST


def _longest(loop: LoopAxis) -> int:
    return -loop.estimate
