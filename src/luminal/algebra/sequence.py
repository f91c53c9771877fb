"""The order in which ranks come to their collectives."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.hlir.graph import topological
from luminal.hlir.ops import Node


# What one rank starts first another one may not start second: each would wait for the other. So
# their order is decided here, once, whatever becomes kernels: by depth, which is about when each
# can begin, as gradients come from the last layer to the first.
def sequence(nodes: Sequence[Node]) -> dict[Node, int]:
    """The numbers, from 1, of Collectives and of Loops with some inside, in the order in which all
    ranks run them.
    """
    collecting = [node for node in nodes if _collects(node)]
    depths: dict[Node, int] = {}
    for node in nodes if len(collecting) > 1 else ():
        depths[node] = 1 + max((depths[arg.node] for arg in node.args), default=0)
    collecting.sort(key=lambda node: depths.get(node, 0))
    return {node: number for number, node in enumerate(collecting, 1)}


def _collects(node: Node) -> bool:
    if node.op.name == "Loop":
        return any(map(_collects, topological(node.attrs.body.results)))
    return node.op.name == "Collective"
