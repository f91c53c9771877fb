"""What a cascade's placements work with: blocks of lanes and steps, scratch, loops and folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import At, Axes, Reduction, Term, below
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.kernel.cascade import Cascade, Member
from luminal.kernel.cascade_arithmetic import Arithmetic
from luminal.kernel.cascade_sweep import Sweep
from luminal.kernel.dimensions import Dimension
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.fused import Fused
from luminal.kernel.guards import Range
from luminal.kernel.lanes import ONE_LANE, Lanes
from luminal.kernel.loops import LoopAxis, accesses, estimate, loop_axes
from luminal.kernel.neighbours import walked
from luminal.kernel.reductions import Reductions
from luminal.kernel.schedule import SINGLE, Stage, TileChoice
from luminal.kernel.staged import Staged
from luminal.kernel.staging import Staging, Walk
from luminal.kernel.tile_ir import Load, Store, Tile
from luminal.shape.expression import TRUE, Expression, Symbol, const, opaque


@dataclass(frozen=True, slots=True)
class CascadeTiling:
    """The choices for a cascade: blocks of `lane` (None: there is no such axis) and of the reduced
    axes; register tiles of `rows` by `vectors` of `width` elements; `chains`
    vectors folded side by side; tiles of `dots` by `dots` dot products; single elements copied
    `copied` at a time. `keeps`: contractions that several sweeps need are kept for all steps, not
    done again. Where groups run it, positions of `lane` are dealt to `row_lanes`, steps and further
    axes to `lanes`; where there are `sum_lanes`, these share each dot product, and its steps are
    dealt to `dot_lanes`. `near`: factors that lie across the steps are copied for each block, so
    that lanes read them side by side.
    """

    lane: Symbol | None
    width: int
    lane_block: int
    step_block: int
    rows: int
    vectors: int
    chains: int
    dots: int = 1
    copied: int = 1
    keeps: bool = False
    row_lanes: Lanes = ONE_LANE
    lanes: Lanes = ONE_LANE
    sum_lanes: Lanes = ONE_LANE
    dot_lanes: Lanes | None = None
    near: bool = False

    @property
    def tile(self) -> TileChoice:
        """The tile of a further axis."""
        return TileChoice(self.vectors, self.width, self.lanes)

    @property
    def row_tile(self) -> TileChoice:
        """The tile of the lane axis beside a further axis."""
        return TileChoice(self.rows, 1, self.row_lanes)

    @property
    def row(self) -> TileChoice:
        """One position of the lane axis, for each row of a group."""
        return TileChoice(1, 1, self.row_lanes)


Words = tuple[Symbol | None, int]
"""The axis along which so many neighbours are a word."""
NO_WORDS: Words = (None, 1)


LANE, STEP = opaque("lane"), opaque("step")
"""Positions in the blocks of lanes and of steps."""


def _whole(a: Symbol, count: int = 1) -> Dimension:
    """A dimension over a whole axis, in words of so many neighbours."""
    return Dimension(a // count, extent_of((a,)) // count, count, a % count)


def is_contiguous(fused: Fused, term: Term, axis: Symbol) -> bool:
    """Do neighbours along the axis lie side by side, or in one place, wherever `term` reads?"""
    bound = [a for r in fused.reductions for a in r.attrs]
    stored = [a for store in fused.stores for a in store.axes]
    loops = tuple(LoopAxis(a, (a,)) for a in dict.fromkeys((*stored, *bound)))
    reads = below((term,), fused.reads.__contains__)
    relevant = (a for a in accesses(fused, loops) if a.source in reads)
    return all(access.contiguity(LoopAxis(axis, (axis,))) >= 0 for access in relevant)


def _contracted(fused: Fused, cascade: Cascade) -> tuple[LoopAxis, ...]:
    """The loops of contractions, the one along which most reads lie side by side innermost."""
    along = walked(fused)
    loops = loop_axes(fused)
    touched = accesses(fused, loops)

    def nearness(loop: LoopAxis) -> tuple[int, int]:
        return sum(access.stride(loop) == 1 for access in touched), loop.estimate

    bound = (x for x in loops if any(x.is_reduced(r, along) for r in cascade.inner))
    return tuple(sorted(bound, key=nearness))


class Workspace:
    """The blocks in hand, the state in scratch, and the statements that passes are made of."""

    def __init__(self, fused: Fused, cascade: Cascade, tiling: CascadeTiling) -> None:
        self.tiles: dict[Symbol, TileChoice] = {}  # of the loops of contractions
        self.fused = fused
        self.values = Evaluator(fused)
        self.blocks = self.values.blocks
        sequential = _contracted(fused, cascade)
        self.reductions = Reductions(fused, sequential, self.tiles, self.values)
        self.staging = Staging(self.values)
        self.cascade = cascade
        self.tiling = tiling
        self.arithmetic = Arithmetic(self.values)
        self.lane = tiling.lane
        self.lane_axes: Axes = () if self.lane is None else (self.lane,)
        gathers = (t for t in fused.terms if isinstance(t, At))
        chosen = {a for at in gathers for index in at.args[1:] for a in index.axes}

        def nearness(a: Symbol) -> tuple[bool, int]:
            """Longer axes are inner ones; those whose positions choose where to read are outer."""
            return a not in chosen, estimate(extent_of((a,)))

        steps = sorted(cascade.first.attrs, key=nearness)
        self.step = steps[-1]  # the others run outside of its blocks
        self.outer_steps = tuple(steps[:-1])
        self.start: Expression = const(0)  # the block of the lane axis
        self.stop: Expression = const(1)
        self.first: Expression = const(0)  # the block of the step axis
        self.last: Expression = const(0)
        self.mask: Expression = TRUE  # of the sweep in hand
        self.free: Range | None = None  # steps in which no lane of the block is masked
        self.kept: frozenset[Term] = frozenset()  # contractions kept from sweep to sweep
        # In scratch and not in accumulators: a sum with further axes has more elements than there
        # are registers.
        self.state = {m.term: self.row_of(m.term) for m in cascade.members}
        # Sums that follow a maximum at the same rate share what they are multiplied by: it is
        # computed once a move.
        rates = dict.fromkeys(m.rate for m in cascade.members if m.rate is not None)
        self.rescale = {r: self.row(self.lane_axes, r.maximum.dtype) for r in rates}

    def extra(self, term: Term) -> Axes:
        """The axes of a sum or store beside those of the maximum, in the order of the stores."""
        order = [a for store in self.fused.stores for a in store.axes]
        rest = term.axes - self.cascade.rows
        return tuple(sorted(rest, key=lambda a: (order.index(a) if a in order else -1, a.sort_key)))

    # --- scratch

    def block(self, axes: Axes, terms: Iterable[Term]) -> dict[Term, Staged]:
        """Rows over a block along axes; over all steps for what is kept from sweep to sweep."""
        outer = self.outer_steps
        return {
            t: self.row((*outer, *axes), t.dtype, is_whole=True)
            if t in self.kept
            else self.row(axes, t.dtype)
            for t in terms
        }

    def row_of(self, result: Term) -> Staged:
        """The room in which a result is kept."""
        return self.row((*self.lane_axes, *self.extra(result)), result.dtype)

    def row(self, axes: Axes, dtype: DType, *, is_whole: bool = False) -> Staged:
        """Scratch over blocks of the lanes and steps (`is_whole`: over all steps) and over further
        whole axes, in this order.
        """
        dimensions = [_whole(a) if is_whole and a is self.step else self.dimension(a) for a in axes]
        return self.staging.room(dimensions, dtype)

    def dimension(self, a: Symbol, words: Words = NO_WORDS) -> Dimension:
        """A dimension over the block of the lanes or steps, or over a whole axis; of words where
        they lie along it.
        """
        along, count = words
        if a is self.lane:
            return Dimension(LANE, const(self.tiling.lane_block))
        if a is self.step:
            return Dimension(STEP, const(self.tiling.step_block))
        return _whole(a, count if a is along else 1)

    def stage(self, stage: Stage, env: Env) -> None:
        """Fills a stage; from here on its term is read there."""
        words = self.reductions.words(stage)
        dimensions = {a: self.dimension(a, words) for a in stage.order}
        room = self.staging.room_of(stage, dimensions)
        walks = (self.walk(a, tile, words=words) for a, tile in stage.fill)
        self.staging.fill(room, walks, env, partial(self.reductions.elements, stage, ()))
        room.level = self.blocks.depth
        self.reductions.know(stage, room)

    def read(self, row: Staged, env: Env) -> Tile:
        """What the row holds now: loaded in the innermost loop."""
        # The evaluator would give the value it knows; state is another one after each block.
        offset, level = self.values.canonical(row.offset(env)), self.blocks.depth
        tile = self.blocks.new(offset.symbols(), row.dtype, level)
        self.blocks.put(Load(tile, row.buffer, offset), level)
        return tile

    def write(self, row: Staged, env: Env, tile: Tile) -> None:
        """Stores in the innermost loop."""
        offset = self.values.canonical(row.offset(env))
        self.blocks.put(Store(row.buffer, offset, tile), self.blocks.depth)

    def keep(self, rows: Mapping[Term, Staged]) -> None:
        """Has these terms read from their rows from here on."""
        for row in rows.values():
            # Loads stay inside of this block: without the level, one at a position that depends on
            # no loop would move out, above the stores of the next block.
            row.level, row.is_ready = self.blocks.depth, True
        self.values.staged.update(rows)

    def forget(self, terms: Iterable[Term]) -> None:
        """Has these terms computed anew from here on."""
        for term in terms:
            self.values.staged.pop(term, None)

    # --- loops and values

    def walk(
        self,
        a: Symbol,
        tile: TileChoice = SINGLE,
        within: Range | None = None,
        words: Words = NO_WORDS,
    ) -> Walk:
        """A loop over the block of the lanes or steps, or over a whole axis, of words along it."""
        start, stop = const(0), self.values.canonical(extent_of((a,)))
        count = words[1] if a is words[0] else 1
        symbol = self.blocks.fresh_axis(stop // count)
        origin, local = start, None
        if a is self.lane:
            origin, local, start, stop = self.start, LANE, self.start, self.stop
        elif a is self.step:
            origin, local, start, stop = self.first, STEP, self.first, self.last

        def positions(at: Expression) -> dict[Symbol, Expression]:
            place = at * count
            return {a: place} if local is None else {a: place, local: place - origin}

        start, stop = within or (start, stop)
        return Walk(symbol, start, stop // count, positions, tile)

    def open(
        self, a: Symbol, env: Env, tile: TileChoice = SINGLE, within: Range | None = None
    ) -> Env:
        """Opens a loop over the block of the lanes or steps, or over a whole axis."""
        return self.staging.open(self.walk(a, tile, within), env)

    @contextmanager
    def loops(
        self, axes: Axes, env: Env, tile: TileChoice = SINGLE, within: Range | None = None
    ) -> Iterator[Env]:
        """Loops over all of `axes`, the last one in tiles, and in a part where that is given."""
        depth = self.blocks.depth
        blocked = tuple(a for a in axes if a in (self.lane, self.step))
        if tile.lanes.count > 1 and len(axes) > len(blocked) + 1:
            for a, choice in self.tiled(blocked, self.tiling.row):
                env = self.open(a, env, choice)
            env = self.staging.open(self.together(axes[len(blocked) :], tile), env)
        else:
            for a, choice in self.tiled(axes, tile):
                env = self.open(a, env, choice, within if a is axes[-1] else None)
        yield env
        self.blocks.close_to(depth)

    # The last one may be a few positions of a block, as where a packed weight reads the result.
    def together(self, axes: Axes, tile: TileChoice) -> Walk:
        """A loop over further axes as one, which is dealt to lanes."""
        size = self.values.canonical(extent_of(axes))
        positions = LoopAxis(axes[0], axes).positions
        return Walk(self.blocks.fresh_axis(size), const(0), size, positions, tile)

    def tiled(self, axes: Axes, tile: TileChoice) -> tuple[tuple[Symbol, TileChoice], ...]:
        """Axes with the tiles of their loops: the last one in this tile."""
        return tuple(
            (a, tile if a is axes[-1] else self.tiling.row if a is self.lane else SINGLE)
            for a in axes
        )

    def rescaled(self, member: Member, env: Env) -> Tile:
        """A result so far, as it is under the new maximum."""
        value = self.read(self.state[member.term], env)
        if member.rate is None:
            return value
        return self.arithmetic.apply("Mul", value, self.read(self.rescale[member.rate], env))

    def move(self, maximum: Reduction, old: Tile, new: Tile, env: Env) -> None:
        """Stores a new maximum, and what sums are multiplied by because it moved."""
        for rate, row in self.rescale.items():
            if rate.maximum is maximum:
                self.write(row, env, self.arithmetic.moved(rate, old, new))
        self.write(self.state[maximum], env, new)

    def add(self, members: Sequence[Member], values: Sequence[tuple[Tile, ...]], env: Env) -> None:
        """Closes a loop over a block of steps and adds up the members' values to what they are so
        far, which is none of a vector's positions; and long sums are nearer the truth by parts.
        """
        results = [m.term for m in members]
        nothing = [(r.monoid, self.values.identity(r.monoid, r.dtype)) for r in results]
        totals = self.arithmetic.fold(nothing, values)
        for member, total in zip(members, totals, strict=True):
            so_far = self.rescaled(member, env)
            both = self.arithmetic.apply(member.term.monoid.combine, so_far, total)
            self.write(self.state[member.term], env, both)

    def know_maximum(self, maximum: Reduction, env: Env) -> None:
        """Has the maximum enter exponents from here on, in the innermost loop."""
        self.know(maximum, env, self.arithmetic.safe(self.read(self.state[maximum], env)))

    def know(self, term: Term, env: Env, tile: Tile) -> None:
        """Has a tile stand for a term from here on, in the innermost loop."""
        self.blocks.stack[-1].known[self.values.key(term, env)] = tile

    def exponential_rows(self, sweep: Sweep, axes: Axes) -> dict[Term, Staged]:
        """The rows of the exponentials: the first of a maximum in the place of what is maximised,
        where that is not needed any more.
        """
        rows: dict[Term, Staged] = {}
        free = {maximum.args[0] for maximum in sweep.maxima}
        for e, maximum in sweep.exponentials().items():
            (x,) = maximum.args
            if x in free - self.kept and not sweep.is_needed_later(x):
                free.remove(x)
                rows[e] = self.values.staged[x]
            else:
                rows[e] = self.row(axes, e.dtype)
        return rows
