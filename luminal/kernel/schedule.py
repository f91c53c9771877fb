"""Schedules: how one kernel's loops are tiled, vectorised, packed and cut into chunks.

A schedule is a record of named choices. `default` is good without measuring; the search draws
others. The register-tile facts come from docs/design.md (Kernels): accumulators must fill the fma
pipeline and not spill, so 16 to 24 of 32 vector registers, and a loaded vector should meet several
multiplications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from luminal.algebra.terms import Term
from luminal.kernel.group import Group
from luminal.kernel.loops import Access, LoopAxis, accesses, loop_axes
from luminal.shape.expression import Expression, Symbol
from luminal.target import Target

UNKNOWN = 1 << 12  # positions assumed of an extent without a useful upper bound
CHUNK_WORK = (
    1 << 15
)  # operations of one grid chunk: some 10 us, far above the cost of handing it out
SMALL_CONTRACTION = 1 << 21  # a contraction is cut into about CONTRACTION_CHUNKS pieces,
LARGE_CONTRACTION = 1 << 25  # each between these amounts of work
CONTRACTION_CHUNKS = 32
LINE = 16  # positions of a transpose per tile: one cache line of 4-byte elements,
WAYS = 8  # by as many lines as the first-level cache keeps of rows a power of two apart
ROW_BLOCK = 128  # rows of a contraction per chunk: pays the packing of B, and A's rows stay in L2
SHORT_STEP = 4  # elements between neighbours that are packed: few more lines than they fill
PACK_ROWS = 32  # fewer rows than this do not pay for packing
ALIASING_BYTES = 2048  # rows this long may meet in few cache sets, so dot products pack them
DOT_TILE = 4  # rows and columns of a tile of dot products
COLUMNS = 16  # vectors of columns summed together: long runs of each row, few page misses
STREAMS = 4  # independent accumulators of a row reduction


@dataclass(frozen=True, slots=True)
class TileChoice:
    """How one loop axis is walked inside a kernel."""

    unroll: int = 1
    vector: int = 1

    @property
    def size(self) -> int:
        return self.unroll * self.vector


@dataclass(frozen=True, slots=True)
class Schedule:
    """The choices for one group.

    `grid`: the loop axes outside every reduction, outermost first, each with its positions per grid
    chunk (0: not cut). `sequential`: the axes of reductions, outermost first; `inner`: the axes of
    stores inside the grid, outermost first. `tiles` holds the tiles other than 1. `packs`: terms
    copied once per tile of the axis `packed_along` into a strip that the reduction then reads.
    """

    axes: tuple[LoopAxis, ...]
    grid: tuple[tuple[LoopAxis, int], ...]
    sequential: tuple[LoopAxis, ...]
    inner: tuple[LoopAxis, ...]
    tiles: Mapping[Symbol, TileChoice]
    packs: tuple[Term, ...] = ()
    packed_along: Symbol | None = None

    def tile(self, loop: LoopAxis) -> TileChoice:
        return self.tiles.get(loop.symbol, TileChoice())


def estimate(extent: Expression) -> int:
    """A guess of how many positions an extent has, from its upper bound."""
    hi = extent.interval.hi
    return UNKNOWN if hi is None or hi > (1 << 20) else max(1, hi)


def default(group: Group, target: Target) -> Schedule:
    """The rule-made schedule."""
    return _Default(group, target).schedule()


class _Default:
    def __init__(self, group: Group, target: Target) -> None:
        self.group = group
        self.target = target
        self.axes = loop_axes(group)
        self.accesses = accesses(group, self.axes)
        self.reductions = group.reductions()
        bound = {a for r in self.reductions for a in r.attrs}
        self.sequential = [x for x in self.axes if x.members[0] in bound]
        stored = {a for store in group.stores for a in store.axes}
        free = frozenset(stored)
        for reduction in self.reductions:
            free &= reduction.axes
        self.grid = [x for x in self.axes if x.members[0] in free]
        self.inner = [x for x in self.axes if x.members[0] in stored - free]
        dtypes = [s.dtype for s in group.stores] + [r.dtype for r in self.reductions]
        widest = max(dtype.size for dtype in dtypes)
        self.lanes = target.vector_lanes(max(4, min(8, widest)))

    def schedule(self) -> Schedule:
        if any(store.ordered for store in self.group.stores):
            return Schedule(self.axes, (), (), tuple(self.axes), {})
        if not self.reductions:
            return self.map()
        inside = [a for a in self.accesses if a.reduction is not None]
        shared = [x for x in self.grid if estimate(x.extent) > 1 and _partly(x.symbol, inside)]
        vector = self.best_vector([*self.grid, *self.sequential], inside)
        if vector in self.grid and vector is not None:
            return self.vector_over_grid(vector, self.shared_rows(vector, inside))
        return self.vector_over_reduction(vector, shared)

    # --- choices

    def width(self, loop: LoopAxis) -> int:
        """Lanes worth having along an axis."""
        positions, lanes = estimate(loop.extent), self.lanes
        while lanes > 1 and positions <= lanes // 2:
            lanes //= 2
        return lanes

    def best_vector(
        self, candidates: Sequence[LoopAxis], reads: Sequence[Access]
    ) -> LoopAxis | None:
        """The axis along which most accesses are contiguous, if any is."""
        best, chosen = 0.0, None
        for loop in candidates:
            lanes = self.width(loop)
            positions = estimate(loop.extent)
            if lanes == 1:
                continue
            steps = -(-positions // lanes)
            used = positions / (steps * lanes) * lanes / self.lanes
            score = used * (0.01 + sum(self.fit(access, loop, reads) for access in reads))
            if score > best:
                best, chosen = score, loop
        return chosen

    def fit(self, access: Access, loop: LoopAxis, reads: Sequence[Access]) -> float:
        """How well an access vectorises along an axis; short steps are packed, so lie in order."""
        found = _contiguity(access, loop.symbol)
        if found >= 0 or loop not in self.grid or not _short_steps(access, loop.symbol):
            return found
        rows = self.shared_rows(loop, reads)
        if rows is None or estimate(rows.extent) < PACK_ROWS:
            return found
        moves = access.offset.symbols()
        along = loop.symbol in moves and any(x.symbol in moves for x in self.sequential)
        return -found if along and rows.symbol not in moves and _is_product(access) else found

    def shared_rows(self, vector: LoopAxis, reads: Sequence[Access]) -> LoopAxis | None:
        """The longest grid axis that some reads have and some have not: rows of a register tile.

        Best one that no read has together with the vector axis: then each value read meets all
        values read along the other axis, as in a matrix product.
        """
        shared = [x for x in self.grid if x is not vector and _partly(x.symbol, reads)]
        moves = [access.offset.symbols() for access in reads]
        apart = [x for x in shared if not any({x.symbol, vector.symbol} <= m for m in moves)]
        longest = max(apart, key=lambda x: estimate(x.extent), default=None)
        if longest is not None and estimate(longest.extent) >= DOT_TILE:
            return longest
        return max(shared, key=lambda x: estimate(x.extent), default=None)

    def map(self) -> Schedule:
        """No reduction: every axis is grid; the vector axis goes innermost."""
        vector = self.best_vector(self.grid, self.accesses)
        order = [x for x in self.grid if x is not vector]
        tiles = {}
        if vector is not None:
            across = self.transposed(vector, order)
            tiles[vector.symbol] = self.stream_tile(vector)
            if across is not None:
                order = [x for x in order if x is not across] + [across]
                tiles[across.symbol] = TileChoice(min(LINE, estimate(across.extent)))
                tiles[vector.symbol] = TileChoice(1, min(self.width(vector), WAYS))
            order.append(vector)
        return self.done(order, tiles, CHUNK_WORK)

    def transposed(self, vector: LoopAxis, others: Sequence[LoopAxis]) -> LoopAxis | None:
        """The axis along which an access is contiguous that jumps along the vector axis."""
        for access in self.accesses:
            if _contiguity(access, vector.symbol) >= 0:
                continue
            for loop in others:
                if _contiguity(access, loop.symbol) > 0 and estimate(loop.extent) > 1:
                    return loop
        return None

    def stream_tile(self, loop: LoopAxis, streams: int = STREAMS) -> TileChoice:
        lanes = self.width(loop)
        unroll = max(1, min(streams, estimate(loop.extent) // lanes))
        return TileChoice(1 << (unroll.bit_length() - 1), lanes)

    def vector_over_grid(self, vector: LoopAxis, rows: LoopAxis | None) -> Schedule:
        """Lanes are independent results: columns of a matrix product, column sums, convolutions."""
        lanes = self.width(vector)
        sums = len(self.reductions)
        budget = max(2, (3 * self.target.registers // 4) // sums)
        vectors = 2 if estimate(vector.extent) > lanes else 1
        order = [x for x in self.grid if x is not vector and x is not rows]
        order.append(vector)
        if rows is None:
            vectors = max(1, min(COLUMNS, estimate(vector.extent) // lanes, budget))
            tiles = {vector.symbol: TileChoice(vectors, lanes)}
            return self.done(order, tiles, CHUNK_WORK)
        order.append(rows)
        height = _rows(estimate(rows.extent), max(1, min(12, budget * 2 // 3 // vectors)))
        tiles = {
            vector.symbol: TileChoice(vectors, lanes),
            rows.symbol: TileChoice(height),
        }
        packs = self.packs(vector, rows)
        along = vector.symbol if packs else None
        return self.done(order, tiles, self.contraction_chunk(), packs, along, rows)

    def contraction_chunk(self) -> int:
        """The work of one chunk: small enough to share out, large enough to reuse what it loads."""
        total = 1
        for loop in self.axes:
            total *= estimate(loop.extent)
        return max(SMALL_CONTRACTION, min(LARGE_CONTRACTION, total // CONTRACTION_CHUNKS))

    def packs(self, along: LoopAxis, rows: LoopAxis) -> tuple[Term, ...]:
        """Factors that depend on the axis `along` and not on the rows, where these pay for it."""
        if estimate(rows.extent) < PACK_ROWS:
            return ()
        found: list[Term] = []
        for reduction in self.reductions:
            (product,) = reduction.args
            if product.op != "Mul" or product in self.group.reads:
                continue
            for factor in product.args:
                reads_it = not factor.axes.isdisjoint(along.members)
                bound = not factor.axes.isdisjoint(reduction.attrs)
                if reads_it and bound and factor.axes.isdisjoint(rows.members):
                    found.append(factor)
        return tuple(dict.fromkeys(found))

    def vector_over_reduction(self, vector: LoopAxis | None, shared: list[LoopAxis]) -> Schedule:
        """Lanes are partial results of one sum: row reductions, dot products of rows by rows."""
        tiles: dict[Symbol, TileChoice] = {}
        if vector is not None:
            self.sequential = [x for x in self.sequential if x is not vector] + [vector]
        shared = sorted(shared, key=lambda x: -estimate(x.extent))[:2]
        wide = self.target.registers >= 32
        if len(shared) == 2:
            tall = DOT_TILE if wide else 2
            sizes = [_rows(estimate(x.extent), tall) for x in shared]
        else:
            sizes = [_rows(estimate(x.extent), 2 * DOT_TILE if wide else DOT_TILE) for x in shared]
        sums = len(self.reductions)
        if sums > 1:
            sizes = [max(1, size // 2) for size in sizes]
        for loop, size in zip(shared, sizes, strict=True):
            tiles[loop.symbol] = TileChoice(size)
        accumulators = sums
        for size in sizes:
            accumulators *= size
        if vector is not None:
            tiles[vector.symbol] = self.stream_tile(vector, max(1, 2 * STREAMS // accumulators))
            if not shared:
                tiles[vector.symbol] = self.stream_tile(vector)
        order = [x for x in self.grid if x not in shared] + shared
        if len(shared) < 2:
            return self.done(order, tiles, CHUNK_WORK)
        columns, rows = shared
        packs = self.packs(columns, rows) if self.row_bytes() >= ALIASING_BYTES else ()
        along = columns.symbol if packs else None
        return self.done(order, tiles, self.contraction_chunk(), packs, along, rows)

    def row_bytes(self) -> int:
        """About how many bytes of one operand a result of a contraction reads."""
        positions = 1
        for loop in self.sequential:
            positions *= estimate(loop.extent)
        return positions * self.reductions[0].dtype.size

    # --- the record

    def done(
        self,
        order: list[LoopAxis],
        tiles: dict[Symbol, TileChoice],
        chunk_work: int,
        packs: tuple[Term, ...] = (),
        along: Symbol | None = None,
        rows: LoopAxis | None = None,
    ) -> Schedule:
        inner = list(self.inner)
        if inner and all(tiles.get(x.symbol, TileChoice()).vector == 1 for x in order):
            vector = self.inner_vector(inner, tiles)
            if vector is not None:
                inner = [x for x in inner if x is not vector] + [vector]
                tiles.setdefault(vector.symbol, self.stream_tile(vector))
        kept = {s: t for s, t in tiles.items() if t.size > 1}
        grid = self.chunks(order, kept, chunk_work, rows if packs else None)
        sequential = tuple(self.sequential)
        return Schedule(self.axes, grid, sequential, tuple(inner), kept, packs, along)

    def inner_vector(
        self, inner: list[LoopAxis], tiles: Mapping[Symbol, TileChoice]
    ) -> LoopAxis | None:
        """The vector axis of the stores. Loops nested in each other have one vector axis together:
        an axis that a reduction runs over too keeps the choice made there.
        """
        wide = [x for x in self.sequential if tiles.get(x.symbol, TileChoice()).vector > 1]
        for loop in inner:
            if loop in wide:
                return loop
        free = [x for x in inner if not wide or x not in self.sequential]
        return self.best_vector(free, [a for a in self.accesses if a.reduction is None])

    def chunks(
        self,
        order: list[LoopAxis],
        tiles: Mapping[Symbol, TileChoice],
        wanted: int,
        packed_rows: LoopAxis | None,
    ) -> tuple[tuple[LoopAxis, int], ...]:
        """Positions per chunk: inner axes whole until a chunk has the wanted work, the rest cut."""
        work = max(1, len(self.group.terms()) - len(self.group.reads))
        for loop in (*self.inner, *self.sequential):
            work *= estimate(loop.extent)
        work = max(1, min(work, 1 << 40))
        out: list[tuple[LoopAxis, int]] = []
        for loop in reversed(order):
            tile = tiles.get(loop.symbol, TileChoice()).size
            positions = estimate(loop.extent)
            known = loop.extent.interval.hi is not None and positions < UNKNOWN
            count = max(1, wanted // work) if wanted > work else 1
            if loop is packed_rows:
                count = ROW_BLOCK
            count = -(-count // tile) * tile
            if count >= positions and known:
                out.append((loop, 0))
                work *= positions
            else:
                out.append((loop, count))
                work *= count
        return tuple(reversed(out))


def _contiguity(access: Access, symbol: Symbol) -> float:
    """How well an access vectorises along an axis."""
    weight = 4.0 if access.reduction is not None else 1.5 if access.is_store else 1.0
    stride = access.offset.coefficient(symbol)
    if stride is None:
        return -weight
    if stride.is_const:
        backwards = weight / 2 if not access.is_store else -weight
        return {1: weight, 0: 0.0, -1: backwards}.get(stride.value, -weight)
    return -weight


def _short_steps(access: Access, symbol: Symbol) -> bool:
    """Does a vector of an operand of a reduction span few cache lines, as in strided windows?"""
    stride = access.offset.coefficient(symbol)
    short = stride is not None and stride.is_const and 0 < stride.value <= SHORT_STEP
    return short and access.reduction is not None


def _is_product(access: Access) -> bool:
    """Is the access one of the factors of a contraction?"""
    reduction = access.reduction
    return reduction is not None and reduction.op == "Sum" and reduction.args[0].op == "Mul"


def _partly(symbol: Symbol, reads: Sequence[Access]) -> bool:
    """Some reads move along the axis and some do not: positions along it share the latter."""
    moving = [symbol in access.offset.symbols() for access in reads]
    return any(moving) and not all(moving)


def _rows(positions: int, most: int) -> int:
    """The unroll factor up to `most` that wastes least on `positions`, the larger the better."""
    if positions <= most:
        return positions
    return min(range(most, max(1, most // 2), -1), key=lambda n: (-positions % n > 0, -n))
