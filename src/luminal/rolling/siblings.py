"""What is done alike to many States, each by itself: an optimizer's updates of one kind of weight.

Nothing leads from one to the next, so there is no path to find them on. A parameter and its moments
belong together, with the operations by element that only they need. Those with one structure, which
read slices of the same tensors, are a family: the iterations of a Loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence, Set

from luminal.hlir.graph import Assign, Sink
from luminal.hlir.ops import Node, Value
from luminal.memory.state import Assignable
from luminal.rolling.block import NodeTable, is_recorded_anew, is_slice
from luminal.rolling.kept import is_cheap
from luminal.rolling.match import Iteration


# Where a step needs all gradients first (a norm that clips them) the updates are on no common path:
# they stand side by side. Equal formulas over one kind of State are found by their structure and
# become a Loop each.
def families(block: NodeTable, sinks: Sequence[Sink]) -> list[list[Iteration]]:
    """Iterations of Loops to be, those first that have most nodes."""
    by_structure: defaultdict[Hashable, list[Iteration]] = defaultdict(list)
    for nodes, ends in _components(block, sinks):
        by_structure[_structure(block, nodes, ends)].append(nodes)
    several = [family for family in by_structure.values() if len(family) > 1]
    return sorted(several, key=lambda family: -len(family) * len(family[0]))


def _components(block: NodeTable, sinks: Sequence[Sink]) -> Iterator[tuple[Iteration, list[int]]]:
    """The nodes that only assignments which belong together need, and the assigned ones.

    They belong together if one reads what the other assigns, in its own shape, by element.
    """
    # Bit masks of assignments: an optimizer has one for every weight, and unions of masks are one
    # operation each, where sets would be copied node by node.
    ends = [(block.number[s.value.node], s.state) for s in sinks if isinstance(s, Assign)]
    number = {state: k for k, (_, state) in enumerate(ends)}
    needed = [0] * len(block.nodes)  # by which assignments: one bit each
    for k, (n, _) in enumerate(ends):
        needed[n] |= 1 << k
    by_element = [
        not leaf and is_cheap(x) for leaf, x in zip(block.is_leaf, block.nodes, strict=True)
    ]
    # Need ends at reductions: what a clipped norm sums over is all assignments' and no one's own.
    for n in reversed(range(len(needed))):
        if by_element[n] and needed[n]:
            for a in block.args[n]:
                needed[a] |= needed[n]
    together = [1 << k for k in range(len(ends))]
    for n, node in enumerate(block.nodes):
        state = _assigned(node)
        # What every update reads, a count of steps say, is a scalar: it would join scalar States.
        if state in number and state.shape and needed[n]:
            _join(together, needed[n] | 1 << number[state], state.shape, ends)
    for mask in dict.fromkeys(together):
        members = [n for k, (n, _) in enumerate(ends) if mask >> k & 1]
        # What others need too is read, not computed once for each.
        needed_here = {
            n for n, need in enumerate(needed) if need and not need & ~mask and by_element[n]
        }
        yield _ordered(block, members, needed_here), members


def _assigned(node: Node) -> Assignable | None:
    return getattr(node.attrs, "state", None) or getattr(node.attrs, "parameter", None)


def _join(
    together: list[int], mask: int, shape: tuple[int, ...], ends: Sequence[tuple[int, Assignable]]
) -> None:
    """Makes these assignments, as far as they have this shape, belong together."""
    members = []
    while mask:
        k = (mask & -mask).bit_length() - 1
        mask &= mask - 1
        if ends[k][1].shape == shape:
            members.append(k)
    whole = 0
    for k in members:
        whole |= together[k]
    for k in range(len(ends)):
        if whole >> k & 1:
            together[k] = whole


def _ordered(block: NodeTable, ends: Sequence[int], members: Set[int]) -> Iteration:
    """The own nodes below the ends, operands first, in an order that their structure gives."""
    order: dict[int, None] = {}
    stack = [n for n in reversed(ends) if n in members]
    while stack:
        n = stack[-1]
        waiting = [a for a in block.args[n] if a in members and a not in order]
        if waiting:
            stack += waiting[::-1]
        else:
            order[stack.pop()] = None
    return [*order]


def _structure(block: NodeTable, nodes: Iteration, ends: Sequence[int]) -> Hashable:
    """Equal for components that do the same to their States."""
    place = {n: m for m, n in enumerate(nodes)}
    lines = []
    for n in nodes:
        operands = zip(block.args[n], block.nodes[n].args, strict=True)
        read = tuple([_operand(block, place, a, value) for a, value in operands])
        lines.append((block.kind[n], read))
    return tuple(lines), tuple(place.get(n, -1) for n in ends)


def _operand(block: NodeTable, place: dict[int, int], a: int, value: Value) -> Hashable:
    """What is read: an operation of the component, a slice, a literal, anything else."""
    if a in place:
        return place[a], value.index
    if is_slice(value.node):
        return "slice", value.node.args[0], block.kind[a]
    if is_recorded_anew(value.node):
        return "literal", block.kind[a]
    return value.node.op.name if block.is_leaf[a] else "value", value.type
