"""Weights that lie packed: floats computed of integers that take fewer bytes than they.

What Weights alone decide is computed once, before any run, but not these: whoever packs weights
wants their bytes read, not four times as many. `luminal.selection.packed` says the same of terms.
"""

from __future__ import annotations

from math import prod

from luminal.hlir.ops import Node

MOST_NODES = 256  # that decode one weight, far above any format's


def is_packed(node: Node) -> bool:
    """Is the node floats made element by element of Weights, some of integers, that are smaller?"""
    if not node.types[0].dtype.is_float:
        return False
    weights: list[Node] = []
    seen: set[Node] = set()
    stack = [node]
    while stack:
        top = stack.pop()
        if top in seen:
            continue
        seen.add(top)
        if len(seen) > MOST_NODES or not _is_decoding(top):
            return False
        if top.op.name == "Weight":
            weights.append(top)
        stack += [arg.node for arg in top.args]
    integers = any(weight.types[0].dtype.is_int for weight in weights)
    return integers and sum(map(_bytes, weights)) < _bytes(node)


def _is_decoding(node: Node) -> bool:
    """A Weight, what is the same in all, an operation on elements, or a look-up in a literal."""
    if node.op.name == "Gather":
        return node.args[0].node.op.name == "Constant"
    named = node.op.name in ("Weight", "Constant", "Iota")
    return named or node.op.is_pointwise or node.op.group == "view"


def _bytes(node: Node) -> int:
    shape, dtype = node.types[0]
    return prod(extent.value for extent in shape) * dtype.size
