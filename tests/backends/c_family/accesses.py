"""Accesses of default kernels that take more than they need, and the list of those that are known.

A kernel of a program may have no access to global memory that touches more than twice the least
sectors, no access to shared memory in a loop that takes more than twice the least turns of its
banks, and no scratch in global memory; unless `known_accesses.json` says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import luminal as lm
from luminal.base.dtypes import DType
from luminal.codegen.c_family.kernel import spell_tiles
from luminal.compiler.assemble import UNTUNED
from luminal.compiler.compile import lower_by_stages, reschedule
from luminal.hlir.graph import Graph
from luminal.nn.functional import scaled_dot_product_attention
from luminal.program.launch_list import walk
from luminal.runtime.binding import Signature
from luminal.schedule.groups.counts import Access
from luminal.schedule.groups.work import work
from luminal.search.operands import choose_dims
from tests.backends import op_table
from tests.backends.c_family import offline
from tests.backends.c_family.dialects import among

FILE = Path(__file__).with_name("known_accesses.json")
MOST = 2.0  # times the least
SLACK = 1.01  # beyond what the list allows

Key = tuple[str, str, str]
"""A program, the label of one of its kernels, and what is found of it."""


@dataclass(frozen=True)
class Found:
    """How many times the least an access takes at most (of scratch: 1), and that access."""

    excess: float
    text: str


def fault_of(access: Access) -> str | None:
    """What is wrong with an access, if anything is."""
    if access.by_data:
        return None
    if access.place == "scratch":
        return "scratch"
    if access.place == "global":
        return "sectors" if access.excess > MOST else None
    return "conflicts" if access.is_looped and access.excess > MOST else None


def findings(program: str, graph: Graph) -> dict[Key, Found]:
    """The worst access of each kind of each kernel of a program of `fast`, as they are before
    launches are joined, which depends on what stands beside them.
    """
    backend = offline.backend("cuda")
    compiled = reschedule(lower_by_stages(graph, backend), backend, UNTUNED).program
    dims = choose_dims(Signature(graph), {})
    found: dict[Key, Found] = {}
    for launch in walk(compiled.launches):
        kernel = spell_tiles(compiled.kernels[launch.kernel], backend.dialect).expanded
        values = (int(value.evaluate(dims)) for value in launch.params)
        params = {p.symbol.name: n for p, n in zip(kernel.params, values, strict=True)}
        for access in work(kernel, params).accesses:
            kind = fault_of(access)
            if kind is not None:
                key = program, launch.label, kind
                excess = 1.0 if kind == "scratch" else access.excess
                if key not in found or found[key].excess < excess:
                    found[key] = Found(excess, str(access))
    return found


def merged(all_found: Iterable[dict[Key, Found]]) -> dict[Key, Found]:
    """The worst of several."""
    worst: dict[Key, Found] = {}
    for found in all_found:
        for key, each in found.items():
            if key not in worst or worst[key].excess < each.excess:
                worst[key] = each
    return worst


# --- the list -------------------------------------------------------------------------------------


def known() -> dict[str, Any]:
    """The file: `reasons` by their names, and `entries`."""
    read: dict[str, Any] = json.loads(FILE.read_text())
    return read


def entries() -> dict[Key, dict[str, Any]]:
    """What is known, by what it is of."""
    return {(row["program"], row["kernel"], row["finding"]): row for row in known()["entries"]}


def unknown(found: dict[Key, Found]) -> list[str]:
    """Findings that the list lacks, or that are worse than it says."""
    listed = entries()
    return [
        f"{' | '.join(key)}: {each.excess:.3g} times the least: {each.text}"
        for key, each in found.items()
        if key not in listed or each.excess > listed[key]["most"] * SLACK
    ]


def unneeded(found: dict[Key, Found], programs: Iterable[str]) -> list[str]:
    """Entries of whole programs of which nothing is found any more, or less than they say."""
    complete = set(programs)
    return [
        f"{' | '.join(key)}: the list says {row['most']}, found is "
        f"{found[key].excess if key in found else 0:.3g}"
        for key, row in entries().items()
        if key[0] in complete and (key not in found or found[key].excess * SLACK < row["most"])
    ]


def write(found: dict[Key, Found], programs: Iterable[str]) -> None:
    """The list with what is needed of it: figures as they are now, no new entries."""
    document, complete = known(), set(programs)
    rows = []
    for row in document["entries"]:
        key = row["program"], row["kernel"], row["finding"]
        if key in found:
            row["most"] = float(f"{found[key].excess:.4g}")
        if key in found or row["program"] not in complete:
            rows.append(row)
    save(document["reasons"], rows)


def save(reasons: dict[str, str], rows: list[dict[str, Any]]) -> None:
    used = {row["reason"] for row in rows}
    lines = [f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in reasons.items() if k in used]
    written = [f"    {json.dumps(row)}" for row in rows]
    FILE.write_text(
        '{\n  "reasons": {\n' + ",\n".join(lines) + '\n  },\n  "entries": [\n'
        + ",\n".join(written) + "\n  ]\n}\n"
    )  # fmt: skip


# --- programs -------------------------------------------------------------------------------------


def of(make: Callable[..., lm.Tensor], *shapes: tuple[int, ...], dtype: str = "f32") -> Graph:
    """A program of inputs of these shapes."""
    cx = lm.Graph()
    inputs = [cx.tensor(shape, name=f"x{n}", dtype=dtype) for n, shape in enumerate(shapes)]
    make(*inputs).output("y")
    return cx.graph()


SQUARE = 4096, 4096
LARGE: dict[str, Callable[[], Graph]] = {
    "softmax": lambda: of(lambda x: x.softmax(-1), SQUARE),
    "gelu": lambda: of(lambda x: x.gelu(), SQUARE),
    "layer norm": lambda: of(lambda x: x.layer_norm(-1), SQUARE),
    "sum of all": lambda: of(lambda x: x.sum(), SQUARE),
    "sum of columns": lambda: of(lambda x: x.sum(0), SQUARE),
    "sum of rows": lambda: of(lambda x: x.sum(1), SQUARE),
    "transposed": lambda: of(lambda x: x.T * 1.0, SQUARE),
    "one row": lambda: of(lambda x, y: x @ y, (1, 4096), SQUARE),
    "one row of bf16": lambda: of(lambda x, y: x @ y, (1, 4096), SQUARE, dtype="bf16"),
    "product of f32": lambda: of(lambda x, y: x @ y, SQUARE, SQUARE),
    "product of bf16": lambda: of(lambda x, y: x @ y, SQUARE, SQUARE, dtype="bf16"),
    "attention of f32": lambda: of(scaled_dot_product_attention, *[(8, 1024, 64)] * 3),
    "attention of bf16": lambda: of(
        scaled_dot_product_attention, *[(8, 1024, 64)] * 3, dtype="bf16"
    ),
    "sort": lambda: of(lambda x: x.sort()[0], (256, 4096)),
    "cumulative sum": lambda: of(lambda x: x.cumsum(-1), SQUARE),
}
"""Programs as large as those that a GPU is for."""


@cache
def of_large(name: str) -> dict[Key, Found]:
    """What is found of a large program."""
    return findings(name, LARGE[name]())


def of_op_table(dtype: DType) -> Iterator[dict[Key, Found]]:
    """What is found of each group of the op table."""
    for group in op_table.GROUPS:
        if op_table.takes(group, dtype):
            table = op_table.Table(among("cuda"))
            group(table, dtype)
            yield findings(f"op table, {group.__name__}", Graph(tuple(table.outputs)))


TABLE = [f"op table, {group.__name__}" for group in op_table.GROUPS]
