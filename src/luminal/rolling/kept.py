"""Which values of the layers are handed out where what follows reads them, and which are computed
again there.

Gradients read much of what the layers before them computed. A value that is cheap to compute (by
element, or a view) is computed again by its reader, unless what it is computed from, as far as that
is not handed out anyway, is more bytes than itself: so the products that a matrix product sums over
are never handed out, nor is any of a chain of activations but its beginning.

What is large and made of little by short sums of products, as an attention's weights are of
queries, keys and statistics of rows, is computed again, too: its reader may then do so a block at a
time (`selection/streams.py`), so that nobody stores it or what is computed of it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luminal.base.costs import Costs, Weights
from luminal.hlir.ops import Node, Value
from luminal.rolling.block import NodeTable, is_recorded_anew
from luminal.rolling.match import Carried, Inner, Layers
from luminal.rolling.runs import size_of

CHAIN = 8  # loads: operations by element that cost about as much as storing and loading the result
STREAMED = 4
"""Values of its size that need not be stored: it, what it is made of, and gradients of both."""
MOVES = 3
"""Of a value that is stored: its lines come from memory before they go there, then to readers."""
SMALLER = 2  # times is what such a value is made of, at least
BodyResult = tuple[int, int]
"""(node m of the body, result): a value of every iteration."""


# A value that the backward Loop reads of the forward one is stored for every layer. A cheap one
# that is no smaller than its operands is computed again by its reader instead: then products that a
# matrix product sums over never leave a body, and neither do the scores of an attention.
def handed_out(block: NodeTable, layers: Layers, demanded: Iterable[BodyResult]) -> set[BodyResult]:
    """The places to hand out, so that all that are demanded are known or can be computed again."""
    # From the last node back: what a reader would compute again is demanded in turn, until a value
    # is met that is smaller than all it is computed from.
    first = [block.nodes[n] for n in layers.iterations[0]]
    wanted, kept = set(demanded), set[BodyResult]()
    for m in reversed(range(len(first))):
        for place in [place for place in wanted if place[0] == m]:
            wanted.discard(place)
            new = _beginnings(block.costs.weights, first, layers, m, wanted | kept)
            added = sum(_bytes(first[k], r) for k, r in new)
            saved = _bytes(first[m], place[1]) - added
            is_free = not added or first[m].op.group == "view"
            if not is_cheap(first[m]) or saved < 0 or (saved == 0 and not is_free):
                little = _little(block.costs, first, layers, place, wanted | kept)
                if little is None:
                    kept.add(place)
                    continue
                new = little
            before = {(k, r) for k, r in new if k >= m}  # of the iteration before
            wanted |= new - before
            kept |= before
    return kept


def is_cheap(node: Node) -> bool:
    """Is the node computed again rather than stored?"""
    return node.op.is_pointwise or node.op.group == "view" or is_recorded_anew(node)


def _beginnings(
    weights: Weights, first: Sequence[Node], layers: Layers, m: int, at_hand: set[BodyResult]
) -> set[BodyResult]:
    """What node m is computed from that is not known: through a short chain of cheap values, the
    dear ones at its other end; else its operands.
    """
    # Rematerialization by cost: storing is one write and one read of the value, computing again is
    # the chain below it. A short chain of cheap values is always worth it.
    operands = _operands(layers, m) - at_hand
    beginnings, stack, seen, weight = (
        set[BodyResult](),
        [*operands],
        set[BodyResult](),
        _weight(weights, first[m]),
    )
    while stack:
        k, r = place = stack.pop()
        if place in seen or place in at_hand:
            continue
        seen.add(place)
        if k >= m or not is_cheap(first[k]):
            beginnings.add((k, r))
            continue
        weight += _weight(weights, first[k])
        stack += _operands(layers, k)
    return beginnings if weight <= CHAIN * weights.load else operands


def _little(
    costs: Costs, first: Sequence[Node], layers: Layers, place: BodyResult, at_hand: set[BodyResult]
) -> set[BodyResult] | None:
    """What a place that leaves the caches is made of that is not known, through sums of products:
    with what is known, so much smaller. None if it is not, or dear to compute from that.
    """
    size = _bytes(first[place[0]], place[1])
    if STREAMED * size < costs.cache_bytes:
        return None
    sources, seen, stack, flops = set[BodyResult](), {place}, [place], 0
    while stack:
        top = m, _ = stack.pop()
        node = first[m]
        if top != place and SMALLER * _bytes(node, top[1]) <= size:
            sources.add(top)
            continue
        if node.op.group == "reduce":
            flops += 2 * size_of(node.args[0].shape)
        elif not is_cheap(node):
            return None
        operands = _operands(layers, m) - seen
        if any(k >= m and SMALLER * _bytes(first[k], r) > size for k, r in operands):
            return None  # it leads on into the iteration before
        seen |= operands
        stack += operands
    made_of = sum(_bytes(first[k], r) for k, r in sources)
    moving = STREAMED * MOVES * size / costs.memory
    is_soon = flops / costs.contraction_flops <= moving
    return sources - at_hand if SMALLER * made_of <= size and is_soon else None


def _weight(weights: Weights, node: Node) -> int:
    return weights.of(node.op.name) if node.op.is_pointwise else 0


def _operands(layers: Layers, m: int) -> set[BodyResult]:
    """The places of node m's operands that the iterations compute; for a carried value, of what
    becomes it.
    """
    places: set[BodyResult] = set()
    for ref in layers.refs[m]:
        while isinstance(ref, Carried):
            ref = layers.carries[ref.k].next
        if isinstance(ref, Inner):
            places.add((ref.m, ref.index))
    return places


def _bytes(node: Node, result: int) -> int:
    type_ = Value(node, result).type
    return size_of(type_.shape) * type_.dtype.size
