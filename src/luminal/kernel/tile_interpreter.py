"""The meaning of tile IR: a slow, exact run of one kernel in NumPy.

Every access is checked: a live position whose guard holds and that lies outside its buffer raises
VerifyError. Loops take the steps that renderers take (whole tiles, then one vector at a time), so
that sums are formed in the same order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from luminal.base.dtypes import DType
from luminal.base.errors import VerifyError
from luminal.hlir import semantics
from luminal.hlir.attributes import AxisAttrs, CastAttrs
from luminal.hlir.monoid import COMBINATIONS
from luminal.hlir.ops import OPS
from luminal.kernel.boxes import AwaitPhase, Begin, Box, Free, Phases, Send, bring
from luminal.kernel.tile_ir import (
    Accumulate,
    Await,
    Barrier,
    Batch,
    Buffer,
    Call,
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
    Runs,
    Section,
    SortRow,
    Statement,
    Store,
    Tile,
)
from luminal.kernel.tile_text import headline
from luminal.shape.expression import Expression, Symbol

Array = np.ndarray[Any, Any]

FOLLOWING = 3  # chunks that a worker runs on end, of kernels to which that matters


def run(
    kernel: Kernel,
    buffers: Mapping[str, Array],
    params: Mapping[str, int],
    chunks: int | None = None,
) -> None:
    """Run the first `chunks` grid chunks of `kernel`, or all of them, on the flat or shaped,
    contiguous arrays in `buffers`.

    `params` are the kernel's parameters by name. Raises VerifyError on an access out of bounds.
    """
    _Interpreter(kernel, buffers, dict(params)).run(chunks)


class _Step:
    """The tile of one loop in this step: positions base .. base+count-1, live below stop."""

    def __init__(self, base: int, count: int, stop: int) -> None:
        self.positions = np.arange(base, base + count, dtype=np.int64)
        self.live = self.positions < stop


class _Interpreter:
    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Array], params: dict[str, int]
    ) -> None:
        self.kernel = kernel
        self.env: dict[str, int] = params  # symbols with one value, by name
        self.values: dict[int, Array] = {}
        self.point: tuple[int, ...] = ()  # of the grid
        self.begins = True  # has nobody run the chunk before?
        self.batches: list[list[Callable[[], None]]] = [[]]  # of copies, the open one last
        self.ended: dict[tuple[str, int], int] = {}  # phases, of each barrier
        self.sent: dict[
            tuple[str, int], list[list[Callable[[], None]]]
        ] = {}  # to it, and not there yet
        self.steps: dict[Symbol, _Step] = {}  # tiles of the enclosing loops, outer first
        self.sizes = {
            statement.axis: _sizes(statement)
            for statement in reversed([*kernel.statements()])
            if isinstance(statement, Loop)
        }  # of each axis, by its first loop: turns, lanes, and what each has side by side
        loops = (inner for inner in kernel.statements() if isinstance(inner, Loop))
        self.parts = {loop.axis: loop.part for loop in loops if loop.part is not None}
        self.memory = {b.name: self.bind(b, buffers) for b in kernel.buffers}
        for buffer in kernel.scratch:
            size = int(buffer.size.evaluate(params))
            self.memory[buffer.name] = np.zeros(size, buffer.dtype.numpy)

    def bind(self, buffer: Buffer, buffers: Mapping[str, Array]) -> Array:
        array = buffers[buffer.name]
        size = int(buffer.size.evaluate(self.env))
        if array.dtype != buffer.dtype.numpy or array.size < size or not array.flags.c_contiguous:
            raise VerifyError(
                f"tile IR: buffer {buffer.name}: {array.dtype}[{array.size}] given; "
                f"it takes contiguous {buffer.dtype}[{size}]"
            )
        return array.reshape(-1)[:size]

    def run(self, chunks: int | None) -> None:
        grid = self.kernel.grid
        counts = [range(int(g.count.evaluate(self.env))) for g in grid]
        is_kept = any(isinstance(statement, Once) for statement in self.kernel.body)
        for number, point in enumerate(itertools.islice(itertools.product(*counts), chunks)):
            self.env.update(zip((g.axis.name for g in grid), point, strict=True))
            self.point, self.begins = point, not is_kept or number % FOLLOWING == 0
            # Else chunks share nothing, and they may not rely on zeros.
            for buffer in self.kernel.scratch if self.begins else ():
                self.memory[buffer.name].view(np.uint8)[:] = 0xA5
            self.body(self.kernel.body)

    def body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self.RULES[type(statement)](self, statement)

    # --- values -----------------------------------------------------------------------------------

    def aligned(self, tile: Tile, axes: tuple[Symbol, ...]) -> Array:
        """The tile's elements, broadcastable along `axes`."""
        array = self.values[tile.id]
        order = sorted(range(len(tile.axes)), key=lambda k: axes.index(tile.axes[k]))
        array = array.transpose(order)
        shape = iter(array.shape)
        return array.reshape([next(shape) if axis in tile.axes else 1 for axis in axes])

    def evaluate(self, expr: Expression, axes: tuple[Symbol, ...], bound: Mapping[str, Any]) -> Any:
        """An Expression at the tile positions along `axes`."""
        env: dict[str, Any] = {**self.env, **bound}
        for k, axis in enumerate(axes):
            shape = [1] * len(axes)
            shape[k] = -1
            env[axis.name] = self.steps[axis].positions.reshape(shape)
        return expr.evaluate(env)

    def extents(self, axes: tuple[Symbol, ...]) -> tuple[int, ...]:
        return tuple(len(self.steps[axis].positions) for axis in axes)

    def literal(self, statement: Literal) -> None:
        self.values[statement.out.id] = np.asarray(statement.value)

    def index(self, statement: Index) -> None:
        axes = statement.out.axes
        value = np.asarray(self.evaluate(statement.expr, axes, {}), np.int64)
        self.values[statement.out.id] = np.broadcast_to(value, self.extents(axes))

    def map(self, statement: Map) -> None:
        out = statement.out
        args = [self.aligned(tile, out.axes) for tile in statement.args]
        self.values[out.id] = apply(statement.op, out.dtype, *args)

    def contract(self, statement: Contract) -> None:
        axes = statement.out.axes
        near = tuple(axis for axis in statement.a.axes if axis not in axes)
        a, b = (self.aligned(tile, axes + near) for tile in (statement.a, statement.b))
        if not near:
            a, b = a[..., None], b[..., None]
        self.values[statement.out.id] = statement.dot.meaning(
            self.aligned(statement.acc, axes), a, b, self.scales(statement, axes + near)
        )

    def scales(
        self, statement: Contract | Accumulate, axes: tuple[Symbol, ...]
    ) -> tuple[Array, Array] | None:
        """The scales of both factors at each step, if they have some."""
        if not statement.scales:
            return None
        dot = statement.dot
        of_a, of_b = (
            np.broadcast_to(scale, (*scale.shape[:-1], dot.k))
            for scale in (self.aligned(tile, axes) for tile in statement.scales)
        )
        return of_a, of_b

    def accumulate(self, statement: Accumulate) -> None:
        factors = statement.a, statement.b
        used = {axis for tile in factors for axis in tile.axes}
        (near,) = (axis for axis in used if (part := self.parts.get(axis)) and part.side == "k")
        axes = tuple(axis for axis in self.steps if axis in used and axis is not near)
        offset = np.broadcast_to(self.evaluate(statement.offset, axes, {}), self.extents(axes))
        memory, dot = self.memory[statement.buffer], statement.dot
        sums = (
            memory[offset] if statement.adds.evaluate(self.env) else np.zeros_like(memory[offset])
        )
        a, b = (self.aligned(tile, (*axes, near)) for tile in factors)
        memory[offset] = dot.meaning(sums, a, b, self.scales(statement, (*axes, near)))

    def retile(self, statement: Retile) -> None:
        value, out = statement.value, statement.out
        (steps,) = (a for a in out.axes if a not in value.axes)
        rest = tuple(a for a in out.axes if a is not steps)
        array = self.aligned(value, (*rest, *statement.columns))
        array = array.reshape(*array.shape[: len(rest)], -1)
        array = array[..., statement.first :][..., : self.parts[steps].extent]
        self.values[out.id] = np.moveaxis(array, -1, out.axes.index(steps))

    def reduce(self, statement: Reduce) -> None:
        value = statement.value
        array = np.moveaxis(self.values[value.id], value.axes.index(statement.axis), 0)
        part = self.parts.get(statement.axis)
        for bit in () if part is None else part.dot.fragment("c").folded(part.side):
            # Those whose other bits are alike, two by two; both have the sum then.
            far = np.arange(len(array)) | 1 << bit
            array = apply(statement.op, value.dtype, array[far ^ 1 << bit], array[far])
        sizes = self.sizes[statement.axis] if part is None else (1, 1, 1)
        array = array[: math.prod(sizes)].reshape(*sizes, *array.shape[1:])
        parts = list(array)
        while len(parts) > 1:
            pairs = range(0, len(parts) - 1, 2)
            paired = [apply(statement.op, value.dtype, parts[k], parts[k + 1]) for k in pairs]
            parts = paired + parts[2 * len(paired) :]
        beside = self.halved(statement.op, value.dtype, np.moveaxis(parts[0], 1, 0))
        folded = self.halved(statement.op, value.dtype, beside)
        left = [axis for axis in value.axes if axis is not statement.axis]
        self.values[statement.out.id] = folded.transpose(
            [left.index(a) for a in statement.out.axes]
        )

    @staticmethod
    def halved(op: str, dtype: DType, parts: Array) -> Array:
        """The first axis folded, a half with the other half."""
        while len(parts) > 1:
            half = len(parts) // 2
            parts = apply(op, dtype, parts[:half], parts[half:])
        return np.asarray(parts[0])

    def prefix(self, statement: Prefix) -> None:
        value, step = statement.value, self.steps[statement.axis]
        axes = (statement.axis, *statement.total.axes)
        totals = np.broadcast_to(self.aligned(value, axes), self.extents(axes))
        nothing = COMBINATIONS[statement.op].identity(value.dtype)
        live = step.live.reshape(-1, *[1] * (len(axes) - 1))
        totals = np.where(live, totals, nothing)
        distance = 1
        while distance < len(totals):
            after = apply(statement.op, value.dtype, totals[:-distance], totals[distance:])
            totals = np.concatenate((totals[:distance], after))
            distance *= 2
        order = [axes.index(axis) for axis in statement.out.axes]
        self.values[statement.out.id] = totals.transpose(order)
        self.values[statement.total.id] = totals[-1]

    # --- memory -----------------------------------------------------------------------------------

    def positions(self, statement: Load | Store, axes: tuple[Symbol, ...]) -> tuple[Array, Array]:
        """(offset, active) at every position of an access; checked against the buffer's bounds."""
        bound = {
            symbol.name: self.aligned(tile, axes).astype(np.int64)
            for symbol, tile in statement.indices
        }
        shape = self.extents(axes)
        with np.errstate(over="ignore"):
            offset = np.broadcast_to(self.evaluate(statement.offset, axes, bound), shape)
            active = np.broadcast_to(self.evaluate(statement.guard, axes, bound), shape) != 0
        for k, axis in enumerate(axes):
            live = self.steps[axis].live.reshape([-1 if n == k else 1 for n in range(len(axes))])
            active = active & live
        size = self.memory[statement.buffer].size
        outside = active & ((offset < 0) | (offset >= size))
        if outside.any():
            raise VerifyError(
                f"tile IR: `{headline(statement)}`: offset {offset[outside].flat[0]} is outside "
                f"{statement.buffer}[{size}]; guard it"
            )
        return np.where(active, offset, 0), active

    def load(self, statement: Load) -> None:
        out = statement.out
        offset, active = self.positions(statement, out.axes)
        memory = self.memory[statement.buffer]
        zero = np.zeros((), memory.dtype)[()]  # bytes of 0, whatever they stand for
        read = memory[offset] if memory.size else np.full(offset.shape, zero, memory.dtype)
        self.values[out.id] = np.asarray(np.where(active, read, zero), memory.dtype)

    def store(self, statement: Store) -> None:
        symbols = statement.offset.symbols() | statement.guard.symbols()
        symbols |= frozenset(a for _, tile in statement.indices for a in tile.axes)
        symbols |= frozenset(statement.value.axes)
        axes = tuple(axis for axis in self.steps if statement.add or axis in symbols)
        offset, active = self.positions(statement, axes)
        value = np.broadcast_to(self.aligned(statement.value, axes), offset.shape)
        memory = self.memory[statement.buffer]
        if statement.add:
            with np.errstate(all="ignore"):
                np.add.at(memory, offset[active], value[active])
        else:
            memory[offset[active]] = value[active]  # of equal offsets the last one stays

    # --- control ----------------------------------------------------------------------------------

    def loop(self, statement: Loop) -> None:
        start = int(statement.start.evaluate(self.env))
        stop = int(statement.stop.evaluate(self.env))
        self.sizes[statement.axis] = _sizes(statement)
        for carry in statement.carries:
            shape = tuple(self.carried_extent(axis, statement) for axis in carry.inner.axes)
            init = self.aligned(carry.init, carry.inner.axes)
            self.values[carry.result.id] = np.array(np.broadcast_to(init, shape))
        base = start
        while base < stop:
            count = statement.tile if base + statement.tile <= stop else statement.across
            self.step(statement, _Step(base, count, stop))
            base += count

    def carried_extent(self, axis: Symbol, loop: Loop) -> int:
        inside = axis is not loop.axis and axis in self.steps
        return len(self.steps[axis].positions) if inside else math.prod(self.sizes[axis])

    def step(self, loop: Loop, step: _Step) -> None:
        count = len(step.positions)
        self.env[loop.axis.name] = int(step.positions[0])
        if loop.tile > 1:
            self.steps[loop.axis] = step
        for carry in loop.carries:
            view = self.own_positions(carry.inner, self.values[carry.result.id], loop, count)
            self.values[carry.inner.id] = view.copy()
        self.body(loop.body)
        for carry in loop.carries:
            view = self.own_positions(carry.inner, self.values[carry.result.id], loop, count)
            following = np.broadcast_to(self.aligned(carry.next, carry.inner.axes), view.shape)
            if loop.axis in carry.inner.axes:
                k = carry.inner.axes.index(loop.axis)
                live = step.live.reshape([-1 if n == k else 1 for n in range(view.ndim)])
                following = np.where(live, following, view)
            view[...] = following
        self.steps.pop(loop.axis, None)

    @staticmethod
    def own_positions(tile: Tile, array: Array, loop: Loop, count: int) -> Array:
        """The first `count` partial results along the loop's own axis: those this step updates."""
        return array[(*(slice(count if a is loop.axis else None) for a in tile.axes), ...)]

    def runs(self, statement: Runs) -> None:
        stop = int(statement.stop.evaluate(self.env))
        first = int(statement.start.evaluate(self.env))
        while first < stop:
            keys, end = self.keys(statement, first), first + 1
            while end < stop and self.keys(statement, end) == keys:
                end += 1
            self.env.update({statement.axis.name: first, statement.end.name: end})
            self.body(statement.body)
            first = end

    def keys(self, statement: Runs, position: int) -> list[int]:
        env = self.env | {statement.axis.name: position}
        return [int(self.memory[name][int(at.evaluate(env))]) for name, at in statement.keys]

    def once(self, statement: Once) -> None:
        if self.begins or not any(self.point[statement.outer :]):
            self.body(statement.body)

    def section(self, statement: Section) -> None:
        number = self.point[0] - int(statement.first.evaluate(self.env))
        counts = [int(grid.count.evaluate(self.env)) for grid in statement.grid]
        if 0 <= number < math.prod(counts):
            point = np.unravel_index(number, counts) if counts else ()
            names = (grid.axis.name for grid in statement.grid)
            self.env.update(zip(names, map(int, point), strict=True))
            self.body(statement.body)

    def branch(self, statement: If) -> None:
        if statement.condition.evaluate(self.env):
            self.body(statement.body)

    def sort(self, statement: SortRow) -> None:
        exprs = (statement.offset, statement.stride, statement.extent)
        offset, stride, extent = (int(e.evaluate(self.env)) for e in exprs)
        where = offset + stride * np.arange(extent)
        for name in (statement.source, statement.values, statement.order):
            if extent and not 0 <= where.min() <= where.max() < self.memory[name].size:
                raise VerifyError(
                    f"tile IR: `{headline(statement)}`: positions {where.min()}..{where.max()} are "
                    f"outside {name}[{self.memory[name].size}]"
                )
        keys = self.memory[statement.source][where]
        values, order = semantics.sort(AxisAttrs(0), {}, (keys,))
        self.memory[statement.values][where] = values
        self.memory[statement.order][where] = order

    def call(self, statement: Call) -> None:
        """All of it in the first chunk: the meaning knows no chunks."""
        if self.env[statement.chunk.name]:
            return
        operands, results = (
            [
                self.memory[name].reshape([int(n.evaluate(self.env)) for n in shape])
                for name, shape in buffers
            ]
            for buffers in (statement.operands, statement.results)
        )
        numbers = [self.env[symbol.name] for symbol in statement.numbers]
        statement.kernel.run(operands, results, numbers)

    # A copy is made where it is waited for, not before: of all that hardware may do this is what a
    # wait that is too short does not survive.
    def copy(self, statement: Copy) -> None:
        exprs = (statement.offset, statement.source_offset, statement.guard)
        used = frozenset(symbol for expr in exprs for symbol in expr.symbols())
        axes = tuple(axis for axis in self.steps if axis in used)
        guard = np.broadcast_to(self.evaluate(statement.guard, axes, {}), self.extents(axes)) != 0
        everywhere = np.ones_like(guard)
        there = self.copied(statement, statement.buffer, statement.offset, axes, everywhere)
        start = self.copied(statement, statement.source, statement.source_offset, axes, guard)
        live = np.broadcast_to(guard[..., None], there.shape)

        def make() -> None:
            source = self.memory[statement.source]
            read = source[start] if source.size else np.zeros(start.shape, source.dtype)
            self.memory[statement.buffer][there] = np.where(live, read, source.dtype.type(0))

        self.batches[-1].append(make)

    def copied(
        self, statement: Copy, name: str, offset: Expression, axes: tuple[Symbol, ...], live: Array
    ) -> Array:
        """The elements of a copy at each position; live ones are checked against the bounds."""
        starts = np.broadcast_to(np.asarray(self.evaluate(offset, axes, {}), np.int64), live.shape)
        size = self.memory[name].size
        outside = live & ((starts < 0) | (starts + statement.count > size))
        if outside.any():
            raise VerifyError(
                f"tile IR: `{headline(statement)}`: offset {starts[outside].flat[0]} is outside "
                f"{name}[{size}]; guard it"
            )
        return np.where(live, starts, 0)[..., None] + np.arange(statement.count) * live[..., None]

    def begin_products(self, statement: Begin) -> None:
        """Products are made where they stand."""

    def commit(self, statement: Commit) -> None:
        if statement.of is Batch.COPIES:
            self.batches.append([])

    def wait(self, statement: Await) -> None:
        if statement.of is Batch.PRODUCTS:
            return
        while len(self.batches) - 1 > statement.younger:
            for make in self.batches.pop(0):
                make()

    def phases(self, statement: Phases) -> None:
        """Barriers begin with no phase ended, and end when nothing is on its way."""
        for turn in range(self.memory[statement.buffer].size):
            barrier = statement.buffer, turn
            if self.sent.pop(barrier, None):
                raise VerifyError(
                    f"tile IR: `{headline(statement)}`: boxes are on their way to {barrier}; "
                    "await them before"
                )
            self.ended.pop(barrier, None)
            if not statement.is_end:
                self.ended[barrier] = 0

    def send(self, statement: Send) -> None:
        if not statement.guard.evaluate(self.env):
            return

        def at(box: Box) -> tuple[int, list[int]]:
            offset = int(box.offset.evaluate(self.env))
            return offset, [int(place.evaluate(self.env)) for place in box.origin]

        if statement.room is not None:
            self.wait_for_phase(statement.room)
        boxes: list[Callable[[], None]] = [
            partial(bring, self.memory[box.tensor.source], self.memory[box.buffer], box, *at(box))
            for box in statement.boxes
        ]
        barrier = statement.phases, int(statement.turn.evaluate(self.env))
        self.sent.setdefault(barrier, []).append(boxes)

    # A group stands for all of its cluster.
    def free(self, statement: Free) -> None:
        if statement.guard.evaluate(self.env):
            self.ended[statement.rooms, int(statement.turn.evaluate(self.env))] += 1

    # Boxes come when they are awaited, as copies do.
    def wait_for_phase(self, statement: AwaitPhase) -> None:
        barrier = statement.phases, int(statement.turn.evaluate(self.env))
        ended, sent = self.ended.get(barrier), self.sent.get(barrier)
        if ended is None:
            raise VerifyError(f"tile IR: `{headline(statement)}`: {barrier} has not begun")
        if ended % 2 != int(statement.parity.evaluate(self.env)):
            return
        if not sent:
            raise VerifyError(
                f"tile IR: `{headline(statement)}`: nobody ends phase {ended} of {barrier}; send "
                "to it before"
            )
        for come in sent.pop(0):
            come()
        self.ended[barrier] += 1

    def barrier(self, statement: Barrier) -> None:
        """All lanes take each statement together: they have met."""

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


def _sizes(loop: Loop) -> tuple[int, int, int]:
    """A tile as it is folded: turns, lanes, and what each of these has side by side."""
    return loop.unroll, loop.lanes.count, loop.across // loop.lanes.count


def apply(op: str, dtype: DType, *args: Array) -> Array:
    """An HLIR pointwise op on arrays that broadcast together."""
    row = OPS[op]
    assert row.evaluate is not None
    attrs = CastAttrs(dtype) if row.attrs is CastAttrs else None
    shape = np.broadcast_shapes(*(arg.shape for arg in args))
    whole = [np.ascontiguousarray(np.broadcast_to(arg, shape)).reshape(shape) for arg in args]
    return np.asarray(row.evaluate(attrs, {}, whole)[0], dtype.numpy)
