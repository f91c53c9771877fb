"""What a step on a mesh takes, predicted: seconds of kernels, of collectives, and memory.

Kernels are taken from the graph: a sum of products runs at the rate of the matrix units or as its
bytes come from memory, whichever takes longer; what is computed element by element is part of what
reads it. Collectives take their best algorithm's time (Thakur, Rabenseifner and Gropp, 2005:
recursive doubling, rings, halving and doubling). Then both are laid out side by side: a collective
begins when its operand is there and the link is free, an operation when its operands are. So a
gradient's reduction hides behind the rest of the backward pass, and an activation's does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from luminal.base.costs import Link
from luminal.base.records import dataclass
from luminal.distribute.distribute import Distributed
from luminal.distribute.edges import edge_of
from luminal.hlir.attributes import CollectiveAttrs, LoopAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Graph, topological
from luminal.hlir.ops import Node, Value
from luminal.hlir.sharding import sent
from luminal.shape.expression import Expression, const, product_of


@dataclass(frozen=True, slots=True)
class Machine:
    """One rank: operations a second of its matrix units, bytes a second and bytes of its memory."""

    flops: float
    bandwidth: float
    memory: float


@dataclass(frozen=True, slots=True)
class Price:
    """A step: `seconds`, of which collectives `exposed` are waited for; of kernels alone, and of
    collectives alone; bytes that a rank sends; bytes that it `holds` for good and at most.
    """

    seconds: float
    kernels: float
    collectives: float
    sent: float
    held: float
    peak: float

    @property
    def exposed(self) -> float:
        """The seconds for which kernels wait."""
        return max(0.0, self.seconds - self.kernels)

    def plus(self, other: Price, times: float) -> Price:
        """This step and `times` what another one adds."""
        return Price(
            self.seconds + times * other.seconds,
            self.kernels + times * other.kernels,
            self.collectives + times * other.collectives,
            self.sent + times * other.sent,
            self.held + times * other.held,
            self.peak + times * other.peak,
        )

    def minus(self, other: Price) -> Price:
        """What this step has more than another one."""
        return self.plus(other, -1)


def collective_seconds(kind: str, size: float, ranks: int, link: Link) -> float:
    """The seconds of a collective whose operand has `size` bytes, by its best algorithm."""
    if ranks == 1:
        return 0.0
    rounds, latency = math.ceil(math.log2(ranks)), link.latency
    transfer = size / link.bandwidth
    share = (ranks - 1) / ranks
    if kind == "all_gather":
        return min(rounds, ranks - 1) * latency + (ranks - 1) * transfer
    if kind in ("reduce_scatter", "all_to_all"):
        steps = ranks - 1 if kind == "all_to_all" else rounds
        return steps * latency + share * transfer
    if kind == "all_reduce":
        doubling = rounds * (latency + transfer)
        halving = 2 * rounds * latency + 2 * share * transfer
        return min(doubling, halving)
    return latency + transfer


def price(out: Distributed, machine: Machine, links: Mapping[str, Link]) -> Price:
    """The predicted step of a rank's graph, whose extents are numbers."""
    schedule = _Schedule(machine, links)
    seconds = schedule.run(out.graph)
    held = sum(size_of(value) for value in _held(out.graph))
    return Price(
        seconds, schedule.kernels, schedule.collectives, schedule.sent, held, held + schedule.peak
    )


class _Schedule:
    """Kernels and collectives side by side, each as early as it can be."""

    def __init__(self, machine: Machine, links: Mapping[str, Link]) -> None:
        self._machine, self._links = machine, links
        self.kernels = self.collectives = self.sent = self.peak = 0.0
        self._busy = self._sending = 0.0

    def run(self, graph: Graph) -> float:
        """The seconds of a graph."""
        nodes = graph.nodes()
        left = Counter(edge_of(arg).value for node in nodes for arg in node.args)
        ready: dict[Node, float] = {}
        held = 0.0
        for node in nodes:
            operands = [edge_of(arg).value for arg in node.args]
            start = max((ready[value.node] for value in operands), default=0.0)
            ready[node] = self._placed(node, start)
            if stays(node):
                held += sum(size_of(Value(node, k)) for k in range(len(node.types)))
                self.peak = max(self.peak, held)
            for value in operands:
                left[value] -= 1
                if not left[value] and stays(value.node):
                    held -= size_of(value)
        return max(ready.values(), default=0.0)

    def _placed(self, node: Node, start: float) -> float:
        """When a node is done that can begin at `start`."""
        if isinstance(node.attrs, CollectiveAttrs):
            size = size_of(edge_of(node.args[0]).value)
            link = self._links[node.attrs.axis]
            seconds = collective_seconds(node.attrs.kind, size, node.attrs.ranks, link)
            self.collectives += seconds
            self.sent += _number(sent(node.attrs.kind, const(round(size)), node.attrs.ranks))
            self._sending = max(self._sending, start) + seconds
            return self._sending
        seconds = node_seconds(node, self._machine)
        self.kernels += seconds
        if seconds:
            self._busy = start = max(self._busy, start) + seconds
        return start


def node_seconds(node: Node, machine: Machine) -> float:
    """The predicted seconds of an operation; 0 for what is computed where it is read."""
    if isinstance(node.attrs, LoopAttrs):
        body = topological(node.attrs.body.results)
        once = sum(node_seconds(inner, machine) for inner in body)
        return once * _number(node.attrs.trips)
    if not _is_kernel(node):
        return 0.0
    moved = sum(size_of(value) for value in sources(node))
    if stays(node):
        moved += sum(size_of(Value(node, k)) for k in range(len(node.types)))
    return max(moved / machine.bandwidth, flops(node) / machine.flops)


def _is_kernel(node: Node) -> bool:
    """Has it a kernel of its own? What is element by element is computed where it is read."""
    return node.op.group in ("reduce", "ordered", "memory") or node.op.name in (
        "Loop", "Custom", "Collective",
    )  # fmt: skip


_SCORES = 4
"""How many times larger than what it is made of a product is that is never stored, as the scores
of attention, which one kernel makes and reads.
"""


def stays(node: Node) -> bool:
    """Is the result in memory until it was read?"""
    if node.op.name != "Sum" or not flops(node):
        return _is_kernel(node)
    return size_of(node.value) <= _SCORES * sum(size_of(value) for value in sources(node))


def sources(node: Node) -> set[Value]:
    """The stored values that a node reads, through what is computed on the way."""
    stored: set[Value] = set()
    seen: set[Value] = set()  # random numbers are of a value that many paths lead to
    waiting = [edge_of(arg).value for arg in node.args]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.node.op.is_pointwise and len(stored) < 16:
            waiting += [edge_of(arg).value for arg in value.node.args]
        elif value.node.op.name not in ("Iota", "Constant"):
            stored.add(value)
    return stored


def flops(node: Node) -> float:
    """Two for each product of a sum of products."""
    if node.op.name != "Sum":
        return 0.0
    operand = edge_of(node.args[0])
    if operand.value.node.op.name != "Mul":
        return 0.0
    return 2.0 * _number(product_of(operand.shape))


def _held(graph: Graph) -> list[Value]:
    return [
        node.value for node in graph.nodes() if isinstance(node.attrs, WeightAttrs | StateAttrs)
    ]


def size_of(value: Value) -> float:
    """The bytes of a value, at the largest that its dims may be."""
    return _number(product_of(value.shape)) * value.dtype.size


def _number(extent: Expression) -> float:
    return float(extent.value) if extent.is_const else float(extent.interval.hi or 1)
