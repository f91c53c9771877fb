"""The kernels of a program with their texts, and the launches of a run with what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import count
from typing import Any

from luminal.backends.backend import Backend
from luminal.base.errors import LuminalError
from luminal.base.origins import described
from luminal.compiler.compile import Stages
from luminal.kernel import tile_text
from luminal.kernel.tile_ir import Kernel, Role
from luminal.program.launch_list import (
    CollectiveLaunch,
    KernelLaunch,
    Launch,
    LoopLaunch,
    Program,
    walk,
)
from luminal.runtime.report import KernelRow, Report
from luminal.runtime.roofline import Bound
from luminal.viz.causes import causes
from luminal.viz.launches import Computed
from luminal.viz.sources import Sources
from luminal.viz.values import Values

ABOVE = 1.005  # of a roof: what passes it by less is told as 100%
LONGEST = 120_000  # characters of a kernel's text that are shown


def kernels(
    computed: Computed, values: Values, sources: Sources, backend: Backend, fast: Stages
) -> list[dict[str, Any]]:
    """Every distinct kernel, with the launches of a run that are it; of one with another schedule
    than in the program of `fast` that one too.
    """
    program = computed.compiled.program
    by_rules = dict(zip((o.name for o in fast.origins), fast.program.kernels, strict=True))
    launches = [*walk(program.launches)]
    prologue = [*walk(program.prologue)]
    facts = []
    names = [origin.name for origin in computed.compiled.origins]
    for number, (kernel, name) in enumerate(zip(program.kernels, names, strict=True)):
        mine = [n for n, launch in enumerate(launches) if _is_of(launch, number)]
        first = next((x for x in (*launches, *prologue) if _is_of(x, number)), None)
        of = computed.of_kernel(number)
        facts.append(
            {
                "number": number,
                "label": "" if first is None else first.label,
                "origin": "" if first is None else _origin(first),
                "of": of,
                "lines": sources.lines(values.recorded(of)),
                "causes": causes(kernel),
                "texts": dict(_texts(kernel, by_rules.get(name, kernel), backend)),
                "rows": mine,
            }
        )
    return facts


def launches(
    computed: Computed, report: Report, backend: Backend, dims: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A row for each launch site of a run, in order."""
    program = computed.compiled.program
    sites = [*_sites(program.launches, -1, count())]
    rows = []
    for (launch, loop), row in zip(sites, report.kernels, strict=True):
        reads, writes = _touched(program, launch)
        rows.append(
            {
                **costs(report, row),
                "loop": loop,
                "of": computed.of(launch),
                "reads": reads,
                "writes": writes,
                **_on_chip(program, launch, backend, dims),
            }
        )
    return rows


def prologue(report: Report) -> list[dict[str, Any]]:
    """The launches that run after a weight was set."""
    return [costs(report, row) for row in report.prologue]


def costs(report: Report, row: KernelRow) -> dict[str, Any]:
    """What a launch does and takes."""
    peaks = report.peaks
    return {
        "kernel": row.kernel,
        "label": row.label,
        "origin": row.origin,
        "trips": row.trips,
        "chunks": row.chunks,
        "flops": row.flops,
        "bytes": row.bytes,
        "seconds": row.seconds,
        "share": report.share(row),
        "bound": None if peaks is None or row.is_collective else row.limit(peaks)[0],
        "least_seconds": None if peaks is None or row.is_collective else row.limit(peaks)[1],
        "roofline": row.roofline(peaks),
        "impossible": row.is_impossible(peaks),
        "note": _note(row, report),
    }


def _note(row: KernelRow, report: Report) -> str:
    """What must be said of a launch's share of the roofline; mostly nothing."""
    share = row.roofline(report.peaks)
    if row.is_impossible(report.peaks):
        return (
            "less time than the counted work can take on this machine, so no share of the roofline "
            "is given: a launch may skip some of that work (masked blocks), or its time is wrong"
        )
    if report.peaks is None or share is None or share <= ABOVE:
        return ""
    return f"above 100%: {_PASSED[row.limit(report.peaks)[0]]}"


_PASSED: Mapping[Bound, str] = {
    "compute": "the roof is float32's, as it was measured; products of narrower numbers pass it, "
    "and so do launches that ran while the machine was faster than then",
    "cache": "what it reads lay in a nearer cache than the one that was measured",
    "memory": "part of what it reads still lay in a cache",
}


def _sites(
    launches: tuple[Launch, ...], loop: int, numbers: Iterator[int]
) -> Iterator[tuple[KernelLaunch | CollectiveLaunch, int]]:
    """The launch sites, each with the number of the Loop around it."""
    for launch in launches:
        if isinstance(launch, LoopLaunch):
            yield from _sites(launch.body, next(numbers), numbers)
        else:
            yield launch, loop


def _touched(
    program: Program, launch: KernelLaunch | CollectiveLaunch
) -> tuple[list[int], list[int]]:
    """The buffers that a launch reads, and those that it writes."""
    reads: dict[int, None] = {}
    writes: dict[int, None] = {}
    for buffer, role in program.accesses(launch):
        if role is not Role.OUT:
            reads[buffer] = None
        if role is not Role.IN:
            writes[buffer] = None
    return [*reads], [*writes]


def _on_chip(
    program: Program, launch: KernelLaunch | CollectiveLaunch, backend: Backend,
    dims: Mapping[str, int],
) -> dict[str, Any]:  # fmt: skip
    """What the backend's model of the chip says of a launch: in lines, and what of a unit's
    registers and memory it takes.
    """
    if isinstance(launch, CollectiveLaunch):
        return {"occupancy": None, "explained": []}
    kernel = program.kernels[launch.kernel]
    values = (int(value.evaluate(dims)) for value in launch.params)
    params = dict(zip((p.name for p in kernel.params), values, strict=True))
    taken = backend.occupancy(kernel, params)
    return {
        "occupancy": None if taken is None else asdict(taken),
        "explained": [*backend.explained(kernel, params, float(launch.bytes.evaluate(dims)))],
    }


def _texts(kernel: Kernel, by_rules: Kernel, backend: Backend) -> Iterator[tuple[str, str]]:
    """The forms of a kernel in processing order; what cannot be made says why."""
    text, other = tile_text.to_text(kernel), tile_text.to_text(by_rules)
    yield "tile", _short(text)
    if other != text:
        yield "fast", _short(other)
    for name, write in backend.renderers.items():
        try:
            yield name, _short(write(kernel))
        except LuminalError as error:  # as where a compiler's disassembler is missing
            yield name, f"(not available: {error})"


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n... {len(text) - LONGEST:,} more characters"


def _is_of(launch: KernelLaunch | CollectiveLaunch, number: int) -> bool:
    return isinstance(launch, KernelLaunch) and launch.kernel == number


def _origin(launch: KernelLaunch | CollectiveLaunch) -> str:
    return described(launch.origins) if isinstance(launch, KernelLaunch) else ""
