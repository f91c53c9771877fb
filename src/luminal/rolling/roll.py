"""Rolling: layers that repeat become one Loop, so that the compiler works on one of them.

Layers are found by structure: in `roll_runs` as a repetition along the longest path, in
`roll_match` by comparing the operands of all repeats, which tells carried values, streams (a Weight
or a State per layer) and invariants apart. `roll_build` puts the Loop in their place.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from luminal.base.costs import Costs
from luminal.hlir.attributes import Body, LoopAttrs
from luminal.hlir.graph import Assign, Builder, Graph, Output, Sink, copied, topological
from luminal.hlir.ops import Node, Value
from luminal.memory.parameter import Parameter
from luminal.rolling.block import NodeTable
from luminal.rolling.build import replaced
from luminal.rolling.cost import without_prologue
from luminal.rolling.followers import with_followers, with_operands
from luminal.rolling.match import LAGS, Iteration, Layers, iteration_before, match
from luminal.rolling.runs import Run, Slices, cut, passed, runs
from luminal.rolling.siblings import families

ALIKE = 24  # nodes that a Loop over what is done alike to many States must save
SAVED = 64  # nodes that a Loop must save: so few are compiled in no time
REGIONS = 8  # Loops in one block: each takes a walk over what is left
TRIED = 8  # places in the period where iterations may begin
SAMPLE = LAGS + 1  # iterations looked at to choose that place


def roll(graph: Graph, costs: Costs) -> Graph:
    """`graph` with repeated layers as Loops; the same object if there are none. `costs` say what
    bodies compute again.
    """
    sinks = _rolled(graph.sinks, costs, graph.nodes(), graph.trained)
    return graph if sinks is graph.sinks else replace(graph, sinks=tuple(sinks))


def _rolled(
    sinks: Sequence[Sink],
    costs: Costs,
    nodes: Sequence[Node] | None = None,
    trained: Set[Parameter] = frozenset(),
) -> Sequence[Sink]:
    """The sinks with repeated layers as Loops; the same sequence if nothing repeats. `nodes`: all
    those below, where they are known.
    """
    roots = [sink.value for sink in sinks]
    nodes = topological(roots) if nodes is None else nodes
    if any(node.op.name == "Loop" for node in nodes):
        sinks = _with_rolled_bodies(nodes, sinks, costs)
        roots = [sink.value for sink in sinks]
        nodes = topological(roots)
    for _ in range(REGIONS):
        if sum(node.op.group != "leaf" for node in nodes) <= SAVED:
            break
        shorter = _once(NodeTable.of(roots, costs, nodes, trained), sinks)
        if shorter is None:
            break
        sinks, roots = shorter, [sink.value for sink in shorter]
        nodes = topological(roots)
    return _with_families(sinks, costs, nodes, trained)


def _with_families(
    sinks: Sequence[Sink], costs: Costs, nodes: Sequence[Node], trained: Set[Parameter]
) -> Sequence[Sink]:
    """Loops over what is done alike to many States; the same sequence if there is no such thing."""
    if sum(isinstance(sink, Assign) for sink in sinks) < 2:
        return sinks
    block = NodeTable.of([sink.value for sink in sinks], costs, nodes, trained)
    for iterations in families(block, sinks):
        if (len(iterations) - 1) * len(iterations[0]) < ALIKE:
            break
        layers = match(block, iterations)
        if layers is None or len(layers.iterations) < len(iterations):
            continue
        here = [sink for sink in sinks if sink.value.node in block.number]
        loops = [sink for sink in sinks if sink.value.node not in block.number]
        new_sinks = replaced(block, here, layers, partial(_shrunk, costs=costs), loops) or here
        if new_sinks is here:
            continue
        sinks = [*new_sinks, *loops]
        if any(
            s.value.node not in block.number and s.value.node.op.name != "Loop" for s in new_sinks
        ):
            nodes = topological([sink.value for sink in sinks])
            return _with_families(sinks, costs, nodes, trained)
    return sinks


def _with_rolled_bodies(
    nodes: Sequence[Node], sinks: Sequence[Sink], costs: Costs
) -> Sequence[Sink]:
    """Rolls inside the Loops that are there already; they go on sharing bodies."""
    bodies: dict[Body, Body] = {}
    values: dict[Value, Value] = {}
    builder = Builder()
    for node in nodes:
        attrs = node.attrs
        if isinstance(attrs, LoopAttrs):
            if attrs.body not in bodies:
                bodies[attrs.body] = _shrunk(attrs.body, costs)
            attrs = attrs._replace(body=bodies[attrs.body])
        if attrs != node.attrs or any(arg in values for arg in node.args):
            args = [values.get(arg, arg) for arg in node.args]
            for k, value in enumerate(copied(builder, node, args, attrs)):
                values[Value(node, k)] = value
    return [replace(s, value=values.get(s.value, s.value)) for s in sinks] if values else sinks


def _shrunk(body: Body, costs: Costs) -> Body:
    """A Loop body with what repeats in it as Loops; one that updates a State stays as it is, since
    a State in two Loops at once would be copied.
    """
    if any(node.op.name == "Scatter" for node in topological(body.results)):
        return body
    sinks = [Output(value, str(k)) for k, value in enumerate(body.results)]
    rolled = _rolled(sinks, costs)
    return body if rolled is sinks else Body(body.arguments, tuple(s.value for s in rolled))


def _once(block: NodeTable, sinks: Sequence[Sink]) -> list[Sink] | None:
    """The sinks after the longest repetition has become a Loop; None if there is none."""
    slices = cut(block)
    for run in runs(slices):
        if run.saved < SAVED:
            break
        layers = _layers(block, slices, run)
        if layers is not None and _is_worth(block, layers):
            new_sinks = replaced(block, sinks, layers, partial(_shrunk, costs=block.costs))
            if new_sinks is not None:
                return new_sinks
    return None


def _is_worth(block: NodeTable, layers: Layers) -> bool:
    """Enough nodes less, and each iteration has a reduction or another operation that ends a
    kernel: chains of pointwise operations are one kernel, whose rules need to see all of it.
    """
    first, count = layers.iterations[0], len(layers.iterations)
    if (count - 1) * len(first) < SAVED:
        return False
    return any(block.nodes[n].op.group in ("reduce", "ordered", "other") for n in first)


@dataclass(frozen=True, slots=True, order=True)
class _Choice:
    """A place where iterations may begin; the greatest is best."""

    count: int  # of iterations
    saved: int  # minus the bytes that pass from one iteration to the next
    is_plain: bool  # no pointwise operation comes first: those belong to what they follow
    before: int  # minus the number of the slice in which the first begins
    front: tuple[Iteration, ...] = field(compare=False)  # those of the iterations before that slice


def _layers(block: NodeTable, slices: Slices, run: Run) -> Layers | None:
    """The iterations of a run: as many as can be, beginning where few bytes pass from one to the
    next.
    """
    # A period may be cut anywhere. Where few bytes pass, little is carried: mostly at the residual
    # stream, where a person would cut as well.
    starts = range(run.start, min(run.start + run.period, run.end - 2 * run.period + 1))
    live = passed(block, slices, run)
    costs = {start: int(live[_last(run, start) - 1 - run.start]) for start in starts}
    tried = sorted(starts, key=lambda s: (costs[s], s))[:TRIED]
    choices = []
    for start in tried:
        front = _front(block, slices, run, start)
        if front is not None and costs[start] <= 2 * costs[tried[0]]:
            count = len(front) + (run.end - start) // run.period
            first = block.nodes[slices.nodes[start][-1]].op
            choices.append(_Choice(count, -costs[start], not first.is_pointwise, -start, front))
    if not choices:
        return None
    best = max(choices)
    layers = match(block, [*best.front, *_iterations(slices, run, -best.before)])
    if layers is None:
        return None
    for changed in (with_followers, with_operands, without_prologue):
        iterations = changed(block, layers)
        if iterations is not layers.iterations:
            layers = match(block, iterations) or layers
    return layers


def _last(run: Run, start: int) -> int:
    """The first slice of the last whole period from `start` on."""
    return start + ((run.end - start) // run.period - 1) * run.period


def _iterations(slices: Slices, run: Run, start: int, most: int | None = None) -> list[Iteration]:
    count = (run.end - start) // run.period
    begins = range(start, start + min(count, most or count) * run.period, run.period)
    return [[n for k in range(b, b + run.period) for n in slices.nodes[k]] for b in begins]


def _front(block: NodeTable, slices: Slices, run: Run, start: int) -> tuple[Iteration, ...] | None:
    """Iterations before those that begin at a place, whose slices look different because they were
    the first to meet an invariant. None if the ones that begin there are no iterations.
    """
    layers = match(block, _iterations(slices, run, start, SAMPLE))
    if layers is None:
        return None
    front: list[Iteration] = []
    while (before := iteration_before(block, layers)) is not None:
        extended = match(block, [before, *layers.iterations[: SAMPLE - 1]])
        if extended is None or len(extended.iterations) <= min(SAMPLE - 1, len(layers.iterations)):
            break
        layers = extended
        front.insert(0, before)
    return tuple(front)
