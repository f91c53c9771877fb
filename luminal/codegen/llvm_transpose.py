"""Tiles that lie in memory along one axis and are used along another: transposed in registers."""

from __future__ import annotations

from luminal.codegen.llvm_builder import FunctionBuilder, IRValue
from luminal.codegen.llvm_cast import from_memory
from luminal.codegen.llvm_values import Context, Elements, memory_type, zeros
from luminal.kernel.tile_ir import Load
from luminal.shape.expression import ONE, Symbol

SHORT_STEPS = 4  # elements from lane to lane that are still read in whole vectors


def transposable(ctx: Context, statement: Load) -> Symbol | None:
    """An axis unrolled as often as there are lanes, along which memory is contiguous while it jumps
    from lane to lane: the tile is loaded along it and transposed.
    """
    axes, offset = statement.out.axes, statement.offset
    vector = ctx.vector_axis(axes)
    if vector is None or vector in ctx.live or not statement.guard.symbols().isdisjoint(axes):
        return None
    if any(tile.axes for _, tile in statement.indices):
        return None
    unroll, lanes = ctx.shapes[vector]
    jumps = offset.coefficient(vector)
    if unroll > 1 or jumps is None:
        return None
    if jumps.is_const and abs(jumps.value) <= SHORT_STEPS:
        return None
    for axis in axes:
        if ctx.shapes[axis] == (lanes, 1) and offset.coefficient(axis) is ONE:
            return axis
    return None


def load_transposed(
    ctx: Context, statement: Load, across: Symbol, wanted: IRValue | None
) -> Elements:
    """The tile of such a load, by vectors along `across`; zeros where it is not wanted."""
    out, b = statement.out, ctx.b
    vector = ctx.vector_axis(out.axes)
    assert vector is not None
    lanes = ctx.shapes[vector][1]
    elements: Elements = {}
    for _, position in ctx.positions([axis for axis in out.axes if axis is not across]):
        rows = []
        for lane in range(lanes):
            offset = statement.offset.substitute({vector: vector + lane} if lane else {})
            offset = ctx.moved(offset, {**position, across: 0})
            pointer = ctx.pointer(statement.buffer, offset)
            if wanted is not None:
                pointer = b.select(wanted, pointer, zeros(b))
            value = b.load(memory_type(out.dtype, lanes), pointer, out.dtype.size)
            rows.append(from_memory(b, out.dtype, value))
        for k, value in enumerate(_transposed(b, rows)):
            elements[tuple({**position, across: k}[axis] for axis in out.axes)] = value
    return elements


def _transposed(b: FunctionBuilder, rows: list[IRValue]) -> list[IRValue]:
    """As many vectors as lanes, a power of two: blocks change places, halves at a time."""
    count = len(rows)
    step = count // 2
    while step:
        low = [k if not k & step else count + k - step for k in range(count)]
        high = [k + step if not k & step else count + k for k in range(count)]
        for k in (k for k in range(count) if not k & step):
            upper, lower = rows[k], rows[k + step]
            rows[k], rows[k + step] = b.shuffle(upper, lower, low), b.shuffle(upper, lower, high)
        step //= 2
    return rows
