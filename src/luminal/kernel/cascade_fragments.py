"""A cascade by fragments: what a step computes of products of matrices stays in registers.

A group has a block of rows (queries); the lanes that multiply together, a team, have some of these
to themselves. Each step copies blocks of what lies along the steps (keys and values) into shared
memory, where all teams read them:

    copy the rows' factors; m = -inf, sums = 0
    for blocks of steps:
        copy the steps' factors, or await them and have the next ones sent
        for the rows of a team:
            x[i, t]            accumulators of a product, then what is computed of them
            m', rescale        maximum over t: of a lane's own, then of those that share its rows
            e[i, t] = exp(x - m'), with the sums that have no further axes
            o[i, d] = o * rescale + e v    e is the first factor as the lanes hold it (`Retile`)
    finish and store

Factors of a dot have 16 bits and e has 32: it is multiplied as the sum of parts of the dot's dtype,
each the rest that those before leave. All of them are e itself; where results are stored as 16 bits
two are enough, as they err a hundred times less than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import Axes, Reduction, Term
from luminal.base.dtypes import bool_
from luminal.base.records import dataclass
from luminal.kernel.boxes import Begin
from luminal.kernel.carried import CarriedLoops, joint, tiled
from luminal.kernel.cascade import Rate
from luminal.kernel.cascade_arithmetic import Arithmetic
from luminal.kernel.cascade_sweep import Sweep
from luminal.kernel.dimensions import Dimension
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator, Placed
from luminal.kernel.fragment_step import DEPTH, PLACE, Greatest, State, Step, Words
from luminal.kernel.fused import Store
from luminal.kernel.guards import Range, alternatives, hull, relaxed_range
from luminal.kernel.lanes import ONE_LANE, Lanes, Part
from luminal.kernel.loops import LoopAxis
from luminal.kernel.schedule import SINGLE, TileChoice
from luminal.kernel.staged import Staged
from luminal.kernel.staging import Staging, Walk
from luminal.kernel.streamed import Block, FragmentTiling, Streamed, blocks_of, lines_of, rounded
from luminal.kernel.tile_ir import (
    Await,
    Barrier,
    Batch,
    Binding,
    Commit,
    Copy,
    Role,
    Space,
    Tile,
)
from luminal.memory.alignment import ACCESS
from luminal.shape.expression import (
    TRUE,
    Expression,
    Symbol,
    all_of,
    ceil_div,
    const,
    maximum,
    minimum,
)

LEAST = 2.0**-120  # for the greatest factor of a row: its inverse is a number
COPIES = 4  # runs that a lane copies at once: loads under way while others are waited for


@dataclass(frozen=True, slots=True)
class ByFragments:
    """A cascade by fragments, and its blocks."""

    found: Streamed
    tiling: FragmentTiling

    def place(self) -> Placed:
        """The kernel of the attention under this tiling."""
        placed = Fragments(self.found, self.tiling).run()
        kernel = replace(placed.kernel, subgroup=self.found.dot.row)
        return replace(placed, kernel=kernel)


# Copies deal blocks to all lanes of the group, products to those of a team, so all that is known of
# rows is carried through the loops over them: they are opened anew in each step.
class Fragments(CarriedLoops):
    """The placement of a cascade by fragments."""

    def __init__(self, stream: Streamed, tiling: FragmentTiling) -> None:
        super().__init__(Evaluator(stream.fused))
        self.found = stream
        self.tiling = tiling
        self.dot = stream.dot
        self.arithmetic = Arithmetic(self.values)
        self.staging = Staging(self.values)
        is_read = stream.fused.reads.__contains__
        cascade = stream.cascade
        self.sweeps = [Sweep(cascade, n, is_read) for n in range(cascade.sweeps)]
        self.parts = stream.parts
        self.grid, self.first_row = self.open_grid()
        self.rows = self.sides("m", tiling.rows, tiling.teams)
        self.steps = self.sides("n", tiling.steps)
        self.further = {
            axes: self.sides("n", rounded(axes, self.dot.n))
            for axes in dict.fromkeys(map(stream.further, stream.sums))
        }
        (_, self.depth) = self.sides("k", self.dot.k)
        self.blocks_at = blocks_of(stream, tiling)
        # Of the blocks of steps that are multiplied, and of those of which there are words.
        self.turn = self.turn_of_words = const(0)
        rooms = dict.fromkeys(
            (b, tiling.stages if side else 1) for (_, side), b in self.blocks_at.items()
        )
        # Without a ring nothing would run on while they come.
        self.lines = lines_of(stream, tiling) if tiling.stages > 1 else {}
        rooms |= dict.fromkeys((line, tiling.stages) for line in self.lines.values())
        self.rooms = {block: self.room(block, stages) for block, stages in rooms}

    def run(self) -> Placed:
        """The kernel, its statements written in order."""
        self.barrier()  # the rows of the chunk before have been read
        for block in dict.fromkeys(b for (_, side), b in self.blocks_at.items() if not side):
            self.copy(block, self.first_row)
        results: State = {}
        waiting = {store: self.found.results_of(store) for store in self.found.fused.stores}
        for sweep in self.sweeps:
            if sweep.number:
                self.barrier()  # the steps of the sweep before have been read
            results |= self.settled(sweep, self.walked(sweep, results))
            # At once: the registers of what is stored are free for the sweeps that follow.
            able = [store for store, wanted in waiting.items() if wanted <= results.keys()]
            wanted = {r for store in able for r in waiting.pop(store)}
            self.store(able, {r: tile for r, tile in results.items() if r in wanted})
        return self.values.finish()

    # --- loops

    @property
    def lanes(self) -> int:
        return self.tiling.teams * self.dot.together

    def open_grid(self) -> tuple[Env, Expression]:
        """One grid axis per axis of the rows; gives the first of the block's along the lanes'."""
        stream, values = self.found, dict[Symbol, Expression]()
        first: Expression = const(0)
        for a in stream.fused.stores[0].axes:
            if a is stream.lane:
                blocks = ceil_div(extent_of((a,)), self.tiling.rows)
                first = self.values.grid_axis(blocks) * self.tiling.rows
            elif a in stream.cascade.rows:
                values[a] = self.values.grid_axis(extent_of((a,)))
        return Env(values), first

    def walk(
        self, size: int, tile: TileChoice, place: Symbol | None = None, count: int = 1
    ) -> Walk:
        """A loop over so many positions, each of `count`; `place` stands for them where it is
        given.
        """

        def positions(position: Expression) -> dict[Symbol, Expression]:
            return {} if place is None else {place: position * count}

        return Walk(self.blocks.fresh_axis(const(size)), const(0), const(size), positions, tile)

    def sides(self, side: str, size: int, teams: int = 1) -> list[Walk]:
        """The loops over blocks of a side, dealt to teams, and over what is in one. Those of steps
        of a sum follow each other.
        """
        part = Part(self.dot, side)
        blocks = size // part.extent
        lanes = Lanes(teams, self.dot.together) if teams > 1 else ONE_LANE
        return [
            self.walk(blocks, SINGLE if side == "k" else TileChoice(blocks // teams, 1, lanes)),
            self.walk(part.extent, TileChoice(part=part)),
        ]

    def barrier(self) -> None:
        """All lanes of the group meet."""
        self.blocks.put(Barrier(Binding.GROUP), self.blocks.depth)

    @contextmanager
    def batch(self, running: int | None = 0) -> Iterator[None]:
        """A batch of products; after it so many batches may run on, or, with None, all."""
        if self.dot.is_from_memory:
            self.blocks.put(Begin(), self.blocks.depth)
        yield
        if self.dot.is_from_memory:
            self.blocks.put(Commit(Batch.PRODUCTS), self.blocks.depth)
            if running is not None:
                self.await_products(running)

    def await_products(self, running: int) -> None:
        """Waits until no more batches of products than these run on."""
        self.blocks.put(Await(running, Batch.PRODUCTS), self.blocks.depth)

    # --- words of factors that a step computes

    def parts_of(self, sweep: Sweep) -> list[tuple[Reduction, int]]:
        """The sums with further axes, each with every part of its factor."""
        return [(m.term, part) for m in sweep.wide for part in range(self.parts)]

    def words_of(self, sweep: Sweep) -> list[Words]:
        """The words of all parts of factors, block by block of steps of the dot."""
        firsts = range(0, self.tiling.steps, self.dot.k)
        return [
            (m.term, part, first)
            for m in sweep.wide
            for first in firsts
            for part in range(self.parts)
        ]

    # --- shared memory

    def room(self, block: Block, stages: int) -> Staged:
        """Shared memory for so many of a block."""
        order = (PLACE, DEPTH) if block.deep_first else (DEPTH, PLACE)
        sizes = dict(zip(order, block.lengths(), strict=True))
        return self.staging.room(
            [Dimension(symbol, const(sizes[symbol])) for symbol in order],
            block.term.dtype,
            pad=0 if block.swizzle else ACCESS,
            space=Space.SHARED,
            buffers=stages,
            swizzle=block.swizzle,
        )

    def copy(self, block: Block, first: Expression) -> None:
        """Copies a block into shared memory, of rows or steps from the first one on."""
        outer, inner = block.lengths()
        run = min(ACCESS // block.term.dtype.size, inner & -inner)
        runs = inner // run
        across = min(runs & -runs, self.lanes)
        down = min(outer & -outer, self.lanes // across)
        near, far = (DEPTH, PLACE) if block.deep_first else (PLACE, DEPTH)
        unroll = max(1, min(COPIES // (runs // across), outer // down))
        walks = (
            self.walk(
                outer, TileChoice(unroll, 1, Lanes(down, across) if down > 1 else ONE_LANE), far
            ),
            self.walk(inner, TileChoice(runs // across, 1, Lanes(across, 1, run)), near)
            if across > 1
            else self.walk(inner, TileChoice(inner), near),
        )
        self.staging.fill(
            self.rooms[block], walks, Env({}),
            lambda here: [(here, self.element(block, first, here))],
        )  # fmt: skip

    def send(self, blocks: Iterable[Block], first: Expression, turn: Expression) -> None:
        """A batch: blocks on their way into shared memory, without registers."""
        for block in blocks:
            count = ACCESS // block.term.dtype.size
            outer, inner = block.lengths()
            runs = inner // count
            across = min(runs & -runs, self.lanes)
            down = min(outer & -outer, self.lanes // across)
            near, far = (DEPTH, PLACE) if block.deep_first else (PLACE, DEPTH)
            depth, here = self.blocks.depth, Env({})
            for size, lanes, place, step in (
                (outer, Lanes(down, across) if down > 1 else ONE_LANE, far, 1),
                (runs, Lanes(across) if across > 1 else ONE_LANE, near, count),
            ):
                tile = TileChoice(size // lanes.count, 1, lanes)
                here = self.staging.open(self.walk(size, tile, place, step), here)
            room, source = self.rooms[block], self.found.fused.reads[block.term]
            point = self.point(block, first, here)
            self.blocks.put(
                Copy(
                    room.buffer, self.values.canonical(room.offset(here, turn)),
                    self.values.operand(source, Role.IN),
                    self.values.canonical(source.offset(point.values)),
                    count, self.values.canonical(point.guard),
                ),
                self.blocks.depth,
            )  # fmt: skip
            self.blocks.close_to(depth)
        self.blocks.put(Commit(), self.blocks.depth)

    def point(self, block: Block, first: Expression, here: Env) -> Env:
        """The point of what is copied, for an element of a block."""
        values, guards = dict(self.grid.values), []
        for (axes, _), symbol in ((block.depth, DEPTH), (block.place, PLACE)):
            if not axes:
                continue
            position = here.values[symbol]
            if axes in ((self.found.lane,), self.found.steps):
                position = first + position
            values |= LoopAxis(axes[0], axes).positions(position)
            guards.append(self.unproved(position, axes))
        env = Env(values, all_of(guards))
        for at in block.ats:
            env = self.values.move(at, env)
        return env

    def element(self, block: Block, first: Expression, here: Env) -> Tile:
        """An element of a block, 0 beyond the ends: what is multiplied with it there is nothing."""
        point = self.point(block, first, here)
        tile = self.values.evaluate(block.term, point)
        if point.guard is TRUE or block.term in self.found.fused.reads:
            return tile
        return self.where(point.guard, tile, self.values.constant(0, tile.dtype))

    def unproved(self, position: Expression, axes: Axes) -> Expression:
        """The condition that a position is inside, or TRUE where it always is."""
        condition = position < self.values.canonical(extent_of(axes))
        return TRUE if self.values.holds(condition) else condition

    def where(self, condition: Expression, value: Tile, other: Tile) -> Tile:
        if condition is TRUE:
            return value
        return self.arithmetic.apply("Select", self.values.index(condition, bool_), value, other)

    # --- a sweep

    def held(self, sweep: Sweep) -> State:
        """What a sweep begins with: its results of nothing, and the greatest factors so far."""
        nothing: State = {
            m.term: self.values.identity(m.term.monoid, m.term.dtype) for m in sweep.members
        }
        factors = dict.fromkeys(self.found.sums[m.term][0] for m in sweep.wide)
        scaled = (x for x in factors if x in self.found.scaled)
        return nothing | {Greatest(x): self.values.constant(LEAST, x.dtype) for x in scaled}

    def axes(self, term: Term | Words | Greatest) -> list[Symbol]:
        """The axes that a result has, words of a factor, or the greatest one of a row."""
        if isinstance(term, Greatest):
            return tiled(self.rows)
        if isinstance(term, tuple):
            return [*tiled(self.rows), self.depth.axis]
        further = self.found.further(term)
        return tiled([*self.rows, *(self.further[further] if further else ())])

    def walked(self, sweep: Sweep, results: State) -> State:
        """One sweep over the blocks of steps: what it sums."""
        empty = self.held(sweep)
        members = [*empty]
        low, high = self.visited(sweep)
        number = self.blocks.fresh_axis(ceil_div(extent_of(self.found.steps), self.tiling.steps))
        loop = number, ceil_div(high - low, self.tiling.steps), SINGLE
        needed = {*sweep.needed(), *(m.term for m in sweep.members)}
        at = self.blocks_at.items()
        copied = dict.fromkeys(b for (r, side), b in at if side and r in needed)
        copied |= dict.fromkeys(self.lines[term] for term in self.lines_read(sweep))
        size, stages = self.tiling.steps, self.tiling.stages
        if self.tiling.runs_on and sweep.wide:
            return self.walked_ahead(sweep, results, copied, (low, high))
        ahead = stages - 1
        for turn in range(ahead):
            self.send(copied, low + turn * size, const(turn))
        with self.carried(loop, [*empty.values()], [*map(self.axes, members)]) as (_, held):
            first = low + number * size
            if stages > 1:
                self.blocks.put(Await(ahead - 1), self.blocks.depth)
                self.barrier()  # this block has come to all, and the last one has been read
                self.send(copied, first + ahead * size, (number + ahead) % stages)
            else:
                self.barrier()  # the last block has been read
                for block in copied:
                    self.copy(block, first)
                self.barrier()
            state: State = dict(zip(members, held.inner, strict=True))
            self.turn = self.turn_of_words = number % stages
            held.next = [*self.stepped(sweep, first, state, results, Step.run).values()]
        if stages > 1:
            if self.dot.is_from_memory:
                self.barrier()  # what comes last is shown to nobody: no product may be running
            self.blocks.put(Await(0), self.blocks.depth)
        return dict(zip(members, held.results, strict=True))

    # What is multiplied with a block's factors is computed while the block before is multiplied
    # with its own: three blocks are there, of which one is on its way.
    def walked_ahead(
        self, sweep: Sweep, results: State, copied: Iterable[Block], visited: Range
    ) -> State:
        """A sweep whose products run on while lanes compute the next block's factors."""
        low, high = visited
        size, stages = self.tiling.steps, self.tiling.stages
        before = self.held(sweep)
        members = [*before]
        count = maximum(ceil_div(high - low, size), 1)
        for turn in range(stages - 1):
            self.send(copied, low + turn * size, const(turn))
        self.blocks.put(Await(stages - 2), self.blocks.depth)
        self.barrier()
        self.turn = const(0)
        before |= {key: self.values.constant(0, self.dot.a) for key in self.words_of(sweep)}
        state = self.stepped(sweep, low, before, results, Step.begin)
        names, axes = [*state], [*map(self.axes, state)]
        number = self.blocks.fresh_axis(ceil_div(extent_of(self.found.steps), size))
        loop = number, count - 1, SINGLE
        with self.carried(loop, [*state.values()], axes) as (_, held):
            block = number + 1
            self.blocks.put(Await(stages - 3), self.blocks.depth)
            self.barrier()  # this block has come to all, and the last but one has been read
            self.send(copied, low + (number + stages - 1) * size, (number + stages - 1) % stages)
            self.turn, self.turn_of_words = block % stages, number % stages
            inner = dict(zip(names, held.inner, strict=True))
            after = self.stepped(sweep, low + block * size, inner, results, Step.run_on)
            held.next = [after[name] for name in names]
        self.turn_of_words = (count - 1) % stages
        state = dict(zip(names, held.results, strict=True))
        state = self.stepped(sweep, low, state, results, Step.end)
        self.barrier()  # what comes last is shown to nobody: no product may be running
        self.blocks.put(Await(0), self.blocks.depth)
        return {r: state[r] for r in members}

    def lines_read(self, sweep: Sweep) -> list[Term]:
        """What members of a sweep read that is a number a step, where it is copied."""
        seen = sweep.seen()
        return [term for term in self.lines if term in seen]

    def visited(self, sweep: Sweep) -> Range:
        """The steps, in whole blocks, outside of which all rows are masked (see `Pass.visited`)."""
        extent = self.values.canonical(extent_of(self.found.steps))
        if sweep.mask is TRUE or len(self.found.steps) > 1:
            return const(0), extent
        condition = self.values.canonical(sweep.mask.substitute(self.grid.values))
        rows = self.values.canonical(extent_of((self.found.lane,)))
        box = {
            self.found.lane: (self.first_row, minimum(self.first_row + self.tiling.rows, rows) - 1)
        }
        low, high = hull(
            [relaxed_range(c, self.found.steps[0], extent, box) for c in alternatives(condition)]
        )
        low = maximum(minimum(low, extent - 1), 0)
        size = self.tiling.steps
        return low // size * size, minimum(maximum(high, low + 1), extent)

    def stepped(
        self,
        sweep: Sweep,
        first: Expression,
        before: State,
        results: State,
        how: Callable[[Step, State], State],
    ) -> State:
        """The results so far with a block of steps added."""
        carried = {
            **before,
            **{r: t for r, t in results.items() if not self.found.further(r)},
        }
        axes = [*map(self.axes, carried)]
        with self.carried_through(self.rows, [*carried.values()], axes) as held:
            inside = dict(zip(carried, held.inner, strict=True))
            earlier = {r: inside[r] for r in carried if r not in before}
            after = how(Step(self, sweep, first, earlier), {r: inside[r] for r in before})
            held.next = [(after if r in after else inside)[r] for r in inside]
        return dict(zip(before, held.results, strict=False))

    def at_rows(self) -> Env:
        """The point at which the loops over rows are."""
        row = self.first_row + joint(self.rows)
        values = {**self.grid.values, self.found.lane: row}
        return Env(values, self.unproved(row, (self.found.lane,)))

    def know(self, term: Term, env: Env, tile: Tile) -> None:
        """Has a tile stand for a term from here on, in the innermost loop."""
        self.blocks.stack[-1].known[self.values.key(term, env)] = tile

    # --- results

    def settled(self, sweep: Sweep, state: State) -> State:
        """What a sweep has in the end, in its last scale."""
        results: State = {m.term: state[m.term] for m in sweep.members}
        if not sweep.rates and len(state) == len(results):
            return results
        axes = [*map(self.axes, state)]
        with self.carried_through(self.rows, [*state.values()], axes) as held:
            inside = dict(zip(state, held.inner, strict=True))
            scales: State = {**self.last_moves(sweep, inside), **inside}
            for m in sweep.members:
                factor = self.found.sums[m.term][0] if m in sweep.wide else None
                for scale in (m.rate, None if factor is None else Greatest(factor)):
                    inside[m.term] = self.times(m.term, inside[m.term], scales.get(scale))
            held.next = [*inside.values()]
        return dict(zip(results, held.results, strict=False))

    def last_moves(self, sweep: Sweep, state: State) -> dict[Rate, Tile]:
        """What turns sums under safe maxima into those under the maxima."""
        # See `Pass.last_moves`: a row that is all masked is to come out as NaN.
        moves = {}
        for rate in sweep.rates:
            value = state[rate.maximum]
            moves[rate] = self.arithmetic.moved(rate, self.arithmetic.safe(value), value)
        return moves

    def times(self, term: Reduction, value: Tile, factor: Tile | None) -> Tile:
        """A result multiplied by a number a row."""
        further = self.found.further(term)
        if factor is None:
            return value
        if not further:
            return self.arithmetic.apply("Mul", value, factor)
        with self.carried_through(self.further[further], [value], [self.axes(term)]) as held:
            held.next = [self.arithmetic.apply("Mul", held.inner[0], factor)]
        return held.results[0]

    def store(self, stores: Iterable[Store], results: State) -> None:
        """Stores values that are computed of results, each where it belongs."""
        if not results:
            return
        together: dict[Axes, list[Store]] = {}
        for store in stores:
            together.setdefault(self.found.beside(frozenset(store.axes)), []).append(store)
        axes = [*map(self.axes, results)]
        with self.carried_through(self.rows, [*results.values()], axes) as held:
            inside = dict(zip(results, held.inner, strict=True))
            for further, stores in together.items():
                self.store_beside(further, stores, inside)
            held.next = held.inner

    def store_beside(self, further: Axes, stores: Sequence[Store], state: State) -> None:
        """The stores of these further axes."""
        env = self.at_rows()
        narrow = {r: tile for r, tile in state.items() if not self.found.further(r)}
        if not further:
            self.store_at(stores, env, narrow)
            return
        wide = {r: tile for r, tile in state.items() if self.found.further(r) == further}
        axes, loops = [*map(self.axes, wide)], self.further[further]
        with self.carried_through(loops, [*wide.values()], axes) as held:
            position = joint(loops)
            values = LoopAxis(further[0], further).positions(position)
            guard = all_of([env.guard, self.unproved(position, further)])
            narrow |= dict(zip(wide, held.inner, strict=True))
            self.store_at(stores, Env({**env.values, **values}, guard), narrow)
            held.next = held.inner

    def store_at(self, stores: Sequence[Store], env: Env, tiles: State) -> None:
        for term, tile in tiles.items():
            self.know(term, env, tile)
        for store in stores:
            value = self.values.evaluate(store.term, env)
            self.values.store(store.place, store.offset(env.values), value, env.guard, add=False)
