"""What a search could choose from, in words: the rules that fired, and the choices they leave."""

from __future__ import annotations

from luminal.backends.backend import Backend
from luminal.base.numerics import Numerics
from luminal.hlir.graph import Graph
from luminal.runtime.report_text import table_lines
from luminal.search.genome import Genome
from luminal.search.space import Space


def explain(graph: Graph, backend: Backend, numerics: Numerics = Numerics.STANDARD) -> str:
    """A table of the rules that matched, and a line for each program or Loop body."""
    space = Space(graph, backend, numerics)
    candidate = space.decode(Genome())
    moves = space.moves(candidate)
    lines = []
    for classes in space.all_classes():
        report = classes.report
        ended = f", stopped by the limit of {report.limit}" if report.limit else ""
        lines.append(
            f"{report.nodes} nodes in {report.classes} classes after {report.rounds} rounds, "
            f"{report.seconds * 1e3:.1f} ms{ended}; {len(classes.genes())} classes have a choice"
        )
    schedules = sum(len(space.knobs(candidate, k)) for k in range(len(candidate.program.kernels)))
    kernels = len(candidate.program.kernels)
    lines.append(
        f"{len(moves)} changes of the fast program, {schedules} schedules of its {kernels} kernels"
    )
    rows = [("rule", "class", "matches", "new nodes", "ms")]
    for use in sorted(space.rules(), key=lambda use: (-use.matches, use.name)):
        if use.matches:
            numbers = (f"{use.matches:,}", f"{use.new_nodes:,}", f"{use.seconds * 1e3:.1f}")
            rows.append((use.name, use.kind, *numbers))
    return "\n".join([*lines, *table_lines(rows)])
