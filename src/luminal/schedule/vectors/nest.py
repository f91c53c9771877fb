"""The schedules of loop nests on vector CPUs.

The rules here choose well without measuring; every choice
goes through `Choices.pick`, so that knobs can set it otherwise and `space.py` can list them all.
The register-tile facts are in docs/design.md (Schedules): accumulators must fill the fma pipeline
and not spill, so 16 to 24 of 32 vector registers, and a loaded vector should meet several
multiplications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from luminal.kernel.fused import Fused
from luminal.kernel.knobs import Choices, Knobs
from luminal.kernel.loops import UNKNOWN, LoopAxis
from luminal.kernel.schedule import RowRuns, Schedule, TileChoice
from luminal.schedule.vectors.by_rows import VECTORS, ByRows
from luminal.schedule.vectors.facts import Facts
from luminal.schedule.vectors.lanes import is_partly_moved
from luminal.schedule.vectors.register_tile import register_tiles
from luminal.schedule.vectors.stages import with_packed, with_sums
from luminal.schedule.vectors.strips import PACK_ROWS
from luminal.schedule.vectors.vector_axis import ALIASING_BYTES, VectorAxis, positions
from luminal.schedule.vectors.vector_target import MANY_REGISTERS, VectorTarget
from luminal.shape.expression import Symbol

CHUNK_WORK = 1 << 15  # operations of a chunk: some 10 us, far above the cost of handing it out
SMALL_CONTRACTION = 1 << 21  # a contraction is cut into about CONTRACTION_CHUNKS pieces,
LARGE_CONTRACTION = 1 << 25  # each between these amounts of work
CONTRACTION_CHUNKS = 32
ROW_BLOCK = 512  # rows of a contraction per chunk, at most: these pay the packing of B
NEAR_ROWS = 64  # rows that stay in cache while all panels pass by them, at least: four times a
# panel's columns, so that panels come from far a quarter as often as rows would
SHARES = 8  # chunks of a contraction for each core, at least, where there are rows enough
COLUMNS = 16  # vectors of columns summed together: long runs of each row, few page misses. So
# many vectors are loaded at most: LLVM moves all loads of a step to its start
GREATEST = 3  # registers for the greatest of floats (`expand/extremes.py`)
STREAMS = 4  # independent accumulators of a row reduction, vectors at a time of a pointwise kernel
STREAMED_CACHES = 4  # of a core's own size that a factor fills which is read from far
TRIPS = 16  # of a pointwise kernel's loops, below which fewer at a time are less code, as fast

DOT_TILE = 4  # rows and columns of a tile of dot products
DOT_TILES = ("4x4", "4x2", "2x2", "2x4", "8x1", "4x1", "2x1", "1x1")


def schedule(fused: Fused, target: VectorTarget, knobs: Knobs = ()) -> Schedule:
    """The rule-made schedule but for what `knobs` set; CompileError for a knob not legal here."""
    return explored(Facts.of(fused, target), knobs)[0]


def explored(facts: Facts, knobs: Knobs) -> tuple[Schedule, Choices]:
    """The schedule, and what could have been chosen on the way."""
    choices = Choices(facts.label, knobs)
    schedule = chosen(facts, choices)
    choices.finish()
    return schedule, choices


def chosen(facts: Facts, choices: Choices) -> Schedule:
    """The schedule of these choices."""
    return _Rules(facts, choices).schedule()


class _Rules:
    def __init__(self, facts: Facts, choices: Choices) -> None:
        self.facts = facts
        self.pick = choices.pick
        self.along = VectorAxis(facts, choices)
        self.target = facts.target
        self.axes, self.accesses = facts.axes, facts.accesses
        self.reductions = facts.reductions
        self.grid, self.inner = [*facts.grid], [*facts.inner]
        self.sequential = [*facts.sequential]
        self.lanes, self.strips = facts.lanes, facts.strips
        self.by_rows = ByRows(facts, choices)

    def schedule(self) -> Schedule:
        if not self.reductions:
            return self.map()
        inside = [a for a in self.accesses if a.reduction is not None]
        shared = [x for x in self.grid if x.estimate > 1 and is_partly_moved(x, inside)]
        touched = [*inside, *(a for a in self.accesses if a.is_store)]
        vector = self.along.of([*self.grid, *self.sequential], touched, self.along.packed(inside))
        if vector in self.grid and vector is not None:
            rows = self.along.pick(
                "rows", self.lanes.rows(vector, inside), [x for x in shared if x is not vector]
            )
            return self.vector_over_grid(vector, rows)
        return self.vector_over_reduction(vector, shared)

    # --- kinds of kernels

    def map(self) -> Schedule:
        """No reduction: every axis is grid; the vector axis goes innermost."""
        vector = self.along.of(self.grid, self.accesses)
        order = [x for x in self.grid if x is not vector]
        tiles = {}
        if vector is not None:
            across = self.along.transposed(vector, order)
            if across is not None:
                # as many lines as lanes: such a tile is transposed in registers
                width = self.lanes.width(vector)
                lanes = self.pick("width", width, [max(1, width // 2)])
                most = across.estimate
                lines = self.pick("lines", min(lanes, most), [n for n in (8, 32, 4) if n < most])
                tiles = {
                    across.symbol: TileChoice(lines),
                    vector.symbol: TileChoice(1, lanes),
                }
                order = [x for x in order if x is not across]
                panels = self.panel(vector) < vector.estimate  # written one after the other
                order += [vector, across] if panels else [across, vector]
            else:
                vectors = -(-prod(x.estimate for x in self.grid) // self.lanes.width(vector))
                trips = 2 * self.target.cores if self.facts.ordered else TRIPS
                streams = max(1, min(STREAMS, vectors // trips))
                tiles[vector.symbol] = self.stream_tile(vector, streams)
                order.append(vector)
        return self.done(order, tiles, CHUNK_WORK)

    def stream_tile(
        self, loop: LoopAxis, streams: int = STREAMS, knob: str = "streams"
    ) -> TileChoice:
        """Several vectors at a time, as many as the extent fills."""
        lanes = self.lanes.width(loop)
        most = max(1, self.panel(loop) // lanes)
        rule = self.vectors(loop, streams).unroll
        others = [n for n in (2 * rule, rule // 2, 4 * rule, 1) if 0 < n <= min(most, 2 * COLUMNS)]
        return TileChoice(self.pick(knob, rule, others), lanes)

    def vectors(self, loop: LoopAxis, streams: int) -> TileChoice:
        """The rule's, without a choice."""
        lanes = self.lanes.width(loop)
        most = max(1, self.panel(loop) // lanes)
        return TileChoice(_power_of_two(min(streams, most)), lanes)

    def vector_over_grid(self, vector: LoopAxis, rows: LoopAxis | None) -> Schedule:
        """Lanes are independent results: columns of a matrix product, column sums, convolutions."""
        lanes = self.lanes.width(vector)
        sums = len(self.reductions)
        held = sum(GREATEST if r.op == "Max" and r.dtype.is_float else 1 for r in self.reductions)
        budget = max(2, (3 * self.target.registers // 4) // held)
        order = [x for x in self.grid if x is not vector and x is not rows]
        if rows is None:
            return self.columns_alone(vector, order, budget)
        across = [a for a in self.accesses if a.is_factor and a.moves(vector)]
        full = any(a.moves(rows) for a in across)
        if not full and not self.strips.are_masked:
            at_once = self.by_rows.at_once(vector, rows)
            if at_once:
                tiles = {
                    vector.symbol: self.vectors(vector, self.by_rows.vectors(sums, rows)),
                    rows.symbol: TileChoice(rows.estimate),
                }
                work = self.by_rows.chunk_work(order, vector, rows)
                schedule = self.done([*order, vector, rows], tiles, work)
                return with_sums(schedule, self.facts, [vector, rows], at_once)
        held = sums * (1 + full)  # a factor as large as the tile needs registers too
        apart = (a for a in across if not a.moves(rows))
        loads = max(1, sum(max(1, a.bytes * lanes * 8 // self.target.vector_bits) for a in apart))
        packed = self.strips.pay(vector, rows)
        strip = self.facts.row_bytes() if packed else 0
        extents = rows.estimate, self.panel(vector)
        kept = self.facts.kept(vector, rows)
        step = self.facts.step(vector, rows)
        together = max((dot.m for dot in self.facts.fused.dots.values()), default=1)
        ranked = register_tiles(
            *extents, lanes, held, loads, self.target, strip, kept, step, together
        )
        if self.strips.are_masked:  # a mask for each vector: more than there are registers for
            ranked.sort(key=lambda tile: tile[1] > 1)
        rule, *others = [f"{height}x{width}" for height, width in ranked]
        height, vectors = self.pick_tile(rule, others)
        tiles = {
            vector.symbol: TileChoice(vectors, lanes),
            rows.symbol: TileChoice(height),
        }
        return self.contraction(order, vector, rows, tiles, packed)

    def columns_alone(self, vector: LoopAxis, order: Sequence[LoopAxis], budget: int) -> Schedule:
        """Columns that share no rows, as sums of columns do, in so many registers."""
        lanes = self.lanes.width(vector)
        at_most = COLUMNS // self.strips.joined(vector)
        most = max(1, min(at_most, self.panel(vector) // lanes))
        vectors = self.pick(
            "columns", min(most, budget), [n for n in (8, 4, 16, 2, 1) if n <= most]
        )
        at_once = self.by_rows.at_once(vector)
        if at_once:
            tiles = {vector.symbol: self.vectors(vector, VECTORS)}
            schedule = self.done([*order, vector], tiles, self.by_rows.chunk_work(order, vector))
            return with_sums(schedule, self.facts, [vector], at_once)
        tiles = {vector.symbol: TileChoice(vectors, lanes)}
        return self.done([*order, vector], tiles, CHUNK_WORK)

    def panel(self, loop: LoopAxis) -> int:
        """How many positions along an axis a tile may hold: those of a panel, where one is read."""
        panels = (access.panel(loop) for access in self.accesses)
        return min(filter(None, panels), default=loop.estimate)

    def pick_tile(self, rule: str, others: Sequence[str]) -> tuple[int, int]:
        """Rows and columns of a register tile."""
        rows, columns = self.pick("tile", rule, others).split("x")
        return int(rows), int(columns)

    def contraction(
        self,
        order: Sequence[LoopAxis],
        columns: LoopAxis,
        rows: LoopAxis,
        tiles: Mapping[Symbol, TileChoice],
        packed: bool,
    ) -> Schedule:
        """The loops of a register tile: the columns' factors packed, or either axis outside."""
        factors = self.strips.factors(columns, rows)
        packs = factors if factors and self.pick("pack", int(packed), (1 - packed,)) else ()
        keys = self.strips.in_runs(columns, rows) if packs == factors else ()
        shared = self.strips.shared(columns, rows) if keys else packs
        pair = [columns, rows]
        block = self.row_block(order, columns, rows, tiles)
        chunk = self.contraction_chunk()
        if shared:  # a strip, or a panel, serves all that does not change it
            free = self.strips.free(shared, pair)
            order = [x for x in order if x not in free]
            pair = [columns, *free, rows]
            strips = -(-columns.estimate // tiles[columns.symbol].size) * positions(order)
            if free and strips >= SHARES * self.target.cores // 2:  # enough: none is packed twice
                inside = [rows, *free, *self.sequential]
                chunk = tiles[columns.symbol].size * positions(inside) * self.facts.operations
        else:
            if any(self.facts.is_read_once(access) for access in self.accesses):
                chunk = CHUNK_WORK
            near = self.near_rows(columns, rows)
            outer = ("rows", "columns")
            if not (near or self.can_stay(columns, tiles[columns.symbol].size)):
                outer = ("columns", "rows")
            if self.pick("outer", outer[0], outer) == "rows":
                pair = [rows, columns]
                if near:
                    chunk = tiles[columns.symbol].size * positions(self.sequential)
                    chunk *= self.facts.operations
                    return self.done([*order, *pair], tiles, chunk, block=(rows, near))
        if not shared:
            return self.done([*order, *pair], tiles, chunk)
        schedule = self.done([*order, *pair], tiles, chunk, columns.symbol, (rows, block))
        lanes = tiles[columns.symbol].vector
        transposed = self.strips.transposed(packs, columns, lanes) if lanes > 1 else None
        schedule = with_packed(schedule, self.facts, packs, columns, transposed)
        if not keys:
            return schedule
        in_place = tuple(factor for factor in shared if factor not in packs)
        return replace(schedule, runs=RowRuns(rows.symbol, keys, in_place))

    def can_stay(self, columns: LoopAxis, strip: int) -> bool:
        """Do all columns stay in cache, to be walked again for every tile of rows? In the first
        level's if a strip alone would: a tile has fewer rows than columns to read again.
        """
        in_first = strip * self.facts.row_bytes() <= self.target.l1_bytes
        room = self.target.l1_bytes if in_first else self.target.l2_bytes // 2
        return columns.estimate * self.facts.row_bytes() <= room

    # Else all rows come from far once for each panel, which takes longer than multiplying them:
    # what is stored meanwhile takes the last cache. Fewer rows do stay there, and are faster so.
    def near_rows(self, columns: LoopAxis, rows: LoopAxis) -> int:
        """How many rows stay in the second-level cache while panels of columns pass by, each read
        in one piece; 0: there are too few rows for that, or of these in the cache, or it is not
        known: few rows make chunks so that are not worth handing out.
        """
        row = self.facts.row_bytes()
        near = self.target.l2_bytes // (2 * row)
        is_far = rows.estimate * row >= STREAMED_CACHES * self.target.l2_bytes
        in_panels = any(access.panel(columns) for access in self.accesses)
        is_known = is_far and rows.extent.is_const
        return near if is_known and in_panels and near >= NEAR_ROWS else 0

    # Chunks stay small, for shares to be even: who has none of the last ragged chunks is waited
    # for.
    def row_block(
        self,
        order: Sequence[LoopAxis],
        columns: LoopAxis,
        rows: LoopAxis,
        tiles: Mapping[Symbol, TileChoice],
    ) -> int:
        """Rows of a chunk that packs: many, as they pay for it, but chunks enough to share out.
        Runs of rows, each with strips of its own, are better not cut.
        """
        strips = -(-columns.estimate // tiles[columns.symbol].size) * positions(order)
        block = max(ROW_BLOCK, rows.estimate if self.strips.in_runs(columns, rows) else 0)
        while (
            block > PACK_ROWS and strips * -(-rows.estimate // block) < SHARES * self.target.cores
        ):
            block //= 2
        return block

    def contraction_chunk(self) -> int:
        """The work of one chunk: small enough to share out, large enough to reuse what it loads."""
        total = positions(self.axes)
        return max(SMALL_CONTRACTION, min(LARGE_CONTRACTION, total // CONTRACTION_CHUNKS))

    def vector_over_reduction(
        self, vector: LoopAxis | None, shared: Sequence[LoopAxis]
    ) -> Schedule:
        """Lanes are partial results of one sum: row reductions, dot products of rows by rows."""
        tiles: dict[Symbol, TileChoice] = {}
        shared = sorted(shared, key=lambda x: -x.estimate)[:2]
        whole = 0 if vector is None else self.whole_in_vectors(vector, shared)
        if vector is not None:
            others = [x for x in self.sequential if x is not vector]
            self.sequential = [vector, *others] if whole else [*others, vector]
        by_row = len(shared) == 1 and self.is_streamed(shared[0])
        sizes = self.dot_tile(shared, whole or 1, by_row)
        for loop, size in zip(shared, sizes, strict=True):
            tiles[loop.symbol] = TileChoice(size)
        # As many sums side by side as hide the latency of one, and no more than registers hold.
        accumulators = len(self.reductions)
        for size in sizes:
            accumulators *= size
        if vector is not None:
            streams = max(1, 2 * STREAMS // accumulators) if shared else STREAMS
            tiles[vector.symbol] = self.stream_tile(vector, whole or streams)
            apart = (x for x in self.sequential if x is not vector and self.is_apart(x))
            tiles |= {x.symbol: self.vectors(x, STREAMS) for x in apart}
        order = [x for x in self.grid if x not in shared]
        if len(shared) < 2:
            return self.done([*order, *shared], tiles, CHUNK_WORK)
        columns, rows = shared
        packed = self.facts.row_bytes() >= ALIASING_BYTES and rows.estimate >= PACK_ROWS
        return self.contraction(order, columns, rows, tiles, packed)

    def is_apart(self, loop: LoopAxis) -> bool:
        """Do only exact reductions run along an axis, and no loops inside it or around? Then it has
        vectors of its own, if all that they read lies along it.
        """
        mine = [r for r in self.facts.fused.reductions if loop.members[0] in r.attrs]
        reads = [a.contiguity(loop) for a in self.accesses if a.reduction in mine]
        alone = all(nest == {loop} for nest in self.facts.nests if loop in nest)
        return alone and min(reads, default=0) > 0 and all(r.monoid.is_exact(r.dtype) for r in mine)

    def whole_in_vectors(self, vector: LoopAxis, shared: Sequence[LoopAxis]) -> int:
        """The vectors that an axis fills which is so short that a tile holds all of it (a block of
        packed weights), where other loops are summed too and no rows of both factors meet, whose
        tile wants the registers; else 0.

        Its loop can then stand outside of theirs, and its lanes are folded once, not every time.
        """
        vectors = -(-vector.estimate // self.lanes.width(vector))
        is_known = vector.extent.is_const and len(self.sequential) > 1
        return vectors if is_known and vectors <= (1 if len(shared) > 1 else STREAMS) else 0

    # Eight rows at a time share the row that they are multiplied with, which is best where a cache
    # holds the weight. From memory that is eight streams, each a page of which a bit is read in
    # turn: 20.6 GB/s of a core's 25.7, where one row with eight sums along it reaches 27.
    # Prefetching the next eight rows reached 22.
    def is_streamed(self, rows: LoopAxis) -> bool:
        """Do rows come from memory, each for one sum? Then one after the other: a core's prefetcher
        follows a row to its end, and loses its way among pages of which each is read in part.
        """
        factors = (a for a in self.accesses if a.moves(rows) and self.facts.is_read_once(a))
        size = max((a.bytes for a in factors), default=0) * positions([rows, *self.sequential])
        return len(self.sequential) == 1 and size >= STREAMED_CACHES * self.target.l2_bytes

    def dot_tile(
        self, shared: Sequence[LoopAxis], vectors: int, by_row: bool = False
    ) -> tuple[int, ...]:
        """How many rows of each factor meet, in tiles of so many vectors; one where they pass `by
        row`.
        """
        if not shared:
            return ()
        tall = DOT_TILE if self.target.registers >= MANY_REGISTERS else DOT_TILE // 2
        tall = max(1, min(tall, self.target.registers // (4 * vectors)))
        sizes = [_rows(x.estimate, tall * (3 - len(shared))) for x in shared]
        sums = len(self.reductions)
        if sums > 1:  # fewer columns: each sum has its own, and all share the rows
            sizes[0] = max(1, sizes[0] // 2)
        most = [x.estimate for x in shared] + [1]
        others = []
        for text in DOT_TILES:
            pair = [min(*both) for both in zip(map(int, text.split("x")), most, strict=False)]
            if pair[0] * pair[1] * sums + max(pair) + 1 <= self.target.registers:
                others.append("x".join(map(str, pair)))
        if by_row:
            others.insert(0, f"{sizes[0]}x1")
            sizes = [1]
        return self.pick_tile("x".join(map(str, [*sizes, 1][:2])), others)[: len(shared)]

    # --- the record

    def done(
        self,
        order: Sequence[LoopAxis],
        tiles: Mapping[Symbol, TileChoice],
        chunk_work: int,
        split: Symbol | None = None,
        block: tuple[LoopAxis | None, int] = (None, 0),
    ) -> Schedule:
        kept = dict(tiles)
        inner = list(self.inner)
        if inner and all(kept.get(x.symbol, TileChoice()).vector == 1 for x in order):
            vector = self.along.of_stores(inner, kept)
            if vector is not None:
                inner = [x for x in inner if x is not vector] + [vector]
                if self.facts.ordered:
                    kept[vector.symbol] = TileChoice(1, self.lanes.width(vector))
                elif vector.symbol not in kept:
                    kept[vector.symbol] = self.stream_tile(vector, knob="store_streams")
        kept = {s: t for s, t in kept.items() if t.size > 1}
        wanted = self.pick("chunk", chunk_work, (chunk_work * 4, chunk_work // 4))
        grid = self.chunks(order, kept, wanted, block, split)
        if split is None:  # a tile of a panel lies in one piece
            in_panels = (x.symbol for x in order if any(a.panel(x) for a in self.accesses))
            split = next((symbol for symbol in in_panels if symbol in kept), None)
        return Schedule(self.axes, grid, tuple(self.sequential), tuple(inner), kept, split)

    def chunks(
        self,
        order: Sequence[LoopAxis],
        tiles: Mapping[Symbol, TileChoice],
        wanted: int,
        block: tuple[LoopAxis | None, int],
        split: Symbol | None,
    ) -> tuple[tuple[LoopAxis, int], ...]:
        """Positions per chunk: inner axes whole until a chunk has the wanted work, the rest cut.
        What lies inside the `split` axis is walked for a whole tile of it.
        """
        work = self.facts.operations * positions([*self.inner, *self.sequential])
        strip = tiles.get(split, TileChoice()).size if split is not None else 1
        work *= strip
        out: list[tuple[LoopAxis, int]] = []
        for loop in reversed(order):
            tile = tiles.get(loop.symbol, TileChoice()).size
            if loop.symbol is split:
                work //= strip
                if any(cut for _, cut in out):  # chunks of one strip, which is packed for all
                    wanted = 0
            is_known = loop.extent.interval.hi is not None and loop.estimate < UNKNOWN
            count = max(1, wanted // work) if wanted > work else 1
            if loop is block[0]:
                count = self.pick("row_block", block[1], (256, 64, 512, 128))
            count = -(-count // tile) * tile
            if count >= loop.estimate and is_known:
                out.append((loop, 0))
                work *= loop.estimate
            else:
                out.append((loop, count))
                work *= count
        return tuple(reversed(out))


def _power_of_two(n: int) -> int:
    """The largest power of two not above n."""
    return 1 << (n.bit_length() - 1)


def _rows(positions: int, most: int) -> int:
    """The unroll factor up to `most` that wastes least on `positions`, the larger the better."""
    if positions <= most:
        return positions
    return min(range(most, max(1, most // 2), -1), key=lambda n: (-positions % n > 0, -n))
