"""What a search could choose from, in words: the rules that fired, the choices they leave, what
bounds each kernel of the fast program where its backend has a model of that, and what a library
takes for a kernel where searches have timed both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from luminal.backends.backend import Backend
from luminal.base.numerics import Numerics
from luminal.base.origins import described
from luminal.hlir.graph import Graph
from luminal.program.launch_list import CollectiveLaunch, Program, walk
from luminal.runtime.binding import Signature
from luminal.runtime.report_text import DISPATCHES, table_lines
from luminal.search import database
from luminal.search.cost_model import CostModel
from luminal.search.genome import Genome
from luminal.search.measure import known
from luminal.search.operands import choose_dims
from luminal.search.search import context_of
from luminal.search.space import Space


def explain(graph: Graph, backend: Backend, numerics: Numerics = Numerics.STANDARD) -> str:
    """A table of the rules that matched, a line for each program or Loop body, and what bounds the
    kernels.
    """
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
    dims = choose_dims(Signature(space.graph), {})
    lines += _bounds(candidate.program, dims, backend)
    prices, context = database.default().prices(), context_of(backend, dims)
    lines += map(str, known(space, candidate, prices, dims, context).rows(candidate))
    rows = [("rule", "class", "matches", "new nodes", "ms")]
    for use in sorted(space.rules(), key=lambda use: (-use.matches, use.name)):
        if use.matches:
            numbers = (f"{use.matches:,}", f"{use.new_nodes:,}", f"{use.seconds * 1e3:.1f}")
            rows.append((use.name, use.kind, *numbers))
    return "\n".join([*lines, *table_lines(rows)])


def _bounds(program: Program, dims: Mapping[str, int], backend: Backend) -> Iterator[str]:
    """What a backend says of each kernel, at its first launch, and what a run should take."""
    seen, model = set[int](), CostModel(dims, backend)
    is_known = False
    for launch in walk(program.launches):
        if isinstance(launch, CollectiveLaunch):
            size, seconds = float(launch.bytes.evaluate(dims)), model.collective(launch)
            yield f"{launch.title}: {size:,.0f} bytes sent, {seconds * 1e6:.3g} us by its link"
            continue
        if launch.kernel in seen:
            continue
        seen.add(launch.kernel)
        kernel = program.kernels[launch.kernel]
        values = (int(value.evaluate(dims)) for value in launch.params)
        params = dict(zip((p.name for p in kernel.params), values, strict=True))
        said = backend.explained(kernel, params, float(launch.bytes.evaluate(dims)))
        is_known |= bool(said)
        origin = described(launch.origins)
        of = f" of {origin}" if origin else ""
        for number, line in enumerate(said):
            yield f"    {line}" if number else f"k{launch.kernel} {launch.label}{of}: {line}"
    if is_known:
        seconds = model.cost(program).seconds
        per_launch = backend.costs.launch
        yield f"a run: {seconds * 1e6:.3g} us, of which launches {per_launch * 1e6:g} each"
    for way, taken in backend.predicted(program, dims).items():
        yield f"a run as {DISPATCHES[way]}: {taken}"
