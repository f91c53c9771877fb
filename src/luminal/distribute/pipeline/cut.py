"""Where the graph of a microbatch is cut into stages, and of which stage each of its nodes is.

Forward nodes stand in the order in which they were recorded, so that operands come first, and a
stage is a run of them: any value may be read by any later stage. What gradients are computed by
stands where that stands which it is the gradient of. A stage takes the predicted seconds of its
nodes, forward and backward, and of what it sends and is sent; the slowest one shall take as few as
can be, and then as little shall be sent as can be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.base.costs import Link
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.distribute.edges import edge_of
from luminal.distribute.price import Machine, flops, node_seconds, size_of
from luminal.hlir.attributes import WeightAttrs
from luminal.hlir.graph import Assign, Graph, topological
from luminal.hlir.ops import Node, Value

Array = np.ndarray[Any, Any]
SLACK = 1.05
"""How much longer than it has to the slowest stage may take where less is sent then: the
predictions are no better.
"""
_MOVING = ("View", "Cast", "Shard", "Detach")
"""What of a Parameter is taken for the Parameter itself: any stage may compute it anew."""


@dataclass(frozen=True, slots=True)
class Microbatch:
    """A recorded step of one microbatch: a graph with the output `loss`, an output for the gradient
    of each Parameter, and what its forward pass assigns; its nodes in the order of `recorded`, and
    of which node's derivative those are that were `pulled` for gradients.
    """

    graph: Graph
    loss: str
    gradients: tuple[str, ...]
    recorded: Sequence[Node]
    pulled: Mapping[Node, Node]


@dataclass(frozen=True, slots=True)
class Cut:
    """The stage of each node; Views and what any stage may compute (`free`) have none."""

    stages: int
    stage: Mapping[Node, int]
    forward: frozenset[Node]
    free: frozenset[Node]
    seconds: tuple[float, ...]
    """The predicted seconds of each stage, messages left out."""


def cut(step: Microbatch, stages: int, machine: Machine, link: Link) -> Cut:
    """The step in so many stages.

    Raises InputError where the model has fewer layers: operations on Parameters.
    """
    free = free_nodes(step.graph)
    forward = _forward(step)
    order = [
        node
        for node in step.recorded
        if node in forward and node not in free and node.op.name != "View"
    ]
    place: dict[Node, int] = {node: k for k, node in enumerate(order)}
    _place_gradients(step, forward, free, place)
    seconds = np.zeros(len(order))
    for node, at in place.items():
        seconds[at] += node_seconds(node, machine)
    of_parameters = _of_parameters(step.graph)
    layers = np.array([_is_layer(node, of_parameters) for node in order], np.int64)
    if stages > layers.sum():
        raise InputError(
            f"{stages} stages: the model has {layers.sum()} layers (products, look-ups, "
            f"loops with Parameters), and each stage has one at least; give "
            f"stages={layers.sum()} or fewer"
        )
    ends = _ends(stages, seconds, layers, _crossing(order, place, free), link)
    stage = {node: bisect_right(ends, at) for node, at in place.items()}
    by_stage = np.add.reduceat(seconds, [0, *ends])
    return Cut(stages, stage, frozenset(forward), free, tuple(map(float, by_stage)))


def free_nodes(graph: Graph) -> frozenset[Node]:
    """What any stage may compute for itself: what is made of inputs and numbers element by element,
    and Parameters, moved and cast.
    """
    free: set[Node] = set()
    moving: set[Node] = set()
    for node in graph.nodes():
        operands = [edge_of(arg).value.node for arg in node.args]
        if isinstance(node.attrs, WeightAttrs) or (
            node.op.name in _MOVING and operands[0] in moving
        ):
            moving.add(node)
        elif node.op.name in ("Input", "Constant", "Iota") or (
            (node.op.is_pointwise or node.op.name in _MOVING)
            and all(operand in free for operand in operands)
        ):
            free.add(node)
    return frozenset(free | moving)


def _forward(step: Microbatch) -> set[Node]:
    """The nodes of the forward pass."""
    roots = [
        sink.value
        for sink in step.graph.sinks
        if isinstance(sink, Assign) or sink.name == step.loss
    ]
    return set(topological(roots))


def _place_gradients(
    step: Microbatch, forward: set[Node], free: frozenset[Node], place: dict[Node, int]
) -> None:
    """Adds where the nodes of the backward pass stand."""
    last, readers = len(place) - 1, _last_readers(step, forward, place)
    for node in step.graph.nodes():
        if node in forward or node in free or node.op.name == "View":
            continue
        read = [value.node for value in values_read(node, free)]
        flowing = [place[other] for other in read if other not in forward]
        origin = step.pulled.get(node, node)
        at = place.get(origin)
        # Gradients of one value meet as late stages know them, so one is sent, and not many.
        is_sum = node.op.name == "Add" and 0 < len(flowing) == len(node.args)
        if at is None or is_sum:  # also what is of what any stage may compute: where it comes from
            at = min(flowing or [place[other] for other in read] or [last])
        # Of a view it is no later than what reads that, which another stage's gradient may skip.
        place[node] = min([at, *flowing, readers.get(origin, last)])


def _last_readers(
    step: Microbatch, forward: set[Node], place: Mapping[Node, int]
) -> dict[Node, int]:
    """Where the last reader stands of each forward node that has no place."""
    readers: dict[Node, int] = {}
    for node in reversed(step.graph.nodes()):
        at = place.get(node, readers.get(node))
        if node in forward and at is not None:
            for arg in node.args:
                if arg.node not in place:
                    readers[arg.node] = max(at, readers.get(arg.node, 0))
    return readers


def _is_layer(node: Node, of_parameters: set[Node]) -> bool:
    """Is it a product with a Parameter, a look-up in one, or a loop or kernel that reads one?"""
    if flops(node):
        node = edge_of(node.args[0]).value.node
    elif node.op.name not in ("Gather", "Loop", "Custom"):
        return False
    return any(arg.node in of_parameters for arg in node.args)


def _of_parameters(graph: Graph) -> set[Node]:
    """What is made of Parameters and numbers alone."""
    numbers: set[Node] = set()
    parameters: set[Node] = set()
    for node in graph.nodes():
        operands = {arg.node for arg in node.args}
        if isinstance(node.attrs, WeightAttrs) or (
            operands & parameters and all(x in parameters or x in numbers for x in operands)
        ):
            parameters.add(node)
        elif node.op.name in ("Constant", "Iota") or (operands and operands <= numbers):
            numbers.add(node)
    return parameters


def _crossing(order: Sequence[Node], place: Mapping[Node, int], free: frozenset[Node]) -> Array:
    """The bytes of the values that are there before each place and read from it on."""
    last: dict[Value, int] = {}
    for at, node in enumerate(order):
        for value in values_read(node, free):
            last[value] = at
    bytes_ = np.zeros(len(order) + 1)
    for value, end in last.items():
        bytes_[place[value.node] + 1 : end + 1] += size_of(value)
    return bytes_


def values_read(node: Node, free: frozenset[Node]) -> list[Value]:
    """The values with a stage that a node reads, through what any stage may compute."""
    return [value for arg in node.args if (value := edge_of(arg).value).node not in free]


def _ends(stages: int, seconds: Array, layers: Array, crossing: Array, link: Link) -> list[int]:
    """The places at which stages but the first begin."""
    count = len(seconds)
    until, layers_until = (np.concatenate(([0], np.cumsum(x))) for x in (seconds, layers))
    sent = 2 * crossing / link.bandwidth  # values, and their gradients back; all have latencies

    def cost(end: int) -> Array:
        """The seconds of a stage from each place to `end`."""
        one: Array = until[end] - until[: end + 1] + sent[: end + 1] + sent[end]
        one[layers_until[end] - layers_until[: end + 1] < 1] = np.inf
        return one

    costs = [cost(end) for end in range(count + 1)]
    slowest, _ = dealt(stages, costs, np.maximum)
    allowed = [np.where(one <= SLACK * slowest, crossing[: len(one)], np.inf) for one in costs]
    return dealt(stages, allowed, np.add)[1]


def dealt(stages: int, costs: Sequence[Array], joined: np.ufunc) -> tuple[float, list[int]]:
    """The least that stages cost together, and where all but the first begin."""
    count = len(costs) - 1
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    begins: list[Array] = []
    for _stage in range(stages):
        begin = np.zeros(count + 1, np.int64)
        new = np.full(count + 1, np.inf)
        for end in range(1, count + 1):
            both = joined(best[: end + 1], costs[end])
            begin[end] = both.argmin()
            new[end] = both[begin[end]]
        best = new
        begins.append(begin)
    ends: list[int] = []
    end = count
    for begin in reversed(begins[1:]):
        end = int(begin[end])
        ends.insert(0, end)
    return float(best[count]), ends
