"""The tile IR's invariants, checked between steps.

Values are defined once, before their use and in scope; axes, dtypes, buffers and symbols agree. A
VerifyError names the kernel's line at fault, the rule and the fix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from luminal.base import dtypes
from luminal.base.dots import OF_BITS, ON_BITS
from luminal.base.swizzles import SWIZZLES
from luminal.hlir.attributes import CastAttrs
from luminal.hlir.monoid import COMBINATIONS
from luminal.hlir.ops import OPS
from luminal.hlir.types import TensorType
from luminal.kernel.boxes import AwaitPhase, Begin, Free, Phases, Send
from luminal.kernel.lanes import ONE_LANE, Lanes
from luminal.kernel.sort_memory import order_dtype
from luminal.kernel.tile_ir import (
    COPIED_BYTES,
    Accumulate,
    Await,
    Barrier,
    Binding,
    Call,
    Carry,
    Commit,
    Contract,
    Copy,
    If,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Map,
    Once,
    Prefix,
    Reduce,
    Retile,
    Role,
    Runs,
    Section,
    SortRow,
    Space,
    Statement,
    Store,
    every_statement,
)
from luminal.kernel.tile_scope import WORKING, Checks, Scope, names_of
from luminal.shape.expression import TRUE, ZERO, Symbol, const, product_of


def verify(kernel: Kernel) -> None:
    """Raise VerifyError unless `kernel` is well formed."""
    _Verifier(kernel).run()


class _Verifier(Checks):
    def run(self) -> None:
        kernel = self.kernel
        params = frozenset(kernel.params)
        if kernel.subgroup < 1 or kernel.lanes % kernel.subgroup or kernel.subgroup.bit_count() > 1:
            self.fail(
                f"{kernel.subgroup} of {kernel.lanes} lanes are a subgroup; take a power of two "
                "that divides them"
            )
        for buffer in (*kernel.buffers, *kernel.scratch):
            self.line = f"buffer {buffer.name}"
            if buffer.name in self.buffers:
                self.fail("two buffers have this name; rename one")
            if (buffer.space in WORKING) != (buffer in kernel.scratch):
                self.fail(
                    f"its space is {buffer.space.value}; `scratch` lists scratch buffers only"
                )
            if buffer.non_temporal and buffer.role is not Role.OUT:
                self.fail(f"it is streamed and {buffer.role.value}; stream what is written only")
            self.known(buffer.size, params)
            if buffer.swizzle and (
                buffer.space is not Space.SHARED or buffer.swizzle not in SWIZZLES
            ):
                widths = ", ".join(map(str, SWIZZLES))
                self.fail(f"lines of {buffer.swizzle} bytes; shared memory has {widths}, or none")
            if buffer.space in (Space.SHARED, Space.TENSOR) and not buffer.size.is_const:
                self.fail(
                    f"{buffer.space.value} memory of {buffer.size} elements; give a literal size"
                )
            self.buffers[buffer.name] = buffer
        axes: set[Symbol] = set()
        for grid in kernel.grid:
            self.line = f"grid {grid.axis.name}"
            if grid.axis in axes | params:
                self.fail("the name is bound twice; use another axis")
            self.known(grid.count, params)
            axes.add(grid.axis)
        self.body(kernel.body, Scope({}, params | axes))

    def body(self, body: tuple[Statement, ...], scope: Scope) -> None:
        for statement in body:
            self.line = statement
            rule: Callable[..., None] | None = self.RULES.get(type(statement))
            if rule is None:
                self.fail(f"{type(statement).__name__} is not a statement of the tile IR")
            rule(self, statement, scope)

    def literal(self, statement: Literal, scope: Scope) -> None:
        if len(statement.data) != statement.out.dtype.size:
            self.fail(f"{len(statement.data)} bytes for {statement.out.dtype}")
        self.define(statement.out, (), scope)

    def index(self, statement: Index, scope: Scope) -> None:
        self.known(statement.expr, scope.symbols)
        self.same_dtype("the result", statement.out.dtype, dtypes.int64)
        self.define(statement.out, statement.expr.symbols() & scope.tiled.keys(), scope)
        self.apart([statement.out])

    def map(self, statement: Map, scope: Scope) -> None:
        op = OPS.get(statement.op)
        if op is None or not op.is_pointwise:
            self.fail(f"{statement.op} is not a pointwise op of HLIR")
        args = [self.read(tile, scope) for tile in statement.args]
        dtype = statement.out.dtype
        if dtype.is_int and not dtype.is_signed and op.name in ON_BITS:
            both = op.name in OF_BITS and bool(self.neighbours(args[0]))
            self.apart(args[2 if both else 1 :])
        else:
            self.apart(args)
        if len(args) != op.arity:
            self.fail(f"{op.name} takes {op.arity} operands, got {len(args)}")
        for tile in args[1:] if op.name == "Select" else args:
            if tile.dtype not in op.takes:
                self.fail(f"{tile} is {tile.dtype}; {op.name} takes {dtypes.names(op.takes)}")
        out = statement.out
        attrs = CastAttrs(out.dtype) if op.attrs is CastAttrs else None
        try:
            (result,) = op.infer([TensorType((), tile.dtype) for tile in args], attrs)
        except (TypeError, ValueError) as error:
            self.fail(str(error))
        self.same_dtype(str(out), out.dtype, result.dtype)
        self.define(out, (axis for tile in args for axis in tile.axes), scope)

    def access(self, statement: Load | Store, scope: Scope) -> frozenset[Symbol]:
        """The tile axes of an access; checks its offset, guard and indices."""
        symbols = scope.symbols
        axes: set[Symbol] = set()
        for symbol, tile in statement.indices:
            if symbol in symbols:
                self.fail(f"{symbol.name} is bound twice; use another symbol")
            if not self.read(tile, scope).dtype.is_int:
                self.fail(f"the index {tile} is {tile.dtype}; cast it to an integer")
            symbols |= {symbol}
            axes |= set(tile.axes)
        self.apart(tile for _, tile in statement.indices)
        used = frozenset[Symbol]()
        for expr in (statement.offset, statement.guard):
            self.known(expr, symbols)
            used |= expr.symbols()
        if not self.near.keys().isdisjoint(statement.guard.symbols()):
            self.fail(f"{statement.guard} tells neighbours apart; guard all of them or none")
        return frozenset(axes) | (used & scope.tiled.keys())

    def load(self, statement: Load, scope: Scope) -> None:
        buffer = self.buffer(statement.buffer, written=False)
        self.same_dtype(str(statement.out), statement.out.dtype, buffer.dtype)
        self.define(statement.out, self.access(statement, scope), scope)
        block = self.fragment(statement.out)
        if block in ("a", "b") and (
            statement.guard is not TRUE or statement.indices or statement.prefetch is not ZERO
        ):
            self.fail("the factor of a matrix is loaded as it lies; mask the copy to where it does")
        dots = {self.parts[axis].dot for axis in statement.out.axes if axis in self.parts}
        if buffer.space is Space.TENSOR and (
            block != "c" or statement.guard is not TRUE or statement.indices
        ):
            self.fail("lanes load results of a dot from tensor memory, as they stand")
        if any(buffer.dtype is dot.scale is not dot.a for dot in dots):
            return  # scales lie as whoever reads them has it
        left = [dot.is_from_memory for dot in dots]
        held = (
            [bool(dot.fragments["ab".index(block)]) for dot in dots] if block in ("a", "b") else []
        )
        if held and not all(left if buffer.swizzle else held):
            self.fail(
                "factors lie in swizzled memory for dots that read them there, and for no others"
            )

    def store(self, statement: Store, scope: Scope) -> None:
        buffer = self.buffer(statement.buffer, written=True)
        value = self.read(statement.value, scope)
        self.same_dtype(str(value), value.dtype, buffer.dtype)
        self.no_factor(value)
        if buffer.space is Space.TENSOR:
            self.fail(f"{buffer.name} is tensor memory, to which dots add; store to another")
        axes = self.access(statement, scope) | frozenset(value.axes)
        self.only(axes, scope.tiled, "a store happens in the loops over its axes")
        self.one_vector("the store", scope.tiled if statement.add else axes)
        self.lanes_apart(statement, scope)
        if statement.add and buffer.dtype not in OPS["Add"].takes:
            self.fail(f"{buffer.dtype} is not added; it takes {dtypes.names(OPS['Add'].takes)}")
        self.stored.add(statement.buffer)

    def lanes_apart(self, statement: Store, scope: Scope) -> None:
        """What lanes add may not meet at one element: nothing orders them."""
        if not statement.add:
            return
        moves = {axis for _, tile in statement.indices for axis in tile.axes}
        moves |= statement.offset.symbols() | statement.guard.symbols()
        for axis in scope.tiled.keys() & self.lanes.keys() - moves:
            self.fail(f"the lanes of {axis.name} add to one element; bind it to no lanes")

    def contract(self, statement: Contract, scope: Scope) -> None:
        acc, a, b = (self.read(t, scope) for t in (statement.acc, statement.a, statement.b))
        dot, out = statement.dot, statement.out
        wanted = (dot.accumulator, dot.accumulator, dot.a, dot.b)
        for tile, dtype in zip((out, acc, a, b), wanted, strict=True):
            self.same_dtype(str(tile), tile.dtype, dtype)
        if out.dtype not in OPS["Mul"].takes:
            self.fail(f"{out.dtype} is not computed with; cast the operands first")
        near = [[x for x in tile.axes if x in self.near] for tile in (acc, a, b)]
        counts = [self.near[axis] for axis in near[1]]
        if near[0] or near[1] != near[2] or counts != [dot.k] * (dot.k > 1):
            self.fail(f"the dot {dot} takes {dot.k} neighbours along one axis of both factors")
        blocks = {self.fragment(acc), self.fragment(a), self.fragment(b)}
        parts = {self.parts[x].dot for tile in (acc, a, b) for x in tile.axes if x in self.parts}
        if (blocks, parts) != (({*"abc"}, {dot}) if dot.is_matrix else ({None}, set())):
            self.fail(f"the dot {dot} takes blocks of its own, as lanes hold them, and no others")
        self.scales(statement, scope)
        if dot.in_tensor:
            self.fail(f"the sums of {dot} stand in tensor memory; accumulate them there")
        axes = {axis for tile in (acc, a, b) for axis in tile.axes}
        self.define(out, axes.difference(near[1]), scope)

    def accumulate(self, statement: Accumulate, scope: Scope) -> None:
        a, b = (self.read(tile, scope) for tile in (statement.a, statement.b))
        dot, buffer = statement.dot, self.buffer(statement.buffer, written=True)
        wanted = (buffer.dtype, dot.accumulator), (a.dtype, dot.a), (b.dtype, dot.b)
        for actual, expected in wanted:
            self.same_dtype(statement.buffer, actual, expected)
        if buffer.space is not Space.TENSOR or not dot.in_tensor:
            self.fail(
                f"{dot} adds to tensor memory, if at all, and {buffer.name} has no other sums"
            )
        parts = {self.parts[x].dot for tile in (a, b) for x in tile.axes if x in self.parts}
        if (self.fragment(a), self.fragment(b), parts) != ("a", "b", {dot}):
            self.fail(f"the dot {dot} takes blocks of its own, as they lie in shared memory")
        self.scales(statement, scope)
        self.known(statement.offset, scope.symbols)
        self.uniform(statement.adds, scope)
        self.stored.add(statement.buffer)

    def scales(self, statement: Contract | Accumulate, scope: Scope) -> None:
        """Checks that factors have scales where their dot takes them, one for a block of steps."""
        dot, scales = statement.dot, [self.read(tile, scope) for tile in statement.scales]
        wanted = [dot.scale, dot.scale] if dot.scale is not None else []
        if [tile.dtype for tile in scales] != wanted:
            self.fail(f"the dot {dot} takes scales of {dot.scale}, of both factors, or none")
        for tile, factor in zip(scales, (statement.a, statement.b), strict=False):
            if not {*tile.axes} <= {*factor.axes}:
                self.fail(f"the scales {tile} have axes that {factor} has not")

    def retile(self, statement: Retile, scope: Scope) -> None:
        value, out = self.read(statement.value, scope), statement.out
        columns, (*blocks, within) = {*statement.columns}, statement.columns
        held = self.parts.get(within)
        if held is None or held.side != "n" or not held.dot.chains:
            self.fail(f"{within.name} is no side of columns whose results are factors as they lie")
        if not columns <= set(value.axes) or scope.tiled.keys() & columns or len(columns) > 2:
            self.fail(f"{value} has no columns along finished loops over {names_of(columns)}")
        for axis in blocks:
            if self.lanes.get(axis) is not None:
                self.fail(f"the blocks of {axis.name} are dealt to lanes; each has to hold all")
        steps = [a for a in out.axes if (part := self.parts.get(a)) and part.side == "k"]
        count = math.prod(n for axis in blocks for n in self.tile_sizes[axis]) * held.extent
        if self.fragment(out) != "a" or [self.parts[a].dot for a in steps] != [held.dot]:
            self.fail(f"{out} is no first factor of {held.dot}")
        first = statement.first
        if first % held.dot.k or not 0 <= first <= count - held.dot.k:
            self.fail(f"{held.dot.k} steps from {first} are no block of {count} columns")
        self.same_dtype(str(out), out.dtype, held.dot.a)
        self.same_dtype(str(value), value.dtype, out.dtype)
        self.define(out, {*value.axes} - columns | {*steps}, scope)

    def reduce(self, statement: Reduce, scope: Scope) -> None:
        value = self.read(statement.value, scope)
        if statement.op not in COMBINATIONS:
            self.fail(f"{statement.op} is no reduction; it takes {', '.join(COMBINATIONS)}")
        self.same_dtype(str(statement.out), statement.out.dtype, value.dtype)
        if value.dtype not in OPS[statement.op].takes:
            self.fail(f"{value.dtype} is not computed with; cast the operand first")
        if statement.axis not in value.axes or statement.axis in scope.tiled:
            self.fail(f"{value} has no partial results of a finished loop over {statement.axis}")
        self.define(statement.out, set(value.axes) - {statement.axis}, scope)

    def prefix(self, statement: Prefix, scope: Scope) -> None:
        value, axis = self.read(statement.value, scope), statement.axis
        if statement.op not in COMBINATIONS:
            self.fail(f"{statement.op} is no scan; it takes {', '.join(COMBINATIONS)}")
        if value.dtype not in OPS[statement.op].takes:
            self.fail(f"{value.dtype} is not computed with; cast the operand first")
        for out in (statement.out, statement.total):
            self.same_dtype(str(out), out.dtype, value.dtype)
        if axis not in scope.tiled or self.tile_sizes[axis][0] > 1 or axis in self.lanes:
            self.fail(f"the loop over {axis.name} has to be around, bound to a vector alone")
        self.define(statement.out, {*value.axes, axis}, scope)
        self.define(statement.total, set(value.axes) - {axis}, scope)

    def loop(self, statement: Loop, scope: Scope) -> None:
        if statement.axis in scope.symbols:
            self.fail(f"{statement.axis.name} is bound already; use another axis")
        if statement.unroll < 1 or statement.vector < 1 or statement.vector.bit_count() != 1:
            self.fail("unroll is at least 1 and vector a power of two")
        self.dealt(statement, scope)
        if statement.neighbours > 1:
            self.one_step(statement, statement.neighbours)
        if statement.part is not None:
            self.one_step(statement, statement.part.extent)
        self.uniform(statement.start, scope)
        self.uniform(statement.stop, scope)
        shape = (statement.unroll, statement.vector)
        # Loops over one axis that share a tile must cut it alike, or a position would be another
        # one.
        left = [tile for tile in scope.tiles.values() if statement.axis in tile.axes]
        if left and self.lanes.get(statement.axis, ONE_LANE) != statement.lanes:
            self.fail(f"{left[0]} is dealt to other lanes; use the same lanes")
        self.lanes.pop(statement.axis, None)
        if statement.lanes.count > 1:
            self.lanes[statement.axis] = statement.lanes
        if left and self.tile_sizes[statement.axis] != shape:
            self.fail(f"{left[0]} holds another tile of this axis; use the same unroll and vector")
        self.tile_sizes[statement.axis] = shape
        line = self.line
        inner = scope.inside(statement)
        for carry in statement.carries:
            self.carry_in(carry, statement, scope, inner)
        self.body(statement.body, inner)
        self.line = line
        for carry in statement.carries:
            self.read(carry.next, inner)
            self.same_dtype(str(carry.next), carry.next.dtype, carry.inner.dtype)
            self.only(carry.next.axes, carry.inner.axes, f"{carry.inner} is carried without it")
            self.define(carry.result, carry.inner.axes, scope)

    def one_step(self, statement: Loop, count: int) -> None:
        """Checks a loop of neighbours, or of a part, which are all there and bound to nothing
        else.
        """
        whole = statement.start is ZERO and statement.stop is const(count)
        if not whole or statement.tile != count:
            self.fail(f"it takes one step, of its {count} positions alone, from 0")

    def dealt(self, statement: Loop, scope: Scope) -> None:
        count, stride = statement.lanes.count, statement.lanes.stride
        if count.bit_count() != 1 or stride.bit_count() != 1 or min(count, stride) < 1:
            self.fail(f"lanes are dealt {count} by {stride}; both are powers of two")
        run = statement.lanes.run
        if run < 1 or run.bit_count() != 1 or (run > 1 and count == 1):
            self.fail(f"{count} lanes have runs of {run}; of several a run is a power of two")
        if count > 1 and statement.vector > 1:
            self.fail("it is bound to lanes and to vectors; neighbours lie in one of them")
        for axis, loop in scope.tiled.items():
            both = statement.part is not None and loop.part is not None
            mine, theirs = _lanes(statement), _lanes(loop)
            if min(mine.count, theirs.count) > 1 and mine.meets(theirs) and not both:
                self.fail(f"the loop over {axis.name} is dealt to these lanes; take others inside")

    def carry_in(self, carry: Carry, loop: Loop, scope: Scope, inner: Scope) -> None:
        axes = carry.inner.axes
        for tile in (self.read(carry.init, scope), carry.result):
            self.same_dtype(str(tile), tile.dtype, carry.inner.dtype)
        held = [self.parts[a].dot for a in carry.inner.axes if a in self.parts]
        if self.fragment(carry.inner) != "a" or not all(dot.chains for dot in held):
            self.no_factor(carry.inner)  # others are loaded, and may be no registers of lanes
        self.only(axes, self.tile_sizes, "no loop walks it")
        if loop.tile == 1:
            self.only(axes, self.tile_sizes.keys() - {loop.axis}, "its loop has no tile")
        self.only(carry.init.axes, axes, f"{carry.inner} is carried without it")
        self.define(carry.inner, axes, inner)

    def runs(self, statement: Runs, scope: Scope) -> None:
        self.alone()
        symbols = {statement.axis, statement.end}
        if len(symbols) < 2 or symbols & scope.symbols:
            self.fail(f"{names_of(symbols)} is bound already; use two other symbols")
        self.uniform(statement.start, scope)
        self.uniform(statement.stop, scope)
        for name, offset in statement.keys:
            if self.buffer(name, written=False).dtype.is_float:
                self.fail(f"the key {name} is {self.buffers[name].dtype}; keys are integers")
            self.uniform(offset, Scope({}, scope.symbols | {statement.axis}, scope.tiled))
        inner = scope.copy()
        inner.symbols |= symbols
        self.body(statement.body, inner)

    def branch(self, statement: If, scope: Scope) -> None:
        self.uniform(statement.condition, scope)
        self.body(statement.body, scope.copy())

    def section(self, statement: Section, scope: Scope) -> None:
        kernel = self.kernel
        sections = [other for other in kernel.body if isinstance(other, Section)]
        if len(sections) < len(kernel.body) or not any(s is statement for s in sections):
            self.fail("sections are all that a kernel's body consists of; put it there alone")
        *before, place = (s for s in sections[: [*map(id, sections)].index(id(statement)) + 1])
        count = ZERO
        for other in before:
            count += other.chunks
        self.known(statement.first, kernel.params)
        if place.first != count:
            self.fail(f"it begins at {place.first}, and the sections before it end at {count}")
        total = count + statement.chunks
        if statement is sections[-1] and [grid.count for grid in kernel.grid] != [total]:
            self.fail(f"it ends at {total}; the grid of sections is one axis of all their chunks")
        inner = scope.copy()
        for grid in statement.grid:
            self.known(grid.count, kernel.params)
            if grid.axis in inner.symbols:
                self.fail(f"{grid.axis.name} is bound twice; use another axis")
            inner.symbols |= {grid.axis}
        line = self.line
        self.body(statement.body, inner)
        self.line = line

    def once(self, statement: Once, scope: Scope) -> None:
        kernel, line = self.kernel, self.line
        self.alone()
        if not any(other is statement for other in kernel.body):
            self.fail("it stands in a loop or a branch; put it outside")
        writes = [other.buffer for other in kernel.statements() if isinstance(other, Store)]
        inside = [
            other.buffer for other in every_statement(statement.body) if isinstance(other, Store)
        ]
        for name in inside:
            if self.buffer(name, written=True).space is not Space.SCRATCH:
                self.fail(f"{name} is written in chunks that do it only; write scratch")
            if writes.count(name) > inside.count(name):
                self.fail(f"{name} is written elsewhere too; take a buffer of its own")
        inner = scope.copy()
        # Chunks that differ along these axes share what is written, so it may not depend on them.
        inner.symbols -= {grid.axis for grid in kernel.grid[statement.outer :]}
        self.body(statement.body, inner)
        self.line = line

    def sort(self, statement: SortRow, scope: Scope) -> None:
        self.alone()
        for expr in (statement.offset, statement.stride, statement.extent):
            self.uniform(expr, scope)
        source = self.buffer(statement.source, written=False)
        if source.dtype not in OPS["Sort"].takes:
            self.fail(f"{source.dtype} is not sorted; cast the keys first")
        for name, expected in (
            (statement.values, source.dtype),
            (statement.order, dtypes.int64),
            (statement.work, source.dtype),
            (statement.work_order, order_dtype(statement.extent)),
        ):
            self.same_dtype(name, self.buffer(name, written=True).dtype, expected)
            self.stored.add(name)

    def call(self, statement: Call, scope: Scope) -> None:
        self.alone()
        self.known(statement.chunk, scope.symbols)
        self.known(statement.chunks, self.kernel.params)
        for number in statement.numbers:
            self.known(number, self.kernel.params)
        for buffers, written in ((statement.operands, False), (statement.results, True)):
            for name, shape in buffers:
                if self.buffer(name, written=written).size != product_of(shape):
                    self.fail(f"{name} has another size; give the shape of the whole buffer")
                self.known(product_of(shape), self.kernel.params)
                self.stored.add(name)

    def barrier(self, statement: Barrier, scope: Scope) -> None:
        if statement.scope not in (Binding.GROUP, Binding.CLUSTER):
            self.fail(f"all of a group meet at a barrier, not a {statement.scope.value}")

    def copy(self, statement: Copy, scope: Scope) -> None:
        buffer = self.buffer(statement.buffer, written=True)
        source = self.buffer(statement.source, written=False)
        self.same_dtype(statement.source, source.dtype, buffer.dtype)
        if buffer.space is not Space.SHARED or source.space is not Space.GLOBAL:
            self.fail(f"{source.name} is copied to {buffer.name}; copy operands to shared memory")
        if not source.is_aligned:
            self.fail(f"{source.name} starts anywhere; copy its elements through registers")
        if statement.count * buffer.dtype.size not in COPIED_BYTES:
            wanted = ", ".join(map(str, COPIED_BYTES))
            self.fail(f"{statement.count} elements of {buffer.dtype}; copy {wanted} bytes at once")
        for expr in (statement.offset, statement.source_offset, statement.guard):
            self.known(expr, scope.symbols)
        for offset in (statement.offset, statement.source_offset):
            if (offset // statement.count) * statement.count is not offset:
                self.fail(f"{offset} is no multiple of {statement.count} elements")
        self.stored.add(statement.buffer)

    def begin_products(self, statement: Begin, scope: Scope) -> None:
        for lift in statement.lifts:
            self.known(lift.offset, scope.symbols)
            if self.buffer(lift.buffer, written=False).space is not Space.SHARED:
                self.fail(f"{lift.buffer} is no shared memory, of which scales are lifted")

    def commit(self, statement: Commit, scope: Scope) -> None:
        """A batch may be empty."""

    def wait(self, statement: Await, scope: Scope) -> None:
        if statement.younger < 0:
            self.fail(f"{statement.younger} batches are younger; take 0 or more")

    def phases(self, statement: Phases, scope: Scope) -> None:
        buffer = self.buffer(statement.buffer, written=True)
        if buffer.space is not Space.SHARED or buffer.dtype is not dtypes.uint64:
            self.fail(f"{buffer.name} holds no barriers; take shared memory of u64")
        self.stored.add(statement.buffer)

    def wait_for_phase(self, statement: AwaitPhase, scope: Scope) -> None:
        self.buffer(statement.phases, written=False)
        for expr in (statement.turn, statement.parity):
            self.uniform(expr, scope)

    def free(self, statement: Free, scope: Scope) -> None:
        self.buffer(statement.rooms, written=True)
        for expr in (statement.turn, statement.guard):
            self.uniform(expr, scope)

    def send(self, statement: Send, scope: Scope) -> None:
        self.buffer(statement.phases, written=True)
        if statement.room is not None:
            self.wait_for_phase(statement.room, scope)
        for expr in (statement.turn, statement.guard):
            self.uniform(expr, scope)
        for box in statement.boxes:
            buffer, tensor = self.buffer(box.buffer, written=True), box.tensor
            source = self.buffer(tensor.source, written=False)
            self.same_dtype(source.name, source.dtype, buffer.dtype)
            if buffer.space is not Space.SHARED or source.space is not Space.GLOBAL:
                self.fail(f"{source.name} goes to {buffer.name}; send operands to shared memory")
            if tensor.refusal is not None:
                self.fail(f"{tensor.refusal}; copy it by lanes")
            if tensor.size != source.dtype.size or tensor.swizzle != buffer.swizzle:
                self.fail(f"{tensor} does not lie as {buffer.name} does")
            if not source.is_aligned:
                self.fail(f"{source.name} starts anywhere; copy its elements through registers")
            for expr in (box.offset, *box.origin):
                self.uniform(expr, scope)
            self.stored.add(box.buffer)

    RULES: Mapping[type, Callable[..., None]] = {
        Literal: literal,
        Index: index,
        Map: map,
        Load: load,
        Store: store,
        Contract: contract,
        Accumulate: accumulate,
        Retile: retile,
        Reduce: reduce,
        Prefix: prefix,
        Loop: loop,
        Runs: runs,
        If: branch,
        Once: once,
        Section: section,
        SortRow: sort,
        Call: call,
        Barrier: barrier,
        Copy: copy,
        Begin: begin_products,
        Commit: commit,
        Await: wait,
        Phases: phases,
        Free: free,
        Send: send,
        AwaitPhase: wait_for_phase,
    }


def _lanes(loop: Loop) -> Lanes:
    """The lanes that a loop deals positions to; of two parts the same ones hold a block."""
    return loop.lanes if loop.part is None else loop.part.lanes
