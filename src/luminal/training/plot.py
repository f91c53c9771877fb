"""The losses of a run as a picture: SVG, which needs no package and lies in a page by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.loaders.mapped import given_path
from luminal.loaders.write_atomic import replacing
from luminal.training.metrics import Row

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 26, 40
MOST = 600
"""Points of a line: about one a pixel. Of more, the least and the greatest of each are drawn."""
SMOOTHED = 50
"""The smooth line is an exponential mean over so many parts of the run."""
LOGARITHMIC = 30.0
"""From this ratio of the greatest to the least loss on the scale is logarithmic."""
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """A curve, by name and look."""

    name: str
    points: Points
    color: str
    style: str = 'stroke-width="1.6"'


def check_plot(path: str | Path) -> None:
    """Raises InputError for a path that does not end as a picture does."""
    if Path(path).suffix.lower() not in (".svg", ".html"):
        raise InputError(f"plot={str(path)!r}; it ends in .svg or .html")


def write_plot(rows: Sequence[Row], path: str | Path) -> None:
    """Writes the losses over steps into an SVG or a page of HTML, as the path ends.

    Raises InputError for another end, and where it cannot be written.
    """
    check_plot(path)
    place, text = given_path(path), svg_of(rows)
    if place.suffix.lower() == ".html":
        text = f'<!doctype html><meta charset="utf-8"><title>{escape(place.stem)}</title>{text}\n'
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as file:
            file.write(text.encode())
    except OSError as error:
        raise InputError(f"{place}: cannot be written: {error.strerror}") from error


def svg_of(rows: Sequence[Row]) -> str:
    """Training and validation losses over steps, as SVG."""
    losses = points_of(rows, "loss")
    lines = [
        Line("training", losses, "#8ab4d8", 'stroke-width="0.8" opacity="0.7"'),
        Line("training, smoothed", _smoothed(losses), "#1f6fb2"),
        Line("validation", points_of(rows, "validation_loss"), "#d1662b"),
    ]
    lines = [line for line in lines if line.points]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *(_drawn(lines) if lines else [_text(WIDTH / 2, HEIGHT / 2, "no losses", "middle")]),
        "</svg>",
    ]
    return "".join(parts)


def points_of(rows: Sequence[Row], name: str) -> Points:
    """(step, value) of the rows that have a finite one."""
    pairs = ((row["step"], row.get(name)) for row in rows)
    return [(step, value) for step, value in pairs if value is not None and math.isfinite(value)]


def _drawn(lines: Sequence[Line]) -> Iterator[str]:
    """Axes with their numbers, the lines, and their names."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    is_log = min(ys) > 0 and max(ys) > LOGARITHMIC * min(ys)
    scaled = math.log10 if is_log else float
    left, right = min(xs), max(max(xs), min(xs) + 1)
    low, high = scaled(min(ys)), scaled(max(ys))
    margin = 0.04 * (high - low) or 0.5 * max(abs(high), 1e-3)
    low, high = low - margin, high + margin

    def x_of(x: float) -> float:
        return LEFT + (x - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def y_of(y: float) -> float:
        return HEIGHT - BOTTOM - (scaled(y) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    for y in _decades(low, high) if is_log else _ticks(low, high):
        yield f'<path d="M{LEFT} {y_of(y):.1f}H{WIDTH - RIGHT}" stroke="#e2e2e2"/>'
        yield _text(LEFT - 6, y_of(y) + 4, f"{y:.4g}", "end")
    for x in _ticks(left, right):
        if x == int(x):
            yield _text(x_of(x), HEIGHT - BOTTOM + 16, f"{int(x)}", "middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "step", "middle")
    yield _text(LEFT - 6, TOP - 10, "loss", "end")
    for number, line in enumerate(lines):
        path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in _fewer(line.points))
        drawn = f'd="M{path}" fill="none" stroke="{line.color}" {line.style}'
        yield f"<path {drawn}/>"
        at = LEFT + 150 * number
        yield f'<path d="M{at} {TOP - 13}h18" stroke="{line.color}" stroke-width="2"/>'
        yield _text(at + 23, TOP - 10, line.name, "start")
    last = lines[-1]
    if last.name == "validation":
        for x, y in _fewer(last.points):
            yield f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="2" fill="{last.color}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="#333">{escape(text)}</text>'


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between."""
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(n * unit for n in (1, 2, 5, 10) if n * unit >= rough * 0.999)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between, of wide scales the powers alone."""
    digits = (1, 2, 5) if high - low < 3 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    numbers = [n * 10.0**power for power in powers for n in digits]
    return [number for number in numbers if low <= math.log10(number) <= high]


def _fewer(points: Points) -> Points:
    """Points as they are, or of each of some hundred pieces the least and the greatest."""
    if len(points) <= MOST:
        return points
    size = math.ceil(len(points) / (MOST / 2))
    kept = []
    for start in range(0, len(points), size):
        piece = points[start : start + size]
        ends = {min(piece, key=lambda p: p[1]), max(piece, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept


def _smoothed(points: Points) -> Points:
    """An exponential mean over about a 50th of the points."""
    keep = 1 - min(1.0, SMOOTHED / max(1, len(points)))
    smoothed: Points = []
    for step, loss in points:
        mean = keep * smoothed[-1][1] + (1 - keep) * loss if smoothed else loss
        smoothed.append((step, mean))
    return smoothed
