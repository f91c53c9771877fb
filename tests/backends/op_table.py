"""Every op of HLIR's table in every dtype it takes, against the reference, on any backend.

Graphs hold every op on 0-d, empty, odd and strided operands full of NaN, infinities, zeros of both
signs and extreme integers. Moves, integers and the correctly rounded float operations agree to the
bit, transcendentals within 2 ulp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from luminal.backends.reference import evaluate_with_bounds
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.hlir.attributes import Body
from luminal.hlir.graph import Builder, Graph, Output
from luminal.hlir.ops import OPS, Value
from luminal.hlir.types import TensorType
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.runtime.executable import Executable
from luminal.shape import view as views
from luminal.shape.expression import const
from tests.numerics.tolerance import compare

Array = np.ndarray[Any, Any]

TRANSCENDENTAL = ("Exp", "Log", "Exp2", "Log2", "Sin", "Cos")
ULP = 2
ROUNDED = ("Sum", "Scan")  # floats are summed in another order and precision
LEAVES = ("Input", "Weight", "State", "Constant", "Iota")
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-40, -3e38, 1e5]


def shape(*extents: int) -> tuple[Any, ...]:
    return tuple(map(const, extents))


def specials(dtype: DType) -> Array:
    """The values at which operations go wrong."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return np.array(FLOATS).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    wanted = [0, 1, 2, 3, 7, dtype.size * 8, limits.max, limits.max - 1, limits.max // 2]
    wanted += [] if limits.min == 0 else [-1, -2, -7, limits.min, limits.min + 1]
    return np.array(wanted, dtype.numpy)


def operands(dtype: DType, count: int) -> list[Array]:
    """`count` arrays that together hold every combination of specials (of two), of odd length."""
    values = specials(dtype)
    n = len(values)
    first, second = np.repeat(values, n), np.tile(values, n)
    extra = np.resize(values, 1 - n * n % 2)
    whole = [np.concatenate([each, extra]) for each in (first, second)]
    return [whole[k % 2] for k in range(count)]


class Table:
    """One graph of many outputs, and its inputs; `dtypes` are those that it casts to."""

    def __init__(self, dtypes: Sequence[DType] = dtypes.ALL) -> None:
        self.dtypes = dtypes
        self.builder = Builder()
        self.inputs: dict[str, Array] = {}
        self.outputs: list[Output] = []
        self.ops: dict[str, str] = {}

    def input(self, array: Array) -> Value:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = array
        return self.builder.input(name, shape(*array.shape), dtypes.dtype_of(array))

    def forms(self, *arrays: Array) -> Iterator[list[Value]]:
        """The operands 0-d, empty, odd, and strided."""
        b = self.builder
        yield [self.input(np.array(a[len(a) // 3])) for a in arrays]
        yield [self.input(np.zeros((3, 0), a.dtype)) for a in arrays]
        yield [self.input(a) for a in arrays]
        wide = [self.input(np.stack([a, a[::-1]], 1)) for a in arrays]
        n = len(arrays[0])
        # column 1 back to front, transposed, with one more row between each two
        column = views.slice_((n, 2), (n - 1, 1), (-1, 1), (const(n), const(1)))
        yield [b.view(b.view(w, column), views.permute((n, 1), (1, 0))) for w in wide]

    def output(self, op: str, *values: Value) -> None:
        for value in values:
            name = f"{op}{len(self.outputs)}"
            self.outputs.append(Output(value, name))
            self.ops[name] = op

    def check(self, compiled: Callable[[Graph], Executable]) -> None:
        graph = Graph(tuple(self.outputs))
        bounds = evaluate_with_bounds(graph, self.inputs).outputs
        found = compiled(graph)(self.inputs)
        for name, op in self.ops.items():
            value, error, unstable = bounds[name]
            if op in TRANSCENDENTAL:
                within(name, found[name], value, ULP)
            elif op in ROUNDED and value.dtype.kind == "f":
                compare(found[name], value, error, unstable, name=name, max_unstable=1.0)
            else:
                same(name, found[name], value)


def same(name: str, found: Array, value: Array) -> None:
    """The same bits, but for NaN, which may be any."""
    assert (found.dtype, found.shape) == (value.dtype, value.shape), name
    size = value.dtype.itemsize
    differ = found.view(f"u{size}") != value.view(f"u{size}") if size else np.array(False)
    if dtypes.dtype_of(value).is_float:
        differ &= ~(np.isnan(found) & np.isnan(value))
    places = np.argwhere(differ)
    shown = [(tuple(p), found[tuple(p)], value[tuple(p)]) for p in places[:5]]
    assert not len(places), f"{name}: {len(places)} differ: {shown}"


def within(name: str, found: Array, value: Array, ulp: int) -> None:
    """At most `ulp` representable numbers apart; NaN and infinities by position."""
    finite = np.isfinite(value)
    rest = [np.where(finite, 0, array).astype(value.dtype) for array in (found, value)]
    same(name, *rest)
    with np.errstate(all="ignore"):
        spacing = np.maximum(np.spacing(np.abs(value)), np.finfo(value.dtype).smallest_subnormal)
        far = finite & ~(np.abs(found.astype(np.float64) - value) <= ulp * spacing)
    assert not far.any(), f"{name}: {found[far][:5]}, expected {value[far][:5]}"


# --- the groups of the table ----------------------------------------------------------------------


def pointwise(table: Table, dtype: DType) -> None:
    b = table.builder
    for name, op in OPS.items():
        if not op.is_pointwise or dtype not in op.takes or op.attrs is not None:
            continue
        assert op.arity is not None
        if name == "Select":
            for x, y in table.forms(*operands(dtype, 2)):
                low = table.input(np.resize([True, False, False], evaluated(x)))
                table.output(name, b.apply(name, low, x, y))
            continue
        for args in table.forms(*operands(dtype, op.arity)):
            table.output(name, b.apply(name, *args))


def evaluated(x: Value) -> tuple[int, ...]:
    return tuple(n.value for n in x.shape)


def casts(table: Table, dtype: DType) -> None:
    b = table.builder
    for (x,) in table.forms(specials(dtype)):
        for to in table.dtypes:
            table.output("Cast", b.cast(x, to))
            if to.size == dtype.size:
                table.output("Bitcast", b.bitcast(x, to))


def matrices(table: Table, dtype: DType) -> Iterator[Value]:
    """Matrices with specials and without, empty along each axis, of extent 1, and transposed."""
    some = np.resize(specials(dtype), (5, 7))
    rng = np.random.default_rng(5)
    low = 0 if dtype.kind == "uint" else -9
    calm = rng.integers(low, 9, (19, 33)).astype(dtype.numpy)
    for array in (some, calm, some[:0], some[:, :0], some[:1], some[:, :1]):
        yield table.input(array)
    turned = table.input(np.ascontiguousarray(calm.T))
    yield table.builder.view(turned, views.permute(turned.shape, (1, 0)))


def reductions(table: Table, dtype: DType) -> None:
    b = table.builder
    for x in matrices(table, dtype):
        for axis in (0, 1):
            table.output("Sum", b.sum(x, axis))
            table.output("Max", b.max(x, axis))
            table.output("Sort", *b.sort(x, axis))
            for kind in ("add", "mul", "max"):
                table.output("Scan" if kind != "max" else "Max", b.scan(x, kind, axis))


def memory(table: Table, dtype: DType) -> None:
    b = table.builder
    for x in matrices(table, dtype):
        rows = table.input(np.array([[0, -1, 2], [9, 3, 3], [0, 100, 4]]))
        columns = table.input(np.array([[0, 1, 2], [6, 7, -7], [0, 1, 1]], np.int32))
        table.output("Gather", b.gather(x, rows.shape, [rows, columns]))
        table.output("Gather", b.gather(x, rows.shape, [rows, views.index(1, const(3)) - 1]))
        source = table.input(np.resize(specials(dtype)[::-1], (3, 3)))
        table.output("After", b.make("After", (x, source)).value)
        flat = table.input(np.resize(specials(dtype), (3,)))
        table.output("Scatter", b.scatter(x, [rows, columns], source))
        step = views.index(0, const(3)) * 2 + 1
        table.output("Scatter", b.scatter(x, [step, views.index(0, const(3))], flat))
        if dtype in OPS["Sum"].takes:
            table.output("Scatter", b.scatter(x, [rows, columns], source, "add"))
        for made in (
            views.pad(x.shape, [(1, 2), (0, 3)]),
            views.flip(x.shape, 1),
            views.reshape(x.shape, [x.shape[0] * x.shape[1]]),
            views.expand(x.shape, (const(2), *x.shape)),
        ):
            table.output("View", b.view(x, made))


def leaves(table: Table, dtype: DType) -> None:
    b = table.builder
    for array in (specials(dtype), specials(dtype)[1], specials(dtype)[:0].reshape(0, 2)):
        weight = Parameter(array.shape, dtype, f"w{len(table.outputs)}")
        weight.set(np.asarray(array))
        table.output("Weight", b.weight(weight.name, weight))
        table.output("State", b.state(State(array.shape, dtype, np.asarray(array))))
        table.output("Constant", b.constant(np.asarray(array), dtype))
        table.output("Input", table.input(np.asarray(array)))
    for extents in ((), (0, 3), (5, 7)):
        over = shape(*extents)
        expr = sum(((3 * k - 2) * views.index(k, n) for k, n in enumerate(over)), const(5))
        table.output("Iota", b.iota(expr, over, dtype))


def loops(table: Table, dtype: DType) -> None:
    """carry' = y = the slice, an invariant gathered along; nothing but moves."""
    b = table.builder
    for trips in (0, 1, 3):
        xs = table.input(np.resize(specials(dtype), (trips, 5)))
        init, fixed = (table.input(np.resize(specials(dtype)[k:], 5)) for k in (0, 1))
        inner = Builder()
        five = TensorType(shape(5), dtype)
        carry, piece, same_ = (inner.input(f"a{k}", *five) for k in range(3))
        even = inner.iota(views.index(0, const(5)) % 2, shape(5), dtypes.bool_)
        mixed = inner.apply("Select", even, carry, same_)
        body = Body((carry.node, piece.node, same_.node), (piece, mixed))
        table.output("Loop", *b.loop(const(trips), body, [init], [xs], [fixed]))


Group = Callable[[Table, DType], None]
GROUPS: tuple[Group, ...] = (pointwise, casts, reductions, memory, leaves, loops)


def takes(group: Group, dtype: DType) -> bool:
    """Is there anything for this dtype in the group?"""
    return group is not reductions or dtype in OPS["Sum"].takes


# Kernels by hand and what the ranks of a mesh do together have tests of their own.
ELSEWHERE = {"Custom", "Shard", "Collective"}


def drawn(dtype: DType, groups: Sequence[Group], among: Sequence[DType]) -> Table:
    """The table of these groups; of all groups no op may be missing."""
    table = Table(among)
    for group in groups:
        if takes(group, dtype):
            group(table, dtype)
    missing = {n for n, op in OPS.items() if dtype in op.takes} - ELSEWHERE - {*table.ops.values()}
    assert groups is not GROUPS or not missing, f"no group of the op table has {missing}"
    return table


def check(
    compiled: Callable[[Graph], Executable],
    dtype: DType,
    groups: Sequence[Group] = GROUPS,
    among: Sequence[DType] = dtypes.ALL,
) -> None:
    """Runs groups of the table in one graph, on a backend that has the dtypes `among`."""
    drawn(dtype, groups, among).check(compiled)
