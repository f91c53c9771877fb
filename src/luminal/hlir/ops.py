"""HLIR's nodes and its one table of ops: the specification of what Luminal computes.

Nodes are immutable and interned per graph (see `hlir.graph.Builder`), so equal content is one
object. A record of the table holds all that HLIR can say of an op: operands, attributes, the dtypes
it takes, the shape and dtype of its results, and its NumPy meaning (`hlir.semantics`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, ShapeError
from luminal.base.lines import Recorded
from luminal.base.records import dataclass
from luminal.hlir import semantics, sharding
from luminal.hlir.attributes import (
    AxisAttrs,
    CastAttrs,
    CollectiveAttrs,
    ConstantAttrs,
    CustomAttrs,
    GatherAttrs,
    InputAttrs,
    IotaAttrs,
    LoopAttrs,
    ScanAttrs,
    ScatterAttrs,
    Shape,
    ShardAttrs,
    StateAttrs,
    ViewAttrs,
    WeightAttrs,
)
from luminal.hlir.monoid import SCANS
from luminal.hlir.types import TensorType, type_of
from luminal.shape.expression import const

Array = np.ndarray[Any, Any]
Meaning = Callable[[Any, Mapping[str, int], Sequence[Array]], tuple[Array, ...]]


class Node:
    """One operation applied to values. Build nodes with `hlir.graph.Builder`, never directly."""

    __slots__ = ("__weakref__", "args", "attrs", "op", "recorded", "types")

    def __init__(
        self, op: Op, args: tuple[Value, ...], attrs: Any, types: tuple[TensorType, ...],
        recorded: Recorded | None = None,
    ) -> None:  # fmt: skip
        self.op = op
        self.args = args
        self.attrs = attrs
        self.types = types
        self.recorded = recorded  # where it comes from, which is no part of what it is

    @property
    def value(self) -> Value:
        """The first result of the node."""
        return Value(self, 0)

    def __repr__(self) -> str:
        return f"<{self.op.name} {', '.join(map(str, self.types))}>"


class Value(NamedTuple):
    """One result of a node: what edges and Tensors hold."""

    node: Node
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls

    @property
    def type(self) -> TensorType:
        return self.node.types[self.index]

    @property
    def shape(self) -> Shape:
        return self.node.types[self.index].shape

    @property
    def dtype(self) -> DType:
        return self.node.types[self.index].dtype


Infer = Callable[[Sequence[TensorType], Any], tuple[TensorType, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One row of the table."""

    name: str
    group: str  # leaf, unary, binary, ternary, reduce, ordered, memory, view, other
    arity: int | None  # None: as many as the attributes say
    attrs: type | None
    takes: tuple[DType, ...]  # dtypes of the operands that are computed with
    infer: Infer
    evaluate: Meaning | None  # None: the interpreter's own business (leaves, Loop)

    @property
    def is_pointwise(self) -> bool:
        return self.group in ("unary", "binary", "ternary")

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that a program is sent to must have its own row of the table back: ops are
        # compared by identity.
        return (_find, (self.name,))


def _find(name: str) -> Op:
    return OPS[name]


ANY = (*dtypes.ALL, *dtypes.OF_BLOCKS)
FLOATS = (dtypes.float32, dtypes.float64)
NUMBERS = tuple(d for d in dtypes.COMPUTE if d.kind != "bool")
BITS = tuple(d for d in dtypes.COMPUTE if not d.is_float)
INTEGERS = tuple(d for d in BITS if d.is_int)


# --- shape and dtype rules ------------------------------------------------------------------------


def _leaf_declared(args: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    return (type_of(attrs.shape, attrs.dtype),)


def _leaf_held(args: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    owner = attrs.parameter if isinstance(attrs, WeightAttrs) else attrs.state
    shape, dtype = owner.memory_type
    return (type_of(tuple(map(const, shape)), dtype),)


def _leaf_constant(args: Sequence[TensorType], attrs: ConstantAttrs) -> tuple[TensorType, ...]:
    return (type_of(tuple(map(const, attrs.shape)), attrs.dtype),)


def _same(args: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    first = args[0]
    for other in args[1:]:
        if other.shape != first.shape:
            raise ShapeError(f"operands differ in shape: {first} and {other}; broadcast one first")
        if other.dtype != first.dtype:
            raise DTypeError(f"operands differ in dtype: {first} and {other}; cast one first")
    return (first,)


def _compare(args: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    return (type_of(_same(args, attrs)[0].shape, dtypes.bool_),)


def _select(args: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    condition, chosen, other = args
    if condition.dtype is not dtypes.bool_:
        raise DTypeError(f"Select: the condition is {condition}; compare it first to get a bool")
    if condition.shape != chosen.shape:
        raise ShapeError(f"Select: the condition {condition} and {chosen} differ in shape")
    return _same((chosen, other), attrs)


def _cast(args: Sequence[TensorType], attrs: CastAttrs) -> tuple[TensorType, ...]:
    return (type_of(args[0].shape, attrs.dtype),)


def _bitcast(args: Sequence[TensorType], attrs: CastAttrs) -> tuple[TensorType, ...]:
    if attrs.dtype.size != args[0].dtype.size:
        raise DTypeError(f"Bitcast: {args[0].dtype} and {attrs.dtype} differ in width")
    return (type_of(args[0].shape, attrs.dtype),)


def _check_axis(name: str, operand: TensorType, axis: int) -> None:
    if not 0 <= axis < len(operand.shape):
        raise ShapeError(f"{name}: axis {axis} is not in 0..{len(operand.shape) - 1} of {operand}")


def _reduce(args: Sequence[TensorType], attrs: AxisAttrs) -> tuple[TensorType, ...]:
    _check_axis("reduce", args[0], attrs.axis)
    shape = args[0].shape
    return (type_of(shape[: attrs.axis] + shape[attrs.axis + 1 :], args[0].dtype),)


def _scan(args: Sequence[TensorType], attrs: ScanAttrs) -> tuple[TensorType, ...]:
    if attrs.kind not in SCANS:
        raise ShapeError(f"Scan: kind {attrs.kind!r} is not one of {', '.join(SCANS)}")
    _check_axis("Scan", args[0], attrs.axis)
    return (args[0],)


def _sort(args: Sequence[TensorType], attrs: AxisAttrs) -> tuple[TensorType, ...]:
    _check_axis("Sort", args[0], attrs.axis)
    return (args[0], type_of(args[0].shape, dtypes.int64))


def _check_map(
    name: str, entries: tuple[Any, ...], maps: Sequence[TensorType], shape: Shape
) -> None:
    for tensor in maps:
        if tensor.shape != shape or not tensor.dtype.is_int:
            raise ShapeError(f"{name}: an index tensor is {tensor}; it takes integers of {shape}")
    used = sorted(entry for entry in entries if isinstance(entry, int))
    if used != list(range(len(maps))):
        raise ShapeError(f"{name}: the map uses index tensors {used}, but {len(maps)} are given")


def _gather(args: Sequence[TensorType], attrs: GatherAttrs) -> tuple[TensorType, ...]:
    if len(attrs.map) != len(args[0].shape):
        raise ShapeError(f"Gather: {len(attrs.map)} map entries for the source {args[0]}")
    _check_map("Gather", attrs.map, args[1:], attrs.shape)
    return (type_of(attrs.shape, args[0].dtype),)


def _scatter(args: Sequence[TensorType], attrs: ScatterAttrs) -> tuple[TensorType, ...]:
    dest, source = args[:2]
    if len(attrs.map) != len(dest.shape):
        raise ShapeError(f"Scatter: {len(attrs.map)} map entries for the destination {dest}")
    if dest.dtype != source.dtype:
        raise DTypeError(f"Scatter: the destination {dest} and the source {source} differ in dtype")
    # Setting moves elements and takes any dtype; adding computes with them.
    if attrs.mode == "add" and dest.dtype not in NUMBERS:
        raise DTypeError(f"Scatter add: {dest.dtype}; it takes {dtypes.names(NUMBERS)}")
    _check_map("Scatter", attrs.map, args[2:], source.shape)
    return (dest,)


def _view(args: Sequence[TensorType], attrs: ViewAttrs) -> tuple[TensorType, ...]:
    if len(attrs.view.map) != len(args[0].shape):
        raise ShapeError(f"View: {len(attrs.view.map)} map entries for the source {args[0]}")
    return (type_of(attrs.view.shape, args[0].dtype),)


def _loop(args: Sequence[TensorType], attrs: LoopAttrs) -> tuple[TensorType, ...]:
    body, carried = attrs.body, attrs.carried
    parameters = [node.types[0] for node in body.arguments]
    results = [value.type for value in body.results]
    # What one iteration gives, the next one takes. A value whose type grows has no memory of its
    # own that would fit all iterations.
    if list(args[:carried]) != results[:carried] or parameters[:carried] != results[:carried]:
        raise ShapeError(
            "Loop: a carried value keeps its shape and dtype; "
            f"initial {[*map(str, args[:carried])]}, next {[*map(str, results[:carried])]}"
        )
    _, streams, invariants = attrs.split(args)
    for number, (leaves, operands) in enumerate(zip(attrs.streams, streams, strict=True)):
        slice_type = parameters[carried + number]
        for operand in operands:
            whole = slice_type.shape if leaves else (attrs.trips, *slice_type.shape)
            if operand != type_of(whole, slice_type.dtype):
                raise ShapeError(f"Loop: stream {number} is {operand}, its slice is {slice_type}")
    if list(invariants) != parameters[carried + len(attrs.streams) :]:
        raise ShapeError("Loop: the invariants differ from the body's arguments")
    ys = (type_of((attrs.trips, *y.shape), y.dtype) for y in results[carried:])
    return (*args[:carried], *ys)


def _custom(args: Sequence[TensorType], attrs: CustomAttrs) -> tuple[TensorType, ...]:
    return tuple(type_of(*result) for result in attrs.types)


def _after(args: Sequence[TensorType], attrs: None) -> tuple[TensorType, ...]:
    return (args[0],)


# --- the table ------------------------------------------------------------------------------------


def _row(
    name: str, group: str, arity: int | None, takes: tuple[DType, ...], infer: Infer,
    evaluate: Meaning | None = None, attrs: type | None = None,
) -> Op:  # fmt: skip
    return Op(name, group, arity, attrs, takes, infer, evaluate)


# fmt: off
# Total operations only: whatever the operands are, each has a result, and the reference computes
# it. So any rewrite can be tested on any input, and no rule needs a side condition that says "if
# defined". There is no Sub, Neg, Minimum or Not: these are recorded by the others, and the last
# steps write the machine's own instruction again where it has one.
_TABLE = (
    _row("Input",      "leaf",    0, ANY,      _leaf_declared, None, InputAttrs),
    _row("Weight",     "leaf",    0, ANY,      _leaf_held,     None, WeightAttrs),
    _row("State",      "leaf",    0, ANY,      _leaf_held,     None, StateAttrs),
    _row("Constant",   "leaf",    0, ANY,      _leaf_constant, semantics.constant, ConstantAttrs),
    _row("Iota",       "leaf",    0, ANY,      _leaf_declared, semantics.iota, IotaAttrs),

    _row("Exp",        "unary",   1, FLOATS,   _same,    semantics.exp),
    _row("Log",        "unary",   1, FLOATS,   _same,    semantics.log),
    _row("Exp2",       "unary",   1, FLOATS,   _same,    semantics.exp2),
    _row("Log2",       "unary",   1, FLOATS,   _same,    semantics.log2),
    _row("Sin",        "unary",   1, FLOATS,   _same,    semantics.sin),
    _row("Cos",        "unary",   1, FLOATS,   _same,    semantics.cos),
    _row("Sqrt",       "unary",   1, FLOATS,   _same,    semantics.sqrt),
    _row("Recip",      "unary",   1, FLOATS,   _same,    semantics.recip),
    _row("Floor",      "unary",   1, FLOATS,   _same,    semantics.floor),
    _row("Cast",       "unary",   1, ANY,      _cast,    semantics.cast, CastAttrs),
    _row("Bitcast",    "unary",   1, ANY,      _bitcast, semantics.bitcast, CastAttrs),
    _row("Detach",     "unary",   1, ANY,      _same,    semantics.detach),

    _row("Add",        "binary",  2, NUMBERS,  _same,    semantics.add),
    _row("Mul",        "binary",  2, NUMBERS,  _same,    semantics.mul),
    _row("Div",        "binary",  2, FLOATS,   _same,    semantics.div),
    _row("FloorDiv",   "binary",  2, NUMBERS,  _same,    semantics.floor_div),
    _row("Mod",        "binary",  2, NUMBERS,  _same,    semantics.mod),
    _row("Maximum",    "binary",  2, NUMBERS,  _same,    semantics.maximum),
    _row("LessThan",   "binary",  2, NUMBERS,  _compare, semantics.less_than),
    _row("Equal",      "binary",  2, NUMBERS,  _compare, semantics.equal),
    _row("And",        "binary",  2, BITS,     _same,    semantics.bit_and),
    _row("Or",         "binary",  2, BITS,     _same,    semantics.bit_or),
    _row("Xor",        "binary",  2, BITS,     _same,    semantics.bit_xor),
    _row("Shl",        "binary",  2, INTEGERS, _same,    semantics.shift_left),
    _row("Shr",        "binary",  2, INTEGERS, _same,    semantics.shift_right),

    _row("Select",     "ternary", 3, ANY,      _select,  semantics.select),

    _row("Sum",        "reduce",  1, NUMBERS,  _reduce,  semantics.sum_, AxisAttrs),
    _row("Max",        "reduce",  1, NUMBERS,  _reduce,  semantics.max_, AxisAttrs),

    _row("Scan",       "ordered", 1, NUMBERS,  _scan,    semantics.scan, ScanAttrs),
    _row("Sort",       "ordered", 1, NUMBERS,  _sort,    semantics.sort, AxisAttrs),

    _row("Gather",  "memory",  None, ANY,      _gather,  semantics.gather, GatherAttrs),
    _row("Scatter", "memory",  None, ANY,      _scatter, semantics.scatter, ScatterAttrs),

    _row("View",       "view",    1, ANY,      _view,    semantics.view, ViewAttrs),

    _row("Loop",    "other",   None, ANY,      _loop,    None, LoopAttrs),
    _row("Custom",  "other",   None, ANY,      _custom,  semantics.custom, CustomAttrs),
    _row("After",   "other",   2, ANY,         _after,   semantics.after),
    _row("Shard",   "other",   1, ANY,         sharding.shard,   semantics.detach, ShardAttrs),
    _row("Collective", "other", 1, ANY,      sharding.collective, None, CollectiveAttrs),
)
# fmt: on
OPS: dict[str, Op] = {op.name: op for op in _TABLE}


def infer(op: Op, args: Sequence[Value], attrs: Any) -> tuple[TensorType, ...]:
    """The result types of `op`; ShapeError or DTypeError that names op, operands and rule."""
    types = [value.type for value in args]
    if op.arity is not None and len(types) != op.arity:
        raise ShapeError(f"{op.name}: takes {op.arity} operands, got {len(types)}")
    # The condition is a bool whatever is chosen, and has a rule of its own.
    checked = types[1:] if op.name == "Select" else types
    # Most ops that move elements take any dtype: asking once saves a look at each operand, in what
    # recording does most often.
    if op.takes is not ANY:
        for operand in checked:
            if operand.dtype not in op.takes:
                taken = dtypes.names(op.takes)
                raise DTypeError(f"{op.name}: an operand is {operand}; it takes {taken}")
    return op.infer(types, attrs)
