"""Which values of the layers are handed out where what follows reads them, and which are computed
again there.

Gradients read much of what the layers before them computed. A value that is cheap to compute (by
element, or a view) is computed again by its reader, unless what it is computed from, as far as that
is not handed out anyway, is more bytes than itself: so the products that a matrix product sums over
are never handed out, nor is any of a chain of activations but its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luminal.costs import Weights
from luminal.hlir.ops import Node, Value
from luminal.hlir.roll_block import Block, is_recorded_anew
from luminal.hlir.roll_match import Carried, Inner, Layers
from luminal.hlir.roll_runs import size_of

CHAIN = 8  # loads: operations by element that cost about as much as storing and loading the result
Place = tuple[int, int]
"""(node m of the body, result): a value of every iteration."""


def handed_out(block: Block, layers: Layers, demanded: Iterable[Place]) -> set[Place]:
    """The places to hand out, so that all that are demanded are known or can be computed again."""
    # From the last node back: what a reader would compute again is demanded in turn, until a value
    # is met that is smaller than all it is computed from.
    first = [block.nodes[n] for n in layers.iterations[0]]
    wanted, kept = set(demanded), set[Place]()
    for m in reversed(range(len(first))):
        for place in [place for place in wanted if place[0] == m]:
            wanted.discard(place)
            new = _beginnings(block.weights, first, layers, m, wanted | kept)
            added = sum(_bytes(first[k], r) for k, r in new)
            before = {(k, r) for k, r in new if k >= m}  # of the iteration before
            saved = _bytes(first[m], place[1]) - added
            is_free = not added or first[m].op.group == "view"
            if is_cheap(first[m]) and (saved > 0 or (is_free and saved == 0)):
                wanted |= new - before
                kept |= before
            else:
                kept.add(place)
    return kept


def is_cheap(node: Node) -> bool:
    """Is it computed again rather than stored?"""
    return node.op.is_pointwise or node.op.group == "view" or is_recorded_anew(node)


def _beginnings(
    weights: Weights, first: Sequence[Node], layers: Layers, m: int, known: set[Place]
) -> set[Place]:
    """What node m is computed from that is not known: through a short chain of cheap values, the
    dear ones at its other end; else its operands.
    """
    operands = _operands(layers, m) - known
    found, stack, seen, weight = set[Place](), [*operands], set[Place](), _weight(weights, first[m])
    while stack:
        k, r = place = stack.pop()
        if place in seen or place in known:
            continue
        seen.add(place)
        if k >= m or not is_cheap(first[k]):
            found.add((k, r))
            continue
        weight += _weight(weights, first[k])
        stack += _operands(layers, k)
    return found if weight <= CHAIN * weights.load else operands


def _weight(weights: Weights, node: Node) -> int:
    return weights.of(node.op.name) if node.op.is_pointwise else 0


def _operands(layers: Layers, m: int) -> set[Place]:
    """Those of node m that the iterations compute; of a carried value what becomes it."""
    found: set[Place] = set()
    for ref in layers.refs[m]:
        while isinstance(ref, Carried):
            ref = layers.carries[ref.k].next
        if isinstance(ref, Inner):
            found.add((ref.m, ref.index))
    return found


def _bytes(node: Node, result: int) -> int:
    type_ = Value(node, result).type
    return size_of(type_.shape) * type_.dtype.size
