"""Drawings of a row of the page, as SVG: the ratio beside its target, the same through time."""

from __future__ import annotations

import math
from collections.abc import Sequence

BAR, HEIGHT = 180, 18  # pixels
LEAST, MOST = 1 / 4, 32.0  # ratios at the ends of a bar, on a scale of logarithms
LINE, EDGE = 120, 4


def bar(measured: float, target: float, spread: Sequence[float], kind: str) -> str:
    """From 1 to the ratio a bar, the spread a line, the target a tick; `kind` is its class."""
    start, end = sorted((_at(1.0), _at(measured)))
    low, high = (_at(each) for each in spread)
    middle, goal = HEIGHT / 2, _at(target)
    said = f"{measured:.3g}, from {spread[0]:.3g} to {spread[1]:.3g}; target {target:g}"
    return (
        f'<svg width="{BAR}" height="{HEIGHT}" role="img" aria-label="{said}"><title>{said}</title>'
        f'<rect class="track" width="{BAR}" height="{HEIGHT}" rx="2"/>'
        f'<rect class="{kind}" x="{start:.1f}" y="4" width="{max(end - start, 1):.1f}" '
        f'height="{HEIGHT - 8}"/>'
        f'<line class="one" x1="{_at(1.0):.1f}" x2="{_at(1.0):.1f}" y1="0" y2="{HEIGHT}"/>'
        f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'
        f'<line class="target" x1="{goal:.1f}" x2="{goal:.1f}" y1="1" y2="{HEIGHT - 1}"/></svg>'
    )


def line(values: Sequence[float], loaded: Sequence[bool], labels: Sequence[str]) -> str:
    """The values through time, at equal steps; those of a loaded machine are rings. Empty for
    fewer than two.
    """
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    room = (high - low) or abs(high) or 1.0

    def place(number: int) -> tuple[float, float]:
        x = EDGE + number * (LINE - 2 * EDGE) / (len(values) - 1)
        return x, HEIGHT - EDGE - (values[number] - low) / room * (HEIGHT - 2 * EDGE)

    points = [place(number) for number in range(len(values))]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(
        f'<circle class="dot{" loaded" * busy}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
        f"<title>{label}</title></circle>"
        for (x, y), busy, label in zip(points, loaded, labels, strict=True)
    )
    said = f"from {values[0]:.3g} to {values[-1]:.3g} in {len(values)} records"
    return (
        f'<svg width="{LINE}" height="{HEIGHT}" role="img" aria-label="{said}">'
        f'<polyline class="line" points="{path}"/>{dots}</svg>'
    )


def _at(ratio: float) -> float:
    """Where on the bar a ratio lies."""
    held = min(max(ratio, LEAST), MOST)
    return BAR * math.log(held / LEAST) / math.log(MOST / LEAST)
