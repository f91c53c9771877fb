"""`python -m bench.page RECORDS...`: records of `python -m bench` as one page, with their history.

The page is one file that fetches nothing. Rows stand by machine and subject; the newest record that
has a row says what it is, older ones say what it was.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from bench.drawings import bar, line
from bench.history import Facts, Place, Series, changes, places
from bench.record import FOLDER, read
from luminal.base.errors import LoadError

STYLE = Path(__file__).with_name("page.css")
HEAD = ("what", "seconds of a call", "ratio, 1/4 to 32", "", "rate, share of the limit", "history")
RULES = "bench/README.md"
LEGEND = (
    "A ratio is the best peer's time over ours: above 1 we are faster. The bar begins at 1, its "
    "thick tick is the target, its thin line the spread over blocks. A limit was measured between "
    "the blocks of its row. Marks: <b>missed</b>, a target that is not met; <b>doubt</b>, a figure "
    "that cannot be true, as it lies above a limit of the same minute; <b>loaded</b>, a row beside "
    "which other programs took processor time. How all this is measured, and how to object: "
    f"{RULES}."
)


def main(arguments: list[str]) -> int:
    """Writes the page; 2 where a file is no record."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=FOLDER / "index.html")
    options = parser.parse_args(arguments)
    try:
        write(options.records, options.out)
    except LoadError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"wrote {options.out}")
    return 0


def write(paths: Sequence[Path], out: Path) -> None:
    """The page of these records. LoadError for one that is none; nothing is written then."""
    text = page([read(path) for path in paths])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, "utf-8")


def page(records: Sequence[Facts]) -> str:
    """All of it as HTML."""
    body = "".join(map(_place, places(records)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Luminal: measurements</title><style>{STYLE.read_text('utf-8')}</style></head>"
        f'<body><h1>Measurements</h1><p class="soft">{LEGEND}</p>{body}</body></html>\n'
    )


def _place(place: Place) -> str:
    newest = place.records[-1]
    parts = [f"<h2>{escape(place.name)}</h2>", _about(newest), _records(place.records)]
    series = sorted(place.series(), key=lambda each: _position(each.subject, newest))
    for subject, rows in groupby(series, key=lambda each: each.subject):
        head = "".join(f"<th>{escape(name)}</th>" for name in HEAD)
        lines = "".join(_row(each, newest) for each in rows)
        title = escape(subject.replace("_", " "))
        parts.append(
            f'<h3>{title}</h3><div class="wide"><table class="rows"><tr>{head}</tr>'
            f"{lines}</table></div>"
        )
    return "".join(parts)


def _position(subject: str, newest: Facts) -> int:
    subjects: list[str] = newest["subjects"]
    return subjects.index(subject) if subject in subjects else len(subjects)


def _about(record: Facts) -> str:
    machine, source, effort = record["machine"], record["source"], record["effort"]
    clocks = ", ".join(f"{name}: {value}" for name, value in machine["clocks"].items())
    memory = (machine["memory_bytes"] or 0) / 2**30
    commit = (source["commit"] or "no commit")[:12] + " with changes" * bool(source["changed"])
    said = [
        f"{machine['vector_bits']}-bit vectors, {memory:.0f} GiB, "
        f"{'virtual, ' * machine['virtual']}{machine['system']}",
        clocks,
        f"{effort['blocks']} blocks of {effort['seconds']:g} s, {effort['pause']:g} s of pause",
        f"{record['made']}, {commit}",
    ]
    features = escape(" ".join(machine["features"]))
    return (
        f'<p class="soft">{escape("; ".join(said))}</p>'
        "<details><summary>features of the processor</summary>"
        f'<p class="soft">{features}</p></details>'
    )


def _records(records: Sequence[Facts]) -> str:
    """What was installed when."""
    head = "".join(f"<th>{escape(record['made'])}</th>" for record in records)
    lines = []
    for package, versions, changed in changes(records):
        cells = "".join(
            f"<td{' class=changed' * new}>{escape(version)}</td>"
            for version, new in zip(versions, changed, strict=True)
        )
        lines.append(f"<tr><td>{escape(package)}</td>{cells}</tr>")
    commits = "".join(f"<td>{escape((r['source']['commit'] or '')[:12])}</td>" for r in records)
    return (
        f"<details{' open' * (len(records) > 1)}><summary>versions</summary>"
        f'<div class="wide"><table><tr><th></th>{head}</tr><tr><td>commit</td>{commits}</tr>'
        f"{''.join(lines)}</table></div></details>"
    )


def _row(series: Series, newest: Facts) -> str:
    record, row = series.points[-1]
    old = "" if record is newest else f' <span class="soft">({escape(record["made"][:10])})</span>'
    name = f"{escape(series.name)}{old}"
    if "reason" in row:
        reason = escape(f"skipped: {row['reason']}")
        return f'<tr class="soft"><td class="name">{name}</td><td colspan="5">{reason}</td></tr>'
    marks = [("missed", not row["passed"] and not row["doubts"]), ("doubt", bool(row["doubts"])),
             ("loaded", row["load"]["loaded"])]  # fmt: skip
    name += "".join(f'<span class="mark {mark}">{mark}</span>' for mark, shown in marks if shown)
    why = "".join(f'<div class="why">{escape(each)}</div>' for each in row["doubts"])
    cells = (_sides(row) + why, *_measured(row), _rates(row), _history(series))
    return f'<tr><td class="name">{name}</td>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _sides(row: Facts) -> str:
    """The seconds of each side, ours first; where they are not told, the row's own words."""
    said = [
        f"<b>{escape(side)} {_seconds(facts['median'])}</b>" if side == "ours" else
        f"{escape(side)} {_seconds(facts['median'])}"
        for side, facts in row["sides"].items()
    ]  # fmt: skip
    return f'<span class="sides">{", ".join(said) or escape(row["detail"])}</span>'


def _measured(row: Facts) -> tuple[str, str]:
    """The drawing and the number."""
    kind = "doubt" if row["doubts"] else "met" if row["passed"] else "missed"
    low, high = row["spread"]
    if row["unit"] != "x":
        said = f"{row['measured']:.3g} {row['unit']}; at most {row['target']:g}"
        return f'<span class="sides">{low:.3g} to {high:.3g}</span>', escape(said)
    drawn = bar(row["measured"], row["target"], row["spread"], kind)
    return drawn, f'<span class="{kind}">{row["measured"]:.3g}</span>'


def _rates(row: Facts) -> str:
    said = []
    for rate in row["rates"]:
        share = "" if rate["share"] is None else f", {rate['share']:.0%} of {rate['limited_by']}"
        said.append(escape(f"{rate['side']} {rate['value']:.3g} {rate['unit']}{share}"))
    return f'<span class="sides">{"<br>".join(said)}</span>'


def _history(series: Series) -> str:
    points = series.measured
    return line(
        [row["measured"] for _, row in points if "measured" in row],
        [row["load"]["loaded"] for _, row in points if "measured" in row],
        [
            escape(f"{row['measured']:.3g} {row['unit']}, {record['made'][:10]}")
            for record, row in points
            if "measured" in row
        ],
    )


def _seconds(value: float) -> str:
    scale, unit = next(
        (scale, unit) for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")) if
        value * scale >= 1 or unit == "us"
    )  # fmt: skip
    return f"{value * scale:.3g} {unit}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
