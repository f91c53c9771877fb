"""What values, kernels and schedules are called where a search tells what it changed."""

from __future__ import annotations

from collections.abc import Mapping

from luminal.algebra.terms import Term
from luminal.base.origins import described
from luminal.compiler.compile import Stages
from luminal.egraph.spelling_text import leaf_name
from luminal.kernel.knobs import Knobs
from luminal.program.launch_list import KernelLaunch, walk

_KNOBS: Mapping[str, str] = {
    "along": "vectors run along its {}",
    "by_rows": "{} rows of the matrix at once, as they lie in memory (0: column by column)",
    "call": "computed by a call of {}",
    "chunk": "chunks of about {} operations",
    "columns": "{} vectors of columns at once",
    "lanes": "blocks of {} positions",
    "lines": "squares of {} lines, transposed in registers",
    "outer": "the outer loop goes over {}",
    "pack": "factors packed into strips: {} (1: yes)",
    "row_block": "blocks of {} rows",
    "rows": "the rows of a tile run along axis {} (-1: none)",
    "steps": "blocks of {} steps",
    "streams": "{} vectors at once",
    "sweeps": "what several sweeps need is {}",
    "tile": "tiles of {} in registers (rows x vectors)",
    "vector": "lanes run along axis {} (-1: none)",
    "width": "{} lanes",
}
"""What the choices of schedules mean (`schedule/`); others go by their names."""


def value_in_words(term: Term | None) -> str:
    """A value: its operation and where it was recorded."""
    if term is None:
        return "a value"
    if term.op == "Leaf":
        return leaf_name(term.attrs.value.node)
    where = described([term.recorded])
    return f"{term.op} of {where}" if where else term.op


def kernels_in_words(stages: Stages) -> Mapping[str, str]:
    """The kernels of a program, by their names in genomes."""
    program, origins = stages.program, stages.origins
    words: dict[str, str] = {}
    for launch in walk((*program.prologue, *program.launches)):
        if isinstance(launch, KernelLaunch):
            where = described(launch.origins)
            of = f" of {where}" if where else ""
            text = f"kernel k{launch.kernel} ({launch.label}{of})"
            words.setdefault(origins[launch.kernel].name, text)
    return words


def knobs_in_words(knobs: Knobs) -> str:
    """A schedule's choices; () is the rules' own."""
    words = (_KNOBS.get(name, f"{name} {{}}").format(value) for name, value in knobs)
    return "; ".join(words) or "that of the rules"
