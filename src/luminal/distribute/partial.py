"""Which sums are put off: values that ranks have parts of, and that are only added once read.

A reduction along a dimension that is cut gives each rank a part of the result. Where all that
reads it only adds, the parts may go on as they are, and one collective later does the work of
several: the gradients of q, k and v are added before they cross the mesh, as is a sum over two
dimensions of which one is cut. The first use of another kind has the value reduced.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.distribute.edges import Edge, edge_of, scattered
from luminal.distribute.layout import Cut, is_outermost, with_pads
from luminal.distribute.propagate import Site, Sites
from luminal.hlir.attributes import ConstantAttrs, ScatterAttrs, ViewAttrs
from luminal.hlir.ops import NUMBERS, Node, Value
from luminal.shape.expression import product_of

Partial = dict[str, str]
"""By mesh axis the reduction (Sum or Max) of the ranks' parts that is still to be done."""


def is_zero(value: Value) -> bool:
    """Is it a literal of zeros, as Scatters of gradients begin with?"""
    node = value.node
    if isinstance(node.attrs, ViewAttrs):
        node = node.args[0].node
    return isinstance(node.attrs, ConstantAttrs) and not any(node.attrs.data)


def masked(node: Node, sites: Sites) -> list[tuple[int, Cut]]:
    """The dimensions of a Gather's source that integers look up in and that stay cut.

    Each rank then looks up what it holds and has zeros for the rest, so that the result is a sum
    over ranks: the rows of an embedding move, and not the table.
    """
    source = node.args[0]
    if isinstance(source.node.attrs, ViewAttrs) or source.dtype not in NUMBERS:
        return []
    cuts = sites.positions[node].cuts
    return [
        (dimension, cut)
        for dimension, cut in sites.value(source).cuts.values()
        if isinstance(node.attrs.map[dimension], int)
        and cut.axis not in cuts
        and is_outermost(source.shape[dimension], cut)
    ]


def aligned(node: Node, sites: Sites) -> dict[str, tuple[int, Cut]]:
    """The cuts of a Scatter's result that are cuts of what it writes, too."""
    result, site = sites.value(node.value), sites.positions[node]
    there = scattered(node).of_source(site.cuts)
    return {
        axis: (dimension, cut)
        for axis, (dimension, cut) in there.items()
        if result.cuts.get(axis) == (dimension, cut)
        # What the writer has for pads must be pads of the result.
        and _pads_match(site, site.cuts[axis], result, (dimension, cut))
    }


def _pads_match(a: Site, of_a: tuple[int, Cut], b: Site, of_b: tuple[int, Cut]) -> bool:
    """Do the pads of a cut dimension of one site lie where those of the other's do?"""
    (k, cut_of_a), (m, cut_of_b) = of_a, of_b
    padded_a, padded_b = with_pads(a.shape[k], (cut_of_a,)), with_pads(b.shape[m], (cut_of_b,))
    return a.shape[k] * padded_b == b.shape[m] * padded_a


class Partials:
    """The values of a block (a graph, or the body of a Loop) that stay partial until they are
    read.
    """

    def __init__(self, nodes: Sequence[Node], roots: Sequence[Value], sites: Sites) -> None:
        self._sites = sites
        self._nodes = [n for n in nodes if n.op.group not in ("leaf", "view")]
        self._edges = {node: [edge_of(arg) for arg in node.args] for node in self._nodes}
        self._users: dict[Value, list[Node]] = {}
        for node, edges in self._edges.items():
            for edge in edges:
                self._users.setdefault(edge.value, []).append(node)
        self._read = {edge_of(root).value for root in roots}
        self._reduced: set[tuple[Value, str]] = set()
        self.kept: dict[Value, Partial] = {}
        while True:
            self._forward()
            if not self._back():
                break

    def of(self, node: Node) -> Partial:
        """What is still to be reduced of a node's result, with operands as they are kept."""
        out = self._made(node)
        for axis, reduction in self._passed(node).items():
            out.setdefault(axis, reduction)
        return out

    def _made(self, node: Node) -> Partial:
        """The mesh axes along which a node itself leaves something to be reduced."""
        site = self._sites.positions.get(node)
        if site is None:
            return {}
        if node.op.group == "reduce":
            axis = node.attrs.axis
            return {cut.axis: node.op.name for k, cut in site.cuts.values() if k == axis}
        if node.op.name == "Gather":
            return {cut.axis: "Sum" for _, cut in masked(node, self._sites)}
        if isinstance(node.attrs, ScatterAttrs) and node.attrs.mode == "add":
            there = aligned(node, self._sites)
            return {axis: "Sum" for axis in site.cuts if axis not in there}
        return {}

    def _passed(self, node: Node) -> Partial:
        edges = self._edges[node]
        parts = [self.kept.get(edge.value, {}) for edge in edges]
        if not any(parts):
            return {}
        site = self._sites.positions.get(node)
        out: Partial = {}
        for axis in dict.fromkeys(axis for part in parts for axis in part):
            reduction, *others = {part[axis] for part in parts if axis in part}
            if others or site is None or axis in site.cuts:
                continue
            has = [axis in part for part in parts]
            if self._keeps(node, edges, has, reduction):
                out[axis] = reduction
        return out

    def _keeps(
        self, node: Node, edges: Sequence[Edge], has: Sequence[bool], reduction: str
    ) -> bool:
        """Is the operation on parts, reduced afterwards, the operation on what was reduced?"""
        for edge, is_partial in zip(edges, has, strict=True):
            if is_partial and _grows(edge):
                return False
        if node.op.name == ("Add" if reduction == "Sum" else "Maximum"):
            return all(has)
        if node.op.name in (reduction, "Detach"):
            return True
        # A product with what all ranks have is one, but where several read the value each would be
        # reduced by itself.
        only = all(len(self._users[e.value]) == 1 for e, h in zip(edges, has, strict=True) if h)
        return reduction == "Sum" and node.op.name == "Mul" and sum(has) == 1 and only

    def _forward(self) -> None:
        self.kept = {}
        for node in self._nodes:
            if len(node.types) > 1 or node.op.name in ("Loop", "Custom", "Collective", "Shard"):
                continue
            value = node.value
            wanted = self._sites.value(value).cuts
            left = {
                axis: reduction
                for axis, reduction in self.of(node).items()
                if axis not in wanted
                and (value, axis) not in self._reduced
                and value not in self._read
                and not self._adds_to_more(node)
            }
            if left:
                self.kept[value] = left

    def _adds_to_more(self, node: Node) -> bool:
        """Does a Scatter add to a destination that would count once for each rank?"""
        return isinstance(node.attrs, ScatterAttrs) and not is_zero(node.args[0])

    def _back(self) -> bool:
        """Reduces what a user cannot take in parts; was there any?"""
        # A user may pass the parts on to a result that is then reduced at once: that is one
        # collective all the same.
        before = len(self._reduced)
        for value, partial in self.kept.items():
            for user in self._users.get(value, ()):
                passed = self._passed(user)
                self._reduced.update((value, axis) for axis in partial if axis not in passed)
        return len(self._reduced) > before


def settle(sites: Sites) -> None:
    """Keeps what is partial so far from being cut along the same mesh axis by what comes later."""
    for nodes, roots in sites.blocks:
        partials = Partials(nodes, roots, sites)
        for node in nodes:
            site = sites.positions.get(node)
            if site is not None:
                site.refused.update(partials.of(node))
        for value, partial in partials.kept.items():
            sites.value(value).refused.update(partial)


def _grows(edge: Edge) -> bool:
    """Is the operand broadcast? Reduced before, it is a smaller one."""
    there, here = product_of(edge.shape), product_of(edge.value.shape)
    if there.is_const and here.is_const:
        return there.value > here.value
    ratio = there.exact_div(here)
    return ratio is not None and ratio != 1
