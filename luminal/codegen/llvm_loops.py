"""Loops over tiles as LLVM IR: whole tiles without masks, then a tail of single vectors.

The main loop steps by unroll * vector. What is left takes steps of one vector (unroll 1), masked
unless the trip count is a multiple of the vector. Code that provably never runs is not written.
The rows of a run, which may be few, are left in halves of a tile: 8, then 4, 2 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

from luminal.codegen import llvm_access
from luminal.codegen.llvm_builder import I64, IRValue
from luminal.codegen.llvm_control import Trips, counted
from luminal.codegen.llvm_values import Context, Digits, Elements, Key, is_divided, memory_type
from luminal.kernel.tile_ir import (
    NESTED,
    Carry,
    If,
    Index,
    Load,
    Loop,
    Runs,
    SortRow,
    Statement,
    Store,
)
from luminal.shape.expression import ZERO, Expression, Symbol, maximum, opaque

Body = Callable[[tuple[Statement, ...]], None]


@dataclass(frozen=True, slots=True)
class _Steps:
    """A run of equal steps of one loop: from `start` below `stop`, `unroll` vectors at a time."""

    start: Expression
    stop: Expression
    unroll: int
    masked: bool

    def trips(self, vector: int) -> Trips:
        """Bounds of how many steps are taken."""
        lo, hi = (self.stop - self.start).interval
        size = self.unroll * vector
        return (
            None if lo is None else max(0, -(-lo // size)),
            None if hi is None else -(-hi // size),
        )


def _halves(loop: Loop) -> Iterator[_Steps]:
    """Tiles of rows, then of half as many, down to one."""
    start, unroll = loop.start, loop.unroll
    while unroll:
        whole = start + maximum(loop.stop - start, 0) // unroll * unroll
        yield _Steps(start, whole, unroll, False)
        start, unroll = whole, unroll // 2


def _phases(loop: Loop) -> Iterator[_Steps]:
    """The main loop and the tail, where they may take a step."""
    vector, tile = loop.vector, loop.tile
    if tile == 1:
        yield _Steps(loop.start, loop.stop, 1, False)
        return
    trips = loop.stop - loop.start
    if not trips.interval.at_least(0):
        trips = maximum(trips, 0)
    whole = loop.start + trips // tile * tile
    if not trips.interval.at_most(tile - 1):
        yield _Steps(loop.start, whole, loop.unroll, False)
    if (trips % tile) != ZERO:
        yield _Steps(whole, loop.stop, 1, (trips % vector) != ZERO)


def emit_loop(ctx: Context, loop: Loop, body: Body) -> None:
    """Write the loop; `body` writes its statements. The carries' results are bound after it."""
    prepare(ctx, loop.body)
    _prepare_steps(ctx, loop.body, loop)
    shape = (loop.unroll, loop.vector)
    if loop.tile > 1:
        ctx.shapes[loop.axis] = shape
    state = [_initial(ctx, carry) for carry in loop.carries]
    in_run = loop.stop in ctx.ends and loop.vector == 1 and not loop.carries
    for steps in _halves(loop) if in_run else _phases(loop):
        state = _emit_phase(ctx, loop, steps, state, body)
        if loop.tile > 1:
            ctx.shapes[loop.axis] = shape
    for carry, elements in zip(loop.carries, state, strict=True):
        ctx.values[carry.result.id] = elements


def _initial(ctx: Context, carry: Carry) -> Elements:
    """The carry's init, broadcast to all its positions."""
    axes = carry.inner.axes
    lanes = ctx.lanes(axes)
    return {key: ctx.element(carry.init, at, lanes) for key, at in ctx.positions(axes)}


def _emit_phase(
    ctx: Context, loop: Loop, steps: _Steps, state: list[Elements], body: Body
) -> list[Elements]:
    """Write one run of steps; gives the carried values after it."""
    if loop.tile > 1:
        ctx.shapes[loop.axis] = (steps.unroll, loop.vector)
    # The positions this phase updates; of the loop's own axis a tail takes the first only.
    updated = [[key for key, _ in ctx.positions(c.inner.axes)] for c in loop.carries]
    flat = [old[key] for old, keys in zip(state, updated, strict=True) for key in keys]

    def step(base: IRValue, carried: list[IRValue]) -> list[IRValue]:
        ctx.index.push()
        _enter(ctx, loop, steps, base)
        current = iter(carried)
        for carry, keys in zip(loop.carries, updated, strict=True):
            ctx.values[carry.inner.id] = {key: next(current) for key in keys}
        body(loop.body)
        following = [
            _next(ctx, loop, carry, key)
            for carry, keys in zip(loop.carries, updated, strict=True)
            for key in keys
        ]
        _leave(ctx, loop)
        ctx.index.pop()
        return following

    bounds = ctx.index.scalar(steps.start), ctx.index.scalar(steps.stop)
    size = steps.unroll * loop.vector
    trips = steps.trips(loop.vector)
    after = iter(counted(ctx.b, loop.axis.name, bounds, size, flat, step, trips))
    return [
        {**old, **{key: next(after) for key in keys}}
        for old, keys in zip(state, updated, strict=True)
    ]


def _enter(ctx: Context, loop: Loop, steps: _Steps, base: IRValue) -> None:
    ctx.index.bind(loop.axis, base)
    if loop.tile > 1:
        ctx.active.append(loop.axis)
    if loop.vector > 1 and (loop.start % loop.vector) is ZERO and _divides(loop.body, loop.axis):
        _split_lanes(ctx, loop, steps.unroll * loop.vector)
    if steps.masked:
        left = ctx.b.binary("sub", ctx.index.scalar(steps.stop), base)
        ctx.live[loop.axis] = ctx.index.compare_lanes("slt", left, loop.vector, positive=True)


def emit_runs(ctx: Context, runs: Runs, body: Body) -> None:
    """Write a loop over runs: the next position with other keys, found one by one, ends each."""
    prepare(ctx, runs.body)
    b, index = ctx.b, ctx.index
    start, stop = index.scalar(runs.start), index.scalar(runs.stop)
    head, search, same, found, done = map(b.label, ("runs", "search", "same", "found", "runs.done"))
    before = b.current
    b.cond_br(b.icmp("slt", start, stop), head, done)
    b.block(head)
    first = b.phi(I64, [(start, before)])
    keys = _keys(ctx, runs, first)
    entered = b.current
    b.br(search)
    b.block(search)
    last = b.phi(I64, [(first, entered)])
    end = b.binary("add", last, b.const(I64, 1))
    b.cond_br(b.icmp("slt", end, stop), same, found)
    b.block(same)
    pairs = zip(keys, _keys(ctx, runs, end), strict=True)
    equal = reduce(lambda x, y: b.binary("and", x, y), (b.icmp("eq", *pair) for pair in pairs))
    b.add_incoming(last, end, b.current)
    b.cond_br(equal, search, found)
    b.block(found)
    index.push()
    index.bind(runs.axis, first)
    index.bind(runs.end, end)
    ctx.ends.add(runs.end)
    body(runs.body)
    index.pop()
    b.add_incoming(first, end, b.current)
    b.cond_br(b.icmp("slt", end, stop), head, done)
    b.block(done)


def _keys(ctx: Context, runs: Runs, position: IRValue) -> list[IRValue]:
    """The keys at a position."""
    ctx.index.push()
    ctx.index.bind(runs.axis, position)
    found = []
    for name, offset in runs.keys:
        dtype = ctx.buffers[name].dtype
        found.append(ctx.b.load(memory_type(dtype), ctx.pointer(name, offset), dtype.size))
    ctx.index.pop()
    return found


def _divides(body: tuple[Statement, ...], axis: Symbol) -> bool:
    """Does an Expression of the body divide the axis?"""
    for statement in body:
        match statement:
            case Load(offset=offset, guard=guard) | Store(offset=offset, guard=guard):
                if is_divided(offset, axis) or is_divided(guard, axis):
                    return True
            case Index(expr=expr):
                if is_divided(expr, axis):
                    return True
            case Loop(body=inner) | Runs(body=inner) | If(body=inner):
                if _divides(inner, axis):
                    return True
    return False


def _split_lanes(ctx: Context, loop: Loop, size: int) -> None:
    """Name the axis's multiple of the step, where its start allows, and its lane."""
    size = size if (loop.start % size) is ZERO else loop.vector
    name, hi = loop.axis.name, loop.axis.hi
    step = opaque(f"{name}.step", 0, None if hi is None else hi // size)
    lane = opaque(f"{name}.lane", 0, loop.vector - 1)
    ctx.index.bind(step, ctx.index.scalar(loop.axis // size))
    ctx.index.bind(lane, ctx.b.const(I64, 0))
    ctx.digits[loop.axis] = Digits(step * size, lane)


def _leave(ctx: Context, loop: Loop) -> None:
    ctx.digits.pop(loop.axis, None)
    ctx.live.pop(loop.axis, None)
    if loop.tile > 1:
        ctx.active.pop()


def _next(ctx: Context, loop: Loop, carry: Carry, key: Key) -> IRValue:
    """The carried value for the next step; dead lanes keep theirs."""
    axes = carry.inner.axes
    position = dict(zip(axes, key, strict=True))
    value = ctx.element(carry.next, position, ctx.lanes(axes))
    if loop.axis in axes and loop.axis in ctx.live:
        return ctx.b.select(ctx.live[loop.axis], value, ctx.values[carry.inner.id][key])
    return value


def _prepare_steps(ctx: Context, body: tuple[Statement, ...], loop: Loop) -> None:
    """Emit the pointers of the unroll positions of the loop's own axis."""
    for statement in body if loop.unroll > 1 else ():
        if isinstance(statement, Load | Store):
            positions = range(loop.vector, loop.tile, loop.vector)
            llvm_access.prepare_steps(ctx, statement, loop.axis, positions)
        elif isinstance(statement, NESTED):
            _prepare_steps(ctx, statement.body, loop)


def prepare(ctx: Context, body: tuple[Statement, ...]) -> None:
    """Emit what the statements of a loop's body need and is known before it is entered."""
    for statement in body:
        match statement:
            case Load() | Store():
                llvm_access.prepare(ctx, statement)
            case Index():
                ctx.index.prepare(statement.expr)
            case Loop() | Runs():
                ctx.index.prepare(statement.start)
                ctx.index.prepare(statement.stop)
                prepare(ctx, statement.body)
            case If():
                ctx.index.prepare(statement.condition)
                prepare(ctx, statement.body)
            case SortRow():
                for expr in (statement.offset, statement.stride, statement.extent):
                    ctx.index.prepare(expr)
