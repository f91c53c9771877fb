"""A report as plain text: tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from luminal.base.markup import card, table

if TYPE_CHECKING:  # report.py prints itself with what is here
    from luminal.runtime.report import Change, Foresight, KernelRow, Report, SearchSummary

DISPATCHES = {"list": "a list", "graph": "a graph", "one": "one kernel"}
SHOWN = 12  # rules and rejections that a text lists; JSON and HTML have all


def text(report: Report) -> str:
    """The whole report, the launches first; of several ranks one after the other."""
    if report.ranks:
        return "\n\n".join(f"{title}: {text(one)}" for title, one in report.ranks)
    lines = [_head(report), *_speed(report), *table_lines(_rows(report))]
    if report.predicted:
        lines.append(predicted(report))
    if report.tasks:
        from luminal.runtime import task_trace  # late: few reports have tasks

        lines.append(task_trace.summary(report.tasks))
    if report.compile_seconds:
        lines.append(_compile(report))
    if report.search is not None:
        lines += _search(report.search)
    return "\n".join(lines)


def notebook(report: Report) -> str:
    """The launches as a table of HTML; of several ranks one after the other."""
    if report.ranks:
        return "".join(card(title) + notebook(one) for title, one in report.ranks)
    said = card("", text="\n".join(lines)) if (lines := _speed(report)) else ""
    return table(_head(report), _rows(report)) + said


def _head(report: Report) -> str:
    dims = ", ".join(f"{name} = {n}" for name, n in report.dims.items())
    head = f"{launches(len(report.kernels))}, {report.flops:,} flops, {report.bytes:,} bytes"
    head += f", {report.sent:,} bytes sent" if report.sent else ""
    head += f", given as {DISPATCHES[report.dispatch]}" if report.dispatch else ""
    return head + (f" at {dims}" if dims else "")


def _rows(report: Report) -> list[tuple[str, ...]]:
    """The launches as cells, under their heads."""
    times: tuple[str, ...] = ("us", "share") if report.seconds is not None else ()
    times += ("roofline", "bound") if report.peaks is not None else ()
    rows = [("kernel", "label", "trips", "chunks", "flops", "bytes", *times, "of")]
    rows += [(*_cells(report, row), row.origin) for row in report.kernels]
    if report.prologue:
        rows += [("", "-- prologue", *[""] * (len(rows[0]) - 2))]
        rows += [(*_cells(report, row), row.origin) for row in report.prologue]
    is_told = any(row.origin for row in (*report.kernels, *report.prologue))
    return rows if is_told else [row[:-1] for row in rows]


ROUNDS_UP = 0.9995 - 1e-9  # of a unit: three digits of the next smaller one would be 1e+03


def launches(count: int) -> str:
    """The number of launches with its noun: `1 launch`, `3 launches`."""
    return f"{count} launch" if count == 1 else f"{count} launches"


def duration(seconds: float) -> str:
    """A time in the unit that suits it: `1.32 us`, `81.4 ms`."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= ROUNDS_UP:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds * 1e9)} ns" if seconds else "0"


def amount(value: float, unit: str) -> str:
    """A number of units with the prefix that suits it: `1.23 GFLOP`."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor * ROUNDS_UP:
            return f"{_digits(value / factor)} {prefix}{unit}"
    return f"{_digits(value)} {unit}".rstrip()


def _digits(value: float) -> str:
    """Three digits that count, and all before the point: never `1e+03` or `1e-05`."""
    if 0 < value < 1e-4:
        return f"{value:.{2 - math.floor(math.log10(value))}f}".rstrip("0")
    return f"{value:,.0f}" if value >= 1000 * ROUNDS_UP else f"{value:.3g}"


def table_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns of equal width under the first row's heads; columns of numbers to the right."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(cell[:1].isdigit() or not cell for cell in column[1:]) for column in columns]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]


def _speed(report: Report) -> list[str]:
    """What a run takes and what the machine could do, where a profile was made."""
    if report.seconds is None or report.run_seconds is None:
        return []
    took = f"a run takes {duration(report.run_seconds)}"
    if not report.adds_up_to_more:
        took += f", its launches {duration(report.seconds)}"
    doubts = [f"! {doubt}" for doubt in report.doubts]
    doubts += [report.gap] * bool(report.gap)
    peaks = report.peaks
    if peaks is None:
        return [took, *doubts]
    flops, memory = amount(peaks.flops, "FLOP/s"), amount(peaks.memory, "B/s")
    cache = amount(peaks.cache, "B/s")
    machine = f"the machine reaches {flops}, reads {memory} from memory, {cache} from cache"
    return [f"{took}; {machine}", *doubts]


def _cells(report: Report, row: KernelRow) -> tuple[str, ...]:
    numbers = (row.trips, row.chunks, row.flops, row.bytes)
    kernel = "" if row.is_collective else str(row.kernel)
    cells = (kernel, row.label, *(f"{n:,}" for n in numbers))
    if report.seconds is None:
        return cells
    share, roofline, peaks = report.share(row), row.roofline(report.peaks), report.peaks
    cells += ("" if row.seconds is None else f"{row.seconds * 1e6:,.2f}",)
    cells += ("" if share is None else f"{share:.1%}",)
    if peaks is None:
        return cells
    if roofline is None:
        return (*cells, "", "")
    return (*cells, f"{roofline:.0%}", row.limit(peaks)[0])


def _compile(report: Report) -> str:
    total = sum(report.compile_seconds.values())
    longest = sorted(report.compile_seconds.items(), key=lambda step: -step[1])
    steps = ", ".join(f"{name} {duration(seconds)}" for name, seconds in longest)
    return f"compiled in {duration(total)}: {steps}"


def _search(search: SearchSummary) -> list[str]:
    spent = search.history[-1].seconds if search.history else 0.0
    source = "taken from the database" if search.from_database else f"searched {duration(spent)}"
    fast, best = duration(search.fast_seconds), duration(search.best_seconds)
    lines = [
        f"{search.mode}, seed {search.seed}: {source}, {search.candidates:,} candidates, "
        f"{search.kernels_built:,} kernels built",
        *sides(search),
        f"fast {fast}, best {best}: {search.decision}" if search.fast_seconds else search.decision,
    ]
    lines += [f"- {changed(change)}" for change in search.changes]
    if search.dispatches:
        lines.append(dispatched(search))
    lines += map(str, search.libraries)
    if search.foresight.schedules:
        lines.append(foreseen(search.foresight))
    if search.rejected:
        rejected = sorted(search.rejected, key=lambda row: -row.candidates)
        cells = [(f"{row.candidates:,}", row.reason, row.example) for row in rejected[:SHOWN]]
        lines += table_lines([("rejected", "because", "for example"), *cells])
        lines += _more(len(rejected))
    if search.rules:
        rules = sorted(search.rules, key=lambda row: -row.new_nodes)
        used = [
            (row.name, row.kind, f"{row.matches:,}", f"{row.new_nodes:,}", f"{row.seconds:.4f}")
            for row in rules[:SHOWN]
        ]
        lines += table_lines([("rule", "class", "matches", "new nodes", "seconds"), *used])
        lines += _more(len(rules))
    return lines


def predicted(report: Report) -> str:
    """What a run should take by each way of giving its launches to the device."""
    ways = [f"{duration(taken)} as {DISPATCHES[way]}" for way, taken in report.predicted.items()]
    return f"by the facts of its chip a run takes {', '.join(ways)}"


def foreseen(foresight: Foresight) -> str:
    """How well schedules were ordered before they were timed."""
    return (
        f"order of {foresight.schedules:,} schedules of {foresight.kernels} kernels before they "
        f"were timed: rank correlation {foresight.expected:.2f} by what was learned ("
        f"{foresight.known:,} timings of this chip before), {foresight.predicted:.2f} by counting"
    )


def dispatched(search: SearchSummary) -> str:
    """How the launches of the chosen program are given to the device, and what other ways took."""
    first, *others = [f"{DISPATCHES[way]} {duration(taken)}" for way, taken in search.dispatches]
    return f"launches as {first}; as {', as '.join(others)}" if others else f"launches as {first}"


def changed(change: Change) -> str:
    """A choice of a search, and what it gains."""
    gain = "" if change.without is None else f" (without it {change.without:.2f}x the time)"
    return f"{change.text}{gain}"


def sides(search: SearchSummary) -> list[str]:
    """What the structure of programs and the schedules of their kernels got, if anything."""
    if not search.structure.seconds + search.schedules.seconds:
        return []
    sides = (("structure", search.structure), ("schedules", search.schedules))
    parts = [f"{name} {side.candidates:,} in {duration(side.seconds)}" for name, side in sides]
    return [f"of these {', '.join(parts)}"]


def _more(count: int) -> list[str]:
    return [f"... and {count - SHOWN} more"] if count > SHOWN else []
