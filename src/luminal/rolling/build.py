"""A block in which layers have become one Loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np

from luminal.base.dtypes import uint8
from luminal.base.lines import to_last
from luminal.base.records import dataclass
from luminal.hlir.attributes import Body, LoopAttrs, Shape
from luminal.hlir.graph import Assign, Builder, Output, Sink, copied
from luminal.hlir.ops import Value
from luminal.hlir.types import TensorType
from luminal.memory.state import Assignable
from luminal.rolling.block import NodeTable, is_slice
from luminal.rolling.cost import Inlining
from luminal.rolling.kept import BodyResult, handed_out
from luminal.rolling.match import Again, Carried, Fixed, Inner, Layers, Ref, Stream
from luminal.shape.expression import Expression, const
from luminal.shape.view import View, identity, index, made

Location = tuple[int, int]
"""(iteration t, node m of the body)."""


@dataclass(slots=True)
class _Demand:
    """What is read of the iterations from outside, and the States that take it at the end."""

    values: dict[Value, None] = field(default_factory=dict)
    states: dict[Value, list[Assignable]] = field(default_factory=dict)


def replaced(
    block: NodeTable,
    sinks: Sequence[Sink],
    layers: Layers,
    shrink: Callable[[Body], Body],
    others: Sequence[Sink] = (),
) -> list[Sink] | None:
    """The sinks with a Loop in place of the layers; `shrink` may roll its body, `others` are sinks
    of the graph that are not in the block.

    None if what the layers read from outside depends on them.
    """
    inside = {n: (t, m) for t, nodes in enumerate(layers.iterations) for m, n in enumerate(nodes)}
    late = _dependants(block, inside)
    outside = [value for refs in layers.refs for ref in refs for value in _values(ref)]
    outside += [carry.first for carry in layers.carries]
    # A Loop has all that it reads from outside before it begins.
    if any(late[block.number[value.node]] for value in outside):
        return None
    demand = _demand(block, sinks, inside, late)
    again = _computed_again(block, layers, inside, demand)
    loop = _Loop(block, layers, inside, demand, shrink, Inlining(block.costs.weights))
    loop.build()
    for value in again:
        args = [loop.values.get(arg, arg) for arg in value.node.args]
        for k, made_again in enumerate(copied(loop.outer, value.node, args)):
            loop.values[Value(value.node, k)] = made_again
    values = _rebuilt(block, inside, late, loop.begun | loop.values, loop.outer)
    out: list[Sink] = []
    for sink in sinks:
        value = sink.value if sink.value in loop.begun else values.get(sink.value, sink.value)
        if isinstance(sink, Output):
            out.append(Output(value, sink.name, sink.hidden))
        elif sink.state not in loop.assigned:
            out.append(Assign(sink.state, value))
    if not demand.values:  # the Loop runs for its States only
        out.append(Output(loop.results[-1], _unused([*sinks, *others]), hidden=True))
    return out


def _unused(sinks: Sequence[Sink]) -> str:
    """A name that no output has."""
    names, number = {sink.name for sink in sinks if isinstance(sink, Output)}, 0
    while f"loop{number}" in names:
        number += 1
    return f"loop{number}"


def _values(ref: Ref) -> Sequence[Value]:
    match ref:
        case Stream(values=values):
            return values
        case Fixed(value=value):
            return (value,)
    return ()


def _dependants(block: NodeTable, inside: Mapping[int, Location]) -> list[bool]:
    """A flag for each node: is it of the layers, or does it depend on them?"""
    # Only these nodes are recorded anew; all others stay the objects that they are, which keeps the
    # cost of rolling proportional to what it changes.
    late = [False] * len(block.nodes)
    for n in inside:
        late[n] = True
    # Operands have smaller numbers: nothing before the first of them depends on them.
    for n in range(min(inside), len(late)):
        if not late[n]:
            late[n] = any(late[a] for a in block.args[n])
    return late


def _demand(
    block: NodeTable, sinks: Sequence[Sink], inside: Mapping[int, Location], late: Sequence[bool]
) -> _Demand:
    demand = _Demand()
    for n in itertools.compress(range(len(late)), late):
        if n not in inside:
            for a, value in zip(block.args[n], block.nodes[n].args, strict=True):
                if a in inside:
                    demand.values[value] = None
    for sink in sinks:
        if block.number[sink.value.node] in inside:
            if isinstance(sink, Output):
                demand.values[sink.value] = None
            else:
                demand.states.setdefault(sink.value, []).append(sink.state)
    return demand


def _computed_again(
    block: NodeTable, layers: Layers, inside: Mapping[int, Location], demand: _Demand
) -> list[Value]:
    """What is demanded and not handed out, with all that is needed on the way to it, operands
    first; in its place what that is computed from is demanded.
    """
    last = len(layers.iterations) - 1
    places: dict[BodyResult, set[int]] = {}
    for value in demand.values:
        t, m = inside[block.number[value.node]]
        places.setdefault((m, value.index), set()).add(t)
    # What is read of the last iteration only is where
    # a carried value ends: no tensor of all of them.
    kept = handed_out(block, layers, [place for place, read in places.items() if read != {last}])
    order: dict[Value, None] = {}
    stack = []
    for value in [*demand.values]:
        place = inside[block.number[value.node]][1], value.index
        if place not in kept and places[place] != {last}:
            del demand.values[value]
            stack.append(value)
    while stack:
        value = stack[-1]
        waiting = []
        for n, arg in zip(block.args[block.number[value.node]], value.node.args, strict=True):
            if n in inside and arg not in order:
                if (inside[n][1], arg.index) in kept:
                    demand.values[arg] = None
                else:
                    waiting.append(arg)
        if value in order or not waiting:
            order.setdefault(stack.pop())
        else:
            stack += reversed(waiting)
    return [*order]


@dataclass(slots=True)
class _Loop:
    """The Loop in the making: its body, and what stands for the layers' values outside."""

    block: NodeTable
    layers: Layers
    inside: Mapping[int, Location]
    demand: _Demand
    shrink: Callable[[Body], Body]
    inlining: Inlining
    outer: Builder = field(default_factory=Builder)  # of all that depends on the Loop
    inner: Builder = field(default_factory=Builder)  # of the body
    streams: dict[Value | tuple[Value, ...], Value] = field(default_factory=dict)
    invariants: dict[Value, Value] = field(default_factory=dict)
    again: dict[Value, Value] = field(default_factory=dict)  # what invariants are in the body
    values: dict[Value, Value] = field(default_factory=dict)
    begun: dict[Value, Value] = field(default_factory=dict)  # carried values, as first slices
    assigned: set[Assignable] = field(default_factory=set)
    results: tuple[Value, ...] = ()

    def build(self) -> None:
        # A value that the next iteration needs is carried; one that something outside needs of
        # every iteration is a y, a tensor with the trips as its leading axis. What an iteration
        # begins with is handed out in place of what the one before it ends with: one tensor serves
        # both readers.
        layers, trips = self.layers, len(self.layers.iterations)
        places = self._places()
        assigned = self._assigned(places)
        finals, ys = self._split(places, assigned)
        carried = [self._argument(carry.first.type) for carry in layers.carries]
        results_inside = self._body(carried)

        def result(ref: Inner | Carried) -> Value:
            return carried[ref.k] if isinstance(ref, Carried) else results_inside[ref.m][ref.index]

        begun = {p: k for p in ys if p not in assigned and (k := self._carried_as(p)) is not None}
        results = [result(carry.next) for carry in layers.carries]
        results += [carried[begun[p]] if p in begun else results_inside[p[0]][p[1]] for p in ys]
        if not self.demand.values:  # something to ask it for
            results.append(self.inner.constant(np.zeros((), np.uint8), uint8))
        arguments = [*carried, *self.streams.values(), *self.invariants.values()]
        body = self.shrink(Body(tuple([a.node for a in arguments]), tuple(results)))
        self.results = self.outer.loop(
            const(trips),
            body,
            [carry.first for carry in layers.carries],
            [*self.streams],
            [*self.invariants],
            tuple([assigned.get(place) for place in ys] + [None] * (not self.demand.values)),
        )
        for place, k in finals.items():
            self.values[self._at(trips - 1, place)] = self.results[k]
        for k, place in enumerate(ys, len(layers.carries)):
            if place in begun:
                carry = begun[place]
                self.begun[layers.carries[carry].first] = self._slice(self.results[k], 0)
                # No iteration begins with what the last one
                # computes: that is where the carried value ends.
                self.values.setdefault(self._at(trips - 1, place), self.results[carry])
            for t in range(trips):
                # What iteration t computes is what iteration t + 1 began with.
                value, slice_ = self._at(t, place), t + (place in begun)
                if value in self.demand.values and value not in self.values:
                    self.values[value] = self._slice(self.results[k], slice_)

    def _carried_as(self, place: BodyResult) -> int | None:
        """The carried value that a place becomes in the next iteration. What each iteration began
        with is handed out in its stead: of all iterations that is one tensor, the first included.
        """
        for k, carry in enumerate(self.layers.carries):
            if (
                carry.next == Inner(*place)
                and not self.block.is_leaf[self.block.number[carry.first.node]]
            ):
                return k
        return None

    def _at(self, t: int, place: BodyResult) -> Value:
        m, r = place
        return Value(self.block.nodes[self.layers.iterations[t][m]], r)

    def _places(self) -> dict[BodyResult, set[int]]:
        """The iterations of which each value is demanded, by a State or otherwise."""
        by_place: dict[BodyResult, set[int]] = {}
        for value in (*self.demand.values, *self.demand.states):
            t, m = self.inside[self.block.number[value.node]]
            by_place.setdefault((m, value.index), set()).add(t)
        return by_place

    def _assigned(
        self, places: Mapping[BodyResult, set[int]]
    ) -> dict[BodyResult, tuple[Assignable, ...]]:
        """Values that a State takes in every iteration; other States take slices of a y."""
        by_place: dict[BodyResult, tuple[Assignable, ...]] = {}
        for place in places:
            values = [self._at(t, place) for t in range(len(self.layers.iterations))]
            # Of several States that take one value the first
            # go with each other, the others take slices.
            if all(value in self.demand.states for value in values):
                by_place[place] = tuple([self.demand.states[value].pop(0) for value in values])
                self.assigned.update(by_place[place])
        for value, states in self.demand.states.items():
            if states:
                self.demand.values[value] = None
        return by_place

    def _split(
        self,
        places: Mapping[BodyResult, set[int]],
        assigned: Mapping[BodyResult, tuple[Assignable, ...]],
    ) -> tuple[dict[BodyResult, int], list[BodyResult]]:
        """Values read of the last iteration only, each a carried value, and the ys."""
        last = len(self.layers.iterations) - 1
        finals: dict[BodyResult, int] = {}
        ys = []
        for place in places:
            read = {t for t in places[place] if self._at(t, place) in self.demand.values}
            if read == {last}:
                carry = self._final(place)
                if carry is not None:
                    finals[place] = carry
                    read = set()
            if read or place in assigned:
                ys.append(place)
        return finals, ys

    def _final(self, place: BodyResult) -> int | None:
        """The carried value that ends as a value of the last iteration."""
        following = Inner(*place)
        for k, carry in enumerate(self.layers.carries):
            if carry.next == following:
                return k
        type_ = self._at(0, place).type
        for carry in self.layers.carries:
            if carry.first.type == type_:  # it starts as anything: nobody reads that
                return self.layers.carry(carry.first, following).k
        return None

    def _slice(self, y: Value, t: int) -> Value:
        return self.outer.view(y, _slice_view(y.shape, const(t)))

    # --- the body

    def _argument(self, type_: TensorType) -> Value:
        return self.inner.input(f"arg{len(self.inner)}", *type_)

    def _body(self, carried: Sequence[Value]) -> list[tuple[Value, ...]]:
        """The results of each node of the body."""
        results: list[tuple[Value, ...]] = []
        nodes, iterations = self.block.nodes, self.layers.iterations
        for n, last, refs in zip(iterations[0], iterations[-1], self.layers.refs, strict=True):
            args = [self._operand(ref, carried, results) for ref in refs]
            both = to_last(nodes[n].recorded, nodes[last].recorded)
            results.append(copied(self.inner, nodes[n], args, like=both))
        return results

    def _operand(
        self, ref: Ref, carried: Sequence[Value], results: Sequence[tuple[Value, ...]]
    ) -> Value:
        match ref:
            case Inner(m=m, index=r):
                return results[m][r]
            case Carried(k=k):
                return carried[k]
            case Stream(values=values):
                return self._stream(values)
            case Again(value=value) | Fixed(value=value):
                return self._invariant(value)

    def _stream(self, values: tuple[Value, ...]) -> Value:
        """The value that an iteration reads of these, one for each: where they are slices of one
        tensor, taken at even distances, that tensor is walked, and the body has what they do with a
        slice, or what equal views do.
        """
        sliced = _slices_of_one(values)
        view = _equal_view(values)
        if sliced is None and view is not None:
            return self.inner.view(self._stream(tuple([v.node.args[0] for v in values])), view)
        if sliced is None:
            if values not in self.streams:
                self.streams[values] = self._argument(values[0].type)
            return self.streams[values]
        whole, view, first, step = sliced
        trips, rest = const(len(values)), whole.shape[1:]
        entries = [first + step * index(0, trips), *(index(k, n) for k, n in enumerate(rest, 1))]
        walked = self.outer.view(whole, made(whole.shape, (trips, *rest), entries))
        if walked not in self.streams:
            self.streams[walked] = self._argument(TensorType(rest, whole.dtype))
        return self.inner.view(
            self.streams[walked], made(rest, view.shape, view.map[1:], view.domain)
        )

    def _invariant(self, value: Value) -> Value:
        """A value from outside: computed in the body where that costs less than reading it."""
        stack = [value]
        while stack:
            top = stack[-1]
            if top in self.again:
                stack.pop()
            elif self.inlining.is_load(top.node):
                self.again[top] = self.invariants[top] = self._argument(top.type)
            elif waiting := [arg for arg in top.node.args if arg not in self.again]:
                stack += reversed(waiting)
            else:
                args = [self.again[arg] for arg in top.node.args]
                (self.again[top],) = copied(self.inner, top.node, args)
        return self.again[value]


# A stream whose entries are slices of one tensor, in even steps, needs no copy: the launch has a
# start and a stride, which may be negative (a backward Loop walks them from the end).
def _slices_of_one(values: tuple[Value, ...]) -> tuple[Value, View, int, int] | None:
    """A tensor, what these views do with a slice of it, all alike, and the first and the distance
    of the slices that they read.
    """
    taken = [value for value in values if is_slice(value.node)]
    if not taken or len(values) < 2:
        return None
    first = taken[0].node
    whole, view = first.args[0], first.attrs.view
    begun, rest = _begun(whole), whole.shape[1:]
    of_slice = made(rest, view.shape, view.map[1:], view.domain)
    places = []
    for value in values:
        if is_slice(value.node) and value.node.args[0] == whole:
            here = value.node.attrs.view
            if (here.map[1:], here.domain, here.shape) != (view.map[1:], view.domain, view.shape):
                return None
            places.append(here.map[0].value)
        # What a carried value starts as is slice 0 of what iterations began with.
        elif begun is not None and _is_view_of(value, begun, of_slice):
            places.append(0)
        else:
            return None
    # An operand that moves with a Loop has one stride.
    steps = {b - a for a, b in itertools.pairwise(places)}
    return (whole, view, places[0], steps.pop()) if len(steps) == 1 else None


def _is_view_of(value: Value, source: Value, view: View) -> bool:
    if view == identity(source.shape):
        return value == source
    is_view = value.node.op.name == "View" and value.node.args[0] == source
    return is_view and value.node.attrs.view == view


def _equal_view(values: tuple[Value, ...]) -> View | None:
    """The view that all values are, each of another value of one type."""
    first = values[0].node
    for value in values:
        if value.node.op.name != "View" or value.node.attrs != first.attrs:
            return None
        if value.node.args[0].type != first.args[0].type:
            return None
    return first.attrs.view  # type: ignore[no-any-return]


def _begun(whole: Value) -> Value | None:
    """What a carried value starts as, where `whole` has what every iteration began with."""
    attrs: LoopAttrs = whole.node.attrs
    result = attrs.body.results[whole.index]
    for k, argument in enumerate(attrs.body.arguments[: attrs.carried]):
        if result == argument.value:
            return whole.node.args[k]
    return None


def _slice_view(shape: Shape, place: Expression) -> View:
    """The view of one slice of the leading axis."""
    rest = shape[1:]
    return made(shape, rest, [place, *(index(k, n) for k, n in enumerate(rest))])


def _rebuilt(
    block: NodeTable,
    inside: Mapping[int, Location],
    late: Sequence[bool],
    values: dict[Value, Value],
    builder: Builder,
) -> dict[Value, Value]:
    """What stands for each value that depends on `values`; all other nodes stay as they are."""
    new_values = dict(values)
    for n in itertools.compress(range(len(late)), late):
        if n in inside:
            continue
        node = block.nodes[n]
        results = copied(builder, node, [new_values.get(arg, arg) for arg in node.args])
        new_values |= {Value(node, k): result for k, result in enumerate(results)}
    return new_values
