"""The compiler: HLIR to a Program, one pure step after the other."""

from __future__ import annotations

from dataclasses import replace

from luminal.algebra.lower import Lowered, lower
from luminal.backends.backend import Backend
from luminal.base import config, tracing
from luminal.base.numerics import Numerics
from luminal.base.records import dataclass
from luminal.compiler.assemble import UNTUNED, Begin, Origin, Placements, Tuned, assemble
from luminal.compiler.side_by_side import side_by_side
from luminal.hlir import verify as hlir_verify
from luminal.hlir.graph import Graph, topological
from luminal.hlir.prune import pruned
from luminal.program import selection as selections
from luminal.program import selection_text
from luminal.program.buckets import bucketed
from luminal.program.launch_list import Program
from luminal.program.overlap import overlapped
from luminal.program.partition import partition
from luminal.program.selection import Selection
from luminal.program.steps import Partition
from luminal.rolling.roll import roll
from luminal.selection import dots, fast, layouts


@dataclass(frozen=True, slots=True)
class Stages:
    """Every IR of one compile, in order; the Program is what a backend runs.

    `origins` has one for each kernel of the Program. `placed` are the kernels placed so far.
    """

    graph: Graph
    lowered: Lowered
    selection: Selection
    partition: Partition
    program: Program
    origins: tuple[Origin, ...]
    placed: Placements


def lower_to_program(
    graph: Graph, backend: Backend, numerics: Numerics = Numerics.STANDARD
) -> Program:
    """The program of `fast` for a graph; `numerics` as in `luminal.compile`."""
    return lower_by_stages(graph, backend, numerics).program


# Each step takes one IR and gives the next, and no step calls another. So each can be printed,
# replaced or tested by itself, and a search re-enters the pipeline at `finish` with another
# Selection, or at `reschedule` with other knobs.
def lower_by_stages(
    graph: Graph,
    backend: Backend,
    numerics: Numerics = Numerics.STANDARD,
    begin: Begin | None = None,
) -> Stages:
    """HLIR to a Program by `fast`. Every step takes one IR and gives the next.

    `begin` is told of every kernel as it is placed, the backend of how many operations they are.
    """
    graph = _rolled(graph, backend)
    if begin is not None:
        backend.expect(_operations(graph))
    lowered = _lowered(graph)
    with tracing.span("select"):
        selection = fast.select(lowered, backend.costs, numerics)
        selection = layouts.by_rule(selection, backend.layouts, numerics)
        selection = dots.by_rule(selection, backend.target.dots, numerics)
    return arranged(finish(graph, lowered, selection, backend, begin=begin), backend)


def lower_to_algebra(graph: Graph, backend: Backend) -> tuple[Graph, Lowered]:
    """The steps that no choice enters: the graph as it will run, and its terms."""
    graph = _rolled(graph, backend)
    return graph, _lowered(graph)


def _rolled(graph: Graph, backend: Backend) -> Graph:
    """The graph as it will run: what is used, repeated layers as Loops."""
    if config.get("LUMINAL_VERIFY"):
        hlir_verify.verify(graph)
    with tracing.span("roll"):
        rolled = roll(pruned(graph), backend.costs)
    if config.get("LUMINAL_VERIFY") and rolled is not graph:
        hlir_verify.verify(rolled)
    return rolled


def _lowered(graph: Graph) -> Lowered:
    with tracing.span("lower"):
        return lower(graph)


def _operations(graph: Graph) -> int:
    """The number of operations of a graph, with those of Loops' bodies."""
    bodies = [loop.attrs.body for loop in graph.by_op().get("Loop", ())]
    return len(graph.nodes()) + sum(len(topological(body.results)) for body in bodies)


def finish(
    graph: Graph,
    lowered: Lowered,
    selection: Selection,
    backend: Backend,
    tuned: Tuned = UNTUNED,
    begin: Begin | None = None,
    placed: Placements | None = None,
) -> Stages:
    """A Selection to its Program; `tuned` holds the schedules that differ from the defaults.

    `placed`: kernels placed before, as of another Selection; new ones are added.
    """
    if config.get("LUMINAL_VERIFY"):
        selections.verify(selection)
        selections.verify_for(selection, backend.target)
    if config.get("LUMINAL_DEBUG") >= 3:
        tracing.debug(3, selection_text.to_text(selection))
    with tracing.span("partition"):
        parts = partition(graph, selection)
    placed = {} if placed is None else placed
    program, origins = assemble(graph, parts, backend, tuned, placed, begin)
    return Stages(graph, lowered, selection, parts, program, origins, placed)


# A search tunes and times kernels one by one, so this is the last step, of what it has chosen too.
def arranged(stages: Stages, backend: Backend) -> Stages:
    """The stages with the launches of the Program as they run: those joined that need nothing of
    each other, collectives beside kernels.
    """
    program, origins = side_by_side(stages.program, stages.origins, backend.schedules)
    return replace(stages, program=overlapped(bucketed(program), backend.costs), origins=origins)


def reschedule(stages: Stages, backend: Backend, tuned: Tuned) -> Stages:
    """The stages of the same Selection with other schedules."""
    program, origins = assemble(stages.graph, stages.partition, backend, tuned, stages.placed)
    return replace(stages, program=program, origins=origins)
