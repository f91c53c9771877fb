"""Outcomes by kinds, as tables, and the worst of them with the lines that run them again."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from bench.fuzz.case import Case
from bench.fuzz.measure import Outcome
from luminal.runtime.report_text import table_lines

WORST = 25
KINDS = 30
LONG_SECONDS = 50e-6  # from here on the work counts, not the call
HEAD = ("", "cases", "mean", "< 1.0", "< 0.5", "worst", "case")
SIZES = ((100, "to 100"), (10_000, "to 10^4"), (1_000_000, "to 10^6"), (10**12, "to 10^7"))

Kind = Callable[[Outcome], str]


def size(outcome: Outcome) -> str:
    """The class of the largest array."""
    return next(name for limit, name in SIZES if outcome.elements <= limit)


def report(outcomes: Sequence[Outcome]) -> str:
    """All tables."""
    timed = [each for each in outcomes if each.seconds]
    wrong = [each for each in outcomes if each.wrong]
    parts = [*_wrong(wrong)]
    if timed:
        for title, kind in _SINGLE.items():
            parts.append(_table(title, timed, kind))
        parts.append(_table("the slowest kinds", timed, _crossed, KINDS))
        parts.append(_worst(timed))
        parts.append(_inductor(timed))
    parts.append(summary(outcomes))
    return "\n\n".join(filter(None, parts))


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line."""
    wrong = sum(bool(each.wrong) for each in outcomes)
    refused = sum(bool(each.refused) for each in outcomes)
    text = f"{len(outcomes)} cases, {wrong} wrong, {refused} refused by PyTorch"
    disturbed = sum(each.disturbed for each in outcomes)
    if disturbed:
        text += f", {disturbed} not timed beside other processes"
    timed = [each for each in outcomes if each.seconds]
    if not timed:
        return text
    ratios = [each.ratio for each in timed]
    long = [each.ratio for each in timed if each.seconds["eager"] >= LONG_SECONDS]
    text += f"; geometric mean {statistics.geometric_mean(ratios):.2f} of eager's speed"
    text += f", {share(ratios, 1.0):.1f}% below 1.0, {share(ratios, 0.5):.1f}% below 0.5"
    text += f", the least {min(ratios):.2f}"
    if long:
        below = sum(ratio < 0.6 for ratio in long)
        text += (
            f"; of {len(long)} where eager takes 50 us: {below} below 0.6, least {min(long):.2f}"
        )
    return text


def share(ratios: Sequence[float], limit: float) -> float:
    """Percent of the ratios below the limit."""
    return 100 * sum(ratio < limit for ratio in ratios) / len(ratios)


def _crossed(outcome: Outcome) -> str:
    case = outcome.case
    return f"{case.family} x {case.layout} x {size(outcome)}"


_SINGLE: dict[str, Kind] = {
    "family": lambda each: each.case.family,
    "layout": lambda each: each.case.layout,
    "size": size,
    "dtype": lambda each: each.case.type,
    "way": lambda each: each.case.way,
}


def _table(title: str, timed: Sequence[Outcome], kind: Kind, most: int | None = None) -> str:
    groups: dict[str, list[Outcome]] = {}
    for each in timed:
        groups.setdefault(kind(each), []).append(each)
    rows = sorted(_row(name, group) for name, group in groups.items())
    shown = [cells for _, cells in rows[:most]]
    return "\n".join(table_lines([(title, *HEAD[1:]), *shown]))


def _row(name: str, group: Sequence[Outcome]) -> tuple[float, tuple[str, ...]]:
    """The mean, to sort by, and the cells."""
    ratios = [each.ratio for each in group]
    mean, worst = statistics.geometric_mean(ratios), min(group, key=lambda each: each.ratio)
    cells = (
        name,
        str(len(group)),
        f"{mean:.2f}",
        f"{share(ratios, 1.0):.0f}%",
        f"{share(ratios, 0.5):.0f}%",
        f"{worst.ratio:.2f}",
        worst.case.id,
    )
    return mean, cells


def _wrong(wrong: Sequence[Outcome]) -> Iterator[str]:
    for each in wrong:
        yield f"WRONG {again(each.case)}\n    {each.wrong}"


def _worst(timed: Sequence[Outcome]) -> str:
    slow = sorted((each for each in timed if each.ratio < 1), key=lambda each: each.ratio)[:WORST]
    lines = [f"{times(each)}  {again(each.case)}" for each in slow]
    return "\n".join(("the worst", *lines)) if lines else ""


def times(outcome: Outcome) -> str:
    """The ratio, and the microseconds of both sides."""
    ours, eager = (outcome.seconds[side] * 1e6 for side in ("ours", "eager"))
    return f"{outcome.ratio:5.2f} {ours:9.1f} us, eager {eager:9.1f}"


def again(case: Case) -> str:
    """What runs this case again."""
    return f"{case.id}  --case '{case}'"


def _inductor(timed: Sequence[Outcome]) -> str:
    ratios = [
        each.seconds["inductor"] / each.seconds["ours"]
        for each in timed
        if "inductor" in each.seconds
    ]
    if not ratios:
        return ""
    mean = statistics.geometric_mean(ratios)
    return (
        f"against inductor: {len(ratios)} cases, geometric mean {mean:.2f}, "
        f"{share(ratios, 1.0):.0f}% below 1.0, the least {min(ratios):.2f}"
    )
