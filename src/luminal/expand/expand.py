"""Tile IR to expanded IR: tiles as explicit loops over scalars, with tails, masks and addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import product

from luminal.base.dtypes import bool_
from luminal.base.errors import CompileError
from luminal.expand import access, boxes, fragments, ir, pairs
from luminal.expand.builder import Builder, Instructions
from luminal.expand.casts import bitcast, cast, of_words
from luminal.expand.dots import multiply_add, sums_together
from luminal.expand.extremes import Greatest, begun, halves, has_integers, joined
from luminal.expand.folds import fold_together
from luminal.expand.groups import fold_over_lanes
from luminal.expand.index import Indexer
from luminal.expand.ir import INDEX, Constant, Kernel, Operand, Param, Scratch, Type, Value
from luminal.expand.lanes import Lanes
from luminal.expand.loops import write_loop
from luminal.expand.pointwise import POINTWISE
from luminal.expand.prefix import write_prefix
from luminal.expand.runs import write_runs
from luminal.expand.sort import write_sort
from luminal.expand.text import to_text
from luminal.expand.tiles import Elements, Key, Partial, Position, Tiles
from luminal.expand.wide import widened
from luminal.hlir.monoid import MAXIMUM
from luminal.kernel import tile_ir, tile_text
from luminal.kernel.boxes import Begin
from luminal.kernel.scratch import scratch_buffers, scratch_offsets, with_sorting
from luminal.kernel.tile_ir import (
    Accumulate,
    Await,
    Barrier,
    Binding,
    Commit,
    Contract,
    Copy,
    Grid,
    If,
    Index,
    Literal,
    Load,
    Loop,
    Map,
    Once,
    Prefix,
    Reduce,
    Retile,
    Runs,
    Section,
    SortRow,
    Space,
    Statement,
    Store,
)
from luminal.shape.expression import Expression, all_of, opaque, product_of


def expand(
    kernel: tile_ir.Kernel, lanes: int = 1, instructions: Instructions = frozenset()
) -> Kernel:
    """A verified kernel for a machine whose values have up to `lanes` lanes, and which has these of
    the operations that only some have.

    Raises CompileError for a kernel that calls hand-written code.
    """
    if kernel.call is not None:
        name = kernel.call.kernel.name
        raise CompileError(f"expand: {name!r} is code written by hand; only the CPU runs it")
    expanded = _Expansion(kernel, lanes, instructions).kernel()
    return widened(expanded) if kernel.lanes > 1 else expanded


def expanded_text(kernel: tile_ir.Kernel, lanes: int = 1) -> str:
    """The kernel expanded, as text; what is written by hand stays a call."""
    if kernel.call is not None:
        return tile_text.to_text(kernel)
    return to_text(expand(kernel, lanes))


def _by_tiles(write: Callable[..., None]) -> Callable[..., None]:
    """A rule that needs no more than the tiles."""
    return lambda expansion, statement: write(expansion.tiles, statement)


# What a machine has or lacks is decided here and nowhere below: instructions that only some have
# are asked for by name (`Builder.has`), and written out by operations that all have otherwise, with
# the same bits.
class _Expansion:
    """Writes statements; one method per kind."""

    def __init__(self, source: tile_ir.Kernel, lanes: int, instructions: Instructions) -> None:
        self.source = source
        self.b = Builder(instructions)
        self.index = Indexer(self.b)
        buffers = {buffer.name: buffer for buffer in (*source.buffers, *source.scratch)}
        self.tiles = Tiles(self.b, self.index, buffers, lanes)
        if source.lanes > 1:
            self.tiles.lane, self.tiles.lanes_in_group = self.b.value(INDEX), source.lanes
            self.tiles.subgroup = source.subgroup
        self.begin: Value | None = None
        read = {buffer.name for buffer in source.scratch if buffer.swizzle}  # by devices
        read |= {x.buffer for s in source.statements() if isinstance(s, Begin) for x in s.lifts}
        writes = (s.buffer for s in source.statements() if isinstance(s, Store | Copy))
        self.publishes = not read.isdisjoint(writes)
        for loop in reversed(
            [statement for statement in source.statements() if isinstance(statement, Loop)]
        ):
            self.tiles.pieces[loop.axis] = self.tiles.cut(loop)
            if loop.part is not None:
                self.tiles.parts[loop.axis] = loop.part

    def kernel(self) -> Kernel:
        source, b = self.source, self.b
        params = tuple(Param(symbol, b.value(INDEX)) for symbol in source.params)
        for param in params:
            self.index.bind(param.symbol, param.value)
        sorting = with_sorting(source)
        memory, (*offsets, size) = scratch_buffers(sorting), scratch_offsets(sorting)
        scratch = tuple(
            Scratch(buffer, self.index.scalar(offset))
            for buffer, offset in zip(memory, offsets, strict=True)
        )
        self.chunk = chunk = self.open_grid()
        self.body(source.body)
        body = b.close()
        chunks = product_of(grid.count for grid in source.grid)
        lane = self.tiles.lane
        assert not isinstance(lane, Constant)
        in_shared, in_tensor = (
            tuple(x for x in self.tiles.buffers.values() if x.space is space)
            for space in (Space.SHARED, Space.TENSOR)
        )
        return Kernel(
            params, source.buffers, scratch, size, chunks, b.close(), chunk, body,
            source.lanes, lane, in_shared, source.subgroup, self.begin, tensor=in_tensor,
        )  # fmt: skip

    def open_grid(self) -> Value:
        """The block of a chunk; the axes of the grid are digits of the chunk's number."""
        chunk = self.b.open(INDEX)
        number = opaque("chunk", 0, 2**62)
        self.index.bind(number, chunk)
        if any(isinstance(statement, Once) for statement in self.source.body):
            self.begin = self.b.value(INDEX)
        self.bind_grid(self.source.grid, number)
        return chunk

    def bind_grid(self, axes: Sequence[Grid], number: Expression) -> None:
        """Binds the axes of a grid in the chunk of a number."""
        # The innermost axis of the grid is the lowest digit, so chunks with following numbers,
        # which one thread takes, lie side by side.
        rest = number
        for position, grid in reversed(list(enumerate(axes))):
            digit = rest % grid.count if position else rest
            rest = rest // grid.count
            self.index.bind(grid.axis, self.index.scalar(digit))

    def body(self, body: Sequence[Statement]) -> None:
        for together in sums_together(body):
            self.RULES[type(together[0])](self, *together)

    # --- values -----------------------------------------------------------------------------------

    def literal(self, statement: Literal) -> None:
        out = statement.out
        self.tiles.values[out.id] = {(): Constant(Type(out.dtype.word), statement.data)}

    def at_index(self, statement: Index) -> None:
        tiles, axes = self.tiles, statement.out.axes
        wide = tiles.wide_axis(axes)
        elements: Elements = {}
        for key, position in tiles.positions(axes):
            if wide is None:
                elements[key] = self.index.scalar(tiles.moved(statement.expr, position))
            else:
                (expr,), lane, others = tiles.by_lane((statement.expr,), wide, position)
                lanes = Lanes(self.index, lane, tiles.pieces[wide].width, {})
                elements[key] = lanes.integers(tiles.moved(expr, others))
        tiles.values[statement.out.id] = elements

    def map(self, statement: Map) -> None:
        tiles, out = self.tiles, statement.out
        lanes, near = tiles.lanes(out.axes), tiles.near_axis(out.axes)
        if statement.op == "Cast" and fragments.narrowed(tiles, statement):
            return
        elements: Elements = {}
        for key, position in tiles.positions(out.axes):
            args = [tiles.element(tile, position, lanes) for tile in statement.args]
            if near is None:
                elements[key] = self.pointwise(statement, args)
            elif all(near in tile.axes for tile in statement.args):
                elements[key] = self.b.op(statement.op.lower(), *args)
            else:
                elements[key] = of_words(self.b, statement.op, out.dtype, *args)
        tiles.values[out.id] = elements

    def pointwise(self, statement: Map, args: Sequence[Operand]) -> Operand:
        dtype, to = statement.args[-1].dtype, statement.out.dtype  # of Select, the arms'
        if statement.op == "Cast":
            return cast(self.b, dtype, args[0], to)
        if statement.op == "Bitcast":
            return bitcast(self.b, dtype, args[0], to)
        write = POINTWISE.get(statement.op)
        if write is None:
            raise CompileError(f"expand: {statement.op} has no meaning here; drop it when lowering")
        return write(self.b, dtype, args)

    def contract(self, *statements: Contract) -> None:
        """Row by row, of all sums, so that few scalars are held beside the rows of vectors."""
        if statements[0].dot.is_matrix:
            for statement in statements:
                fragments.multiply(self.tiles, statement)
            return
        tiles, axes = self.tiles, statements[0].out.axes
        statements = tuple(x for x in statements if not pairs.multiplied(tiles, x))
        lanes, wide = tiles.lanes(axes), tiles.wide_axis(axes)
        rows: dict[Key, list[tuple[Key, Position]]] = {}
        for key, at in tiles.positions(axes):
            row = tuple(n for a, n in at.items() if a is not wide)
            rows.setdefault(row, []).append((key, at))
        results: list[Elements] = [{} for _ in statements]
        sums = [*zip(statements, results, strict=True)]
        for places, (statement, elements) in product(rows.values(), sums):
            near = tiles.near_axis(statement.a.axes)
            operands = (statement.a, statement.b, statement.acc)
            for key, at in places:
                place = at if near is None else {**at, near: 0}
                a, b, acc = (tiles.element(tile, place, lanes) for tile in operands)
                elements[key] = multiply_add(self.b, statement.dot, a, b, acc)
        for statement, elements in sums:
            tiles.values[statement.out.id] = elements

    def reduce(self, statement: Reduce) -> None:
        """Pairs of unrolled positions, then halves of what lies side by side."""
        tiles, value, out = self.tiles, statement.value, statement.out
        tiles.deal(value.axes)
        pieces = tiles.pieces[statement.axis]
        vectors: dict[Key, Partial] = {}
        for key, at in tiles.positions(out.axes):
            parts = [tiles.part(value, {**at, statement.axis: n}) for n in range(pieces.number)]
            rows = [parts[k : k + pieces.across] for k in range(0, len(parts), pieces.across)]
            while len(rows) > 1:
                # As a tree: half of the additions wait for none of the others, and the order does
                # not depend on how many lanes a machine has.
                pairs = zip(rows[::2], rows[1::2], strict=False)
                rows = [self.fold(statement, x, y) for x, y in pairs] + rows[len(rows) & ~1 :]
            (row,) = rows
            while len(row) > 1:
                row = self.fold(statement, row[: len(row) // 2], row[len(row) // 2 :])
            (vectors[key],) = row
        elements = self.fold_lanes(statement, vectors)
        dealt = tiles.dealt.get(statement.axis)
        if dealt is not None:
            folded = fold_over_lanes(
                tiles, dealt, out.dtype, [*map(tiles.said, elements.values())],
                lambda x, y: tiles.said(self.both(statement, x, y)),
            )  # fmt: skip
            elements = dict(zip(elements, folded, strict=True))
        if statement.axis in tiles.parts:
            elements = {
                key: fragments.folded(
                    tiles, statement.axis, out.dtype, tiles.said(part),
                    lambda x, y: tiles.said(self.both(statement, x, y)),
                )
                for key, part in elements.items()
            }  # fmt: skip
        tiles.values[out.id] = elements

    def fold(
        self, statement: Reduce, left: Sequence[Partial], right: Sequence[Partial]
    ) -> list[Partial]:
        return [self.both(statement, *pair) for pair in zip(left, right, strict=True)]

    def both(self, statement: Reduce, x: Partial, y: Partial) -> Partial:
        """Two partial results combined."""
        b, dtype = self.b, statement.out.dtype
        if self.is_in_integers(statement, x.type):
            return Greatest(joined(b, begun(b, x), begun(b, y)), dtype)
        return POINTWISE[statement.op](b, dtype, [self.tiles.said(part) for part in (x, y)])

    def is_in_integers(self, statement: Reduce, type_: Type) -> bool:
        return statement.op == MAXIMUM.combine and has_integers(self.b, type_)

    def fold_lanes(self, statement: Reduce, values: Mapping[Key, Partial]) -> Mapping[Key, Partial]:
        """The lanes of each vector combined, halves at a time; of sums several vectors together."""
        lanes, dtype = self.tiles.pieces[statement.axis].width, statement.out.dtype
        # Greatest values in integers are three vectors for one, which are folded by themselves.
        alone = dtype is bool_ or self.is_in_integers(statement, Type(dtype, lanes))
        if lanes > 1 and len(values) > 1 and not alone:
            write, vectors = POINTWISE[statement.op], [*map(self.tiles.said, values.values())]
            folded = fold_together(self.b, vectors, lambda x, y: write(self.b, dtype, (x, y)))
            return dict(zip(values, folded, strict=True))
        return {key: self.fold_alone(statement, value, lanes) for key, value in values.items()}

    def fold_alone(self, statement: Reduce, value: Partial, lanes: int) -> Partial:
        while lanes > 1:
            lanes //= 2
            value = self.both(statement, *halves(self.b, value))
        return value

    # --- memory and control -----------------------------------------------------------------------

    def load(self, statement: Load) -> None:
        if fragments.is_scales(self.tiles, statement.out):
            fragments.load_scales(self.tiles, statement)
        elif fragments.is_factor(self.tiles, statement.out):
            fragments.load_factor(self.tiles, statement)
        elif self.tiles.buffers[statement.buffer].space is Space.TENSOR:
            fragments.load_sums(self.tiles, statement)
        else:
            access.load(self.tiles, statement)

    def loop(self, statement: Loop) -> None:
        write_loop(self.tiles, statement, self.body)

    def runs(self, statement: Runs) -> None:
        write_runs(self.tiles, statement, self.body)

    def branch(self, statement: If) -> None:
        condition = self.index.condition(statement.condition)
        self.b.where(condition, lambda: self.body(statement.body))

    def section(self, statement: Section) -> None:
        """A branch, on the chunk's number: all lanes of a group take the same one."""
        (loop,) = self.source.grid
        number = opaque(f"{loop.axis.name} from {statement.first}", 0, 2**62)
        inside = all_of(
            (statement.first <= loop.axis, loop.axis < statement.first + statement.chunks)
        )

        def write() -> None:
            self.index.bind(number, self.index.scalar(loop.axis - statement.first))
            self.bind_grid(statement.grid, number)
            self.body(statement.body)

        self.b.where(self.index.condition(inside), write)

    def once(self, statement: Once) -> None:
        """Runs the body in the first chunk of a worker, and in its first at these positions."""
        assert self.begin is not None
        begins = self.index.op("eq", self.chunk, self.begin)
        inner = [self.index.scalar(grid.axis) for grid in self.source.grid[statement.outer :]]
        first = self.index.op("eq", reduce(partial(self.index.op, "or"), inner), 0)
        either = self.index.op("or", begins, first)
        self.b.where(either, lambda: self.body(statement.body))

    def barrier(self, statement: Barrier) -> None:
        """Makes the lanes of a group meet; a worker that runs a whole chunk waits for nobody."""
        if self.source.lanes > 1:
            if self.publishes:
                self.b.emit(ir.Publish())
            self.b.emit(ir.Barrier(statement.scope is Binding.CLUSTER))
            self.tiles.read.clear()

    RULES: Mapping[type, Callable[..., None]] = {
        Literal: literal,
        Index: at_index,
        Map: map,
        Load: load,
        Store: _by_tiles(access.store),
        Contract: contract,
        Accumulate: _by_tiles(fragments.accumulate),
        Retile: _by_tiles(fragments.retile),
        Reduce: reduce,
        Prefix: _by_tiles(write_prefix),
        Loop: loop,
        Runs: runs,
        If: branch,
        Once: once,
        Section: section,
        SortRow: _by_tiles(write_sort),
        Barrier: barrier,
        Copy: _by_tiles(access.copy),
        Begin: _by_tiles(fragments.begin),
        Commit: _by_tiles(lambda tiles, statement: tiles.b.emit(ir.Commit(statement.of))),
        Await: _by_tiles(lambda tiles, s: tiles.b.emit(ir.Await(s.younger, s.of))),
        **{kind: _by_tiles(write) for kind, write in boxes.RULES.items()},
    }
