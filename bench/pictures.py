"""The table for people: a page of HTML, and bars of how many times faster than the best peer."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.row import HEAD, Row, Skipped

PAGE = """<!doctype html><meta charset="utf-8"><title>Luminal: measurements</title>
<style>body{{font:14px system-ui;margin:2em}}table{{border-collapse:collapse}}
td,th{{padding:2px 10px;text-align:left;border-bottom:1px solid #ddd}}
.FAIL{{background:#fdd}}.skipped{{color:#888}}</style>
<h1>Measurements</h1><p>{facts}</p><table><tr>{head}</tr>
{rows}</table>
"""
INCHES = 0.24  # of a bar


def page(rows: Sequence[Row | Skipped], facts: Mapping[str, Any], path: Path) -> None:
    """Writes the table; missed targets are marked."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in HEAD)
    lines = []
    for row in rows:
        kind = "skipped" if isinstance(row, Skipped) else "pass" if row.passed else "FAIL"
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row.cells())
        lines.append(f'<tr class="{kind}">{cells}</tr>')
    said = [f"{name}: {value}" for name, value in facts.items() if name != "rows"]
    text = PAGE.format(facts=html.escape("; ".join(said)), head=head, rows="\n".join(lines))
    path.write_text(text, "utf-8")


def plot(rows: Sequence[Row | Skipped], path: Path) -> None:
    """Draws the rows that are ratios, their targets as marks; raises ImportError without
    matplotlib.
    """
    from matplotlib.figure import Figure

    ratios = [row for row in rows if isinstance(row, Row) and row.unit == "x"][::-1]
    figure = Figure(figsize=(10, 1 + INCHES * len(ratios)), layout="constrained")
    axes = figure.subplots()
    colours = ["tab:green" if row.passed else "tab:red" for row in ratios]
    axes.barh([row.name for row in ratios], [row.measured for row in ratios], color=colours)
    axes.plot([row.target for row in ratios], range(len(ratios)), "k|", label="target")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("times as fast as the best peer")
    axes.legend()
    figure.savefig(path, dpi=100)
