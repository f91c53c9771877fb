"""Rings: softmaxes whose queries and keys are cut over one mesh axis, done chunk after chunk.

A product of queries and keys has a dimension of each. Where one mesh axis cuts both, a rank has the
scores of its own queries only, and would need all keys for them. What is computed of the scores
position by position is here a *region*: the sites that have both dimensions, whatever they are (a
mask, a scale, dropout, the gradients of scores). It ends in reductions over the keys, as a maximum
or a sum of weighted values, and in reductions over the queries, as gradients of keys and values.
Both may be done chunk by chunk of the keys, since their monoids are associative: `ring_steps` does
that, and no rank has more of the keys than two chunks.

Nothing here knows attention: a region is found by the links along which cuts spread (`propagate`).
Which reductions need the end of others says in which *pass* they are, each once around the ring; a
sum that only follows a maximum goes along with it (as in `kernel.cascade`, case b).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from luminal.base.records import dataclass
from luminal.distribute.edges import Edge, edge_of
from luminal.distribute.layout import AHEAD, Cut, Layout, by_axis, of_axes
from luminal.distribute.propagate import Site, Sites
from luminal.hlir.attributes import ConstantAttrs, WeightAttrs
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node, Value
from luminal.shape.expression import TRUE, Expression, product_of
from luminal.shape.view import identity, index

Place = tuple[int, Cut]
"""A dimension of a site and the digit of it that a mesh axis takes."""


class Rate(NamedTuple):
    """What a sum is multiplied by when a maximum moves: `base` (Exp, Exp2) of `factor` times it;
    `edge` reads the maximum at the positions of the sum.
    """

    base: str
    factor: float
    edge: Edge


@dataclass(slots=True)
class Pass:
    """The reductions of one way around the ring, and the nodes that each chunk is taken through.

    `maximum`: that of which the sums in `rates` follow. `begins`: the last value that a pass but
    the first waits for.
    """

    over_keys: list[Node] = field(default_factory=list)
    over_queries: list[Node] = field(default_factory=list)
    rates: dict[Node, Rate] = field(default_factory=dict)
    maximum: Node | None = None
    nodes: list[Node] = field(default_factory=list)
    begins: Value | None = None


@dataclass(slots=True)
class Ring:
    """A region, and how it is cut: `queries` and `keys` have the place of each of its sites."""

    axis: str
    ranks: int
    queries: dict[Site, Place]
    keys: dict[Site, Place]
    nodes: set[Node] = field(default_factory=set)
    over_keys: list[Node] = field(default_factory=list)
    over_queries: list[Node] = field(default_factory=list)
    ends: dict[Node, Node] = field(default_factory=dict)
    """Of reductions over queries the last sum that follows them, which is what is sent."""

    def on(self, old: Sites, new: Sites) -> Ring:
        """This ring on other sites of its graph."""
        same = {old.positions[node]: site for node, site in new.positions.items()}
        same |= {old.values[value]: site for value, site in new.values.items()}
        queries, keys = (
            {same[site]: place for site, place in places.items() if site in same}
            for places in (self.queries, self.keys)
        )
        return replace(self, queries=queries, keys=keys)

    def close(self, sites: Sites) -> list[Site]:
        """Keeps the sites whole along the keys; those that are given the cut of the keys, as
        reductions over the queries are.
        """
        for site in self.queries:
            site.closed |= {self.keys[site][0]}
        ends = [sites.value(end.value) for end in self.ends.values()]
        for site in ends:
            site.cuts[self.axis] = self.keys[site]
        return ends

    @property
    def is_cut(self) -> bool:
        """Does the mesh axis cut all of it along the queries?"""
        return all(
            site.is_fixed or site.cuts.get(self.axis) == at for site, at in self.queries.items()
        )

    def home(self, layout: Layout) -> Layout:
        """The layout where the keys lie on their own rank, of one where they come from `ahead`."""
        cuts = {
            axis.partition(AHEAD)[0]: (k, cut._replace(axis=axis.partition(AHEAD)[0]))
            for axis, (k, cut) in by_axis(layout).items()
        }
        return of_axes(len(layout), cuts)


def find(graph: Graph, sites: Sites) -> list[Ring]:
    """The rings of a graph whose marks have been spread."""
    rings: list[Ring] = []
    for nodes, roots in sites.blocks:
        if not any(node.op.name == "Max" for node in nodes):
            continue
        users = _users(nodes)
        taken: set[Node] = set()
        for node in nodes:
            if node.op.name != "Sum":
                continue
            product = edge_of(node.args[0]).value.node
            if product.op.name != "Mul" or product in taken:
                continue
            for axis, places in _conflicts(product, sites):
                ring = _region(product, axis, places, nodes, sites)
                if ring is not None and _ends(ring, nodes, set(roots), users, sites):
                    taken.update(ring.nodes)
                    rings.append(ring)
                    break
    return rings


def _users(nodes: Iterable[Node]) -> dict[Value, list[Node]]:
    users: dict[Value, list[Node]] = {}
    for node in nodes:
        if node.op.group != "view":
            for value in {edge_of(arg).value for arg in node.args}:
                users.setdefault(value, []).append(node)
    return users


def _conflicts(product: Node, sites: Sites) -> Iterable[tuple[str, tuple[Place, Place]]]:
    """The mesh axes that cut a dimension of each factor which the other one lacks."""
    edges = [edge_of(arg) for arg in product.args]
    if any(isinstance(edge.value.node.attrs, WeightAttrs) for edge in edges):
        return  # a Parameter is gathered where it is read: that is what cuts it
    of_both = [edge.of_user(sites.value(edge.value).cuts) for edge in edges]
    for axis, first in of_both[0].items():
        second = of_both[1].get(axis)
        if second is None or first[0] == second[0]:
            continue
        lacks_second = edges[0].to_source(*second) is None
        if lacks_second and edges[1].to_source(*first) is None:
            yield axis, (first, second)


def _region(
    product: Node, axis: str, places: tuple[Place, Place], nodes: Sequence[Node], sites: Sites
) -> Ring | None:
    """The sites to which both dimensions lead; None where they lead to one in two ways."""
    start = sites.positions[product]
    (at_queries, at_keys) = places
    queries, keys = {start: at_queries}, {start: at_keys}
    waiting = deque([start])
    while waiting:
        site = waiting.popleft()
        for other, move in site.links:
            moved = move(*queries[site]), move(*keys[site])
            if moved[0] is None or moved[1] is None:
                continue
            if other not in keys:
                queries[other], keys[other] = moved[0], moved[1]
                waiting.append(other)
            elif (queries[other], keys[other]) != moved:
                return None
    inside = {n for n in nodes if n in sites.positions and sites.positions[n] in keys}
    return Ring(axis, at_keys[1].ranks, queries, keys, inside)


def _ends(
    ring: Ring,
    nodes: Sequence[Node],
    roots: set[Value],
    users: Mapping[Value, Sequence[Node]],
    sites: Sites,
) -> bool:
    """Finds where a region ends; False where that is not in reductions alone, after a maximum."""
    read = {edge_of(root).value for root in roots}
    for node in [node for node in nodes if node in ring.nodes]:
        site, result = sites.positions[node], sites.value(node.value)
        if result in ring.keys:
            if not (node.op.is_pointwise or node.op.name in ("Sum", "Max")):
                return False
            if node.value in read or any(u not in ring.nodes for u in users.get(node.value, ())):
                return False
            continue
        at_queries, at_keys = ring.queries[site][0], ring.keys[site][0]
        if node.op.group != "reduce" or at_queries == at_keys:
            return False
        if node.attrs.axis == at_keys:
            ring.over_keys.append(node)
        elif node.attrs.axis == at_queries and node.op.name == "Sum":
            ring.over_queries.append(node)
            ring.ends[node] = _followed(ring, node, users, sites, read)
        else:
            return False
    return any(node.op.name == "Max" for node in ring.over_keys)


def _followed(
    ring: Ring,
    node: Node,
    users: Mapping[Value, Sequence[Node]],
    sites: Sites,
    read: set[Value],
) -> Node:
    """The last of the sums that follow a reduction over the queries, each all that reads the one
    before: shared heads of keys are added before their gradients are sent.
    """
    dimension, cut = ring.keys[sites.positions[node]]
    dimension -= dimension > node.attrs.axis
    ring.keys[sites.value(node.value)] = dimension, cut
    while node.value not in read and len(users.get(node.value, ())) == 1:
        (user,) = users[node.value]
        place = None
        if user.op.name == "Sum":
            place = edge_of(user.args[0]).to_user(dimension, cut)
        if place is None or place[0] == user.attrs.axis:
            break
        ring.keys[sites.positions[user]] = place
        ring.nodes.add(user)
        node, dimension, cut = user, place[0] - (place[0] > user.attrs.axis), place[1]
        ring.keys[sites.value(node.value)] = dimension, cut
    return node


# --- passes


def passes_of(ring: Ring, nodes: Sequence[Node]) -> list[Pass]:
    """The passes of a ring, in the order in which they can run. `nodes`: of its block."""
    exits = {*ring.over_keys, *ring.over_queries}
    depth: dict[Node, int] = {}  # how many passes have ended before a node can be computed
    for node in nodes:
        before = max((depth[arg.node] for arg in node.args), default=0)
        depth[node] = before + (node in exits)
    rates: dict[Node, Rate] = {}
    maxima: dict[Node, Node] = {}
    for maximum in ring.over_keys:
        if maximum.op.name == "Max":
            late = {n for n in nodes if depth[n] >= depth[maximum]}
            for node, rate in _rates(maximum, nodes, late, exits)[0].items():
                if depth[node] == depth[maximum] + 1 and node not in ring.ends:
                    rates[node], maxima[node] = rate, maximum
    by_depth: dict[int, Pass] = {}
    for node in nodes:
        if node in exits:
            at = depth[node] - (node in rates)
            one = by_depth.setdefault(at, Pass())
            (one.over_queries if node in ring.ends else one.over_keys).append(node)
            if node in rates:
                one.rates[node], one.maximum = rates[node], maxima[node]
    passes = [by_depth[at] for at in sorted(by_depth)]
    for one in passes:
        one.nodes = _needed(ring, one, nodes, exits)
    place = {node: number for number, node in enumerate(nodes)}
    for one in passes[1:]:
        inside = {*one.nodes}
        reads = [edge_of(arg).value for node in one.nodes for arg in node.args]
        waits = [v for v in reads if v.node not in inside and depth[v.node]]
        one.begins = max(waits, key=lambda value: place[value.node], default=None)
    return passes


# --- keys that are cut where queries are whole


class Joint(NamedTuple):
    """A maximum over keys that a mesh axis cuts, and the sums that follow it: each rank has its own
    of its keys, and one collective joins them.
    """

    axis: str
    ranks: int
    one: Pass


MOST_JOINED = 1 << 16
"""Bytes of a rank's part up to which all parts go to all ranks at once: what takes one collective
would else take several, and less to send on many ranks.
"""


def joints(nodes: Sequence[Node], sites: Sites, rings: Sequence[Ring]) -> list[Joint]:
    """The joints of a block whose sites are settled."""
    taken = {node for ring in rings for node in ring.nodes}
    out = []
    for maximum, axis in _cut_maxima(nodes, sites):
        ends = _cut_sums(nodes, sites, axis)
        late = _after([maximum, *ends], nodes)
        rates, _ = _rates(maximum, nodes, late, {maximum, *ends})
        sums = [node for node in ends if node in rates and node not in taken]
        one = Pass(over_keys=[maximum, *sums], rates=rates, maximum=maximum)
        inside = _after([maximum], nodes)
        wanted, waiting = set(sums), [*sums]
        while waiting:
            for arg in waiting.pop().args:
                node = edge_of(arg).value.node
                if node in inside and node is not maximum and node not in wanted:
                    wanted.add(node)
                    waiting.append(node)
        one.nodes = [node for node in nodes if node in wanted]
        if _is_joint(one, sites):
            out.append(Joint(axis, sites.positions[maximum].cuts[axis][1].ranks, one))
    return out


def to_join(graph: Graph, sites: Sites) -> set[Node]:
    """The sums of a graph that would follow a maximum if they were spelled so."""
    sums: set[Node] = set()
    for nodes, _ in sites.blocks:
        for maximum, axis in _cut_maxima(nodes, sites):
            ends = _cut_sums(nodes, sites, axis)
            late = _after([maximum, *ends], nodes)
            _, uses = _rates(maximum, nodes, late, {maximum, *ends})
            for node in ends:
                product = edge_of(node.args[0]).value.node
                for arg in product.args if product.op.name == "Mul" else ():
                    weights = edge_of(arg).value.node
                    if weights.op.name in ("Div", "Select"):
                        parts = [edge_of(part).value.node for part in weights.args]
                        if any((use := uses.get(part)) is not None and use.base for part in parts):
                            sums.add(node)
    return sums


def _cut_maxima(nodes: Sequence[Node], sites: Sites) -> Iterable[tuple[Node, str]]:
    for node in nodes:
        if node.op.name == "Max":
            at = sites.positions[node].cuts.items()
            axes = [axis for axis, (dimension, _) in at if dimension == node.attrs.axis]
            if len(axes) == 1:
                yield node, axes[0]


def _cut_sums(nodes: Sequence[Node], sites: Sites, axis: str) -> list[Node]:
    """The sums along a dimension that a mesh axis cuts."""
    return [
        node
        for node in nodes
        if node.op.name == "Sum" and _place(sites, node, axis) == node.attrs.axis
    ]


def _place(sites: Sites, node: Node, axis: str) -> int | None:
    place = sites.positions[node].cuts.get(axis)
    return None if place is None else place[0]


def _after(starts: Sequence[Node], nodes: Sequence[Node]) -> set[Node]:
    """What depends on some nodes, these too."""
    after = set(starts)
    for node in nodes:
        if any(arg.node in after for arg in node.args):
            after.add(node)
    return after


def _is_joint(one: Pass, sites: Sites) -> bool:
    """Is there a weighted sum among them, is all small, and nothing between them moved?"""
    assert one.maximum is not None
    values = [node.value for node in one.over_keys]
    sizes = [product_of(value.shape) for value in values]
    if len({value.dtype for value in values}) > 1 or not all(size.is_const for size in sizes):
        return False
    of_each = [size.value for size in sizes]
    if max(of_each) == of_each[0] or sum(of_each) * values[0].dtype.size > MOST_JOINED:
        return False
    inside = {one.maximum, *one.nodes}
    for node in one.nodes:
        if node not in sites.positions and node.op.group != "view":
            return False
        for edge in map(edge_of, node.args):
            if edge.value.node in inside and node in sites.positions:
                wanted = edge.of_source(sites.positions[node].cuts)
                if wanted != sites.value(edge.value).cuts:
                    return False
    return True


def _needed(ring: Ring, one: Pass, nodes: Sequence[Node], exits: set[Node]) -> list[Node]:
    """What is computed of a chunk for the reductions of a pass, operands first."""
    ends = [ring.ends.get(node, node) for node in (*one.over_keys, *one.over_queries)]
    wanted, waiting = set(ends), [*ends]
    mine = {*one.over_keys, *one.over_queries}
    # What depends on the maximum, in the region or not.
    after = set[Node]() if one.maximum is None else _after([one.maximum], nodes)
    while waiting:
        for arg in waiting.pop().args:
            node = edge_of(arg).value.node
            if node in wanted or (node in exits and node not in mine):
                continue
            if node in ring.nodes or (node in after and node.op.group != "leaf"):
                wanted.add(node)
                waiting.append(node)
    return [node for node in nodes if node in wanted]


class _Use(NamedTuple):
    """How a value uses a maximum: `factor * maximum + p` (no base), or `A * base(factor * m + p)`;
    which maximum it is at each position says `map`.
    """

    base: str
    factor: float
    map: tuple[Expression, ...]


def _rates(
    maximum: Node, nodes: Sequence[Node], late: set[Node], exits: set[Node]
) -> tuple[dict[Node, Rate], dict[Node, _Use | None]]:
    """The sums that are rescaled when a maximum moves, and how what depends on it uses it; see
    `kernel.cascade`.
    """
    shape = maximum.types[0].shape
    uses: dict[Node, _Use | None] = {maximum: _Use("", 1.0, identity(shape).map)}
    rates: dict[Node, Rate] = {}
    for node in nodes:
        if node is maximum or node not in late:
            continue
        moving = [uses.get(arg.node) for arg in node.args]
        if all(arg.node not in uses for arg in node.args):
            continue
        use = None
        if all((arg.node in uses) == (use_of_arg is not None)
               for arg, use_of_arg in zip(node.args, moving, strict=True)):  # fmt: skip
            use = _use(node, moving)
        if node in exits:
            if use is not None and use.base and use.factor < 0:
                edge = Edge(maximum.value, node.types[0].shape, use.map)
                rates[node] = Rate(use.base, use.factor, edge)
            continue  # what reads it needs its end
        uses[node] = use
    return rates, uses


def _use(node: Node, moving: Sequence[_Use | None]) -> _Use | None:
    """How a node uses the maximum, of how its operands do; None where that is neither."""
    used = [use for use in moving if use is not None]
    first = used[0]
    if any(use.map != first.map for use in used):
        return None
    bases = {use.base for use in used}
    match node.op.name:
        case "View":
            view = node.attrs.view
            if view.domain is not TRUE and not first.base:
                return None
            source = node.args[0].shape
            where = {
                index(k, n): at for k, (n, at) in enumerate(zip(source, view.map, strict=True))
            }
            return first._replace(map=tuple(entry.substitute(where) for entry in first.map))
        case "Detach":
            return first
        case "Add" if bases == {""}:
            return first._replace(factor=sum(use.factor for use in used))
        case "Mul" if "" not in bases and len(bases) == 1:
            return first._replace(factor=sum(use.factor for use in used))
        case "Mul" if len(used) == 1 and bases == {""}:
            scale = literal(node.args[0 if moving[0] is None else 1])
            return None if scale is None else first._replace(factor=first.factor * scale)
        case "Div" if len(used) == 1 and moving[0] is not None and first.base:
            return first
        case "Exp" | "Exp2" if bases == {""}:
            return first._replace(base=node.op.name)
        case "Select" if first.base and moving[0] is None and len(used) == 1:
            other = node.args[2 if moving[1] is not None else 1]
            return first if literal(other) == 0 else None
        case "Sum" if first.base:
            return _without_axis(first, node)
    return None


def _without_axis(use: _Use, node: Node) -> _Use | None:
    """The use of a sum, where the axis that it goes along has one maximum."""
    shape, axis = node.args[0].shape, node.attrs.axis
    gone = index(axis, shape[axis])
    if any(gone in entry.symbols() for entry in use.map):
        return None
    where = {index(k, n): index(k - 1, n) for k, n in enumerate(shape) if k > axis}
    return use._replace(map=tuple(entry.substitute(where) for entry in use.map))


def literal(value: Value) -> float | None:
    """The number that all elements are, if they are one that is written down."""
    node = edge_of(value).value.node
    if not isinstance(node.attrs, ConstantAttrs) or edge_of(value).domain is not TRUE:
        return None
    data = np.frombuffer(node.attrs.data, node.types[0].dtype.numpy)
    return float(data[0]) if data.size == 1 else None
