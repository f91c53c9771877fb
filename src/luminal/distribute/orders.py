"""The orders of mixtures of experts in a graph, and how their slots are to lie on ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple

from luminal.base import dtypes
from luminal.base.records import dataclass
from luminal.distribute.edges import edge_of
from luminal.distribute.layout import Cut, of_axes
from luminal.distribute.mesh import EXPERT
from luminal.distribute.partial import is_zero
from luminal.distribute.propagate import Sites
from luminal.hlir.attributes import GatherAttrs, IotaAttrs, ScatterAttrs, Shape, ViewAttrs
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node, Value
from luminal.shape.expression import TRUE, Expression
from luminal.shape.view import index

_INDICES = (dtypes.int32, dtypes.int64)


class Kind(NamedTuple):
    """What integers are: `what` is "order" (the slot at each place of an order), "experts" (its
    expert) or "place" (where in the order each slot is).
    """

    sort: Node
    what: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How the slots of one order lie on ranks: `groups` of `ranks` ranks have `slots` each; a rank
    along the axis "expert" has `experts` experts, one after the other, of `every`. `axes` are those
    that cut slots without experts.
    """

    axes: tuple[str, ...]
    groups: int
    ranks: int
    slots: int
    experts: int
    every: int

    @property
    def block(self) -> int:
        """The room of a rank's part of the order: for all slots of its group."""
        return self.ranks * self.slots

    @property
    def places(self) -> int:
        """The extent of the order."""
        return self.groups * self.ranks * self.block


def kinds_of(graph: Graph) -> dict[Value, Kind]:
    """What the integers are that are made of sorted ones."""
    kinds: dict[Value, Kind] = {}
    for node in graph.nodes():
        match node.attrs:
            case ViewAttrs(view=view):
                kind = kinds.get(node.args[0])
                if kind and view.domain is TRUE and dimension_of(view.map[0], view.shape) >= 0:
                    kinds[node.value] = kind
            case GatherAttrs(map=(int(),)):
                kind = kinds.get(node.args[1])
                if kind and kind == (kind.sort, "order") and node.args[0] == kind.sort.args[0]:
                    kinds[node.value] = Kind(kind.sort, "experts")
            case ScatterAttrs(map=(int(),), mode="set"):
                kind = kinds.get(node.args[2])
                if kind and kind == (kind.sort, "order") and _counts(node.args[1]):
                    kinds[node.value] = Kind(kind.sort, "place")
            case _ if node.op.name == "Sort" and len(node.types[0].shape) == 1:
                if node.args[0].dtype in _INDICES:
                    kinds[Value(node, 0)] = Kind(node, "experts")
                    kinds[Value(node, 1)] = Kind(node, "order")
            case _:
                source = _wrapped(node)
                if source in kinds:
                    kinds[node.value] = kinds[source]
    return kinds


def _wrapped(node: Node) -> Value | None:
    """The integers that a node has as others of another width, or with negative ones counted from
    the end.
    """
    if node.op.name == "Cast" and node.types[0].dtype in _INDICES:
        return node.args[0]
    if node.op.name != "Select":
        return None
    is_negative, from_end, x = node.args
    below, added = is_negative.node, from_end.node
    if below.op.name != "LessThan" or below.args[0] != x or not is_zero(below.args[1]):
        return None
    return x if added.op.name == "Add" and added.args[0] == x else None


def _counts(value: Value) -> bool:
    """Is it 0, 1, 2, ...?"""
    attrs = value.node.attrs
    return isinstance(attrs, IotaAttrs) and attrs.expr == index(0, value.shape[0])


def dimension_of(entry: Expression | int, shape: Shape) -> int:
    """The dimension of a shape whose own position an entry of a map is; -1 where it is none's."""
    for k, extent in enumerate(shape):
        if entry == index(k, extent):
            return k
    return -1


def dimension_along(value: Value) -> int:
    """The dimension along which integers of a kind differ."""
    attrs = value.node.attrs
    return dimension_of(attrs.view.map[0], value.shape) if isinstance(attrs, ViewAttrs) else 0


def plan_of(sort: Node, kinds: Mapping[Value, Kind], graph: Graph, sites: Sites) -> Plan | None:
    """How the slots of an order are to lie; None where they are whole or lie in another way."""
    extent = sort.types[0].shape[0]
    ids = sort.args[0]
    if not extent.is_const:
        return None
    cuts = _cuts(ids, 0, sites)
    is_nested = all(a.block == b.period for a, b in itertools.pairwise(cuts))
    if not cuts or not is_nested or not cuts[-1].block.is_const:
        return None
    if cuts[0].period.value < extent.value:
        return None  # an inner digit of the positions
    looked_up = {
        (cut.block.value, _extent(node, dimension))
        for node in graph.nodes()
        if isinstance(node.attrs, GatherAttrs)
        for dimension, entry in enumerate(node.attrs.map)
        if isinstance(entry, int) and kinds.get(node.args[1 + entry]) == (sort, "experts")
        for cut in _cuts(node.args[0], dimension, sites)
        if cut.axis == EXPERT and cut.block.is_const
    }
    slots = cuts[-1].block.value
    names = tuple(cut.axis for cut in cuts)
    if len(looked_up) == 1 and names[-1] == EXPERT:  # all matrices are cut alike
        ((experts, every),) = looked_up
        ranks = cuts[-1].ranks
        groups = math.prod(cut.ranks for cut in cuts[:-1])
        return Plan(names[:-1], groups, ranks, slots, experts, every)
    return Plan(names, math.prod(cut.ranks for cut in cuts), 1, slots, 0, 0)


def _extent(node: Node, dimension: int) -> int:
    """The literal extent of a dimension of a Gather's source; 0 where it is none."""
    extent = node.args[0].shape[dimension]
    return extent.value if extent.is_const else 0


def _cuts(value: Value, dimension: int, sites: Sites) -> tuple[Cut, ...]:
    """The cuts of a dimension of a value, which may be a View."""
    edge = edge_of(value)
    return of_axes(len(value.shape), edge.of_user(sites.value(edge.value).cuts))[dimension]
