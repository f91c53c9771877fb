"""A report as one HTML page: style, script and drawings are in it, nothing is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from luminal.runtime import svg
from luminal.runtime.report_text import amount, dispatched, duration, launches, predicted, sides
from luminal.runtime.roofline import Peaks
from luminal.runtime.svg import Axis, Line, Point, tag, text

if TYPE_CHECKING:  # report.py makes its page with what is here
    from luminal.runtime.report import KernelRow, Report, SearchSummary

Cell = tuple[str, float | None]
"""What a table shows, and the number it is sorted by."""

SHARES = 7  # kernels that the bar names; the rest is one part

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2128; --faint: #667; --rule: #dfe2e8;
  --k0: #3565c9; --k1: #d9762b; --k2: #2f9467; --k3: #b3458b; --k4: #8a6d1c; --k5: #5a8fb5;
  --k6: #7a5ac0; --k7: #9aa0aa; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181d; --ink: #e6e8ec; --faint: #9aa2b1;
  --rule: #333943; --k0: #7ea2f2; --k1: #f0a061; --k2: #64c59a; --k3: #e18cc1; --k4: #cdb259;
  --k5: #90c3e6; --k6: #b09cf0; --k7: #7c8494; } }
body { background: var(--paper); color: var(--ink); margin: 2rem auto; max-width: 60rem;
  padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; } .faint { color: var(--faint); }
.wide { overflow-x: auto; } .chart { min-width: 36rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--rule); }
td { overflow-wrap: break-word; } th { white-space: nowrap; color: var(--faint); font-weight: 500; }
.number { text-align: right; white-space: nowrap; } .sortable th { cursor: pointer; }
ul.key { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }
ul.key svg { width: .8rem; height: .8rem; margin-right: .4rem; }
svg { width: 100%; height: auto; display: block; } ul.key svg { display: inline-block; }
svg text { fill: var(--faint); font-size: 12px; }
svg text.name { fill: var(--ink); stroke: var(--paper); stroke-width: 3; paint-order: stroke; }
.grid { stroke: var(--rule); } polyline { fill: none; stroke-width: 2; stroke: var(--faint); }
polyline.best { stroke: var(--k0); } polyline.fast { stroke: var(--k1); stroke-dasharray: 5 4; }
circle { stroke: var(--paper); stroke-width: 1.5; }
.c0 { fill: var(--k0); } .c1 { fill: var(--k1); } .c2 { fill: var(--k2); } .c3 { fill: var(--k3); }
.c4 { fill: var(--k4); } .c5 { fill: var(--k5); } .c6 { fill: var(--k6); } .c7 { fill: var(--k7); }
"""

_SCRIPT = """
for (const head of document.querySelectorAll("table.sortable th")) {
  head.addEventListener("click", () => {
    const column = head.cellIndex, body = head.closest("table").tBodies[0];
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const down = (head.dataset.down = head.dataset.down === "1" ? "0" : "1") === "1";
    const order = (a, b) => a.localeCompare(b, undefined, { numeric: true });
    const compare = (a, b) => (isNaN(a) || isNaN(b) ? order(a, b) : a - b);
    const rows = [...body.rows].sort((a, b) => compare(key(a), key(b)) * (down ? -1 : 1));
    body.append(...rows);
  });
}
"""


def page(report: Report) -> str:
    """The report as the text of one HTML page."""
    sections = [_head(report), _shares(report), _roofline(report), _launches(report)]
    if report.search is not None:
        sections += [_search(report.search), _rejected(report.search), _rules(report.search)]
    sections.append(_compile(report))
    head = "".join(
        [
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            tag("title", "Luminal report"),
            f"<style>{_STYLE}</style>",
        ]
    )
    body = tag("body", *sections, f"<script>{_SCRIPT}</script>")
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>{body}</html>\n'


def _head(report: Report) -> str:
    dims = ", ".join(f"{name} = {n}" for name, n in report.dims.items())
    work = (
        f"{launches(len(report.kernels))}, {amount(report.flops, 'FLOP')}, "
        f"{amount(report.bytes, 'B')} moved" + (f", at {dims}" if dims else "")
    )
    lines = [tag("h1", "Luminal report"), tag("p", text(work))]
    if report.run_seconds is not None and report.seconds is not None:
        lines.append(tag("p", text(_run(report))))
        lines += [tag("p", text(f"Doubtful: {doubt}.")) for doubt in report.doubts]
    else:
        lines.append(tag("p", "No times: call exe.profile(...) first.", class_="faint"))
    if report.predicted:
        lines.append(tag("p", text(f"{predicted(report).capitalize()}.")))
    if report.search is not None:
        lines.append(tag("p", text(f"Search: {report.search.decision}.")))
        if report.search.dispatches:
            lines.append(tag("p", text(f"{dispatched(report.search).capitalize()}.")))
        lines += [tag("p", text(f"{price}.")) for price in report.search.libraries]
    return tag("header", *lines)


def _run(report: Report) -> str:
    """The sentence that says what a run takes, and how that and the sum of its launches come
    together.
    """
    run_seconds, seconds = report.run_seconds or 0.0, report.seconds or 0.0
    if report.adds_up_to_more:
        return f"A run takes {duration(run_seconds)}."
    took = f"A run takes {duration(run_seconds)}; its launches add up to {duration(seconds)}"
    between = run_seconds - seconds
    if between > 0:
        return f"{took}, and what is between them (checks, starts, waits) to {duration(between)}."
    return f"{took}, timed one by one in runs of their own."


def _by_time(report: Report) -> list[tuple[tuple[int, str], float]]:
    """Kernels with their time over all launch sites, the longest first."""
    taken: dict[tuple[int, str], float] = {}
    for row in report.kernels:
        if row.seconds is not None:
            key = (row.kernel, row.label)
            taken[key] = taken.get(key, 0.0) + row.seconds
    return sorted(taken.items(), key=lambda part: -part[1])


def _colours(report: Report) -> dict[int, int]:
    """The colour of each kernel that the bar names: its points have the same one, all others the
    last.
    """
    named = enumerate(_by_time(report)[:SHARES])
    return {kernel: colour for colour, ((kernel, _), _) in named}


def _shares(report: Report) -> str:
    """The time of each kernel, over all its launch sites."""
    ordered = _by_time(report)
    if not ordered:
        return ""
    parts = [(f"{kernel} {label}", seconds) for (kernel, label), seconds in ordered[:SHARES]]
    rest = sum(seconds for _, seconds in ordered[SHARES:])
    if rest:
        parts.append((f"{len(ordered) - SHARES} others", rest))
    whole = sum(seconds for _, seconds in ordered) or 1.0
    names = [
        _key(k, f"{name}: {duration(seconds)}, {seconds / whole:.1%}")
        for k, (name, seconds) in enumerate(parts)
    ]
    return _section(
        "Where a run spends its time", svg.shares(parts), tag("ul", *names, class_="key")
    )


def _roofline(report: Report) -> str:
    peaks = report.peaks
    if peaks is None:
        return ""
    colours = _colours(report)
    points = [
        Point(
            row.flops / row.bytes,
            row.flops / row.seconds,
            _note(row, peaks),
            colours.get(row.kernel, SHARES),
        )
        for row in report.kernels
        if row.seconds and row.flops and row.bytes and not row.is_impossible(peaks)
    ]
    if not points:
        return ""
    measured = (
        f"Measured on all threads: {amount(peaks.flops, 'FLOP/s')} of float32 arithmetic, "
        f"{amount(peaks.memory, 'B/s')} from memory, {amount(peaks.cache, 'B/s')} from cache."
    )
    drawn = svg.chart(
        _roofs(peaks, [point.x for point in points]), points,
        (Axis("flops per byte", lambda value: amount(value, "")),
         Axis("speed", lambda value: amount(value, "FLOP/s"))), log=True,
    )  # fmt: skip
    return _section("Roofline", tag("p", text(measured), class_="faint"), drawn)


def _roofs(peaks: Peaks, intensities: Sequence[float]) -> list[Line]:
    ridges = [("memory", peaks.memory), ("cache", peaks.cache)]
    lo = min(*intensities, *(peaks.flops / bandwidth / 10 for _, bandwidth in ridges))
    hi = max(*intensities, *(peaks.flops / bandwidth * 10 for _, bandwidth in ridges))
    roofs = [
        Line(((lo, lo * bandwidth), (peaks.flops / bandwidth, peaks.flops)), name, "roof")
        for name, bandwidth in ridges
    ]
    level = ((min(line.points[1][0] for line in roofs), peaks.flops), (hi, peaks.flops))
    return [*roofs, Line(level, "compute", "roof")]


def _note(row: KernelRow, peaks: Peaks) -> str:
    percent, bound = row.roofline(peaks) or 0.0, row.limit(peaks)[0]
    return (
        f"{row.kernel} {row.label}: {duration(row.seconds or 0)}, {percent:.0%} of the {bound} roof"
        + (f"; of {row.origin}" if row.origin else "")
    )


def _launches(report: Report) -> str:
    names = ["kernel", "label", "of", "trips", "chunks", "flops", "bytes"]
    rows = [_launch(report, row) for row in report.kernels]
    parts = [_table([*names, "time", "share", "roofline", "bound"], rows, "sortable")]
    if report.prologue:
        parts.append(tag("p", "Once per change of a weight:", class_="faint"))
        early = [_launch(report, row)[: len(names)] for row in report.prologue]
        parts.append(_table(names, early))
    return _section("Launches", *parts)


def _launch(report: Report, row: KernelRow) -> list[Cell]:
    share, roofline, peaks = report.share(row), row.roofline(report.peaks), report.peaks
    numbers = [(f"{n:,}", float(n)) for n in (row.trips, row.chunks, row.flops, row.bytes)]
    return [
        (str(row.kernel), row.kernel),
        (row.label, None),
        (row.origin, None),
        *numbers,
        ("" if row.seconds is None else duration(row.seconds), row.seconds or 0.0),
        ("" if share is None else f"{share:.1%}", share or 0.0),
        ("" if roofline is None else f"{roofline:.0%}", roofline or 0.0),
        ("" if roofline is None or peaks is None else row.limit(peaks)[0], None),
    ]


def _search(search: SearchSummary) -> str:
    finite = [best for best in search.history if math.isfinite(best.best_seconds)]
    spent = f" in {duration(search.history[-1].seconds)}" if search.history else ""
    fast, best = duration(search.fast_seconds), duration(search.best_seconds)
    summary = (
        f"Mode {search.mode}, seed {search.seed}: {search.candidates:,} candidates and "
        f"{search.kernels_built:,} kernels built{spent}"
        + "".join(f"; {line}" for line in sides(search))
        + (", taken from the database" if search.from_database else "")
        + (f". Fast takes {fast}, the best {best}." if search.fast_seconds else ".")
    )
    drawn = ""
    end = max((best.candidates for best in finite), default=0)
    if end:
        steps = [(float(finite[0].candidates), finite[0].best_seconds)]
        for moment in finite[1:]:
            steps += [(moment.candidates, steps[-1][1]), (moment.candidates, moment.best_seconds)]
        level = ((0.0, search.fast_seconds), (float(end), search.fast_seconds))
        points = [
            Point(best.candidates, best.best_seconds, _moment(best.seconds, best.best_seconds))
            for best in finite
        ]
        drawn = svg.chart(
            [Line(level, "fast", "fast"), Line(steps, "best", "best")], points,
            (Axis("candidates", lambda value: f"{value:,.0f}", 1), Axis("time of a run", duration)),
        )  # fmt: skip
    return _section("Search", tag("p", text(summary)), drawn)


def _moment(seconds: float, best_seconds: float) -> str:
    return f"{duration(best_seconds)} after {duration(seconds)}"


def _rejected(search: SearchSummary) -> str:
    rows: list[list[Cell]] = [
        [(f"{row.candidates:,}", row.candidates), (row.reason, None), (row.example, None)]
        for row in search.rejected
    ]
    table = _table(["candidates", "because", "for example"], rows, "sortable")
    return _section("Rejected", table) if rows else ""


def _rules(search: SearchSummary) -> str:
    rows: list[list[Cell]] = [
        [
            (row.name, None),
            (row.kind, None),
            (f"{row.matches:,}", row.matches),
            (f"{row.new_nodes:,}", row.new_nodes),
            (duration(row.seconds), row.seconds),
        ]
        for row in search.rules
    ]
    table = _table(["rule", "class", "matches", "new nodes", "time"], rows, "sortable")
    return _section("Rules", table) if rows else ""


def _compile(report: Report) -> str:
    steps = sorted(report.compile_seconds.items(), key=lambda step: -step[1])
    if not steps:
        return ""
    shown = steps[: svg.COLOURS - 1]
    if len(steps) > len(shown):
        rest = sum(seconds for _, seconds in steps[len(shown) :])
        shown = [*shown, (f"{len(steps) - len(shown)} others", rest)]
    names = [_key(k, f"{name}: {duration(seconds)}") for k, (name, seconds) in enumerate(shown)]
    total = (
        f"{duration(sum(seconds for _, seconds in steps))} in all; a step has its own time, "
        "without that of the steps inside of it."
    )
    parts = [tag("p", text(total)), svg.shares(shown), tag("ul", *names, class_="key")]
    return _section("Where the compile spent its time", *parts)


def _key(number: int, name: str) -> str:
    patch = tag("rect", class_=f"c{number % svg.COLOURS}", width=10, height=10, rx=2)
    return tag("li", tag("svg", patch, viewBox="0 0 10 10"), text(name))


def _table(names: Iterable[str], rows: Iterable[list[Cell]], kind: str = "") -> str:
    body = [tag("tr", *map(_cell, row)) for row in rows]
    numeric = [value is not None for _, value in next(iter(rows), [])]
    heads = [
        tag("th", text(name), class_="number") if number else tag("th", text(name))
        for name, number in zip(names, numeric, strict=False)
    ]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *body), class_=kind)
    return tag("div", table, class_="wide")


def _cell(cell: Cell) -> str:
    shown, value = cell
    if value is None:
        return tag("td", text(shown).replace(".", ".<wbr>"))  # labels may be long
    return tag("td", text(shown), class_="number", data_value=repr(value))


def _section(title: str, *parts: str) -> str:
    return tag("section", tag("h2", text(title)), *parts)
