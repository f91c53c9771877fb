"""The document that the viewer shows: all that is known of a compiled program, as JSON.

The columns of `values` are the key: everything else says by their numbers what it computes.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from typing import Any, Protocol

from luminal.algebra.lower import Root, bodies
from luminal.algebra.terms import Term, term_order
from luminal.backends.backend import Interpreter
from luminal.base import installation
from luminal.base.errors import CompileError
from luminal.base.numerics import Numerics
from luminal.compiler.dump import Dump
from luminal.runtime.report import MemoryReport, Report
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
    exe: Compiled, dump: Dump, title: str, numerics: Numerics = Numerics.STANDARD
) -> dict[str, Any]:
    """All that is known of a program. Raises CompileError for a backend without stages."""
    backend = dump.backend
    if isinstance(backend, Interpreter):
        raise CompileError(
            f"viz: backend {backend.name!r} runs the graph as it is, and there is nothing to see "
            "of a compile; compile for 'cpu' or a device"
        )
    report = exe.report()
    compiled, values, sources = dump.stages, Values(dump.graph), Sources()
    by_origin = ByOrigin(values)
    of_nodes = values_of(compiled.graph, values, by_origin)
    of_terms = TermValues(compiled.graph, compiled.lowered, of_nodes, by_origin)
    lowered = (t for body in bodies(compiled.lowered) for t in _terms(body.roots))
    of_lowered = of_terms.completed(lowered, values)
    chosen = (t for one in selections(compiled.selection) for t in _terms(one.roots))
    of_chosen = of_terms.completed(chosen, values)
    computed = Computed(compiled, of_chosen)
    space = Space(dump.graph, backend, numerics)
    genome = genome_of(report.search)
    spelled = spellings(space, genome, report.dims, of_terms)
    facts = {
        "format": FORMAT,
        "title": title,
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "luminal": installation.VERSION,
        "machine": {"cpu": platform.processor() or platform.machine(), "device": backend.name},
        "dims": report.dims,
        "values": values.columns(sources),
        "stages": stages(compiled, of_lowered, of_chosen, computed, sources),
        "kernels": kernels.kernels(computed, values, sources, backend),
        "launches": kernels.launches(computed, report, backend, report.dims),
        "prologue": kernels.prologue(report),
        "timeline": timeline(compiled.program, report),
        "memory": memory(computed, values, sources, report.dims, exe.memory_report()),
        "peaks": None if report.peaks is None else report.peaks._asdict(),
        "run_seconds": report.run_seconds,
        "doubts": report.doubts,
        "gap": report.gap,
        "spellings": spelled,
        "search": None if report.search is None else search(report.search, space),
        "other": None,
        "notes": {"spellings": refused(space)},
    }
    return {**facts, **sources.facts()}


def _terms(roots: Sequence[Root]) -> list[Term]:
    return term_order(root.term for root in roots)
