"""The first pass over HLIR: frames, whose axes are united where edges say that they are the same.

Each value gets the atoms of its dimensions, and every edge unites those that it reads at the same
indices. A later union may still split an axis of an earlier value, so none has a name before all
are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from luminal.algebra import axes
from luminal.algebra.axes import Atom, Dimension
from luminal.base.records import dataclass
from luminal.hlir.attributes import Shape
from luminal.hlir.ops import OPS, Node, Value
from luminal.shape.digits import digit
from luminal.shape.expression import TRUE, Expression, const


@dataclass(slots=True)
class Edge:
    """An operand as its user sees it: dimension k of `value` is read at map[k], an Expression in
    the indices of `frame`, or a tensor (for Gather); None: at the frame's own indices.
    """

    value: Value
    frame: list[Dimension]
    shape: Shape
    map: tuple[Any, ...] | None = None
    domain: Expression = TRUE


# Uniting is a union-find over atoms: an atom may be split in two later (a reshape), so nothing is
# named before all edges have been seen. That is why lowering has two passes.
class Frames:
    """The frame of each value and the edges of each node, for all nodes that were added."""

    def __init__(self) -> None:
        self.frames: dict[Value, list[Dimension]] = {}
        self.edges: dict[Node, list[Edge]] = {}
        self._members = 0

    def add(self, node: Node) -> None:
        """Frames a node, whose operands have theirs."""
        _UNIFY[node.op.group](self, node)

    def _member(self) -> int:
        self._members += 1
        return self._members

    def _fresh(self, shape: Shape) -> list[Dimension]:
        member = self._member()
        return [axes.fresh(extent, member) for extent in shape]

    def see(self, value: Value, frame: list[Dimension] | None = None) -> Edge:
        """`value` in `frame` (None: in its own, or a fresh one for a View or Iota)."""
        # A View or Iota has a frame for each use: shared, it would unite axes of users that have
        # nothing else to do with each other.
        node = value.node
        if node.op.name == "View":
            view, source = node.attrs.view, node.args[0]
            edge = Edge(
                source, frame or self._fresh(value.shape), value.shape, view.map, view.domain
            )
            if source.node.op.name != "Iota":
                self._relate(source, edge)
            return edge
        if node.op.name == "Iota":
            return Edge(value, frame or self._fresh(value.shape), value.shape)
        own_frame = self.frames[value]
        if frame is not None:
            for mine, theirs in zip(own_frame, frame, strict=True):
                # What cannot become one stays two, and the edge gets an At (`lower.py`).
                axes.unify(mine, theirs)
        return Edge(value, own_frame if frame is None else frame, value.shape)

    def _relate(self, source: Value, edge: Edge) -> None:
        """Unites each source dimension with the output digits that its index consists of."""
        assert edge.map is not None
        for source_dimension, extent, entry in zip(
            self.frames[source], source.shape, edge.map, strict=True
        ):
            if isinstance(entry, Expression):
                matched = _digits_of(entry, extent, edge.shape, edge.frame)
                if matched is not None:
                    axes.unify(source_dimension, matched)

    def _leaf(self, node: Node) -> None:
        if node.op.name != "Iota":
            self.frames[node.value] = self._fresh(node.types[0].shape)

    def _pointwise(self, node: Node) -> None:
        # A View or Iota takes the frame that it is given; the first of the others has one to give.
        plain = [a for a in node.args if a.node.op.name not in ("View", "Iota")]
        if plain:
            member = self._member()
            frame = [axes.join(dimension, member) for dimension in self.frames[plain[0]]]
        else:
            frame = self._fresh(node.types[0].shape)
        self.edges[node] = [self.see(arg, frame) for arg in node.args]
        self.frames[node.value] = frame

    def _reduce(self, node: Node) -> None:
        edge = self.see(node.args[0])
        self.edges[node] = [edge]
        self.frames[node.value] = [d for k, d in enumerate(edge.frame) if k != node.attrs.axis]

    def _memory(self, node: Node) -> None:
        if node.op.name == "Scatter":
            dest, source = self.see(node.args[0]), self.see(node.args[1])
            maps = [self.see(arg, source.frame) for arg in node.args[2:]]
            self.edges[node] = [dest, source, *maps]
            self.frames[node.value] = self._fresh(node.types[0].shape)
            return
        shape, map_ = node.attrs
        frame = self._fresh(shape)
        source = self.see(node.args[0])
        indices = [self.see(arg, frame) for arg in node.args[1:]]
        read = Edge(node.args[0], frame, shape, map_)
        for source_dimension, extent, entry in zip(
            source.frame, node.args[0].shape, map_, strict=True
        ):
            if isinstance(entry, Expression):
                matched = _digits_of(entry, extent, shape, frame)
                if matched is not None:
                    axes.unify(source_dimension, matched)
        self.edges[node] = [source, read, *indices]
        self.frames[node.value] = frame

    def _opaque(self, node: Node) -> None:
        # It may read any position for any other, so its results share no axes with its operands.
        self.edges[node] = [self.see(arg) for arg in node.args]
        for k, result in enumerate(node.types):
            self.frames[Value(node, k)] = self._fresh(result.shape)

    def _none(self, node: Node) -> None:
        """Views are instantiated per use."""


_UNIFY: dict[str, Callable[[Frames, Node], None]] = {
    "leaf": Frames._leaf,
    "unary": Frames._pointwise,
    "binary": Frames._pointwise,
    "ternary": Frames._pointwise,
    "reduce": Frames._reduce,
    "ordered": Frames._opaque,
    "memory": Frames._memory,
    "view": Frames._none,
    "other": Frames._opaque,
}
"""How each group of HLIR's table is framed."""
assert {op.group for op in OPS.values()} == set(_UNIFY)


def _digits_of(
    entry: Expression, extent: Expression, shape: Shape, frame: list[Dimension]
) -> Dimension | None:
    """The atoms of `frame` that make up `entry`, if it is a mixed-radix number over `extent`."""
    if entry == const(0) and extent == const(1):
        return []
    pending = []
    for monomial, factor in entry.terms:
        digit_read = digit(monomial, factor, shape)
        if digit_read is None:
            return None
        pending.append(digit_read)
    if entry.constant or not pending:
        return None
    # From the innermost digit out: each counts as much as all inside of it have positions.
    radix, out = const(1), list[Atom]()
    while pending:
        place = next((k for k, d in enumerate(pending) if d.coefficient == radix), None)
        if place is None:
            return None
        _, dimension, divisor, count = pending.pop(place)
        atoms = axes.digits(frame[dimension], divisor, count)
        if atoms is None:
            return None
        out = atoms + out
        radix = radix * count
    # A lesser radix, as an offset, reads a part of the dimension, which is no axis of the whole.
    return out if radix == extent else None
