"""The document that the viewer shows: all that is known of a compiled program, as JSON.

The columns of `values` are the key: everything else says by their numbers what it computes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from luminal.algebra.lower import Lowered, bodies
from luminal.algebra.terms import Term, term_order
from luminal.backends.backend import Backend, Interpreter
from luminal.base import installation
from luminal.base.errors import CompileError
from luminal.base.numerics import Numerics
from luminal.compiler.compile import arranged
from luminal.hlir.graph import Graph
from luminal.program.selection import Selection
from luminal.runtime.report import MemoryReport, Report
from luminal.search.genome import Genome
from luminal.search.space import Space
from luminal.viz import kernels
from luminal.viz.launches import Computed, selections
from luminal.viz.memory import memory
from luminal.viz.searches import genome_of, search
from luminal.viz.sources import Sources
from luminal.viz.spellings import refused, spellings
from luminal.viz.stages import stages
from luminal.viz.terms import TermValues
from luminal.viz.timeline import timeline
from luminal.viz.unrolled import values_of
from luminal.viz.values import ByOrigin, Values

FORMAT = 1


class Compiled(Protocol):
    """An executable, as far as the viewer asks it."""

    def report(self) -> Report:
        """The launches of one run."""

    def memory_report(self) -> MemoryReport:
        """The bytes it holds."""


def document(
    exe: Compiled, graph: Graph, backend: Backend | Interpreter, title: str, numerics: Numerics
) -> dict[str, Any]:
    """All that is known of a program, which is compiled again as it was: as a search decided, or by
    rules. Raises CompileError for a backend without stages.
    """
    if isinstance(backend, Interpreter):
        raise CompileError(
            f"viz: backend {backend.name!r} runs the graph as it is, and there is nothing to see "
            "of a compile; compile for 'cpu' or a device"
        )
    report = exe.report()
    space, genome = Space(graph, backend, numerics), genome_of(report.search)
    fast, compiled = (arranged(space.decode(g).stages, backend) for g in (Genome(), genome))
    values, sources = Values(graph), Sources()
    of_terms = _of_terms(space, values)
    of_lowered = of_terms.completed(_terms(bodies(space.lowered)), values)
    of_chosen = of_terms.completed(_terms(selections(compiled.selection)), values)
    computed = Computed(compiled, of_chosen)
    facts = {
        "format": FORMAT,
        "title": title,
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "luminal": installation.VERSION,
        "machine": {"cpu": backend.hardware, "device": backend.name},
        **of_report(report),
        "values": values.columns(sources),
        "stages": stages(space.lowered, of_lowered, computed, of_chosen, sources),
        "kernels": kernels.kernels(computed, values, sources, backend, fast),
        "launches": kernels.launches(computed, report, backend, report.dims),
        "timeline": timeline(compiled.program, report),
        "memory": memory(computed, values, sources, report.dims, exe.memory_report()),
        "spellings": spellings(space, genome, report.dims, of_terms),
        "search": None if report.search is None else search(report.search, space),
        "other": None,
        "notes": {"spellings": refused(space)},
    }
    return {**facts, **sources.facts()}


def of_report(report: Report) -> dict[str, Any]:
    """What a report knows of the whole run."""
    return {
        "dims": report.dims,
        "prologue": kernels.prologue(report),
        "peaks": None if report.peaks is None else report.peaks._asdict(),
        "run_seconds": report.run_seconds,
        "doubts": report.doubts,
        "gap": report.gap,
    }


def _of_terms(space: Space, values: Values) -> TermValues:
    """The values that terms of the algebra compute."""
    by_origin = ByOrigin(values)
    of_nodes = values_of(space.graph, values, by_origin)
    return TermValues(space.graph, space.lowered, of_nodes, by_origin)


def _terms(blocks: Iterable[Lowered | Selection]) -> Iterator[Term]:
    """The terms below the roots of some blocks."""
    return (term for block in blocks for term in term_order(root.term for root in block.roots))
