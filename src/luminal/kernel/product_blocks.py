"""Products in blocks: a group of lanes computes a block of the results from blocks of the factors.

A product of matrices reads each factor once for every row, or column, of the other. A group whose
lanes copy a block of each into shared memory reads them from there, each element of global memory
once a block; each lane holds a tile of the results in registers, so that an element of shared
memory serves as many multiplications as the tile has rows, or columns.

What a factor is made of does not matter: whoever copies an element computes it, so positions of
convolutions, masks, gathers and casts end at the copy. But 16-bit floats may lie there as they are:
half the bytes, for a cast of each element that is read.

    for the grid's block of rows and columns:
        for each block of the sum, accumulators carried:
            all lanes: copy a block of each factor; barrier
            for k in the block: sums += a[k, rows] * b[k, columns]
            barrier
        for rows, columns: what is stored, from the sums

With two blocks of shared memory in turns, the next block is on its way from memory while one is
multiplied, and one barrier a step is enough: what it is copied over was read before the last one.

Where lanes copy to shared memory without registers, or the device by itself (`boxes.py`), there is
a ring of such blocks:

    for each block of the ring but one: copy; commit
    for each block of the sum:
        await all but the youngest batches; barrier
        copy the block that the ring has room for; commit
        multiply

A dot that reads its factors in shared memory multiplies while the lanes go on: what it reads may
not be copied over before its batch of products has been awaited, which comes before the barrier
that frees a block. Where such a dot has its sums in tensor memory no loop carries them: lanes load
some columns of them at a time when all has been added up, and store these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import Axes, Term
from luminal.base.dots import multiply_add
from luminal.base.dtypes import bool_, uint8, uint64
from luminal.base.records import dataclass
from luminal.kernel.boxes import SQUARE, AwaitPhase, Begin, Box, Free, Lift, Phases, Send
from luminal.kernel.carried import CarriedLoops, joint, tiled
from luminal.kernel.dimensions import Dimension, along
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator, Placed
from luminal.kernel.fused import Fused, Place
from luminal.kernel.guards import is_mask
from luminal.kernel.lanes import Part
from luminal.kernel.neighbours import in_blocks
from luminal.kernel.product_boxes import Cut, cut, joined, positions
from luminal.kernel.product_sides import Sides, sides_of
from luminal.kernel.product_tiling import (
    DEPTH,
    PLACE,
    ProductTiling,
    dealt,
    scale_digits,
)
from luminal.kernel.schedule import SINGLE, Stage, TileChoice
from luminal.kernel.staged import Staged
from luminal.kernel.staging import Staging, Walk
from luminal.kernel.tile_ir import (
    Accumulate,
    Await,
    Barrier,
    Batch,
    Binding,
    Commit,
    Contract,
    Copy,
    Load,
    Role,
    Space,
    Tile,
)
from luminal.shape.expression import TRUE, ZERO, Expression, Symbol, all_of, ceil_div, const

LOADED = 32
"""Columns that lanes load from tensor memory at once: as many registers."""


def place_blocks(fused: Fused, tiling: ProductTiling) -> Placed:
    """The tile IR of products under a tiling."""
    sides = sides_of(fused)
    assert sides is not None, "it is no product"
    return Products(sides, tiling).run()


@dataclass(frozen=True, slots=True)
class _Copy:
    """A factor on its way into shared memory, or its scales: its stage, the room of these, and the
    two loops, outer first, that deal the copying to the lanes: of `count` elements at once without
    registers, or 0.
    """

    factor: Term
    side: int
    stage: Stage
    room: Staged
    walks: tuple[Walk, Walk]
    count: int
    is_scales: bool = False


# What is multiplied may be masked, gathered, cast or a convolution's window: all of that ends where
# a block is copied to shared memory, and the loop that multiplies is the same for all. Copying and
# multiplying deal the same block to lanes in different ways, so sums are carried through loops over
# their own axes.
class Products(CarriedLoops):
    """The placement of products under a tiling."""

    def __init__(self, sides: Sides, tiling: ProductTiling) -> None:
        self.sides = sides
        self.tiling = tiling
        super().__init__(Evaluator(sides.fused))
        self.staging = Staging(self.values)
        self.lengths = [joined(side) for side in (sides.rows, sides.columns)]
        self.summed = joined(sides.summed)
        self.env, self.firsts = self.grid()
        self.tiles = [self.tile_of(side) for side in (0, 1)]
        self.walks = [walk for walks in self.tiles for walk in walks]
        self.copies = [self.copy(side, factor) for side, factor in sides.kept]
        self.scales = [self.scales_of(copy) for copy in self.copies] if self.has_scales else []
        self.count = len(sides.factors)  # of sums
        self.tensor = self.in_tensor()
        self.cuts = {copy.room.buffer: cut for copy in self.copies if (cut := self.cut_of(copy))}
        self.by_lanes = [copy for copy in self.copies if copy.room.buffer not in self.cuts]
        self.by_lanes += self.scales
        self.has_batches = not self.cuts or any(copy.count for copy in self.by_lanes)
        # One for each block of the ring.
        self.phases = self.new_barriers() if self.cuts else ""
        self.rooms = self.new_barriers() if self.cuts and tiling.cluster > 1 else ""

    def run(self) -> Placed:
        """The kernel of the products under the tiling."""
        in_turns = self.sums_in_ring if self.tiling.ring else self.sums_in_turns
        sums = self.sums() if self.tiling.buffers == 1 else in_turns()
        if self.tensor is not None:
            self.store_columns()
        else:
            with self.carried_through(self.walks, sums) as held:
                self.store_all(held.inner)
                held.next = held.inner
        placed, dot = self.values.finish(), self.tiling.dot
        if dot is None:
            return placed
        # Lanes are numbered by the rows that step together.
        return replace(placed, kernel=replace(placed.kernel, subgroup=dot.row))

    # --- the grid, and what is walked inside

    def grid(self) -> tuple[Env, list[Expression]]:
        """One chunk for each block; gives where its rows and columns begin."""
        values = self.values
        batch = joined(self.sides.batch)
        env = Env(positions(batch, values.grid_axis(extent_of(batch)))) if batch else Env({})
        sizes, band = (self.tiling.rows, self.tiling.columns), self.tiling.band
        # Rows of blocks that a cluster lacks are there too, with nothing to store.
        counts = [
            values.canonical(ceil_div(extent_of(length), size * whole) * whole)
            for length, size, whole in zip(
                self.lengths, sizes, (self.tiling.cluster, 1), strict=True
            )
        ]
        if band == 1:
            blocks: list[Expression] = [values.grid_axis(count) for count in counts]
        else:
            number, in_band = values.grid_axis(counts[0] * counts[1]), counts[1] * band
            within = number % in_band
            blocks = [number // in_band * band + within % band, within // band]
        return env, [block * size for block, size in zip(blocks, sizes, strict=True)]

    def walked(
        self, size: int, tile: TileChoice, place: Symbol | None = None, count: int = 1
    ) -> Walk:
        """A loop over so many positions of a block, each of `count`; `place` stands for them where
        it is given.
        """

        def positions(position: Expression) -> dict[Symbol, Expression]:
            return {} if place is None else {place: position * count}

        axis = self.blocks.fresh_axis(const(size))
        return Walk(axis, const(0), const(size), positions, tile)

    def tile_of(self, side: int) -> list[Walk]:
        """The rows, or the columns, of all tiles: neighbouring lanes have neighbouring columns. By
        a dot blocks of it, then what is in one.
        """
        size, dot = self.tiling.across(side), self.tiling.dot
        count, across = self.tiling.tiles[side], self.tiling.tiles[1]
        stride = 1 if side else across
        if dot is None:
            return [self.walked(size, dealt(size, count, stride))]
        part = Part(dot, "mn"[side])
        blocks = size // part.extent
        return [
            self.walked(blocks, dealt(blocks, count, stride * dot.together)),
            self.walked(part.extent, TileChoice(part=part)),
        ]

    def place(self, side: int) -> Expression:
        """The position in the block at which the loops over its tiles are."""
        return joint(self.tiles[side])

    def steps(self) -> list[Walk]:
        """The loops over a block of the sum."""
        deep, dot = self.tiling.deep, self.tiling.dot
        if dot is None:
            return [self.walked(deep, SINGLE)]
        part = Part(dot, "k")
        return [self.walked(deep // dot.k, SINGLE), self.walked(dot.k, TileChoice(part=part))]

    def copy(self, side: int, factor: Term) -> _Copy:
        """Room for a factor's blocks, and the loops that deal the copying to the lanes."""
        lengths = {DEPTH: self.tiling.deep, PLACE: self.tiling.across(side)}
        count = self.tiling.copied(self.sides, side, factor)
        for n in dict.fromkeys((count, 0)):
            stage = self.tiling.stage(self.sides, side, factor, n)
            (far, outer), (near, inner) = stage.fill
            walks = (
                self.walked(lengths[far], outer, far),
                self.walked(lengths[near] // (n or 1), inner, near, n or 1),
            )
            if n == 0 or self.are_whole(factor, side, walks, n):
                break
        room = self.staging.room_of(
            stage, {symbol: Dimension(symbol, const(size)) for symbol, size in lengths.items()}
        )
        return _Copy(factor, side, stage, room, walks, n)

    @property
    def has_scales(self) -> bool:
        """Have the factors scales, which the dot multiplies as well?"""
        return self.tiling.dot is not None and self.tiling.dot.scale is not None

    def scales_of(self, copy: _Copy) -> _Copy:
        """Room for the scales of a factor's blocks, and the loops that deal them to the lanes."""
        tiling, dot, side = self.tiling, self.tiling.dot, copy.side
        assert dot is not None
        assert dot.scale is not None
        dimensions = [Dimension(*digit) for digit in scale_digits(tiling, side)]
        room = self.staging.room(dimensions, dot.scale, space=Space.SHARED, buffers=tiling.buffers)
        across, deep = tiling.across(side), tiling.deep // dot.block
        near = min(deep, tiling.lanes)
        walks = (
            self.walked(across, dealt(across, min(across, tiling.lanes // near), near), PLACE),
            self.walked(deep, dealt(deep, near), DEPTH, dot.block),
        )
        return replace(copy, room=room, walks=walks, count=0, is_scales=True)

    def are_whole(self, factor: Term, side: int, walks: Iterable[Walk], count: int) -> bool:
        """Do the elements that a lane copies at once begin at multiples of them?"""
        here, step = Env(_places(walks)), self.blocks.fresh_axis(const(1)) + 0
        offset, _ = self.source(factor, side, step, here)
        return (offset // count) * count is offset

    # --- sums

    def sums(self) -> list[Tile]:
        """One block of shared memory: copied, multiplied, and not before that copied over."""
        with self.carried(self.step(), self.empty(), self.axes()) as (step, sums):
            for copy in (*self.copies, *self.scales):
                self.fill(copy, step)
            self.barrier()
            sums.next = self.multiplied(sums.inner, const(0), step)
            self.barrier()
        return sums.results

    def sums_in_turns(self) -> list[Tile]:
        """Two blocks: while one is multiplied, the next one is on its way into the other."""
        copies = (*self.copies, *self.scales)
        for copy in copies:
            self.fill(copy, const(0))
        self.barrier()
        with self.carried(self.step(), self.empty(), self.axes()) as (step, sums):
            fetched = [self.fetched(copy, step + 1) for copy in copies]
            sums.next = self.multiplied(sums.inner, step % 2, step)
            for copy, tiles in zip(copies, fetched, strict=True):
                with self.carried_through(copy.walks, [tiles]) as held:
                    here = Env(_places(copy.walks))
                    self.values.store_staged(copy.room, here, held.inner[0], (step + 1) % 2)
                    held.next = held.inner
            self.barrier()
        return sums.results

    def sums_in_ring(self) -> list[Tile]:
        """Blocks in a ring, all but one of them on their way while that one is multiplied."""
        stages = self.tiling.buffers
        ahead = stages - 1 - self.tiling.running
        if self.cuts:
            self.put_phases(is_end=False)
            self.meet_all()
        for number in range(ahead):
            self.send(const(number), const(number))
        with self.carried(self.step(), self.empty(), self.axes()) as (step, sums):
            self.wait(ahead - 1, self.tiling.running, step)
            if self.rooms:
                self.free(step + ahead)
            else:
                self.send(step + ahead, (step + ahead) % stages)
            sums.next = self.multiplied(sums.inner, step % stages, step)
            if self.rooms:  # who asks may have to wait for other groups: products run meanwhile
                self.send(step + ahead, (step + ahead) % stages)
        self.wait(0)
        if self.cuts:
            self.put_phases(is_end=True)
        return sums.results

    def new_barriers(self) -> str:
        """Shared memory of a barrier for each block of the ring."""
        return self.values.new_buffer(uint64, const(self.tiling.buffers), Space.SHARED)

    def put_phases(self, *, is_end: bool) -> None:
        """Barriers begin, or end."""
        self.blocks.put(Phases(self.phases, is_end), self.blocks.depth)
        if self.rooms:
            self.blocks.put(Phases(self.rooms, is_end, self.tiling.cluster), self.blocks.depth)

    def meet_all(self) -> None:
        """All lanes meet that use the ring: of a group, or of a cluster."""
        scope = Binding.CLUSTER if self.rooms else Binding.GROUP
        self.blocks.put(Barrier(scope), self.blocks.depth)

    def free(self, step: Expression) -> None:
        """Tells the cluster that the block is read which that of a step is copied over."""
        stages = self.tiling.buffers
        some = all_of([const(stages - 1) < step, step < self.steps_in_all])
        guard = TRUE if self.values.holds(some) else self.values.canonical(some)
        self.blocks.put(Free(self.rooms, step % stages, guard), self.blocks.depth)

    def send(self, step: Expression, turn: Expression) -> None:
        """A batch: the factors' blocks of a step on their way to a place in the ring."""
        if self.cuts:
            inside = step < self.steps_in_all
            guard = TRUE if self.values.holds(inside) else self.values.canonical(inside)
            boxes = [box for copy in self.copies for box in self.boxes(copy, step, turn)]
            room, lap = None, step // self.tiling.buffers
            if self.rooms and not self.values.holds(lap < 1):  # the first lap overwrites nothing
                room = AwaitPhase(self.rooms, turn, (lap + 1) % 2)
            send = Send(self.phases, turn, tuple(boxes), guard, room)
            self.blocks.put(send, self.blocks.depth)
        for copy in self.by_lanes:
            self.fill(copy, step, turn)
        if self.has_batches:
            self.blocks.put(Commit(), self.blocks.depth)

    def wait(self, younger: int, running: int = 0, step: Expression | None = None) -> None:
        """All batches but the younger ones have come to all lanes, of boxes that of a step, which
        have used what is copied over next; batches of products may be running.
        """
        self.finish(running)
        if self.cuts and step is not None:
            stages = self.tiling.buffers
            turn, parity = step % stages, step // stages % 2
            self.blocks.put(AwaitPhase(self.phases, turn, parity), self.blocks.depth)
        if self.has_batches:
            self.blocks.put(Await(younger), self.blocks.depth)
        if step is None:
            self.meet_all()
        else:
            self.blocks.put(Barrier(Binding.GROUP), self.blocks.depth)

    def cut_of(self, copy: _Copy) -> Cut | None:
        """How a device is told of a factor, if it brings that."""
        tiling = self.tiling
        return cut(self.sides, tiling, copy.side, copy.factor) if tiling.boxes else None

    def boxes(self, copy: _Copy, step: Expression, turn: Expression) -> list[Box]:
        """Those that a factor's block of a step is, where a device brings it."""
        factor = self.cuts.get(copy.room.buffer)
        if factor is None:
            return []
        at = {**self.env.values, PLACE: self.firsts[copy.side], DEPTH: step * self.tiling.deep}
        at = {axis: self.values.canonical(at[axis]) for axis in factor.axes}
        source = self.values.operand(self.read_at(copy.factor), Role.IN)
        return factor.boxes(source, copy.room, turn, at)

    def step(self) -> tuple[Symbol, Expression, TileChoice]:
        """The loop over blocks of the sum."""
        steps = self.steps_in_all
        return self.blocks.fresh_axis(steps), steps, SINGLE

    @property
    def steps_in_all(self) -> Expression:
        """The blocks of the sum."""
        return self.values.canonical(ceil_div(self.steps_of_dot, self.tiling.deep))

    @property
    def steps_of_dot(self) -> Expression:
        """The steps of the sum: of pairs, of which blocks are whole, half as many as values."""
        return extent_of(self.summed) // self.values_of_step

    @property
    def values_of_step(self) -> int:
        """How many values of a factor the dot multiplies in a step."""
        return 1 if self.tiling.dot is None else self.tiling.dot.values

    def axes(self) -> list[list[Symbol]]:
        """The axes that each of the sums has."""
        return [tiled(self.walks)] * len(self.empty())

    def empty(self) -> list[Tile]:
        """What sums start from that loops carry."""
        if self.tensor is not None:
            return []
        return [self.values.identity(r.monoid, r.dtype) for r in self.sides.fused.reductions]

    def fetched(self, copy: _Copy, step: Expression) -> Tile:
        """What the lanes hold of the block of a step, until there is room for it."""
        start = self.values.literal(bytes(copy.room.dtype.size), copy.room.dtype)
        with self.carried_through(copy.walks, [start]) as held:
            held.next = [self.value(copy, step, Env(_places(copy.walks)))]
        (result,) = held.results
        return result

    def fill(self, copy: _Copy, step: Expression, turn: Expression = ZERO) -> None:
        """Copies a factor's block of a step into one of its buffers."""
        depth, here = self.blocks.depth, Env({})
        for walk in copy.walks:
            here = self.staging.open(walk, here)
        if not copy.count:
            self.values.store_staged(copy.room, here, self.value(copy, step, here), turn)
        else:
            to = self.values.canonical(copy.room.offset(here, turn, straight=True))
            offset, guard = self.source(copy.factor, copy.side, step, self.moved_back(copy, here))
            source, name = self.values.operand(self.read_at(copy.factor), Role.IN), copy.room.buffer
            self.blocks.put(Copy(name, to, source, offset, copy.count, guard), self.blocks.depth)
        self.blocks.close_to(depth)

    def moved_back(self, copy: _Copy, here: Env) -> Env:
        """The point of what comes to a place where pieces have moved along."""
        stage, size = copy.stage, copy.room.dtype.size
        if not stage.piece:
            return here
        outer, inner = stage.order
        extent = const(self.tiling.deep if inner is DEPTH else self.tiling.across(copy.side))
        line, place = here.values[outer], here.values[inner]
        return here.bind({inner: along(place, line, extent, stage.piece, size, back=True)})

    def source(
        self, factor: Term, side: int, step: Expression, here: Env
    ) -> tuple[Expression, Expression]:
        """Where what is copied lies, and whether it is inside."""
        env, _ = self.point(side, step, here)
        offset = self.read_at(factor).offset(env.values)
        return self.values.canonical(offset), self.values.canonical(env.guard)

    def read_at(self, factor: Term) -> Place:
        """Where what is copied without registers lies."""
        term = self.tiling.source(self.sides, factor)
        assert term is not None
        return self.sides.fused.reads[term]

    def point(
        self, side: int, step: Expression, here: Env, number: int = 0
    ) -> tuple[Env, Expression]:
        """The point of an element of a factor's block, of pairs that of the value of a number in
        it, and whether it is before the sum's end.
        """
        k = step * self.tiling.deep + here.values[DEPTH]
        # Blocks that divide the sum are there as a whole, which one condition says for all of it.
        extent, deep = self.values.canonical(self.steps_of_dot), self.tiling.deep
        divides = extent // deep * deep is extent
        inside = step < extent // deep if divides else k < extent
        inside = TRUE if self.values.holds(inside) else inside
        place = self.firsts[side] + here.values[PLACE]
        guard = all_of([inside, self.unproved(place, self.lengths[side])])
        if self.values_of_step > 1:
            # Halves of a block of scales make its pairs, as they lie in weights.
            assert self.tiling.dot is not None
            half = self.tiling.dot.block
            k = k // half * (2 * half) + k % half + number * half
        bound = positions(self.lengths[side], place) | positions(self.summed, k)
        return Env({**self.env.values, **bound}, guard), inside

    def value(self, copy: _Copy, step: Expression, here: Env) -> Tile:
        """An element of a factor's block; 0 beyond the end of the sum."""
        env, inside = self.point(copy.side, step, here)
        term, dtype = copy.stage.term, copy.room.dtype
        if self.has_scales:
            env_of = [self.point(copy.side, step, here, n)[0] for n in range(self.values_of_step)]
            tile = self.of_blocks(copy, env_of)
        else:
            is_kept = term.dtype is dtype
            tile = self.values.evaluate(term, env) if is_kept else self.narrow(term, env)
        if inside is TRUE or _is_zero_outside(term, self.sides.fused):
            return tile
        zero = self.values.literal(bytes(dtype.size), dtype)
        return self.values.map("Select", (self.values.index(inside, bool_), tile, zero), dtype)

    def of_blocks(self, copy: _Copy, at: Sequence[Env]) -> Tile:
        """The code, or the codes side by side, or the scale of a factor that is in blocks."""
        dot, values = self.tiling.dot, self.values
        assert dot is not None
        blocks = in_blocks(copy.factor, dot)
        assert blocks is not None
        codes, scales = blocks
        if copy.is_scales:
            return values.evaluate(scales, at[0])
        parts = [values.evaluate(codes, env) for env in at]
        if not dot.pairs:
            return parts[0] if codes.dtype is dot.a else values.map("Cast", (parts[0],), dot.a)
        low, high = (values.map("Bitcast", (part,), uint8) for part in parts)
        high = values.map("Shl", (high, values.constant(4, uint8)), uint8)
        return values.map("Or", (low, high), uint8)

    def narrow(self, factor: Term, env: Env) -> Tile:
        """What a dot multiplies of a factor, at a point: its value before it was cast."""
        dot, values = self.tiling.dot, self.values
        assert dot is not None
        if factor.op == "Cast":
            return values.evaluate(factor.args[0], env)
        if factor.op == "At":
            (inner, *_), env = factor.args, values.move(factor, env)
            return values.evaluate(inner, env) if inner.dtype is dot.a else self.narrow(inner, env)
        assert is_mask(factor), f"{factor!r} is none for {dot}"
        condition, inner, _ = factor.args
        tile = self.narrow(inner, env)
        arms = values.evaluate(condition, env), tile, values.constant(0, dot.a)
        return values.map("Select", arms, dot.a)

    def multiplied(self, sums: Sequence[Tile], turn: Expression, step: Symbol) -> list[Tile]:
        """The sums with the products of a block of shared memory added."""
        fused, dot = self.sides.fused, self.tiling.dot
        by_factor = {(copy.side, copy.factor): copy for copy in self.copies}
        scales_of = {(copy.side, copy.factor): copy for copy in self.scales}
        steps, is_batch = self.steps(), dot is not None and dot.is_from_memory
        if is_batch and self.tensor is None:
            self.blocks.put(Begin(), self.blocks.depth)
        if self.tensor is not None and self.scales:
            self.blocks.put(
                Begin(tuple(self.lift(copy, turn) for copy in self.scales)), self.blocks.depth
            )
        with self.carried_through([*self.walks, *steps], sums, self.axes()) as inside:
            depth = self.blocks.depth
            for number, (reduction, pair) in enumerate(
                zip(fused.reductions, self.sides.factors, strict=True)
            ):
                a, b = (
                    self.read(by_factor[side, term], turn, joint(steps))
                    for side, term in enumerate(pair)
                )
                scales = [
                    self.read(scales_of[side, term], turn, joint(steps))
                    for side, term in enumerate(pair if self.scales else ())
                ]
                if dot is not None and self.tensor is not None:
                    adds = const(0) < step * steps[0].stop + steps[0].axis
                    at = self.column(number)
                    self.blocks.put(
                        Accumulate(self.tensor, at, a, b, dot, adds, tuple(scales)), depth
                    )
                    continue
                before = inside.inner[number]
                after = self.tile(before.axes, reduction.dtype, depth)
                row = dot or multiply_add(reduction.dtype)
                self.blocks.put(Contract(after, before, a, b, row, tuple(scales)), depth)
                inside.next.append(after)
        if is_batch:
            self.blocks.put(Commit(Batch.PRODUCTS), self.blocks.depth)
        return inside.results

    def lift(self, copy: _Copy, turn: Expression) -> Lift:
        """The scales of a block of the sum, on their way to tensor memory."""
        squares = prod(self.tiling.scale_words(copy.side)) // prod(SQUARE)
        offset = copy.room.offset(Env({DEPTH: ZERO, PLACE: ZERO}), turn)
        return Lift(copy.room.buffer, self.values.canonical(offset), squares)

    def read(self, copy: _Copy, turn: Expression, step: Expression) -> Tile:
        """A factor's elements at a step, from shared memory."""
        here = Env({DEPTH: step, PLACE: self.place(copy.side)})
        tile = self.values.load_staged(copy.room, here, turn)
        if self.tiling.dot is not None or copy.stage.term is copy.factor:
            return tile
        return self.values.map("Cast", (tile,), copy.factor.dtype)

    # --- sums in tensor memory

    def in_tensor(self) -> str | None:
        """The tensor memory of all sums, in lines of the rows of a block of the dot; None if lanes
        hold them.
        """
        dot, columns = self.tiling.dot, self.tiling.tensor_columns(self.count)
        if dot is None or not columns:
            return None
        return self.values.new_buffer(dot.accumulator, const(dot.m * columns), Space.TENSOR)

    def column(self, number: int) -> Expression:
        """Where in tensor memory a result of the sum of a number stands."""
        dot, (rows, columns) = self.tiling.dot, self.tiles
        assert dot is not None
        block = rows[0].axis * columns[0].stop + columns[0].axis
        column = (block * self.count + number) * dot.n + joint(columns[1:])
        return rows[1].axis * self.tiling.tensor_columns(self.count) + column

    def store_columns(self) -> None:
        """What is stored of the block, some columns at a time."""
        assert self.tensor is not None
        depth = self.blocks.depth
        self.tiles = [self.pieces_of(side) for side in (0, 1)]
        walks = [walk for walks in self.tiles for walk in walks]
        for walk in walks:
            self.staging.open(walk, Env({}))
        steps = self.values.canonical(extent_of(self.summed))
        sums = []
        for number, reduction in enumerate(self.sides.fused.reductions):
            tile = self.tile(tiled(walks), reduction.dtype, self.blocks.depth)
            self.blocks.put(Load(tile, self.tensor, self.column(number)), self.blocks.depth)
            if not self.values.holds(const(0) < steps):  # nothing has been added
                arms = tile, self.values.identity(reduction.monoid, reduction.dtype)
                some_steps = self.values.index(const(0) < steps, bool_)
                tile = self.values.map("Select", (some_steps, *arms), reduction.dtype)
            sums.append(tile)
        self.store_all(sums)
        self.blocks.close_to(depth)

    def pieces_of(self, side: int) -> list[Walk]:
        """The rows, or the columns, of all tiles, as `tile_of`, of some columns at a time."""
        dot, tiles = self.tiling.dot, self.tiling.tiles
        assert dot is not None
        part = Part(dot.of_columns(min(dot.n, LOADED)), "mn"[side])
        whole = dot.n if side else dot.m
        blocks, stride = self.tiling.across(side) // whole, 1 if side else tiles[1]
        outer = self.walked(blocks, dealt(blocks, tiles[side], stride * dot.together, 1))
        between = [self.walked(whole // part.extent, SINGLE)] if part.extent < whole else []
        return [outer, *between, self.walked(part.extent, TileChoice(part=part))]

    # --- results

    def store_all(self, sums: Sequence[Tile]) -> None:
        """What is stored of the block, each value where it belongs."""
        places = [first + self.place(side) for side, first in enumerate(self.firsts)]
        values = dict(self.env.values)
        guards = []
        for place, length in zip(places, self.lengths, strict=True):
            values |= positions(length, place)
            guards.append(self.unproved(place, length))
        env = Env(values, all_of(guards))
        for reduction, tile in zip(self.sides.fused.reductions, sums, strict=True):
            self.blocks.stack[-1].known[self.values.key(reduction, env)] = tile
        for store in self.sides.fused.stores:
            value = self.values.evaluate(store.term, env)
            self.values.store(store.place, store.offset(env.values), value, env.guard, add=False)

    # --- loops

    def barrier(self) -> None:
        """All lanes meet, when all products have been added up."""
        self.finish(0)
        self.blocks.put(Barrier(Binding.GROUP), self.blocks.depth)

    def finish(self, running: int) -> None:
        """Waits until no more batches of products than these are running."""
        if self.tiling.dot is not None and self.tiling.dot.is_from_memory:
            self.blocks.put(Await(running, Batch.PRODUCTS), self.blocks.depth)

    def unproved(self, position: Expression, length: Axes) -> Expression:
        """The condition that a position is inside, or TRUE where it always is."""
        condition = position < self.values.canonical(extent_of(length))
        return TRUE if self.values.holds(condition) else condition


def _places(walks: Iterable[Walk]) -> dict[Symbol, Expression]:
    """The positions in a block at which the loops of a copy are."""
    first, second = (walk.positions(walk.axis) for walk in walks)
    return {**first, **second}


def _is_zero_outside(term: Term, fused: Fused) -> bool:
    """Is it 0 where its loads read 0 for being masked?"""
    while term not in fused.reads:
        if term.op not in ("Cast", "At") and not is_mask(term):
            return False
        term = term.args[1 if is_mask(term) else 0]
    return True
