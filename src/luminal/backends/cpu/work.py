"""What a kernel does to a core, counted from its tile IR: vector instructions, and what moves
between the levels of the cache (`traffic.py`).

A statement on a tile is as many instructions as the tile fills vectors, and runs as often as the
loops around it make steps; a step takes what the busiest part of the core takes (arithmetic, loads,
stores), or as long as its sums wait for the step before. What depends on a loop's axis is counted
at the middle of the loop, or at several places where loops inside are longer or shorter there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import log2, prod

from luminal.backends.cpu.core import Core
from luminal.backends.cpu.traffic import Access, Level, traffic
from luminal.base.records import dataclass
from luminal.kernel.tile_ir import (
    Buffer,
    Contract,
    Grid,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    Map,
    Once,
    Reduce,
    Runs,
    SortRow,
    Space,
    Statement,
    Store,
    Tile,
    every_statement,
)
from luminal.schedule.vectors.costs import WEIGHTS
from luminal.shape.expression import TRUE, Expression, Symbol

SHORT_STEP = 4  # elements from lane to lane that shuffles bridge
SAMPLES = 4  # steps of a loop that are looked at where they differ


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one launch, all chunks together: cycles if nothing is ever waited for, bytes that
    come into each level of the cache, and chunks; `longest`: the cycles of one.
    """

    cycles: float
    longest: float
    into_first: float
    into_second: float
    into_third: float
    chunks: int


def seconds(counted: Work, size: float, core: Core) -> float:
    """What a launch should take on all cores; `size`: bytes that it reads and writes."""
    moving = counted.into_first * core.into_first + counted.into_second * core.into_second
    cycles = max(counted.cycles, moving) + core.late * min(counted.cycles, moving)
    longest = counted.longest / counted.cycles  # chunks may differ
    share = max(
        longest, -(-counted.chunks // core.target.cores) / counted.chunks
    )  # of who has most
    stays = size < core.kept * core.target.l3_bytes  # in the cache, from the run before
    waits = 0.0 if stays else counted.into_third * core.into_third
    return max(cycles * share, waits) / core.hertz


def work(kernel: Kernel, params: Mapping[str, int], core: Core) -> Work:
    """The work of one launch for values of the kernel's parameters."""
    return _Count(kernel, params, core).work()


@dataclass(slots=True)
class _Counts:
    """The counts of a body: instructions, cycles of the loops inside, sums that wait for each
    other.
    """

    arithmetic: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    inner: float = 0.0
    chain: int = 0


class _Count:
    def __init__(self, kernel: Kernel, params: Mapping[str, int], core: Core) -> None:
        self.kernel, self.core = kernel, core
        self.values = dict(params)
        self.buffers: dict[str, Buffer] = {b.name: b for b in (*kernel.buffers, *kernel.scratch)}
        self.unroll: defaultdict[Symbol, int] = defaultdict(lambda: 1)
        self.vector: defaultdict[Symbol, int] = defaultdict(lambda: 1)
        self.levels: list[Level] = []
        self.accesses: list[Access] = []
        self.longest = 0.0
        self.is_noted = False  # are the accesses of what is counted known?

    def work(self) -> Work:
        # A static count in the manner of a port model: instructions by class, and traffic by
        # footprint. It ranks schedules before any is timed, so it has to be cheap and monotone
        # rather than exact.
        chunks = prod(max(1, self.value(grid.count)) for grid in self.kernel.grid)
        cycles = chunks * (self.grid(self.kernel.grid) + self.core.chunk)
        core, target = self.core, self.core.target
        first, second, third = (
            traffic(self.accesses, cache, core)
            for cache in (target.l1_bytes, target.l2_bytes, target.l3_bytes)
        )
        return Work(cycles, self.longest, first, second, third, chunks)

    def grid(self, axes: Sequence[Grid]) -> float:
        """The mean cycles of a chunk."""
        if not axes:
            cycles = self.body(self.kernel.body)
            self.longest = max(self.longest, cycles)
            return cycles
        axis, count = axes[0].axis, max(1, self.value(axes[0].count))
        self.values[axis.name] = count // 2
        self.levels.append(Level(axis.name, None, count, count, 1))
        cycles = self.sampled(lambda: self.grid(axes[1:]), self.kernel.body, axis, range(count))
        self.levels.pop()
        return cycles

    def value(self, e: Expression) -> int:
        """The value of an Expression at the point that stands for all."""
        for symbol in e.symbols():
            self.values.setdefault(symbol.name, 0)  # what data decides
        return int(e.evaluate(self.values))

    # --- instructions

    def body(self, body: Sequence[Statement], carried: Sequence[Tile] = ()) -> float:
        """Cycles of a body; `carried`: the accumulators that wait for its last step."""
        core, counts = self.core, _Counts()
        self.count(body, counts)
        spilled = max(0.0, sum(map(self.vectors, carried)) + 2 - core.target.registers)
        waits = core.latency * max(1.0, counts.chain / len(carried)) if carried else 0.0
        busiest = max(
            counts.arithmetic + (counts.loads + counts.stores) * core.issue,
            (counts.loads + spilled) * core.load,
            (counts.stores + spilled) * core.store,
            waits,
        )
        return busiest + counts.inner

    # Operations and bytes of a launch are the same for all its schedules, so they cannot order them
    # (Spearman's correlation with the clock 0.35 to 0.73). What a schedule changes is how many
    # vectors, loads and waits a step takes, and that stands in tile IR.
    def count(self, body: Sequence[Statement], counts: _Counts) -> None:
        """Adds the instructions of a body, and the cycles of the loops in it."""
        core = self.core
        for statement in body:
            match statement:
                case Loop(neighbours=1):
                    counts.inner += self.loop(statement)
                case Loop():
                    self.enter(statement, 0, statement.neighbours)
                    self.count(statement.body, counts)
                    self.levels.pop()
                case Runs():
                    self.values[statement.axis.name] = self.value(statement.start)
                    self.values[statement.end.name] = self.value(statement.stop)
                    counts.inner += self.body(statement.body)
                case If():
                    counts.inner += self.body(statement.body)
                # Chunks that follow each other share what it makes, so each pays for a part of it.
                case Once(outer):
                    grid, self.levels = self.levels, self.levels[:outer]
                    chunks = prod(level.trips for level in grid[outer:])
                    counts.inner += self.body(statement.body) / chunks
                    self.levels = grid
                # A sum waits for the step before, so chains are counted beside instructions.
                case Contract(out):
                    counts.arithmetic += self.vectors(out) * core.multiply
                    counts.chain += 1
                case Map(out, op, args):
                    size = max(tile.dtype.size for tile in (out, *args))
                    vectors = self.vectors(out, size)
                    counts.arithmetic += vectors * WEIGHTS.of(op) * core.operation
                case Index(out):
                    counts.arithmetic += self.vectors(out) * core.operation
                case Reduce(out, _, value):
                    counts.arithmetic += core.fold * self.vectors(value)
                case Load(out):
                    counts.loads += self.moved(statement, out)
                case Store():
                    counts.stores += self.moved(statement, statement.value)
                case SortRow():
                    n = max(2, self.value(statement.extent))
                    counts.inner += core.sort * n * log2(n)
                case _:
                    pass

    def enter(self, loop: Loop, start: int, positions: int) -> None:
        """What is counted next stands in a loop, at its middle."""
        steps = -(-positions // loop.tile)
        level = Level(loop.axis.name, loop.start, positions, steps, loop.tile, loop.neighbours)
        self.levels.append(level)
        self.values[loop.axis.name] = start + positions // 2
        self.vector[loop.axis], self.unroll[loop.axis] = loop.vector, loop.unroll

    def loop(self, loop: Loop) -> float:
        """The cycles of all steps of a loop: whole tiles, then a piece at a time."""
        start = self.value(loop.start)
        positions = max(0, self.value(loop.stop) - start)
        whole, rest = divmod(positions, loop.tile)
        carried = [carry.inner for carry in loop.carries]
        self.enter(loop, start, positions)
        cycles, core = 0.0, self.core
        if whole:
            steps = range(start, start + whole * loop.tile, loop.tile)
            step_cycles = self.sampled(
                lambda: self.body(loop.body, carried), loop.body, loop.axis, steps
            )
            cycles += whole * (step_cycles + core.step)
        if rest:
            pieces = -(-rest * loop.unroll // loop.tile)
            self.unroll[loop.axis] = 1
            before, self.is_noted = self.is_noted, self.is_noted or whole > 0
            cycles += pieces * (self.body(loop.body, carried) + core.step)
            self.is_noted = before
        self.levels.pop()
        return cycles

    def sampled(
        self,
        cycles: Callable[[], float],
        body: Sequence[Statement],
        axis: Symbol,
        steps: Sequence[int],
    ) -> float:
        """The mean cycles of a body's steps: at some of them where what loops inside do depends on
        them. Accesses are those of the middle.
        """
        inside = (inner for inner in every_statement(body) if isinstance(inner, Loop))
        if not any(axis in (loop.stop - loop.start).symbols() for loop in inside):
            return cycles()
        was_noted, present, count = self.is_noted, self.values[axis.name], len(steps)
        middles = (count * (2 * k + 1) // (2 * SAMPLES) for k in range(SAMPLES))
        places = range(count) if count <= SAMPLES else [*middles]
        total = 0.0
        for place in places:
            self.values[axis.name] = steps[place]
            self.is_noted = was_noted or place != places[len(places) // 2]
            total += cycles()
        self.is_noted, self.values[axis.name] = was_noted, present
        return total / len(places)

    def vectors(self, tile: Tile, size: int = 0) -> float:
        """The vectors (or scalars) that a tile fills."""
        lanes, unrolled = 1, 1
        for axis in tile.axes:
            lanes *= self.vector[axis]
            unrolled *= self.unroll[axis]
        bits = 8 * lanes * (size or tile.dtype.size)
        return unrolled * max(1, -(-bits // self.core.target.vector_bits))

    def moved(self, statement: Load | Store, tile: Tile) -> float:
        """Instructions of an access, which is noted with its strides: vectors where neighbours lie
        side by side, else elements.
        """
        # An access costs by the strides of its lanes: neighbours are one vector, a square with
        # stride one the other way round is a transposition in registers, all else is a load or
        # store a lane.
        core, size = self.core, self.buffers[statement.buffer].dtype.size
        strides = self.strides(statement.offset, size)
        if not self.is_noted:
            self.note(statement, size, strides)
        count = self.vectors(tile)
        if isinstance(statement, Load) and not any(self.vector[a] > 1 for a in tile.axes):
            count /= 2  # so narrow a load
        # A word of neighbours is as wide as its stride.
        by_axis = {level.axis: stride for level, stride in zip(self.levels, strides, strict=True)}
        wide = [axis.name for axis in tile.axes if self.vector[axis] > 1]
        near = {0, size} | {size * level.neighbours for level in self.levels}
        steps = [abs(by_axis.get(name, 0)) for name in wide if by_axis.get(name, 0) not in near]
        if steps and self.is_turned(statement, tile, by_axis):
            count *= core.turn
        elif steps and isinstance(statement, Load) and max(steps) <= SHORT_STEP * size:
            count *= max(steps) / size
        elif steps:
            of_element = core.gather if isinstance(statement, Load) else core.scatter
            count = of_element * prod(self.vector[a] * self.unroll[a] for a in tile.axes)
        elif any(not set(wide).isdisjoint(a.name for a in t.axes) for _, t in statement.indices):
            count *= core.gather * prod(self.vector[axis] for axis in tile.axes)
        return count if statement.guard is TRUE else count * core.masked

    def is_turned(self, statement: Load | Store, tile: Tile, strides: Mapping[str, int]) -> bool:
        """Is a square of vectors loaded along another axis and transposed in registers, or are
        parts of vectors stored so?
        """
        if statement.guard is not TRUE or statement.indices:
            return False
        size = tile.dtype.size
        across = [self.unroll[a] for a in tile.axes if strides.get(a.name) == size]
        if isinstance(statement, Store):
            return not statement.add and any(n > 1 for n in across)
        wide = [(self.vector[a], 1) for a in tile.axes if self.vector[a] > 1]
        return [(n, 1) for n in across] == wide

    # --- traffic

    def strides(self, offset: Expression, size: int) -> tuple[int, ...]:
        """The bytes that an access moves by with a step of each loop around it by one position."""
        used = offset.symbols()
        at = self.value(offset)
        moves_by = []
        for depth in range(len(self.levels)):
            saved = self.shift(depth)
            moves = any(self.values[s.name] != saved.get(s.name, self.values[s.name]) for s in used)
            moves_by.append((self.value(offset) - at) * size if moves else 0)
            self.values.update(saved)
        return tuple(moves_by)

    def shift(self, depth: int) -> dict[str, int]:
        """Moves a loop by one position, and with it those inside that begin there; what was."""
        saved: dict[str, int] = {}
        moved = self.levels[depth].axis
        names = {moved}
        starts = {}
        for level in self.levels[depth + 1 :]:
            if level.start is not None and any(s.name in names for s in level.start.symbols()):
                starts[level.axis] = self.values[level.axis] - self.value(level.start)
                names.add(level.axis)
        saved[moved] = self.values[moved]
        self.values[moved] += 1
        for level in self.levels[depth + 1 :]:
            if level.axis in starts and level.start is not None:
                saved[level.axis] = self.values[level.axis]
                self.values[level.axis] = self.value(level.start) + starts[level.axis]
        return saved

    def note(self, statement: Load | Store, size: int, strides: tuple[int, ...]) -> None:
        """Adds an access to those of the loops around it. All chunks have one scratch."""
        buffer = self.buffers[statement.buffer]
        whole = float(max(1, self.value(buffer.size))) * size
        if buffer.space is Space.SCRATCH:
            strides = tuple(
                s if level.start is not None else 0
                for s, level in zip(strides, self.levels, strict=True)
            )
        if statement.indices:  # anywhere
            strides = tuple(s or self.core.target.line_bytes for s in strides)
        # A stored line is read first, unless it passes by the caches.
        times = 1 if isinstance(statement, Load) or buffer.non_temporal else 2
        offset = statement.offset.constant * size
        access = Access(statement.buffer, size, whole, times, tuple(self.levels), strides, offset)
        self.accesses.append(access)
        for level in self.levels:
            level.accesses.append(access)
