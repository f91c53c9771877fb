"""What belongs to an iteration though it is not on the path along which layers were found.

Behind it hang gradients of weights and updates of their States, which the layers that follow do not
need. A node is a follower of iteration t if it depends on nodes of t, on followers of t, and else
only on what no iteration computes. Followers with one structure in every iteration join them.

Before it stands what is computed from values of other Loops for one iteration alone: gradients
compute again what the layers before did not keep. What is cheap, the same in every iteration, and
no fewer bytes than its operands, is computed in the iteration.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from luminal.hlir.ops import Value
from luminal.rolling.block import NodeTable
from luminal.rolling.cost import is_weight
from luminal.rolling.kept import is_cheap
from luminal.rolling.match import Iteration, Layers, Stream
from luminal.rolling.runs import size_of

Key: TypeAlias = tuple[int, int]
"""A structure, and which of the followers that have it in an iteration."""


# The longest path of a backward pass leads through the gradients of activations. Gradients of
# weights, and the updates of States that follow from them, hang on it like leaves; each joins the
# iteration that makes what it reads, or the Loop would hand out all it reads.
def with_followers(block: NodeTable, layers: Layers) -> list[Iteration]:
    """The iterations, followers behind the nodes that they have; the same list without any."""
    # One walk in order: a node's operands have been placed when it is met. What it depends on
    # beside its iteration must be the same everywhere, or be no iteration's at all.
    inside = {n: (t, m) for t, nodes in enumerate(layers.iterations) for m, n in enumerate(nodes)}
    structures: dict[tuple[object, ...], int] = {}
    counts: list[Counter[int]] = [Counter() for _ in layers.iterations]
    followers: list[dict[Key, int]] = [{} for _ in layers.iterations]
    needs: dict[Key, set[Key]] = {}  # of followers, other followers
    keys: dict[int, tuple[int, Key]] = {}  # of followers: iteration and key
    is_late = set(inside)  # depends on the iterations
    for n in range(min(inside), len(block.nodes)):
        if n in inside or is_late.isdisjoint(block.args[n]):
            continue
        is_late.add(n)
        trips: set[int] = set()
        operands: list[object] = [block.kind[n]]
        below: set[Key] = set()
        for a, value in zip(block.args[n], block.nodes[n].args, strict=True):
            if a in inside:
                t, m = inside[a]
                trips.add(t)
                operands.append((m, value.index))
            elif a in keys:
                t, key = keys[a]
                trips.add(t)
                below.add(key)
                operands.append((key, value.index))
            elif a in is_late:
                # It needs what depends on the layers and is of
                # no single iteration: a norm of all gradients.
                trips.add(-1)
            else:
                operands.append(None)
        if len(trips) != 1 or -1 in trips:
            continue
        (t,) = trips
        structure = structures.setdefault(tuple(operands), len(structures))
        key = structure, counts[t][structure]
        counts[t][structure] += 1
        followers[t][key] = n
        keys[n] = t, key
        needs[key] = below
    common: dict[Key, None] = {}
    for key in followers[0]:
        if all(key in of_iteration for of_iteration in followers) and all(
            need in common for need in needs[key]
        ):
            common[key] = None
    if not common:
        return layers.iterations
    return [
        [*nodes, *(followers[t][key] for key in common)]
        for t, nodes in enumerate(layers.iterations)
    ]


def with_operands(block: NodeTable, layers: Layers) -> list[Iteration]:
    """The iterations, what is computed for each alone in front; the same list without any."""
    drawn: set[tuple[int, ...]] = set()
    refs = [ref for refs in layers.refs for ref in refs if isinstance(ref, Stream)]
    streams = dict.fromkeys(ref.values for ref in refs)  # in order: compiles repeat
    waiting = [*streams]
    while waiting:
        values = waiting.pop()
        nodes = tuple([block.number[value.node] for value in values])
        if nodes in drawn or not _is_drawn(block, values, nodes):
            continue
        operands = dict.fromkeys(zip(*(v.node.args for v in values), strict=True))
        moving = [args for args in operands if any(arg != args[0] for arg in args)]
        # It pays if the operands that are read instead are no more bytes an iteration.
        if sum(_bytes(args[0]) for args in moving if args not in streams) <= _bytes(values[0]):
            drawn.add(nodes)
            streams |= dict.fromkeys(moving)
            waiting += moving
    if not drawn:
        return layers.iterations
    front = sorted(drawn)
    return [[*(nodes[t] for nodes in front), *nodes_] for t, nodes_ in enumerate(layers.iterations)]


def _is_drawn(block: NodeTable, values: tuple[Value, ...], nodes: tuple[int, ...]) -> bool:
    """Are the values one cheap operation for each iteration, the same in all, that depends on a
    run?
    """
    first = values[0]
    return (
        is_cheap(first.node)
        and not block.is_leaf[nodes[0]]
        and len(set(nodes)) == len(nodes)
        and all(block.kind[n] == block.kind[nodes[0]] for n in nodes)
        and not all(is_weight(block, value) for value in values)
    )


def _bytes(value: Value) -> int:
    return size_of(value.shape) * value.dtype.size
