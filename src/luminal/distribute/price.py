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
from collections.abc import Mapping, Sequence, Set

from luminal.base.costs import Link
from luminal.base.records import dataclass
from luminal.distribute.distribute import Distributed
from luminal.distribute.edges import edge_of
from luminal.hlir.attributes import CollectiveAttrs, LoopAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Graph, Output, topological
from luminal.hlir.ops import Node, Value
from luminal.hlir.sharding import sent
from luminal.shape.expression import Expression, const, product_of

WIDEST = 16
"""The bytes of the widest number."""


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
    is_ring = kind in ("all_gather", "reduce_scatter", "all_reduce")
    transfer = size / (link.bandwidth if is_ring else link.apart or link.bandwidth)
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
    schedule = _Schedule(out.graph, machine, links)
    schedule.run(out.graph.nodes())
    return schedule.price(sum(size_of(value) for value in _held(out.graph)))


@dataclass(frozen=True, slots=True)
class Passes:
    """A part of a model, forward and `back`; `saved`: the bytes that lie there in between, and are
    part of the peaks of both.
    """

    forward: Price
    back: Price
    saved: float


def passes(
    out: Distributed, machine: Machine, links: Mapping[str, Link], first: Set[str], gradient: str,
    widest: int = WIDEST,
) -> Passes:  # fmt: skip
    """The predicted passes of a part of a model: of a rank's graph with outputs that are there
    when its forward pass ends (`first`), and gradients of Parameters, whose names begin so.

    Gradients are added up elsewhere, over microbatches, and over ranks once a step: neither their
    bytes nor the collectives that add them are counted here. `widest`: the most bytes that a
    number takes where it lies and where it is sent.
    """
    values = {sink.name: sink.value for sink in out.graph.sinks if isinstance(sink, Output)}
    ahead = topological([values[name] for name in first])
    ends = [value for name, value in values.items() if name.startswith(gradient)]
    schedule = _Schedule(out.graph, machine, links, ends, widest)
    schedule.run(ahead)
    forward = schedule.price()
    saved = schedule.turn([values[name] for name in first])
    before = set(ahead)
    schedule.run([node for node in out.graph.nodes() if node not in before])
    return Passes(forward, schedule.price(), saved)


class _Schedule:
    """Kernels and collectives side by side, each as early as it can be."""

    def __init__(
        self, graph: Graph, machine: Machine, links: Mapping[str, Link],
        elsewhere: Sequence[Value] = (), widest: int = WIDEST,
    ) -> None:  # fmt: skip
        self._machine, self._links, self._widest = machine, links, widest
        ends = {edge_of(sink.value).value for sink in graph.sinks}
        kernels = {n for n in graph.nodes() if _is_kernel(n)} | {v.node for v in ends}
        self._reads = {node: sources(node) for node in kernels}
        self._left = Counter(value for read in self._reads.values() for value in read)
        added = {value for end in elsewhere for value in _behind(end)}
        self._left.update(ends - added)
        self._unsent = {v.node for v in added if isinstance(v.node.attrs, CollectiveAttrs)}
        self._elsewhere = added | {v for node in self._unsent for v in self._reads[node]}
        self._ready: dict[Node, float] = {}
        self._live: set[Value] = set()
        self._start()

    def _start(self) -> None:
        self._kernels = self._collectives = self._sent = self._busy = self._sending = 0.0
        self._ready = dict.fromkeys(self._ready, 0.0)
        self._held = self._peak = sum(map(self._size, self._live))

    def turn(self, away: Sequence[Value]) -> float:
        """Begins to count anew, without what goes `away`; the bytes that lie there."""
        for end in away:
            self._read(edge_of(end).value)
        self._start()
        return self._held

    def price(self, held: float = 0.0) -> Price:
        """What was run since the beginning, beside what is `held` for good."""
        seconds = max(self._ready.values(), default=0.0)
        return Price(seconds, self._kernels, self._collectives, self._sent, held, held + self._peak)

    def run(self, nodes: Sequence[Node]) -> None:
        """Adds what these nodes take."""
        for node in nodes:
            operands = [edge_of(arg).value for arg in node.args]
            start = max((self._ready[value.node] for value in operands), default=0.0)
            self._ready[node] = self._placed(node, start)
            if stays(node) or node.op.name == "Input":
                results = {Value(node, k) for k in range(len(node.types))}
                self._live |= {v for v in results if self._left[v]} - self._elsewhere
                self._held += sum(map(self._size, results & self._live))
                self._peak = max(self._peak, self._held)
            for value in self._reads.get(node, ()):
                self._read(value)

    def _size(self, value: Value) -> float:
        return size_of(value, self._widest)

    def _read(self, value: Value) -> None:
        """A value is read once more, and is gone where that was the last time."""
        self._left[value] -= 1
        if not self._left[value] and value in self._live:
            self._live.remove(value)
            self._held -= self._size(value)

    def _placed(self, node: Node, start: float) -> float:
        """When a node is done that can begin at `start`."""
        if node in self._unsent:
            return start
        if isinstance(node.attrs, CollectiveAttrs):
            size = self._size(edge_of(node.args[0]).value)
            link = self._links[node.attrs.axis]
            seconds = collective_seconds(node.attrs.kind, size, node.attrs.ranks, link)
            self._collectives += seconds
            self._sent += _number(sent(node.attrs.kind, const(round(size)), node.attrs.ranks))
            self._sending = max(self._sending, start) + seconds
            return self._sending
        seconds = node_seconds(node, self._machine, self._widest)
        self._kernels += seconds
        if seconds:
            self._busy = start = max(self._busy, start) + seconds
        return start


def node_seconds(node: Node, machine: Machine, widest: int = WIDEST) -> float:
    """The predicted seconds of an operation; 0 for what is computed where it is read."""
    if isinstance(node.attrs, LoopAttrs):
        body = topological(node.attrs.body.results)
        once = sum(node_seconds(inner, machine) for inner in body)
        return once * _number(node.attrs.trips)
    if not _is_kernel(node):
        return 0.0
    moved = sum(size_of(value, widest) for value in sources(node) if _lies(value.node))
    if stays(node):
        moved += sum(size_of(Value(node, k), widest) for k in range(len(node.types)))
    return max(moved / machine.bandwidth, flops(node) / machine.flops)


def _behind(value: Value) -> set[Value]:
    """The stored values that a value is, or is computed of where it is read."""
    value = edge_of(value).value
    return {value} if _is_kernel(value.node) or not value.node.args else sources(value.node)


def _is_kernel(node: Node) -> bool:
    """Has it a kernel of its own? What is element by element is computed where it is read."""
    if node.op.name in ("Loop", "Custom", "Collective"):
        return True
    return node.op.group in ("reduce", "ordered", "memory") and not _is_of_one(node)


def _is_of_one(node: Node) -> bool:
    """Is it a reduction along dimensions of one position, as ranks have them of what is cut?"""
    if node.op.group != "reduce":
        return False
    before, after = (product_of(shape) for shape in (node.args[0].shape, node.types[0].shape))
    return before == after


_SCORES = 4
"""How many times larger than what it is made of a product is that is never stored, as the scores
of attention, which one kernel makes and reads.
"""


def stays(node: Node) -> bool:
    """Is the result in memory until it was read?"""
    if node.op.name != "Sum" or not flops(node):
        return _is_kernel(node)
    return size_of(node.value) <= _SCORES * sum(size_of(value) for value in sources(node))


def _lies(node: Node) -> bool:
    """Is the value in memory? Scores of attention are not: what reads them makes them."""
    return not _is_kernel(node) or stays(node)


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
        if value.node.op.name == "After":  # its token is not read
            waiting.append(edge_of(value.node.args[0]).value)
        elif (value.node.op.is_pointwise or _is_of_one(value.node)) and len(stored) < 16:
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


def size_of(value: Value, widest: int = WIDEST) -> float:
    """The bytes of a value, at the largest that its dims may be; a number has `widest` at most."""
    return _number(product_of(value.shape)) * min(value.dtype.size, widest)


def _number(extent: Expression) -> float:
    return float(extent.value) if extent.is_const else float(extent.interval.hi or 1)
