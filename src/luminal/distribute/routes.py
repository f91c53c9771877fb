"""Mixtures of experts on a mesh: rows go to the ranks of their experts, and come back.

A mixture orders its slots (a token's places with its experts) by their experts, computes along
that order, and reads the results back by the inverse of it. Nothing but the inverse tells where in
the order a slot lies, so any other order that has each slot once is as good. Here it becomes one
that falls into blocks, of which a rank of the mesh has one: the slots that the rank's experts are
to see, then holes. Blocks have room for all slots of the ranks that exchange rows, so none is
dropped whatever the router does.

What comes of it is a graph with the same meaning and no operation of its own, so all that follows
goes by it as by any other; marks say which dimension of it is the ranks'. The rows that enter a
block are those of the other ranks, gathered: an all_to_all with room for all would send no less.
Those that leave go back by an all_to_all. Gradients of matrices are added where the matrices are.

Where tokens are cut over axes without experts too ("data"), each of their ranks has an order of its
own. Where only these cut them, nothing crosses the mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.distribute.edges import edge_of
from luminal.distribute.mesh import EXPERT
from luminal.distribute.orders import Kind, Plan, dimension_along, dimension_of, kinds_of, plan_of
from luminal.distribute.partial import is_zero
from luminal.distribute.propagate import Sites
from luminal.hlir.attributes import (
    GatherAttrs,
    IotaAttrs,
    ScatterAttrs,
    Shape,
    ShardAttrs,
    ViewAttrs,
)
from luminal.hlir.graph import Builder, Graph, copied
from luminal.hlir.ops import Node, Value
from luminal.shape.expression import ONE, ZERO, Expression, const, product_of
from luminal.shape.view import View, index, made


def by_routes(graph: Graph, sites: Sites) -> Graph:
    """The graph with the orders of its mixtures in blocks, one for each rank that tokens are cut
    over; the graph itself where there is none. `sites`: how it would lie as it is.
    """
    kinds = kinds_of(graph)
    plans = {}
    for sort in {kind.sort: None for kind in kinds.values() if kind.what == "place"}:
        plan = plan_of(sort, kinds, graph, sites)
        if plan is not None:
            plans[sort] = plan
    return _Writer(kinds, plans).graph(graph) if plans else graph


class _Route(NamedTuple):
    """An order in blocks: `order` is the slot at each of its places."""

    plan: Plan
    extent: int  # the slots
    order: Value
    place: Value  # (groups, ranks, block): where in each block the slots of a group are
    rank: Value  # (slots,): whose block computes a slot


class _Moved(NamedTuple):
    """A value along an order, with that in blocks: it lies along `dimension`."""

    value: Value
    dimension: int
    sort: Node


class _Writer:
    """Writes a graph anew. What lies along an order has a second version, along its blocks; what
    reads results back takes them from that one, and the first, which nothing reads then, is gone.
    """

    def __init__(self, kinds: Mapping[Value, Kind], plans: Mapping[Node, Plan]) -> None:
        self._kinds, self._plans = kinds, plans
        self._builder = Builder()
        self._same: dict[Value, Value] = {}
        self._moved: dict[Value, _Moved] = {}
        self._routes: dict[Node, _Route] = {}

    def graph(self, graph: Graph) -> Graph:
        """The graph with the same sinks."""
        for node in graph.nodes():
            results = self._read_back(node)
            if results is None:
                results = copied(self._builder, node, [self._same[arg] for arg in node.args])
            for k, result in enumerate(results):
                self._same[Value(node, k)] = result
            if node in self._plans:
                self._sort(node)
            elif (moved := self._in_blocks(node)) is not None:
                self._moved[node.value] = moved
        sinks = [replace(sink, value=self._same[sink.value]) for sink in graph.sinks]
        return Graph(tuple(sinks), graph.dims, graph.requirements)

    # --- the order

    def _sort(self, node: Node) -> None:
        """Orders the slots of each group once for each rank: its own first, by their experts."""
        plan, builder = self._plans[node], self._builder
        ids = self._same[node.args[0]]
        extent = ids.shape[0].value
        shape = _shape(plan.groups, plan.ranks, plan.block)
        # All ranks of a group order all of its slots.
        groups = self._split(ids, 0, plan.groups, plan.block)
        groups = builder.make("Shard", (groups,), ShardAttrs((plan.axes, ()))).value
        apart = made(groups.shape, shape, [_at(0, shape), _at(2, shape)])
        spread = builder.view(groups, apart)
        is_slot = _at(0, shape) * plan.block + _at(2, shape) < extent
        first = self._first_experts(plan, ids.dtype, plan.ranks + 1)
        start = builder.view(first, made(first.shape, shape, [_at(1, shape)]))
        end = builder.view(first, made(first.shape, shape, [_at(1, shape) + 1]))
        none = self._filled(np.iinfo(ids.dtype.numpy).max, shape, ids.dtype)
        counted = self._from_start(spread, plan)
        keys = builder.apply("Select", builder.apply("LessThan", counted, end), spread, none)
        keys = builder.apply("Select", builder.apply("LessThan", counted, start), none, keys)
        if not is_slot.is_const:
            real = builder.iota(is_slot, shape, dtypes.bool_)
            keys = builder.apply("Select", real, keys, none)
        experts, order = (self._cut(one, plan) for one in builder.sort(keys, 2))
        zeros = self._filled(0, shape, order.dtype)
        numbers = builder.iota(_at(2, shape), shape, order.dtype)
        place = builder.scatter(zeros, [_at(0, shape), _at(1, shape), order], numbers)
        flat = _shape(plan.places)
        digits = _digits(_at(0, flat), plan)
        numbered, experts = (
            builder.view(one, made(shape, flat, digits)) for one in (order, experts)
        )
        group = builder.iota(digits[0] * plan.block, flat, order.dtype)
        whole = builder.apply("Add", numbered, group)
        self._routes[node] = _Route(plan, extent, whole, place, self._ranks_of(ids, plan))
        self._moved[Value(node, 0)] = _Moved(experts, 0, node)
        self._moved[Value(node, 1)] = _Moved(whole, 0, node)

    def _cut(self, x: Value, plan: Plan, dimension: int = 0) -> Value:
        """Marks the groups of a value, its `dimension`, and the ranks, the next, as the mesh's."""
        spec: list[tuple[str, ...]] = [()] * len(x.shape)
        spec[dimension] = plan.axes
        spec[dimension + 1] = (EXPERT,) if plan.ranks > 1 else ()
        return self._builder.make("Shard", (x,), ShardAttrs(tuple(spec))).value

    def _first_experts(self, plan: Plan, dtype: DType, count: int) -> Value:
        """The first expert of each rank; before that of the first all numbers are its own, and the
        last one's have no end.
        """
        first = np.arange(count, dtype=dtype.numpy) * plan.experts
        first[0] = np.iinfo(dtype.numpy).min
        first[plan.ranks :] = np.iinfo(dtype.numpy).max
        return self._builder.constant(first, dtype)

    def _from_start(self, ids: Value, plan: Plan) -> Value:
        """Experts of which negative ones count from the end."""
        builder = self._builder
        zero, every = (self._filled(n, ids.shape, ids.dtype) for n in (0, plan.every))
        is_negative = builder.apply("LessThan", ids, zero)
        return builder.apply("Select", is_negative, builder.apply("Add", ids, every), ids)

    def _ranks_of(self, ids: Value, plan: Plan) -> Value:
        """The rank of each slot's expert, (slots,)."""
        builder = self._builder
        shape = (ids.shape[0], const(plan.ranks))
        spread = builder.view(ids, made(ids.shape, shape, [_at(0, shape)]))
        first = self._first_experts(plan, ids.dtype, plan.ranks)
        first = builder.view(first, made(first.shape, shape, [_at(1, shape)]))
        later = builder.apply("LessThan", self._from_start(spread, plan), first)
        count = builder.sum(builder.cast(later, dtypes.int64), 1)
        last = self._filled(plan.ranks - 1, count.shape, dtypes.int64)
        minus = self._filled(-1, count.shape, dtypes.int64)
        return builder.apply("Add", last, builder.apply("Mul", count, minus))

    def _filled(self, number: int, shape: Shape, dtype: DType) -> Value:
        one = self._builder.constant(np.array(number, dtype.numpy), dtype)
        return self._builder.view(one, made((), shape, []))

    # --- along it

    def _in_blocks(self, node: Node) -> _Moved | None:
        """A value along the blocks of an order; None where it does not lie along one."""
        match node.attrs:
            case ViewAttrs(view=view):
                return self._view(node, view)
            case GatherAttrs():
                return self._gather(node, node.attrs)
            case ScatterAttrs():
                return self._entered(node, node.attrs)
        if node.op.is_pointwise or node.op.name == "After":
            return self._pointwise(node)
        moved = self._moved.get(node.args[0]) if node.args else None
        if node.op.group != "reduce" or moved is None or node.attrs.axis == moved.dimension:
            return None
        value = copied(self._builder, node, [moved.value])[0]
        dimension = moved.dimension - (node.attrs.axis < moved.dimension)
        return moved._replace(value=value, dimension=dimension)

    def _view(self, node: Node, view: View) -> _Moved | None:
        moved = self._moved.get(node.args[0])
        if moved is None:
            return None
        dimension = dimension_of(view.map[moved.dimension], view.shape)
        others = [entry for k, entry in enumerate(view.map) if k != moved.dimension]
        if dimension < 0 or _depends([*others, view.domain], dimension, view.shape):
            return None
        shape = _with(view.shape, dimension, self._routes[moved.sort].plan.places)
        entries = [*view.map]
        entries[moved.dimension] = _at(dimension, shape)
        new = made(moved.value.shape, shape, entries, view.domain)
        return moved._replace(value=self._builder.view(moved.value, new), dimension=dimension)

    def _pointwise(self, node: Node) -> _Moved | None:
        along = [moved for arg in node.args if (moved := self._moved.get(arg)) is not None]
        if not along or any(moved[1:] != along[0][1:] for moved in along):
            return None
        if node.op.name == "After":
            value = self._builder.after(along[0].value, self._same[node.args[1]])
            return along[0]._replace(value=value)
        args = [one for arg in node.args if (one := self._beside(arg, along[0])) is not None]
        if len(args) < len(node.args):
            return None
        return along[0]._replace(value=copied(self._builder, node, args)[0])

    def _beside(self, arg: Value, moved: _Moved) -> Value | None:
        """An operand beside one along an order; None where it differs along it in another way."""
        if arg in self._moved:
            return self._moved[arg].value
        places = self._routes[moved.sort].plan.places
        match arg.node.attrs:
            case ViewAttrs(view=view):
                if _depends([*view.map, view.domain], moved.dimension, view.shape):
                    return None
                source = self._same[arg.node.args[0]]
                shape = _with(view.shape, moved.dimension, places)
                new = made(source.shape, shape, view.map, view.domain)
                return self._builder.view(source, new)
            case IotaAttrs(expr=expr, shape=shape):
                if _depends([expr], moved.dimension, shape):
                    return None
                return self._builder.iota(expr, _with(shape, moved.dimension, places), arg.dtype)
        return None

    def _gather(self, node: Node, attrs: GatherAttrs) -> _Moved | None:
        """What is looked up along an order: rows of slots, matrices of experts, or anything."""
        source, *indices = node.args
        along = [self._moved[arg] for arg in indices if arg in self._moved]
        inside = self._moved.get(source)
        if inside is not None:
            dimension = dimension_of(attrs.map[inside.dimension], attrs.shape)
            along.append(inside._replace(dimension=dimension))
        if not along or any(moved[1:] != along[0][1:] for moved in along):
            return None
        at = along[0]
        if self._kinds.get(node.value) == (at.sort, "experts"):
            return self._moved[Value(at.sort, 0)]  # they are what was sorted
        beside = [self._beside(arg, at) for arg in indices]
        fixed = [
            entry
            for k, entry in enumerate(attrs.map)
            if not (isinstance(entry, int) or (inside is not None and k == inside.dimension))
        ]
        if at.dimension < 0 or None in beside or _depends(fixed, at.dimension, attrs.shape):
            return None
        shape = _with(attrs.shape, at.dimension, self._routes[at.sort].plan.places)
        entries: list[Expression | Value] = []
        new = self._same[source] if inside is None else inside.value
        for k, entry in enumerate(attrs.map):
            if not isinstance(entry, int):
                is_along = inside is not None and k == inside.dimension
                entries.append(_at(at.dimension, shape) if is_along else entry)
                continue
            number = beside[entry]
            assert number is not None
            kind = self._kinds.get(indices[entry]) if inside is None else None
            new, looked_up = self._looked_up_in(new, len(entries), kind, number, at)
            entries += looked_up
        return at._replace(value=self._builder.gather(new, shape, entries))

    def _looked_up_in(
        self, source: Value, dimension: int, kind: Kind | None, number: Value, at: _Moved
    ) -> tuple[Value, list[Expression | Value]]:
        """A source with a dimension in which integers along an order look up, cut into what a rank
        knows by its place on the mesh and what integers say, with the entries of the two.
        """
        plan = self._routes[at.sort].plan
        group, rank, _ = _digits(_at(at.dimension, number.shape), plan)
        extent = source.shape[dimension]
        if kind == (at.sort, "order") and extent == self._routes[at.sort].extent:
            digit, outer, inner = group, plan.groups, plan.block
        elif kind == (at.sort, "experts") and plan.ranks > 1 and extent == plan.every:
            digit, outer, inner = rank, plan.ranks, plan.experts
        else:
            return source, [number]
        back = self._builder.iota(digit * -inner, number.shape, number.dtype)
        within = self._builder.apply("Add", number, back)
        return self._split(source, dimension, outer, inner), [digit, within]

    def _split(self, x: Value, dimension: int, outer: int, inner: int) -> Value:
        """The value with a dimension as two, which may have room for more: zeros."""
        extent = x.shape[dimension]
        shape = (*x.shape[:dimension], const(outer), const(inner), *x.shape[dimension + 1 :])
        entries = [_at(k + (k > dimension), shape) for k in range(len(x.shape))]
        entries[dimension] = _at(dimension, shape) * inner + _at(dimension + 1, shape)
        inside = entries[dimension] < extent
        return self._builder.view(x, made(x.shape, shape, entries, inside))

    def _joined(self, x: Value, dimension: int, extent: Expression) -> Value:
        """The value with two dimensions as one of this extent, which lacks what is behind it."""
        inner = x.shape[dimension + 1]
        shape = (*x.shape[:dimension], extent, *x.shape[dimension + 2 :])
        entries = [_at(k - (k > dimension), shape) for k in range(len(x.shape))]
        entries[dimension] = _at(dimension, shape) // inner
        entries[dimension + 1] = _at(dimension, shape) % inner
        return self._builder.view(x, made(x.shape, shape, entries))

    # --- into it and out of it

    def _entered(self, node: Node, attrs: ScatterAttrs) -> _Moved | None:
        """What slots are given at their places in an order, as gradients of results are."""
        permuted = self._permuted(node, attrs, "place")
        if permuted is None or node.args[1] in self._moved or not is_zero(node.args[0]):
            return None
        dimension, sort = permuted
        route = self._routes[sort]
        shape = _with(node.args[1].shape, dimension, route.plan.places)
        at = _Moved(route.order, dimension, sort)
        return at._replace(value=self._gathered(self._same[node.args[1]], shape, at))

    def _gathered(self, x: Value, shape: Shape, at: _Moved) -> Value:
        """Rows of slots along the blocks of an order."""
        node = x.node
        operands = [edge_of(arg).value for arg in node.args]
        if node.op.is_pointwise and _size(operands) < _size([x]):
            # What it is made of is less, as where a token's gradient is weighted for each slot.
            args = [self._gathered(arg, shape, at) for arg in node.args]
            return copied(self._builder, node, args)[0]
        k = at.dimension
        number = self._builder.view(at.value, made(at.value.shape, shape, [_at(k, shape)]))
        entries: list[Expression | Value] = [_at(d, shape) for d in range(len(shape))]
        source, entries[k : k + 1] = self._looked_up_in(x, k, Kind(at.sort, "order"), number, at)
        return self._builder.gather(source, shape, entries)

    def _read_back(self, node: Node) -> tuple[Value, ...] | None:
        """What is read of an order by slots, or added to experts; None for anything else."""
        match node.attrs:
            case GatherAttrs() as attrs:
                value = self._looked_up(node, attrs)
            case ScatterAttrs(mode="add") as attrs:
                value = self._returned(node, attrs)
                if value is None:
                    value = self._added(node, attrs)
            case _:
                return None
        return None if value is None else (value,)

    def _looked_up(self, node: Node, attrs: GatherAttrs) -> Value | None:
        """Results that are read by the places of slots."""
        source, *indices = node.args
        moved = self._moved.get(source)
        if moved is None or any(arg in self._moved for arg in indices):
            return None
        entry = attrs.map[moved.dimension]
        if not isinstance(entry, int) or self._kinds.get(indices[entry]) != (moved.sort, "place"):
            return None
        entries: list[Expression | Value] = [
            self._same[indices[other]] if isinstance(other, int) else other for other in attrs.map
        ]
        entries[moved.dimension] = _at(dimension_along(indices[entry]), attrs.shape)
        back = self._back(moved)
        if any(isinstance(other, Value) for other in entries):
            return self._builder.gather(back, attrs.shape, entries)
        view = made(back.shape, attrs.shape, [e for e in entries if isinstance(e, Expression)])
        return self._builder.view(back, view)

    def _returned(self, node: Node, attrs: ScatterAttrs) -> Value | None:
        """What is added to slots along an order, as gradients of their rows are."""
        permuted = self._permuted(node, attrs, "order")
        moved = self._moved.get(node.args[1])
        if permuted is None or moved is None or (moved.dimension, moved.sort) != permuted:
            return None
        back = self._back(moved)
        dest = node.args[0]
        return back if is_zero(dest) else self._builder.apply("Add", self._same[dest], back)

    def _permuted(self, node: Node, attrs: ScatterAttrs, what: str) -> tuple[int, Node] | None:
        """The dimension along which a Scatter adds by a permutation of slots, and the order; None
        where it does something else.
        """
        if attrs.mode != "add" or len(node.args) != 3:
            return None
        shape, kind = node.args[1].shape, self._kinds.get(node.args[2])
        if kind is None or kind.what != what or kind.sort not in self._routes:
            return None
        dimension = dimension_along(node.args[2])
        identity: list[Expression | int] = [_at(k, shape) for k in range(len(shape))]
        entries = [*attrs.map]
        if len(entries) != len(identity) or not isinstance(entries[dimension], int):
            return None
        entries[dimension] = identity[dimension]
        is_own = entries == identity and node.args[0].shape == shape
        return (dimension, kind.sort) if is_own else None

    def _added(self, node: Node, attrs: ScatterAttrs) -> Value | None:
        """What is added to experts along an order, as gradients of their matrices are."""
        dest, source, *indices = node.args
        along = [self._moved[arg] for arg in (source, *indices) if arg in self._moved]
        if not along or any(moved[1:] != along[0][1:] for moved in along):
            return None
        at = along[0]
        beside = [self._beside(arg, at) for arg in (source, *indices)]
        fixed = [entry for entry in attrs.map if not isinstance(entry, int)]
        kinds = [self._kinds.get(arg) for arg in indices]
        if None in beside or _depends(fixed, at.dimension, source.shape):
            return None
        if kinds.count(Kind(at.sort, "experts")) != 1:
            return None  # a hole may be added only where no expert is
        entries: list[Expression | Value] = []
        new, split = self._same[dest], -1
        for entry in attrs.map:
            if not isinstance(entry, int):
                entries.append(entry)
                continue
            number, here = beside[1 + entry], len(entries)
            assert number is not None
            is_expert = kinds[entry] == (at.sort, "experts")
            kind = kinds[entry] if is_expert else None
            new, looked_up = self._looked_up_in(new, here, kind, number, at)
            split = here if len(looked_up) > 1 else split
            entries += looked_up
        rows = beside[0]
        assert rows is not None
        out = self._builder.scatter(new, entries, rows, "add")
        return out if split < 0 else self._joined(out, split, dest.shape[split])

    def _back(self, moved: _Moved) -> Value:
        """What lies along an order by slots: each from the block of its expert's rank."""
        route, builder, k = self._routes[moved.sort], self._builder, moved.dimension
        plan, x = route.plan, moved.value
        x = self._split(x, k, plan.groups * plan.ranks, plan.block)
        x = self._split(x, k, plan.groups, plan.ranks)
        place = made(route.place.shape, x.shape, [_at(k + i, x.shape) for i in range(3)])
        entries: list[Expression | Value] = [_at(i, x.shape) for i in range(len(x.shape))]
        entries[k + 2] = builder.view(route.place, place)
        by_slot = self._cut(builder.gather(x, x.shape, entries), plan, k)
        shape = _with(moved.value.shape, k, route.extent)
        slot, read = _at(k, shape), [_at(i, shape) for i in range(len(shape))]
        read[k : k + 1] = [slot // plan.block, ZERO, slot % plan.block]
        if plan.ranks == 1:
            return builder.view(by_slot, made(by_slot.shape, shape, read))
        entries = [*read]
        entries[k + 1] = builder.view(route.rank, made(route.rank.shape, shape, [slot]))
        return builder.gather(by_slot, shape, entries)


def _shape(*extents: int) -> Shape:
    return tuple(map(const, extents))


def _at(dimension: int, shape: Shape) -> Expression:
    """The own position along a dimension."""
    return ZERO if shape[dimension] == ONE else index(dimension, shape[dimension])


def _with(shape: Shape, dimension: int, extent: int) -> Shape:
    return (*shape[:dimension], const(extent), *shape[dimension + 1 :])


def _depends(entries: Sequence[Expression | int], dimension: int, shape: Shape) -> bool:
    """Does any of the Expressions differ along the dimension?"""
    at = index(dimension, shape[dimension])
    return any(not isinstance(entry, int) and at in entry.symbols() for entry in entries)


def _digits(place: Expression, plan: Plan) -> tuple[Expression, Expression, Expression]:
    """The group, the rank and the place in its block of a place in an order."""
    within = place // plan.block
    return within // plan.ranks, within % plan.ranks, place % plan.block


def _size(values: Sequence[Value]) -> int:
    """The bytes of values; those of dims count as one."""
    sizes = (product_of(value.shape) * value.dtype.size for value in values)
    return sum(size.value if size.is_const else 1 for size in sizes)
