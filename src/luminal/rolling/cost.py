"""What belongs into a Loop body: cheap invariants do, what Weights alone decide does not."""

from __future__ import annotations

from math import prod

from luminal.base.costs import Weights
from luminal.base.dots import ON_BITS
from luminal.hlir.ops import Node, Value
from luminal.rolling.block import NodeTable, is_recorded_anew
from luminal.rolling.match import Again, Fixed, Inner, Iteration, Layers, Ref, Stream
from luminal.rolling.packed import is_packed

SCALING = ("Add", "Cast", "Mul")  # what scales are made of by kernels that read them
DEEPEST = 16  # operations that a value is made by


class Inlining:
    """What values cost that are computed where they are used, as `selection.fast` counts."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._known: dict[Node, tuple[int, frozenset[Node]]] = {}
        self._least: dict[tuple[Node, int], tuple[Node, ...]] = {}

    def is_load(self, node: Node) -> bool:
        """Must `node` be read: is it no cheap expression of at most one other value?"""
        stack = [node]
        while stack:
            top = stack[-1]
            if top in self._known:
                stack.pop()
            elif not (top.op.is_pointwise or top.op.group == "view" or is_recorded_anew(top)):
                self._known[top] = (0, frozenset((top,)))
            elif waiting := [arg.node for arg in top.args if arg.node not in self._known]:
                stack += waiting
            else:
                self._known[top] = self._sum(top)
        return node in self._known[node][1]

    def least(self, node: Node, most: int = DEEPEST) -> tuple[Node, ...]:
        """`node`, or what choices of bits, casts to wider numbers and products of scales make it
        of, whichever is fewer bytes: as `selection.kinds` says of terms.
        """
        key = node, most
        if key not in self._least:  # else a chain of squares takes twice as long for each of them
            self._least[key] = self._made_of(node, most)
        return self._least[key]

    def _made_of(self, node: Node, most: int) -> tuple[Node, ...]:
        dtype = node.types[0].dtype
        is_bits = node.op.name in ON_BITS and not dtype.is_signed
        is_scaling = node.op.name in SCALING and dtype.is_float
        if not most or not (is_bits or is_scaling or node.op.name == "View"):
            return (node,)
        operands = (arg.node for arg in node.args if not self._is_literal(arg.node))
        parts = dict.fromkeys(
            part for operand in operands for part in self.least(operand, most - 1)
        )
        if is_bits and any(part.types[0].dtype is not dtype for part in parts):
            return (node,)  # words are of numbers of one size
        return (*parts,) if parts and sum(map(_bytes, parts)) < _bytes(node) else (node,)

    def of_scale(self, node: Node) -> set[Node]:
        """A product of floats that is made of bytes, and what else is fewer than it, and all that
        is computed on the way; nothing of any other value.
        """
        if node.op.name != "Mul" or not node.types[0].dtype.is_float:
            return set()
        least = self.least(node)
        if all(part.types[0].dtype.size > 1 for part in least):
            return set()
        on_the_way, stack = set[Node](), [node]
        while stack:
            top = stack.pop()
            if top not in least and top not in on_the_way:
                on_the_way.add(top)
                stack += [arg.node for arg in top.args]
        return on_the_way

    def _is_literal(self, node: Node) -> bool:
        return not self.is_load(node) and not self._known[node][1]

    def _sum(self, node: Node) -> tuple[int, frozenset[Node]]:
        """(weight of the operations, values read); a dear node is read itself."""
        # The same weights as `selection.fast` counts with, so that what a body inlines here is what
        # a kernel would inline there.
        below = [self._known[arg.node] for arg in node.args]
        weight = sum(operand_weight for operand_weight, _ in below)
        loads = frozenset[Node]().union(*(read for _, read in below))
        is_index = not loads and not node.types[0].dtype.is_float  # an Expression: costs nothing
        if node.op.is_pointwise and not is_index:
            weight += self._weights.of(node.op.name)
        load = self._weights.load
        if weight + load * max(0, len(loads) - 1) >= load:
            return 0, frozenset((node,))
        return weight, loads


def without_prologue(block: NodeTable, layers: Layers) -> list[Iteration]:
    """The iterations without what is dear and depends on their Weights only: outside of the Loop,
    it is computed once per setting of the weights.
    """
    # What a body computes is computed in every run. Cheap values stay there all the same: outside
    # they would be stored once for each layer, and loaded again.
    inlining, first = Inlining(block.costs.weights), layers.iterations[0]
    early: list[bool] = []
    users: list[list[int]] = [[] for _ in first]
    for m, (n, refs) in enumerate(zip(first, layers.refs, strict=True)):
        is_known = all(_is_early(block, ref, early) for ref in refs)
        early.append(is_known and _is_static(block.nodes[n]))
        for ref in refs:
            if isinstance(ref, Inner):
                users[ref.m].append(m)
    carried = {carry.next.m for carry in layers.carries if isinstance(carry.next, Inner)}
    kept = [True] * len(first)
    decoding = [False] * len(first)  # packed weights, and all on the way to them
    scales: set[Node] = set()  # products of floats and bytes, and all on the way to them
    codes = [False] * len(first)  # that are cast to wider integers, and all that is chosen of bits
    for m in reversed(range(len(first))):
        if early[m] and m not in carried:
            node = block.nodes[first[m]]
            decoding[m] = any(decoding[user] for user in users[m]) or is_packed(node)
            # What is cheap stays for a reader that stays; what only the others read goes with them.
            stays = decoding[m] or _widens(node) or not inlining.is_load(node)
            scales |= inlining.of_scale(node)
            stays = stays or node in scales
            as_is = node.types[0].dtype.is_int or node.op.name == "Bitcast"
            cast = any(codes[user] or _widens(block.nodes[first[user]]) for user in users[m])
            if as_is and cast and not decoding[m]:
                # Bytes and scales that sums of dots cast are laid out for them, as they are: below
                # what chooses bits of fewer bytes.
                codes[m] = stays = inlining.least(node) != (node,)
            kept[m] = stays and any(kept[user] for user in users[m])
    if all(kept):
        return layers.iterations
    return [[n for n, keep in zip(nodes, kept, strict=True) if keep] for nodes in layers.iterations]


def _widens(node: Node) -> bool:
    """Is the node a Cast of numbers that take fewer bytes?"""
    if node.op.name != "Cast":
        return False
    (value,) = node.args
    return value.type.dtype.size < node.types[0].dtype.size


def _bytes(node: Node) -> int:
    (result, *_) = node.types
    return prod(extent.value for extent in result.shape) * result.dtype.size


def _is_static(node: Node) -> bool:
    """Can the algebra know the node's value before any run, if it knows the operands?"""
    is_opaque = node.op.group in ("ordered", "other") or node.op.name == "Scatter"
    return not is_opaque and all(extent.is_const for t in node.types for extent in t.shape)


def _is_early(block: NodeTable, ref: Ref, early: list[bool]) -> bool:
    match ref:
        case Inner(m=m):
            return early[m]
        case Stream(values=values):
            return all(is_weight(block, value) for value in values)
        case Again(value=value) | Fixed(value=value):
            return is_weight(block, value)
    return False


def is_weight(block: NodeTable, value: Value) -> bool:
    """Does a value from outside depend on literals, iotas without dims, and Weights only that the
    program does not assign?
    """
    seen: set[Node] = set()
    stack = [value.node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op.name == "Iota":
            is_known = all(s.extent is not None for s in node.attrs.expr.symbols())
        else:
            is_known = node.op.name in ("Weight", "Constant") or node.op.group != "leaf"
            is_known = is_known and getattr(node.attrs, "parameter", None) not in block.trained
        if not is_known or not _is_static(node):
            return False
        stack += [arg.node for arg in node.args]
    return True
