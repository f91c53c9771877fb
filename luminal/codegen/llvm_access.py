"""Loads and stores of tiles as LLVM IR.

Along the vector axis an offset that moves by one element a lane is a vector access (a load may also
move backwards, or by a few elements), one that does not move a scalar one, any other a gather or
scatter. A guard becomes
a lane mask, or, where all lanes agree, a choice of a safe address or a branch: memory is never
touched where the guard is false or the position is dead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from luminal.codegen.llvm_builder import FunctionBuilder, IRType, IRValue
from luminal.codegen.llvm_cast import from_memory, to_memory
from luminal.codegen.llvm_index import Lanes
from luminal.codegen.llvm_math import POINTWISE
from luminal.codegen.llvm_transpose import SHORT_STEPS, load_transposed, transposable
from luminal.codegen.llvm_values import Context, Position, memory_type, zeros
from luminal.dtypes import DType
from luminal.kernel.tile_ir import Load, Store
from luminal.shape.expression import ONE, TRUE, Expression, Symbol, const, sum_of_terms

MINUS_ONE = const(-1)


@dataclass(frozen=True, slots=True)
class _Access:
    """One access at one unroll position: where, under which guard, along which lanes."""

    buffer: str
    dtype: DType
    offset: Expression
    guard: Expression
    lanes: Lanes | None
    live: IRValue | None

    @property
    def moves(self) -> bool:
        """Does the address differ between lanes?"""
        return self.lanes is not None and bool(self.offset.symbols() & self.lanes.symbols)

    @property
    def step(self) -> Expression | None:
        """Elements from lane to lane, where that is one number."""
        assert self.lanes is not None
        if self.offset.symbols() & self.lanes.values.keys():
            return None
        return self.offset.coefficient(self.lanes.axis)


@contextmanager
def _access(
    ctx: Context, statement: Load | Store, axes: tuple[Symbol, ...], position: Position
) -> Iterator[_Access]:
    """The access with its index symbols bound, for the duration of the block."""
    vector = ctx.vector_axis(axes)
    varying: dict[Symbol, IRValue] = {}
    if statement.indices:
        ctx.index.push()
    for symbol, tile in statement.indices:
        value = _wide(ctx.b, tile.dtype, ctx.element(tile, position))
        if value.type.lanes > 1:
            varying[symbol] = value
        else:
            ctx.index.bind(symbol, value)
    exprs: tuple[Expression, ...] = (statement.offset, statement.guard)
    if vector is None:
        lanes, live = None, None
        exprs = tuple(ctx.moved(expr, position) for expr in exprs)
    else:
        exprs, lane = ctx.by_lane(exprs, vector, position)
        lanes, live = Lanes(lane, ctx.shapes[vector][1], varying), ctx.live.get(vector)
    dtype = ctx.buffers[statement.buffer].dtype
    offset, guard = exprs
    yield _Access(statement.buffer, dtype, offset, guard, lanes, live)
    if statement.indices:
        ctx.index.pop()


def _wide(b: FunctionBuilder, dtype: DType, value: IRValue) -> IRValue:
    """An index as i64, keeping its value."""
    return b.cast("sext" if dtype.is_signed else "zext", value, value.type.with_scalar("i64"))


def prepare(ctx: Context, statement: Load | Store) -> None:
    """Emit what is known of an access by now: of its guard, and pointers of the bound terms."""
    for expr in (statement.guard, statement.offset):
        axes = [axis for axis in ctx.active if axis in expr.symbols()]
        if expr is statement.offset:  # positions a constant apart share one pointer
            axes = [axis for axis in axes if not _is_const(expr.coefficient(axis))]
        for _, position in ctx.positions(axes):
            moved = ctx.moved(expr, position)
            if expr is statement.offset:
                _prepare_pointer(ctx, statement.buffer, moved)
            else:
                ctx.index.prepare(moved)


def prepare_steps(ctx: Context, statement: Load | Store, axis: Symbol, positions: range) -> None:
    """Emit the pointers at these offsets along an axis that moves by a symbolic stride."""
    step = statement.offset.coefficient(axis)
    if step is not None and not step.is_const and ctx.index.is_bound(step):
        for position in positions:
            _prepare_pointer(ctx, statement.buffer, statement.offset + step * position)


def _is_const(expr: Expression | None) -> bool:
    return expr is not None and expr.is_const


def _prepare_pointer(ctx: Context, buffer: str, offset: Expression) -> None:
    known = tuple(term for term in offset.terms if ctx.index.is_bound(term[0]))
    if known:
        ctx.pointer(buffer, sum_of_terms(known, 0))
    for monomial, _ in offset.terms:
        if not ctx.index.is_bound(monomial):
            ctx.index.prepare(monomial)


def _active(ctx: Context, access: _Access) -> IRValue | None:
    """Where the access happens: a scalar or a lane mask; None for everywhere."""
    if access.guard is TRUE:
        return access.live
    if access.lanes is None:
        return ctx.index.condition(access.guard)
    mask = ctx.index.mask(access.guard, access.lanes)
    if access.live is None:
        return mask
    return ctx.b.binary("and", ctx.index.spread(mask, access.lanes.count), access.live)


# --- loads ----------------------------------------------------------------------------------------


def load(ctx: Context, statement: Load) -> None:
    out = statement.out
    across = transposable(ctx, statement)
    if across is not None:
        with _access(ctx, statement, (), {}) as access:
            ctx.values[out.id] = load_transposed(ctx, statement, across, _active(ctx, access))
        return
    elements = {}
    for key, position in ctx.positions(out.axes):
        with _access(ctx, statement, out.axes, position) as access:
            elements[key] = _load(ctx, access)
    ctx.values[out.id] = elements


def _load(ctx: Context, access: _Access) -> IRValue:
    active = _active(ctx, access)
    if access.lanes is None or not access.moves:
        return _load_uniform(ctx, access, active)
    if access.step is ONE:
        return _load_contiguous(ctx, access, active)
    if access.step is MINUS_ONE:
        return _load_reversed(ctx, access, active)
    if access.step is not None and access.step.is_const and 1 < access.step.value <= SHORT_STEPS:
        return _load_strided(ctx, access, active, access.step.value)
    return _gather(ctx, access, active)


def _load_uniform(ctx: Context, access: _Access, active: IRValue | None) -> IRValue:
    """One element; with lanes (of the guard), 0 in those that are masked off."""
    b = ctx.b
    wanted = active if active is None or active.type.lanes == 1 else any_lane(b, active)
    value = _load_at(ctx, access, wanted, 1)
    if access.lanes is None:
        return value
    value = ctx.index.spread(value, access.lanes.count)
    if active is None or active.type.lanes == 1:
        return value
    return b.select(active, value, b.zero(value.type))


def _load_at(ctx: Context, access: _Access, wanted: IRValue | None, lanes: int) -> IRValue:
    """A plain load; where it is not wanted, of zeros."""
    b = ctx.b
    pointer = ctx.pointer(access.buffer, access.offset)
    if wanted is not None:
        pointer = b.select(wanted, pointer, zeros(b))
    value = b.load(memory_type(access.dtype, lanes), pointer, access.dtype.size)
    return from_memory(b, access.dtype, value)


def any_lane(b: FunctionBuilder, mask: IRValue) -> IRValue:
    """Is a lane of the mask set?"""
    bits = b.cast("bitcast", mask, IRType(f"i{mask.type.lanes}"))
    return b.icmp("ne", bits, b.const(bits.type, 0))


def _load_contiguous(ctx: Context, access: _Access, active: IRValue | None) -> IRValue:
    assert access.lanes is not None
    if active is None or active.type.lanes == 1:
        return _load_at(ctx, access, active, access.lanes.count)
    pointer = ctx.pointer(access.buffer, access.offset)
    type_ = memory_type(access.dtype, access.lanes.count)
    b = ctx.b
    value = b.masked_load(type_, pointer, active, access.dtype.size, b.zero(type_))
    return from_memory(b, access.dtype, value)


def _load_reversed(ctx: Context, access: _Access, active: IRValue | None) -> IRValue:
    """Lanes that walk backwards: the block from the last lane's element on, turned round."""
    assert access.lanes is not None
    last = access.lanes.count - 1
    if active is not None and active.type.lanes > 1:
        active = _turned(ctx.b, active)
    block = replace(access, offset=access.offset - last)
    return _turned(ctx.b, _load_contiguous(ctx, block, active))


def _load_strided(ctx: Context, access: _Access, active: IRValue | None, step: int) -> IRValue:
    """Lanes a few elements apart: the blocks they lie in, of which every `step`-th is kept."""
    assert access.lanes is not None
    b, count = ctx.b, access.lanes.count
    mask = _full_mask(ctx, active, count)
    type_ = memory_type(access.dtype, count)
    none, found = b.zero(mask.type), b.poison(type_)
    for block in range(-(-((count - 1) * step + 1) // count)):
        places = [divmod(block * count + k, step) for k in range(count)]  # (lane, beside it)
        wanted = b.shuffle(mask, none, [count if beside else lane for lane, beside in places])
        pointer = ctx.pointer(access.buffer, access.offset + block * count)
        part = b.masked_load(type_, pointer, wanted, access.dtype.size, b.zero(type_))
        kept = [lane * step // count == block for lane in range(count)]
        lanes = [count + k * step % count if own else k for k, own in enumerate(kept)]
        found = b.shuffle(found, part, lanes)
    return from_memory(b, access.dtype, found)


def _turned(b: FunctionBuilder, value: IRValue) -> IRValue:
    return b.shuffle(value, b.poison(value.type), range(value.type.lanes - 1, -1, -1))


def _gather(ctx: Context, access: _Access, active: IRValue | None) -> IRValue:
    assert access.lanes is not None
    b = ctx.b
    type_ = memory_type(access.dtype, access.lanes.count)
    mask = _full_mask(ctx, active, access.lanes.count)
    pointers = _lane_pointers(ctx, access)
    value = b.masked_gather(type_, pointers, mask, access.dtype.size, b.zero(type_))
    return from_memory(b, access.dtype, value)


def _full_mask(ctx: Context, active: IRValue | None, lanes: int) -> IRValue:
    if active is None:
        return ctx.b.const(IRType("i1", lanes), True)
    return ctx.index.spread(active, lanes)


def _lane_pointers(ctx: Context, access: _Access) -> IRValue:
    """The address of each lane."""
    lanes, b, element = access.lanes, ctx.b, memory_type(access.dtype)
    assert lanes is not None
    step = access.step
    if step is not None:
        base = ctx.pointer(access.buffer, access.offset)
        offsets = ctx.index.vector_steps(step, lanes.count)
        return b.gep(base, offsets, element)
    free = tuple(t for t in access.offset.terms if not t[0].symbols() & lanes.symbols)
    varying = tuple(t for t in access.offset.terms if t[0].symbols() & lanes.symbols)
    base = ctx.pointer(access.buffer, sum_of_terms(free, access.offset.constant))
    return b.gep(base, ctx.index.vector(sum_of_terms(varying, 0), lanes), element)


# --- stores ---------------------------------------------------------------------------------------


def store(ctx: Context, statement: Store) -> None:
    used = set(statement.value.axes) | statement.offset.symbols() | statement.guard.symbols()
    for _, tile in statement.indices:
        used |= set(tile.axes)
    axes = tuple(axis for axis in ctx.active if statement.add or axis in used)
    vector = ctx.vector_axis(axes)
    whole = vector is None or _takes_lanes(statement, axes, vector)
    for _, position in ctx.positions(axes) if whole else ():
        with _access(ctx, statement, axes, position) as access:
            value = ctx.element(statement.value, position, ctx.lanes(axes))
            _store(ctx, access, value, statement.add)
    if not whole:
        _store_by_lane(ctx, statement, axes)


def _takes_lanes(statement: Store, axes: tuple[Symbol, ...], vector: Symbol) -> bool:
    """May the lanes be stored together? Not where two could meet at one address."""
    if any(vector in tile.axes for _, tile in statement.indices):
        return False
    if statement.offset.coefficient(vector) is ONE:
        return not statement.indices or axes[-1] is vector
    return not statement.indices and not statement.add


def _store(ctx: Context, access: _Access, value: IRValue, add: bool) -> None:
    active = _active(ctx, access)
    if active is None or active.type.lanes == 1:
        with _where(ctx, active):
            _store_active(ctx, access, value, add, None)
    else:
        _store_active(ctx, access, value, add, active)


@contextmanager
def _where(ctx: Context, condition: IRValue | None) -> Iterator[None]:
    """What is emitted inside runs where the scalar condition holds."""
    if condition is None:
        yield
        return
    with ctx.branch(condition):
        yield


def _store_active(
    ctx: Context, access: _Access, value: IRValue, add: bool, mask: IRValue | None
) -> None:
    b, dtype = ctx.b, access.dtype
    if access.lanes is not None and access.step is not ONE:
        mask = _full_mask(ctx, mask, access.lanes.count)
        stored = to_memory(b, dtype, value)
        b.masked_scatter(stored, _lane_pointers(ctx, access), mask, dtype.size)
        return
    if add:
        old = (_load_contiguous if access.lanes else _load_uniform)(ctx, access, mask)
        value = POINTWISE["Add"](b, dtype, [old, value], dtype)
    pointer = ctx.pointer(access.buffer, access.offset)
    if mask is None:
        b.store(to_memory(b, dtype, value), pointer, dtype.size)
    else:
        b.masked_store(to_memory(b, dtype, value), pointer, mask, dtype.size)


def _store_by_lane(ctx: Context, statement: Store, axes: tuple[Symbol, ...]) -> None:
    """One element at a time, in row-major order of the loops."""
    ranges = [
        [(u, lane) for u in range(ctx.shapes[axis][0]) for lane in range(ctx.shapes[axis][1])]
        for axis in axes
    ]
    for point in itertools.product(*ranges):
        _store_lane(ctx, statement, dict(zip(axes, point, strict=True)))


def _store_lane(ctx: Context, statement: Store, point: dict[Symbol, tuple[int, int]]) -> None:
    b, index = ctx.b, ctx.index
    position = {axis: unroll for axis, (unroll, _) in point.items()}
    vector = ctx.vector_axis(point)
    assert vector is not None
    lane = point[vector][1]
    index.push()
    for symbol, tile in statement.indices:
        value = _lane(b, ctx.element(tile, position), lane)
        index.bind(symbol, _wide(b, tile.dtype, value))
    step = {vector: vector + lane} if lane else {}
    offset = ctx.moved(statement.offset.substitute(step), position)
    guard = ctx.moved(statement.guard.substitute(step), position)
    active = None if guard is TRUE else index.condition(guard)
    if vector in ctx.live:
        live = _lane(b, ctx.live[vector], lane)
        active = live if active is None else b.binary("and", active, live)
    access = _Access(statement.buffer, statement.value.dtype, offset, TRUE, None, None)
    with _where(ctx, active):
        value = _lane(b, ctx.element(statement.value, position), lane)
        _store_active(ctx, access, value, statement.add, None)
    index.pop()


def _lane(b: FunctionBuilder, value: IRValue, lane: int) -> IRValue:
    return value if value.type.lanes == 1 else b.extract(value, lane)
