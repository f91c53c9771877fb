"""Tile IR to LLVM IR: one module with `@kernel` of the CPU's kernel ABI.

`void @kernel(ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch)` runs the grid chunks
begin..end-1: `slots[i]` points to the i-th buffer, `dims[i]` is the i-th parameter, `scratch` is
this thread's working memory (64-byte aligned, laid out by `kernel.scratch`). Everything is
explicit: vectors, unrolling, fma; no fast-math and no optimiser is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from luminal.codegen import llvm_access, llvm_custom
from luminal.codegen.llvm_builder import (
    I8,
    I64,
    PTR,
    VOID,
    FunctionBuilder,
    IRType,
    IRValue,
    ModuleBuilder,
)
from luminal.codegen.llvm_cast import register_type
from luminal.codegen.llvm_control import counted
from luminal.codegen.llvm_index import Indexer, Lanes
from luminal.codegen.llvm_loops import emit_loop, emit_runs, prepare
from luminal.codegen.llvm_math import POINTWISE
from luminal.codegen.llvm_pairs import multiply_add_pairs
from luminal.codegen.llvm_sort import emit_sort
from luminal.codegen.llvm_target import LlvmTarget
from luminal.codegen.llvm_values import Context, Elements, held_type
from luminal.dots import BF16_PAIRS, Dot
from luminal.dtypes import DType, bool_
from luminal.errors import CompileError
from luminal.kernel.scratch import scratch_offsets
from luminal.kernel.tile_ir import (
    Barrier,
    Contract,
    If,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Map,
    Reduce,
    Runs,
    SortRow,
    Statement,
    Store,
)
from luminal.shape.expression import ZERO, Expression, opaque

_PARAMS = [
    ("slots", PTR),
    ("dims", PTR),
    ("begin", I64),
    ("end", I64),
    ("scratch", PTR),
]
_CHUNK = opaque("chunk", 0, 2**62)


def render(kernel: Kernel, target: LlvmTarget) -> str:
    """The LLVM IR text of a verified kernel for a target."""
    if kernel.call is not None:
        return llvm_custom.render(kernel.call)
    module = ModuleBuilder(target.features)
    bits = target.vector_bits
    width = f'nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    b = FunctionBuilder(module, "kernel", VOID, _PARAMS, attributes=width)
    slots, dims, begin, end, scratch = b.params
    index = Indexer(b)
    for k, param in enumerate(kernel.params):
        index.bind(param, b.load(I64, b.gep(dims, b.const(I64, k), I64), 8))
    pointers = {}
    for k, buffer in enumerate(kernel.buffers):
        pointers[buffer.name] = b.load(PTR, b.gep(slots, b.const(I64, k), PTR), 8)
    for buffer, offset in zip(kernel.scratch, scratch_offsets(kernel), strict=False):
        at = scratch if offset is ZERO else b.gep(scratch, index.scalar(offset), I8)
        pointers[buffer.name] = at
    buffers = {buffer.name: buffer for buffer in (*kernel.buffers, *kernel.scratch)}
    writer = _Writer(Context(b, index, buffers, pointers, kernel.tile_shapes()))
    writer.grid(kernel, begin, end)
    b.ret()
    return module.text()


class _Writer:
    """Writes statements; one method per kind."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.b = ctx.b
        self.conditions: dict[int, Elements] = {}  # masks of Index tiles, by the tile

    def grid(self, kernel: Kernel, begin: IRValue, end: IRValue) -> None:
        """The loop over chunks; the axes of the grid are digits of the chunk's number."""

        def chunk(number: IRValue, _: list[IRValue]) -> list[IRValue]:
            index.push()
            index.bind(_CHUNK, number)
            rest: Expression = _CHUNK
            for position, grid in reversed(list(enumerate(kernel.grid))):
                digit = rest % grid.count if position else rest
                rest = rest // grid.count
                index.bind(grid.axis, index.scalar(digit))
            self.body(kernel.body)
            index.pop()
            return []

        index = self.ctx.index
        prepare(self.ctx, kernel.body)
        counted(self.b, "chunk", (begin, end), 1, (), chunk)

    def body(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self.RULES[type(statement)](self, statement)

    def literal(self, statement: Literal) -> None:
        out = statement.out
        bits = int.from_bytes(statement.data, "little")
        self.ctx.values[out.id] = {(): self.b.const_bits(held_type(out.dtype), bits)}

    def index(self, statement: Index) -> None:
        ctx, axes = self.ctx, statement.out.axes
        vector = ctx.vector_axis(axes)
        elements: Elements = {}
        for key, position in ctx.positions(axes):
            if vector is None:
                elements[key] = ctx.index.scalar(ctx.moved(statement.expr, position))
            else:
                (expr,), lane = ctx.by_lane((statement.expr,), vector, position)
                lanes = Lanes(lane, ctx.shapes[vector][1], {})
                value = ctx.index.vector(expr, lanes)
                elements[key] = self.b.cast("sext", value, IRType("i64", lanes.count))
                if expr.is_condition:
                    mask = ctx.index.spread(ctx.index.mask(expr, lanes), lanes.count)
                    self.conditions.setdefault(statement.out.id, {})[key] = mask
        ctx.values[statement.out.id] = elements

    def map(self, statement: Map) -> None:
        emit = POINTWISE.get(statement.op)
        if emit is None:
            raise CompileError(f"cpu: {statement.op} has no LLVM meaning; drop it when lowering")
        ctx, out = self.ctx, statement.out
        if (
            statement.op == "Cast"
            and out.dtype is bool_
            and statement.args[0].id in self.conditions
        ):
            ctx.values[out.id] = self.conditions[statement.args[0].id]
            return
        lanes = ctx.lanes(out.axes)
        dtype = statement.args[-1].dtype  # of Select, the arms'
        converts = statement.op in ("Cast", "Bitcast")
        elements: Elements = {}
        for key, at in ctx.positions(out.axes):
            args = [ctx.element(tile, at, lanes) for tile in statement.args]
            if converts:
                args = [self.b.cast("bitcast", args[0], register_type(dtype, lanes))]
            value = emit(self.b, dtype, args, out.dtype)
            elements[key] = self.b.cast("bitcast", value, held_type(out.dtype, lanes))
        ctx.values[out.id] = elements

    def contract(self, statement: Contract) -> None:
        """Row by row, so that few scalars are held in registers beside the row of vectors."""
        ctx, out = self.ctx, statement.out
        lanes, vector = ctx.lanes(out.axes), ctx.vector_axis(out.axes)
        elements: Elements = {}
        positions = ctx.positions(out.axes)
        by_row = sorted(positions, key=lambda p: [n for a, n in p[1].items() if a is not vector])
        for key, at in by_row:
            tiles = (statement.a, statement.b, statement.acc)
            a, b, acc = (ctx.element(tile, at, lanes) for tile in tiles)
            elements[key] = self.multiply_add(statement.dot, out.dtype, a, b, acc)
        ctx.values[out.id] = elements

    def multiply_add(
        self, dot: Dot | None, dtype: DType, a: IRValue, b: IRValue, acc: IRValue
    ) -> IRValue:
        if dot is BF16_PAIRS:
            return multiply_add_pairs(self.b, a, b, acc)
        if dtype.is_float:
            return self.b.intrinsic("llvm.fma", acc.type, [a, b, acc])
        return self.b.binary("add", acc, self.b.binary("mul", a, b))

    def reduce(self, statement: Reduce) -> None:
        ctx, value, out = self.ctx, statement.value, statement.out

        def combine(x: IRValue, y: IRValue) -> IRValue:
            return POINTWISE[statement.op](self.b, out.dtype, [x, y], out.dtype)

        unroll, vector = ctx.shapes[statement.axis]
        elements: Elements = {}
        for key, at in ctx.positions(out.axes):
            parts = [ctx.element(value, {**at, statement.axis: u}) for u in range(unroll)]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=False)
                parts = [combine(x, y) for x, y in pairs] + parts[len(parts) & ~1 :]
            elements[key] = parts[0] if vector == 1 else self.fold_lanes(parts[0], combine)
        ctx.values[out.id] = elements

    def fold_lanes(self, value: IRValue, combine: Callable[[IRValue, IRValue], IRValue]) -> IRValue:
        """The lanes of a vector combined, halves at a time."""
        while value.type.lanes > 1:
            half = value.type.lanes // 2
            low = self.b.shuffle(value, value, range(half))
            value = combine(low, self.b.shuffle(value, value, range(half, 2 * half)))
        return value

    def loop(self, statement: Loop) -> None:
        emit_loop(self.ctx, statement, self.body)

    def runs(self, statement: Runs) -> None:
        emit_runs(self.ctx, statement, self.body)

    def branch(self, statement: If) -> None:
        with self.ctx.branch(self.ctx.index.condition(statement.condition)):
            self.body(statement.body)

    def load(self, statement: Load) -> None:
        llvm_access.load(self.ctx, statement)

    def store(self, statement: Store) -> None:
        llvm_access.store(self.ctx, statement)

    def sort(self, statement: SortRow) -> None:
        emit_sort(self.ctx, statement)

    def barrier(self, statement: Barrier) -> None:
        """One thread runs a whole chunk: there is nobody to wait for."""

    RULES: Mapping[type, Callable[..., Any]] = {
        Literal: literal,
        Index: index,
        Map: map,
        Load: load,
        Store: store,
        Contract: contract,
        Reduce: reduce,
        Loop: loop,
        Runs: runs,
        If: branch,
        SortRow: sort,
        Barrier: barrier,
    }
