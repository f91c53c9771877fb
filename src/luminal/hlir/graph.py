"""HLIR programs: a Builder interns nodes, a Graph is the frozen result that the compiler takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from luminal.base.dtypes import DType
from luminal.base.errors import GraphError
from luminal.base.lines import Recorded
from luminal.base.records import dataclass
from luminal.hlir import ops
from luminal.hlir.attributes import (
    AxisAttrs,
    Body,
    CastAttrs,
    ConstantAttrs,
    CustomAttrs,
    CustomKernel,
    GatherAttrs,
    InputAttrs,
    IotaAttrs,
    LoopAttrs,
    ScanAttrs,
    ScatterAttrs,
    Shape,
    Slot,
    StateAttrs,
    ViewAttrs,
    WeightAttrs,
)
from luminal.hlir.ops import Node, Value
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable, State
from luminal.shape.expression import ONE, ZERO, Expression, Symbol
from luminal.shape.view import View, compose, identity


@dataclass(frozen=True, slots=True)
class Output:
    """A sink: `value` is computed and, unless `hidden` (Tensor.keep), returned under `name`."""

    value: Value
    name: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """A sink: `state`, which may be a Parameter, holds `value` at the end of the run."""

    state: Assignable
    value: Value


Sink = Output | Assign
ByOp: TypeAlias = Mapping[str, Sequence[Node]]
Like: TypeAlias = Node | Recorded | None


@dataclass(frozen=True, slots=True)
class Graph:
    """One program: its sinks in order, the dims it declares, the conditions they must meet."""

    sinks: tuple[Sink, ...]
    dims: tuple[Symbol, ...] = ()
    requirements: tuple[Expression, ...] = ()
    required_at: Mapping[Expression, Recorded | None] = field(
        default_factory=dict, compare=False, repr=False
    )
    _order: tuple[Node, ...] | None = field(default=None, init=False, compare=False, repr=False)
    _by_op: ByOp | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def trained(self) -> frozenset[Parameter]:
        """The Parameters that the program assigns: to it their Weights are States."""
        # A Loop can assign Parameters too, layer by layer, without a sink: both are asked.
        assigned = {sink.state for sink in self.sinks if isinstance(sink, Assign)}
        for node in self.by_op().get("Loop", ()):
            assigned.update(state for states in node.attrs.assigned for state in states or ())
        return frozenset(state for state in assigned if isinstance(state, Parameter))

    @property
    def roots(self) -> tuple[Value, ...]:
        return tuple(sink.value for sink in self.sinks)

    def nodes(self) -> tuple[Node, ...]:
        """Every node below the sinks, operands first (Loop bodies not entered). Found once."""
        if self._order is None:
            object.__setattr__(self, "_order", tuple(topological(self.roots)))
        assert self._order is not None
        return self._order

    def by_op(self) -> ByOp:
        """The nodes below the sinks by the names of their ops. Found once."""
        if self._by_op is None:
            object.__setattr__(self, "_by_op", by_op(self.nodes()))
        assert self._by_op is not None
        return self._by_op


def by_op(nodes: Iterable[Node]) -> ByOp:
    """The nodes of each op, by its name, in order."""
    by_name: dict[str, list[Node]] = {}
    for node in nodes:
        by_name.setdefault(node.op.name, []).append(node)
    return by_name


def topological(roots: Iterable[Value]) -> list[Node]:
    """Every node below `roots`, each after its operands, in a deterministic order. Iterative."""
    # A dict, since its order is the answer; and no recursion, which a model of some hundred layers
    # would drive past Python's limit.
    done: dict[Node, None] = {}
    seen: set[Node] = set()
    for root in roots:
        stack = [root.node]
        while stack:
            node = stack.pop()
            if node in done:
                continue
            if node in seen or not node.args:
                done[node] = None
                continue
            seen.add(node)
            stack.append(node)  # met again when its operands are done
            stack += [arg.node for arg in node.args[::-1] if arg.node not in done]
    return [*done]


# Recording and every rewrite go through `make`, so equal content is one node whoever recorded it: a
# graph has no copies to remove later, and graphs can be compared by structure.
class Builder:
    """Makes nodes, each distinct content once: same op, operands and attributes, same Node."""

    def __init__(self, recorded: Callable[[], Recorded | None] = lambda: None) -> None:
        self._interned: dict[Any, Node] = {}
        self._recorded = recorded
        self.now: Recorded | None = None
        """Where nodes come from of which `make` is told nothing: what a pass writes of a node."""

    def __len__(self) -> int:
        return len(self._interned)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._interned.values())

    def since(self, count: int) -> list[Node]:
        """The nodes that were made when there were `count` already, in order."""
        # From the end, so that it costs what is asked for and not what was recorded before: each
        # call of a function under a derivative asks.
        newest_first = islice(reversed(self._interned.values()), len(self) - count)
        return [*newest_first][::-1]

    @property
    def newest(self) -> Node | None:
        """The node that was made last; None before the first."""
        return next(reversed(self._interned.values()), None)

    def make(
        self, name: str, args: Sequence[Value] = (), attrs: Any = None, like: Like = None
    ) -> Node:
        """The node of op `name`, of the line of `like`; ShapeError, DTypeError for its operands."""
        # Operands are interned nodes that compare by identity, so the key costs the same however
        # deep the graph below them is.
        key = (name, tuple(args), attrs)
        node = self._interned.get(key)
        if node is None:
            op = ops.OPS[name]
            origin = like or self.now or self._recorded()
            recorded = origin.recorded if isinstance(origin, Node) else origin
            node = Node(op, key[1], attrs, ops.infer(op, args, attrs), recorded)
            self._interned[key] = node
        return node

    def keep(self, node: Node) -> Node:
        """Has `make` give this node, of another Builder, for its content; the one that it gives."""
        return self._interned.setdefault((node.op.name, node.args, node.attrs), node)

    # --- leaves

    def input(self, name: str, shape: Shape, dtype: DType) -> Value:
        return self.make("Input", (), InputAttrs(name, shape, dtype)).value

    def weight(self, name: str, parameter: Parameter) -> Value:
        return self.make("Weight", (), WeightAttrs(name, parameter)).value

    def state(self, state: State) -> Value:
        return self.make("State", (), StateAttrs(state)).value

    def constant(self, array: np.ndarray[Any, Any], dtype: DType) -> Value:
        # Bytes, not the array: they are immutable, and as a part of the key they tell -0 from 0 and
        # one NaN from another, which comparing numbers would not.
        data = np.ascontiguousarray(array, dtype.numpy).tobytes()
        return self.make("Constant", (), ConstantAttrs(array.shape, dtype, data)).value

    def iota(self, expr: Expression, shape: Shape, dtype: DType) -> Value:
        return self.make("Iota", (), IotaAttrs(expr, shape, dtype)).value

    # --- operations

    def apply(self, name: str, *args: Value) -> Value:
        """An op without attributes: Exp .. Detach, Add .. Shr, Select."""
        return self.make(name, args).value

    def cast(self, x: Value, dtype: DType) -> Value:
        # What changes nothing is never recorded, so no rule has to remove it and the keys of equal
        # programs are equal.
        return x if x.dtype is dtype else self.make("Cast", (x,), CastAttrs(dtype)).value

    def bitcast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self.make("Bitcast", (x,), CastAttrs(dtype)).value

    def sum(self, x: Value, axis: int) -> Value:
        return self.make("Sum", (x,), AxisAttrs(axis)).value

    def max(self, x: Value, axis: int) -> Value:
        return self.make("Max", (x,), AxisAttrs(axis)).value

    def scan(self, x: Value, kind: str, axis: int) -> Value:
        return self.make("Scan", (x,), ScanAttrs(kind, axis)).value

    def sort(self, x: Value, axis: int) -> tuple[Value, Value]:
        """(values ascending, order as i64)."""
        node = self.make("Sort", (x,), AxisAttrs(axis))
        return Value(node, 0), Value(node, 1)

    def gather(self, source: Value, shape: Shape, entries: Sequence[Expression | Value]) -> Value:
        """`entries`: per source dimension an Expression in the output's indices or a tensor."""
        indices, entries_ = _split_map(entries)
        # Index tensors are operands, so that passes which walk operands see them; the map keeps
        # only where each belongs.
        attrs = GatherAttrs(shape, entries_)
        return self.make("Gather", (source, *indices), attrs).value

    def scatter(
        self, dest: Value, entries: Sequence[Expression | Value], source: Value, mode: str = "set"
    ) -> Value:
        """`entries`: per dest dimension an Expression in the source's indices or a tensor."""
        indices, entries_ = _split_map(entries)
        return self.make("Scatter", (dest, source, *indices), ScatterAttrs(entries_, mode)).value

    def view(self, x: Value, view: View) -> Value:
        """View of View composes here, so a View's operand is no View; the identity vanishes."""
        if isinstance(x.node.attrs, ViewAttrs):
            view = compose(view, x.node.attrs.view)
            x = x.node.args[0]
        if view == identity(x.shape):
            return x
        return self.make("View", (x,), ViewAttrs(view)).value

    def loop(
        self,
        trips: Expression,
        body: Body,
        carried: Sequence[Value],
        streams: Sequence[Value | Sequence[Value]],
        invariants: Sequence[Value],
        assigned: tuple[tuple[Assignable, ...] | None, ...] | None = None,
    ) -> tuple[Value, ...]:
        """(final carried values ..., ys ...)."""
        args = [*carried]
        for stream in streams:
            args += [stream] if isinstance(stream, Value) else stream
        counts = [0 if isinstance(stream, Value) else len(stream) for stream in streams]
        ys = len(body.results) - len(carried)
        attrs = LoopAttrs(trips, body, len(carried), tuple(counts), assigned or (None,) * ys)
        node = self.make("Loop", (*args, *invariants), attrs)
        return tuple(Value(node, k) for k in range(len(node.types)))

    def after(self, x: Value, token: Value) -> Value:
        """`x` as a value of its own, there once `token` is computed: equal operations on the two
        stay apart. Of a View the same view of its operand, which nothing then copies.
        """
        if isinstance(x.node.attrs, ViewAttrs):
            return self.view(self.after(x.node.args[0], token), x.node.attrs.view)
        return self.make("After", (x, token)).value

    def custom(
        self,
        kernel: CustomKernel,
        args: Sequence[Value],
        types: Sequence[tuple[Shape, DType]],
        chunks: Expression = ONE,
        flops: Expression = ZERO,
    ) -> tuple[Value, ...]:
        """The results of a hand-written kernel, which has these types."""
        node = self.make("Custom", args, CustomAttrs(kernel, tuple(types), chunks, flops))
        return tuple(Value(node, k) for k in range(len(node.types)))


def copied(
    builder: Builder, node: Node, args: Sequence[Value], attrs: Any = None, like: Like = None
) -> tuple[Value, ...]:
    """The results of the same operation on other operands, with other attributes if given."""
    if isinstance(node.attrs, ViewAttrs):
        # By `view` and not by `make`: on another operand it may compose with a View or vanish, and
        # the invariant that no View reads a View must hold for copies too.
        return (builder.view(args[0], node.attrs.view),)
    new = builder.make(node.op.name, args, attrs or node.attrs, like or node)
    return tuple([Value(new, k) for k in range(len(new.types))])


def _split_map(
    entries: Sequence[Expression | Value],
) -> tuple[list[Value], tuple[Expression | int, ...]]:
    """The index tensors of a map and the map with each replaced by its number."""
    indices: list[Value] = []
    out: list[Expression | int] = []
    for entry in entries:
        if isinstance(entry, Value):
            out.append(Slot(len(indices)))
            indices.append(entry)
        else:
            out.append(entry)
    return indices, tuple(out)


def check_sinks(sinks: Sequence[Sink]) -> None:
    """Names are unique and no State is assigned twice; raises GraphError that names both sides."""
    names: dict[str, Value] = {}
    states: set[Assignable] = set()
    for sink in sinks:
        if isinstance(sink, Output):
            # Two outputs of one name would be one entry of the dict that a run returns.
            if sink.name in names:
                raise GraphError(
                    f"output: the name {sink.name!r} stands for {names[sink.name].type} and for "
                    f"{sink.value.type}; give one of them another name"
                )
            names[sink.name] = sink.value
        elif sink.state in states:
            raise GraphError(f"assign: {sink.state!r} is assigned twice; assign it once per run")
        else:
            states.add(sink.state)
