"""Kernels of expanded IR written by hand: every operation on edge values, and control flow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.dots import WORD_DOTS
from luminal.base.dtypes import DType
from luminal.expand.ir import (
    Apply,
    Constant,
    Kernel,
    Load,
    Operand,
    Param,
    Scratch,
    Statement,
    Store,
    Type,
    Value,
)  # fmt: skip
from luminal.expand.operations import OPERATIONS
from luminal.kernel.tile_ir import Buffer, Role
from luminal.shape.expression import ExpressionLike, Symbol, const, symbol

Array = np.ndarray[Any, Any]

LANES = ("lower", "upper", "extract", "any", "splat", "shuffle", "count")
OF_SOME_MACHINES = (
    "scale",
    *WORD_DOTS,
    "widen_half",
    "narrow_half",
    "widen_bfloat",
    "narrow_bfloat",
    "narrow_halves",
    "narrow_bfloats",
    "power_of_two",
)
OF_THE_LIBRARY = ("sin", "cos")
COMPUTED = tuple(dtype for dtype in dtypes.ALL if not dtype.is_storage)


def constant(dtype: DType, value: Any) -> Constant:
    """One element."""
    return Constant(Type(dtype), np.asarray(value, dtype.numpy).tobytes())


def index(value: int) -> Constant:
    """An i64."""
    return constant(dtypes.int64, value)


@dataclass
class Writer:
    """Statements as they are written; `n` is the kernel's parameter, 1 to 1000."""

    body: list[Statement] = field(default_factory=list)
    ids: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.n, self.chunk = self.new(dtypes.int64), self.new(dtypes.int64)
        self.symbol: Symbol = symbol("n", 1, 1000)

    def new(self, dtype: DType) -> Value:
        return Value(next(self.ids), Type(dtype))

    def apply(self, op: str, *args: Operand, to: DType | None = None) -> Value:
        row = OPERATIONS[op]
        kinds = [arg.type for arg in args]
        out = Value(next(self.ids), row.result(kinds) if row.result else Type(to or dtypes.int64))
        self.body.append(Apply(out, op, args))
        return out

    def load(
        self, buffer: str, dtype: DType, address: Operand, mask: Operand | None = None
    ) -> Value:
        out = self.new(dtype)
        self.body.append(Load(out, buffer, address, mask))
        return out

    def store(
        self, buffer: str, address: Operand, value: Operand, mask: Operand | None = None
    ) -> None:
        self.body.append(Store(buffer, address, value, mask))

    def taken(self) -> tuple[Statement, ...]:
        """What was written so far, for the body of a loop or an if."""
        body, self.body = tuple(self.body), []
        return body

    def kernel(
        self, *buffers: tuple[str, DType, Role], scratch: DType | None = None,
        scratch_bytes: ExpressionLike = 0, setup: tuple[Statement, ...] = (),
    ) -> Kernel:  # fmt: skip
        n = self.symbol
        made = tuple(Buffer(name, dtype, n, role=role) for name, dtype, role in buffers)
        work = () if scratch is None else (Scratch(Buffer("work", scratch, n), index(64)),)
        return Kernel(
            (Param(n, self.n),), made, work, const(0) + scratch_bytes, n,
            setup, self.chunk, self.taken(),
        )  # fmt: skip


def tile_kernel(expanded: Kernel) -> Any:
    """What a driver reads of the kernel of tile IR that this one stands for."""
    return SimpleNamespace(
        call=None, lanes=expanded.lanes, buffers=expanded.buffers, params=expanded.params,
        expanded=expanded,
    )  # fmt: skip


def edges(dtype: DType) -> Array:
    """Values at which operations go wrong."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_float:
        tiny = np.finfo(dtype.numpy).smallest_subnormal
        small, large = np.finfo(dtype.numpy).tiny, np.finfo(dtype.numpy).max
        values = [0.0, -0.0, 1.0, -1.0, 0.5, 1 / 3, -2.75, 7.0, tiny, -tiny, small, -small / 3]
        return np.array([*values, large, -large, np.inf, -np.inf, np.nan], dtype.numpy)
    low, high = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    return np.array([0, 1, 2, 3, 5, 7, 100, high, high - 1, low, low + 1], dtype.numpy)


def operands(op: str, dtype: DType) -> list[Array]:
    """All pairs of edge values that the row of `op` allows."""
    row, values = OPERATIONS[op], edges(dtype)
    pairs = [x.ravel() for x in np.meshgrid(values, values)]
    if op in ("quotient", "remainder"):
        allowed = (pairs[1] != 0) & ~(pairs[1].astype(object) == -1)
        pairs = [x[allowed] for x in pairs]
    if op in ("shl", "shr"):
        counts = np.array([0, 1, 5, dtype.bits - 1], dtype.numpy)
        pairs = [x.ravel() for x in np.meshgrid(values, counts)]
    if op == "select":
        return [np.arange(len(pairs[0])) % 2 == 0, *pairs]
    return [*pairs, np.roll(pairs[0], 3)][: row.arity]


@dataclass(frozen=True)
class Row:
    """An operation on operands of one dtype, as an expanded kernel's chunk applies it."""

    op: str
    dtype: DType
    to: DType

    def operands(self) -> list[Array]:
        arrays = operands(self.op, self.dtype)
        if self.op == "cast" and self.dtype.is_float and not self.to.is_float:
            low, high = (-(2.0**7), 2.0**7) if self.to.is_signed else (-1, 2.0**8)
            arrays = [x[(x > low) & (x < high)] for x in arrays]
        return arrays

    def meaning(self, arrays: list[Array]) -> Array:
        row = OPERATIONS[self.op]
        with np.errstate(all="ignore"):
            return np.asarray(row.meaning(*arrays) if row.result else row.meaning(*arrays, self.to))


def kernel_of(rows: list[Row]) -> tuple[Kernel, list[Array], list[Array]]:
    """A kernel whose chunks apply all rows, its buffers, and what each row leaves in the last of
    its own. Operands are repeated to one length.
    """
    w, buffers, arrays, results = Writer(), [], [], []
    count = max(len(row.operands()[0]) for row in rows)
    for k, row in enumerate(rows):
        given = [np.resize(x, count) for x in row.operands()]
        names = [f"x{k}_{j}" for j in range(len(given))]
        kinds = [dtypes.dtype_of(x.dtype.name) for x in given]
        loaded = [w.load(*each, w.chunk) for each in zip(names, kinds, strict=True)]
        out = w.apply(row.op, *loaded, to=row.to)
        w.store(f"y{k}", w.chunk, out)
        buffers += [(name, kind, Role.IN) for name, kind in zip(names, kinds, strict=True)]
        buffers.append((f"y{k}", out.type.dtype, Role.OUT))
        results.append(row.meaning(given).astype(out.type.dtype.numpy))
        arrays += [*given, np.zeros(count, out.type.dtype.numpy)]
    return w.kernel(*buffers), arrays, results


def rows_of(dtype: DType) -> list[Row]:
    """Every operation of one lane that takes this dtype; of casts each to another one."""
    found = []
    for op, row in OPERATIONS.items():
        if dtype.kind not in row.takes or op in (*LANES, *OF_SOME_MACHINES):
            continue
        if op in OF_THE_LIBRARY and dtype.size == 4:
            continue
        others = [to for to in COMPUTED if to != dtype and to.kind != "bool"]
        if op == "cast":
            found += [Row(op, dtype, to) for to in others]
        elif op == "bitcast":
            found += [Row(op, dtype, to) for to in others if to.size == dtype.size]
        else:
            found.append(Row(op, dtype, dtype))
    return found
