"""Where the marks of a graph lead: which axis of the mesh cuts which dimension of which value.

There are two kinds of sites: a value, and the positions that an operation goes through (of a
reduction those of its operand). A mesh axis given to a dimension of a site holds for what it is
linked with (`edges`), forward and back, until it meets a site that has this mesh axis already, that
was given another layout, or that must see a dimension as a whole. No operation has a rule of its
own but those. Where two sites beside each other then differ, the value is moved (`project`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from luminal.base.records import dataclass
from luminal.distribute.edges import Edge, edge_of, gathered, scattered
from luminal.distribute.layout import Cut, Layout, by_axis, nested, of_axes
from luminal.hlir.attributes import LoopAttrs, Shape
from luminal.hlir.graph import Assign, Graph, topological
from luminal.hlir.ops import Node, Value
from luminal.memory.state import Assignable

Move = Callable[[int, Cut], tuple[int, Cut] | None]
"""What a cut of one site is at another one; None if it is no cut there."""


@dataclass(slots=True, eq=False)
class Site:
    """A value, or the positions of an operation, with the cuts that it has so far."""

    shape: Shape
    cuts: dict[str, tuple[int, Cut]] = field(default_factory=dict)
    is_fixed: bool = False
    closed: frozenset[int] = frozenset()  # dimensions that must stay whole
    refused: set[str] = field(default_factory=set)  # mesh axes along which it stays partial
    links: list[tuple[Site, Move]] = field(default_factory=list)

    @property
    def layout(self) -> Layout:
        """The cuts by dimension."""
        return of_axes(len(self.shape), self.cuts)

    def is_open(self, axis: str) -> bool:
        """Can a cut along the mesh axis still be added?"""
        return not (self.is_fixed or axis in self.cuts or axis in self.refused)

    def takes(self, dimension: int, cut: Cut) -> bool:
        """Can the cut, along a mesh axis that is open, be added to the dimension?"""
        others = [other for k, other in self.cuts.values() if k == dimension]
        return dimension not in self.closed and nested([*others, cut]) is not None


def _along(dimension: int, cut: Cut) -> tuple[int, Cut]:
    return dimension, cut


def _without(axis: int) -> tuple[Move, Move]:
    """From positions to the value that lacks one of their dimensions, and back."""

    def down(dimension: int, cut: Cut) -> tuple[int, Cut] | None:
        return None if dimension == axis else (dimension - (dimension > axis), cut)

    def up(dimension: int, cut: Cut) -> tuple[int, Cut] | None:
        return dimension + (dimension >= axis), cut

    return down, up


def link(a: Site, b: Site, forward: Move = _along, back: Move = _along) -> None:
    """A cut of one site is one of the other."""
    a.links.append((b, forward))
    b.links.append((a, back))


@dataclass(slots=True)
class Sites:
    """The sites of a graph: of its values (Views have none), of its operations and of its sinks."""

    values: dict[Value, Site] = field(default_factory=dict)
    positions: dict[Node, Site] = field(default_factory=dict)
    blocks: list[tuple[Sequence[Node], Sequence[Value]]] = field(default_factory=list)
    """The nodes and roots of the graph and of each Loop's body."""

    @classmethod
    def of(cls, graph: Graph) -> Sites:
        """The sites of a graph, with nothing given yet."""
        sites = cls()
        sites._block(graph.nodes(), graph.roots)
        return sites

    def nodes(self) -> Iterator[Node]:
        """The nodes of all blocks."""
        return (node for nodes, _ in self.blocks for node in nodes)

    def _block(self, nodes: Sequence[Node], roots: Sequence[Value]) -> None:
        self.blocks.append((nodes, roots))
        for node in nodes:
            self.add(node)

    def value(self, value: Value) -> Site:
        """The site of a value that is no View."""
        site = self.values.get(value)
        if site is None:
            site = self.values[value] = Site(value.shape)
        return site

    def add(self, node: Node) -> None:
        """Makes the sites of a node, whose operands have theirs, and links them."""
        name, group = node.op.name, node.op.group
        if group == "leaf" or group == "view":
            return
        if node.op.is_pointwise or name in ("Shard", "After"):
            site = self._of(node, node.types[0].shape)
            link(site, self.value(node.value))
            for arg in node.args if name != "After" else node.args[:1]:
                self.reads(site, edge_of(arg))
        elif group in ("reduce", "ordered"):
            self._along_axis(node)
        elif name == "Gather":
            site = self._of(node, node.attrs.shape)
            link(site, self.value(node.value))
            self._through(site, node.args[0], gathered(node))
            for arg in node.args[1:]:
                self.reads(site, edge_of(arg))
        elif name == "Scatter":
            self._scatter(node)
        elif isinstance(node.attrs, LoopAttrs):
            self._loop(node, node.attrs)
        else:
            for k in range(len(node.types)):
                self.value(Value(node, k)).is_fixed = True

    def _of(self, node: Node, shape: Shape) -> Site:
        site = self.positions[node] = Site(shape)
        return site

    def reads(self, site: Site, edge: Edge) -> None:
        """Links positions with an operand that is read at them."""
        link(site, self.value(edge.value), edge.to_source, edge.to_user)

    def _through(self, site: Site, source: Value, edge: Edge) -> None:
        """Links positions with the source of a map, which may be a View itself."""
        inner = edge_of(source)
        between = Site(source.shape)
        link(site, between, edge.to_source, edge.to_user)
        link(between, self.value(inner.value), inner.to_source, inner.to_user)

    def _along_axis(self, node: Node) -> None:
        axis = node.attrs.axis
        edge = edge_of(node.args[0])
        site = self._of(node, edge.shape)
        self.reads(site, edge)
        if node.op.group == "reduce":
            link(site, self.value(node.value), *_without(axis))
            return
        site.closed = frozenset((axis,))
        for k in range(len(node.types)):
            link(site, self.value(Value(node, k)))

    def _scatter(self, node: Node) -> None:
        source = edge_of(node.args[1])
        site = self._of(node, source.shape)
        for arg in node.args[1:]:
            self.reads(site, edge_of(arg))
        edge, result = scattered(node), self.value(node.value)
        link(site, result, edge.to_source, edge.to_user)
        dest = edge_of(node.args[0])
        link(result, self.value(dest.value), dest.to_source, dest.to_user)

    def _loop(self, node: Node, attrs: LoopAttrs) -> None:
        """What a body's argument is cut by, its operand and the results that become it are too."""
        body = attrs.body
        for argument in body.arguments:
            self.value(argument.value)
        self._block(topological(body.results), body.results)
        carried, streams, invariants = attrs.split(node.args)
        arguments = [argument.value for argument in body.arguments]
        starts = (*arguments[: attrs.carried], *arguments[attrs.carried + len(streams) :])
        for start, operand in zip(starts, (*carried, *invariants), strict=True):
            self.reads(self.value(start), edge_of(operand))
        slices = arguments[attrs.carried : attrs.carried + len(streams)]
        for one, operands, leaves in zip(slices, streams, attrs.streams, strict=True):
            for operand in operands:
                stream = self._stream(operand.shape, self.value(one), is_stacked=not leaves)
                self.reads(stream, edge_of(operand))
        for k, body_result in enumerate(body.results):
            outer = self.value(Value(node, k))
            if k < attrs.carried:
                self.reads(self.value(arguments[k]), edge_of(body_result))
                link(self.value(arguments[k]), outer)
            else:
                outer.closed = frozenset((0,))
                inside = Site(body_result.shape)
                self.reads(inside, edge_of(body_result))
                link(inside, outer, *_without(0)[::-1])

    def _stream(self, shape: Shape, one: Site, *, is_stacked: bool) -> Site:
        """The site of a stream, whose slices `one` is."""
        if not is_stacked:
            return one
        site = Site(shape)
        link(site, one, *_without(0))
        return site


def spread_all(
    graph: Graph,
    sites: Sites,
    marks: Sequence[Mapping[Value, Layout]],
    states: Mapping[Assignable, Layout],
    settle: Callable[[Sites], None],
    starts: Sequence[Site] = (),
) -> None:
    """Gives the sites what is marked and spreads it: the first of `marks` first, with `settle`
    after it, what is assigned to `states` last. Leaves and States without a layout are whole.
    `starts`: sites that have cuts already.
    """
    layouts = {value: layout for group in marks for value, layout in group.items()}
    arguments = {a for node in sites.nodes() for a in _arguments(node)}
    for node in sites.nodes():
        if (node.op.group == "leaf" and node not in arguments) or node.op.name == "Shard":
            site = sites.value(node.value)
            site.is_fixed = True
            site.cuts = by_axis(layouts.get(node.value, ()))
            if node in sites.positions:
                sites.positions[node].cuts = dict(site.cuts)
                sites.positions[node].is_fixed = True
    for group in marks:
        spread([*starts, *(sites.value(value) for value in group)])
        settle(sites)
    ends = []
    for sink in graph.sinks:
        if isinstance(sink, Assign):
            end = Site(sink.value.shape, by_axis(states.get(sink.state, ())), is_fixed=True)
            sites.reads(end, edge_of(sink.value))
            ends.append(end)
    spread(ends)


def _arguments(node: Node) -> tuple[Node, ...]:
    return node.attrs.body.arguments if isinstance(node.attrs, LoopAttrs) else ()


def spread(starts: Sequence[Site]) -> None:
    """Gives the cuts of some sites to what they are linked with, and so on."""
    waiting = deque((site, axis) for site in starts for axis in site.cuts)
    while waiting:
        site, axis = waiting.popleft()
        dimension, cut = site.cuts[axis]
        for other, move in site.links:
            if not other.is_open(axis):
                continue
            moved = move(dimension, cut)
            if moved is not None and other.takes(*moved):
                other.cuts[axis] = moved
                waiting.append((other, axis))
