"""The document that the viewer shows: all that is known of a compiled program, as JSON.

The columns of `values` are the key: everything else says by their numbers what it computes.
"""

from __future__ import annotations

import platform
import time
from typing import Any, Protocol

from luminal.backends.backend import Interpreter
from luminal.base import installation
from luminal.base.errors import CompileError
from luminal.compiler.dump import Dump
from luminal.runtime.report import MemoryReport, Report
from luminal.viz import kernels
from luminal.viz.launches import Computed
from luminal.viz.memory import memory
from luminal.viz.sources import Sources
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


def document(exe: Compiled, dump: Dump, title: str) -> dict[str, Any]:
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
    computed = Computed(compiled, of_terms)
    facts = {
        "format": FORMAT,
        "title": title,
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "luminal": installation.VERSION,
        "machine": {"cpu": platform.processor() or platform.machine(), "device": backend.name},
        "dims": report.dims,
        "values": values.columns(sources),
        "stages": stages(compiled, of_terms, computed, sources),
        "kernels": kernels.kernels(computed, values, sources, backend),
        "launches": kernels.launches(computed, report, backend, report.dims),
        "prologue": kernels.prologue(report),
        "timeline": timeline(compiled.program, report),
        "memory": memory(computed, values, sources, report.dims, exe.memory_report()),
        "peaks": None if report.peaks is None else report.peaks._asdict(),
        "run_seconds": report.run_seconds,
        "doubts": report.doubts,
        "spellings": [],
        "search": None,
        "other": None,
    }
    return {**facts, **sources.facts()}
