"""The meaning of terms in NumPy: what every spelling of a program is compared with.

A term's value is an array over the product grid of its axes, in `axis_order`; an axis may be
restricted to some of its positions, so that a few elements of a large result cost what they need
and no more: `ranges` travel down, a bound axis always runs over its whole extent, and an At asks
for the positions that its indices take. Slow and plain otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from luminal.algebra import scans, sorts
from luminal.algebra.contract import contract
from luminal.algebra.lower import Lowered
from luminal.algebra.terms import At, Axes, Frame, Index, Leaf, Literal, Term, axis_order, factors
from luminal.base.dtypes import DType
from luminal.base.errors import InputError
from luminal.hlir.attributes import (
    AxisAttrs,
    CastAttrs,
    ConstantAttrs,
    LoopAttrs,
    StateAttrs,
    WeightAttrs,
)
from luminal.hlir.ops import OPS, Value
from luminal.hlir.semantics import REDUCED, convert
from luminal.hlir.stand_in import stand_in
from luminal.shape.expression import Expression, Symbol

Array = np.ndarray[Any, Any]
Ranges = Mapping[Symbol, Sequence[int] | Array]


class TooMuchWork(Exception):
    """A value would take more operations than its evaluator may do."""


class Limit:
    """The number of operations that may still be done."""

    def __init__(self, operations: float = inf) -> None:
        self.left = operations

    def spend(self, operations: float) -> None:
        """Raises TooMuchWork where so many are not left."""
        if operations > self.left:
            raise TooMuchWork
        self.left -= operations


# This is the oracle of rules and of candidates: it shares nothing with kernels but the terms, and
# evaluates elements alone where a whole result would take too long.
def evaluate(
    lowered: Lowered,
    leaves: Mapping[Value, Array],
    dims: Mapping[str, int] | None = None,
    ranges: Ranges | None = None,
    *,
    wide: bool = False,
    limit: Limit | None = None,
) -> list[Array]:
    """The value of each root, dimensions as in its frame.

    `leaves`: arrays of Inputs and of a Loop body's arguments; Weights, States and
    Constants have their own, unless given. `ranges`: the positions wanted along some axes. `wide`:
    all floats in float64, Cast rounds nothing; else each operation in its own dtype. Raises
    TooMuchWork beyond the `limit`.
    """
    evaluator = Evaluator(leaves, dims or {}, wide=wide, limit=limit)
    return [evaluator.tensor(root.term, root.frame, ranges or {}) for root in lowered.roots]


class _Task(NamedTuple):
    """A term to evaluate, and the positions (int64 bytes) along those axes that are restricted."""

    term: Term
    ranges: tuple[tuple[Symbol, bytes], ...]


class Evaluator:
    """Values of terms at one binding of leaves and dims, each computed once per set of ranges."""

    def __init__(
        self,
        leaves: Mapping[Value, Array],
        dims: Mapping[str, int],
        *,
        wide: bool,
        limit: Limit | None = None,
    ) -> None:
        self.leaves = leaves
        self.dims = dims
        self.wide = wide
        self.limit = limit or Limit()
        self.known: dict[_Task, Array] = {}
        self.opaque: dict[tuple[Any, ...], tuple[Array, ...]] = {}

    def tensor(self, term: Term, frame: Frame, ranges: Ranges | None = None) -> Array:
        """The value with the dimensions of `frame`; broadcast along axes that the term lacks."""
        wanted = self._packed(ranges or {})
        order = tuple(axis for dimension in frame for axis in dimension)
        array = self._spread(self._value(_task(term, wanted)), term, order)
        sizes = {axis: len(self._positions(wanted, axis)) for axis in order}
        array = np.broadcast_to(array, [sizes[axis] for axis in order])
        return array.reshape([_product(sizes[axis] for axis in d) for d in frame])

    def value(self, term: Term, ranges: Ranges | None = None) -> Array:
        """The value over the grid of the term's axes, in `axis_order`."""
        return self._value(_task(term, self._packed(ranges or {})))

    # --- the walk

    def _value(self, wanted: _Task) -> Array:
        stack = [wanted]
        while stack:
            task = stack[-1]
            if task in self.known:
                stack.pop()
                continue
            waiting = [need for need in self._needs(task) if need not in self.known]
            if waiting:
                stack.extend(waiting)
            else:
                self.limit.spend(self._operations(task))
                with np.errstate(all="ignore"):
                    self.known[task] = self._compute(task)
                stack.pop()
        return self.known[wanted]

    def _needs(self, task: _Task) -> list[_Task]:
        """The tasks that must be known before this one. An At knows where it reads once its index
        terms are known.
        """
        # Demand-driven: a task is a term at some positions, and needs its operands at the positions
        # that follow. A few elements of an attention over thousands of keys so cost a few rows.
        term, ranges = task
        if isinstance(term, At):
            indices = [_task(arg, dict(ranges)) for arg in term.args[1:]]
            if any(index not in self.known for index in indices):
                return indices
            return [self._read_by(task)[0]]
        if term.is_reduction:
            return [_task(x, self._inside(task)) for x in self._operands(term)]
        if term.is_opaque:
            return [_Task(arg, ()) for arg in term.args]
        return [_task(arg, dict(ranges)) for arg in term.args]

    def _operations(self, task: _Task) -> float:
        """The number of operations of a task: one for each element, or of a reduction for each that
        is reduced.
        """
        reduced = task.term.attrs if task.term.is_reduction else ()
        lengths = [self._extent(axis) for axis in reduced]
        return float(_product(self._sizes(task))) * _product(lengths)

    def _compute(self, task: _Task) -> Array:
        term = task.term
        if isinstance(term, Leaf):
            return self._restrict(self._leaf(term), term.attrs.frame, task)
        if isinstance(term, Literal):
            return self._widened(np.asarray(term.value))
        if isinstance(term, Index):
            sizes = self._sizes(task)
            values = np.broadcast_to(self._index(term.attrs, task), sizes)
            return self._widened(convert(values, term.dtype))
        if isinstance(term, At):
            return self._at(task)
        if term.is_reduction:
            return self._reduce(task)
        if term.is_opaque:
            results = self._opaque(term)
            return self._restrict(results[term.attrs.index], term.attrs.result, task)
        return self._pointwise(task)

    # --- positions

    def _packed(self, ranges: Ranges) -> dict[Symbol, bytes]:
        return {a: np.asarray(at, np.int64).tobytes() for a, at in ranges.items()}

    def _extent(self, axis: Symbol) -> int:
        assert axis.extent is not None
        return int(axis.extent.evaluate(self.dims))

    def _positions(self, ranges: Mapping[Symbol, bytes], axis: Symbol) -> Array:
        if axis in ranges:
            return np.frombuffer(ranges[axis], np.int64)
        return np.arange(self._extent(axis))

    def _sizes(self, task: _Task) -> list[int]:
        """The shape of a value."""
        ranges = dict(task.ranges)
        return [len(self._positions(ranges, axis)) for axis in axis_order(task.term.axes)]

    def _inside(self, task: _Task) -> dict[Symbol, bytes]:
        """The ranges below a reduction: its own axes are whole."""
        return {a: at for a, at in task.ranges if a not in task.term.attrs}

    def _spread(self, array: Array, term: Term, order: Sequence[Symbol]) -> Array:
        """A term's value with dimensions `order`, of size 1 where the term has no such axis."""
        term_axes = axis_order(term.axes)
        array = array.transpose([term_axes.index(axis) for axis in order if axis in term.axes])
        sizes = iter(array.shape)
        return array.reshape([next(sizes) if axis in term.axes else 1 for axis in order])

    def _restrict(self, array: Array, frame: Frame, task: _Task) -> Array:
        """A tensor with the axes of `frame` as a value over their grid."""
        axes = tuple(axis for dimension in frame for axis in dimension)
        array = self._widened(array.reshape([self._extent(axis) for axis in axes]))
        for axis, positions in task.ranges:
            array = array.take(np.frombuffer(positions, np.int64), axes.index(axis))
        return array.transpose([axes.index(axis) for axis in axis_order(axes)])

    def _index(self, expr: Expression, task: _Task) -> Array:
        """An Expression of axes and dims over the grid of the task's term."""
        order, ranges = axis_order(task.term.axes), dict(task.ranges)
        dims = {s: self.dims[s.name] for s in expr.symbols() if s.extent is None}
        env = {}
        for place, axis in enumerate(order):
            shape = [1] * len(order)
            shape[place] = -1
            env[axis.name] = self._positions(ranges, axis).reshape(shape)
        value = expr.substitute(dims).evaluate(env)
        return np.asarray(value, np.int64).reshape(np.shape(value) or (1,) * len(order))

    # --- operations

    def _widened(self, array: Array) -> Array:
        return array.astype(np.float64) if self.wide and _is_float(array) else array

    def _leaf(self, term: Term) -> Array:
        value = term.attrs.value
        if value in self.leaves:
            return np.asarray(self.leaves[value])
        match value.node.attrs:
            case ConstantAttrs() as constant:
                return constant.array
            case WeightAttrs(parameter=parameter):
                return parameter.numpy()
            case StateAttrs(state=state):
                return state.numpy()
        raise InputError(f"{value.node!r} is not given; pass an array for it in `leaves`")

    def _pointwise(self, task: _Task) -> Array:
        term = task.term
        order, ranges = axis_order(term.axes), dict(task.ranges)
        args = [self._spread(self.known[_task(arg, ranges)], arg, order) for arg in term.args]
        if term.op == "Cast":
            return self._cast(args[0], term.dtype)
        if term.op == "Bitcast":
            args = [self._narrowed(args[0], term.args[0].dtype)]
        meaning = OPS[term.op].evaluate
        assert meaning is not None
        attrs = CastAttrs(term.dtype) if term.op == "Bitcast" else None
        result = np.broadcast_to(meaning(attrs, self.dims, args)[0], self._sizes(task))
        return self._widened(result)

    def _cast(self, x: Array, dtype: DType) -> Array:
        return x.astype(np.float64) if self.wide and dtype.is_float else convert(x, dtype)

    def _narrowed(self, x: Array, dtype: DType) -> Array:
        return np.asarray(convert(x, dtype), order="C")

    def _operands(self, reduction: Term) -> Sequence[Term]:
        """The operand; of a sum of products in float64 its factors, so that no product of
        operands with different axes is ever held.
        """
        (x,) = reduction.args
        if self.wide and reduction.op == "Sum" and x.op == "Mul" and x.dtype.is_float:
            return factors(x)
        return reduction.args

    def _reduce(self, task: _Task) -> Array:
        # In float64 a sum of products is contracted without its product, which would have all axes
        # of both factors at once.
        term, inside = task.term, self._inside(task)
        operands = self._operands(term)
        values = [self.known[_task(x, inside)] for x in operands]
        if len(values) > 1:
            sizes = {a: self._extent(a) for a in term.attrs}
            pairs = [(v, axis_order(x.axes)) for v, x in zip(values, operands, strict=True)]
            return contract(pairs, sizes, axis_order(term.axes))
        order = (*axis_order(term.axes), *term.attrs)
        array = self._spread(values[0], operands[0], order)
        kept = array.shape[: len(term.axes)]
        lengths = [self._extent(axis) for axis in term.attrs]
        # Also along axes that the operand lacks, whose positions count.
        array = np.broadcast_to(array, (*kept, *lengths)).reshape(*kept, _product(lengths))
        return REDUCED[term.op](AxisAttrs(len(kept)), self.dims, [array])[0]

    def _read_by(self, at: _Task) -> tuple[_Task, dict[Symbol, Array]]:
        """The task that an At reads, and per replaced axis where in it each element stands."""
        term, ranges = at.term, dict(at.ranges)
        x = term.args[0]
        inner = {axis: positions for axis, positions in at.ranges if axis not in dict(term.attrs)}
        places: dict[Symbol, Array] = {}
        for axis, position in term.attrs:
            if isinstance(position, int):
                index = term.args[1 + position]
                indices = self.known[_task(index, ranges)]
                indices = self._spread(indices, index, axis_order(term.axes)).astype(np.int64)
            else:
                indices = self._index(position, at)
            indices = np.clip(indices, 0, max(0, self._extent(axis) - 1))  # outside: unspecified
            wanted, place = np.unique(indices, return_inverse=True)
            places[axis] = place.reshape(indices.shape)
            # A whole axis has no range: so all that read all of a value share one.
            if len(wanted) < self._extent(axis):
                inner[axis] = wanted.tobytes()
        return _task(x, inner), places

    def _at(self, task: _Task) -> Array:
        term = task.term
        order, sizes = axis_order(term.axes), self._sizes(task)
        read, places = self._read_by(task)
        # An empty axis has no position to clip to; what
        # is read outside is unspecified, so 0 will do.
        if any(self._extent(axis) == 0 for axis in places) or 0 in sizes:
            return self._widened(np.zeros(sizes, term.dtype.numpy))
        index: list[Array] = []
        for axis in axis_order(read.term.axes):
            if axis in places:
                index.append(places[axis])
            else:
                shape = [1] * len(order)
                shape[order.index(axis)] = -1
                index.append(np.arange(sizes[order.index(axis)]).reshape(shape))
        return np.broadcast_to(self.known[read][tuple(index)], sizes)

    # --- opaque operations

    def _opaque(self, term: Term) -> tuple[Array, ...]:
        """The results of an opaque operation, whole, computed once."""
        key = (term.op, term.args, term.attrs.site)
        if key not in self.opaque:
            attrs = term.attrs
            args = [
                self.tensor(arg, frame) for arg, frame in zip(term.args, attrs.frames, strict=True)
            ]
            if term.op == "Loop":
                self.opaque[key] = self._loop(attrs.hlir, attrs.body, args)
            elif term.op == "Collective":
                self.opaque[key] = (stand_in(attrs.hlir, args[0]),)
            else:
                if term.op == "Custom":
                    args = [
                        self._narrowed(x, t.dtype) for x, t in zip(args, term.args, strict=True)
                    ]
                self.opaque[key] = tuple(self._meaning(term, args))
        return self.opaque[key]

    def _meaning(self, term: Term, args: Sequence[Array]) -> Sequence[Array]:
        """The results of an operation that HLIR has, or of its form in blocks."""
        match term.attrs.hlir:
            case scans.BlockedScan() as hlir:
                return scans.evaluate(hlir, self.dims, args)
            case sorts.SortedBlocks() | sorts.MergedRuns() as hlir:
                return sorts.evaluate(hlir, args)
            case hlir:
                meaning = OPS[term.op].evaluate
                assert meaning is not None
                return meaning(hlir, self.dims, args)

    def _loop(self, attrs: LoopAttrs, body: Lowered, args: Sequence[Array]) -> tuple[Array, ...]:
        trips = int(attrs.trips.evaluate(self.dims))
        carried, leaves, rest = attrs.split(args)
        # A list has a tensor for each trip; else one tensor is walked along its leading axis.
        streams = [x if n else x[0] for n, x in zip(attrs.streams, leaves, strict=True)]
        ys: list[list[Array]] = [[] for _ in attrs.assigned]
        for trip in range(trips):
            arguments = (*carried, *(stream[trip] for stream in streams), *rest)
            bound = dict(zip(body.arguments, arguments, strict=True))
            results = evaluate(body, bound, self.dims, wide=self.wide, limit=self.limit)
            carried = results[: attrs.carried]
            for y, result in zip(ys, results[attrs.carried :], strict=True):
                y.append(result)
        types = [root.type for root in attrs.body.results[attrs.carried :]]
        # No trips leave nothing to stack, but a shape.
        empty = [
            np.zeros((0, *(int(n.evaluate(self.dims)) for n in t.shape)), t.dtype.numpy)
            for t in types
        ]
        return (*carried, *(np.stack(y) if y else e for y, e in zip(ys, empty, strict=True)))


def _task(term: Term, ranges: Mapping[Symbol, bytes]) -> _Task:
    """The ranges that concern the term, in order."""
    wanted: Axes = axis_order(axis for axis in ranges if axis in term.axes)
    return _Task(term, tuple((axis, ranges[axis]) for axis in wanted))


def _is_float(array: Array) -> bool:
    return array.dtype.kind in "fV"  # V: short floats of ml_dtypes


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
