"""Small drawings as SVG text: a line over time, points under a roof, one bar of shares.

Every function returns markup; what comes from outside is escaped here, in `text` and `tag`.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from luminal.base.records import dataclass

WIDTH, HEIGHT = 760, 320
LEFT, RIGHT, TOP, BOTTOM = 112, 40, 24, 48
BAR_HEIGHT = 30
NAME_HEIGHT, NAME_WIDTH = 15, 60  # of a line's name
NAME_ABOVE, NAME_BELOW = 10, 20  # its place beside the line, clear of a point
COLOURS = 8  # classes c0 ... c7 of the page's style sheet

Format = Callable[[float], str]


class Point(NamedTuple):
    """A point of a chart; `note` shows under the pointer."""

    x: float
    y: float
    note: str
    colour: int = 0


class Axis(NamedTuple):
    """An axis by its name, and how its values are spelled."""

    name: str
    spell: Format
    least_step: float = 0.0  # between its values: 1 where they count something


class Line(NamedTuple):
    """A line through points, with its name at its end."""

    points: Sequence[tuple[float, float]]
    name: str
    kind: str  # its class in the style sheet


def text(content: object) -> str:
    """Anything as text in markup."""
    return html.escape(str(content))


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element; `class_` is class, `text_anchor` is text-anchor. Children are markup."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(_number(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(children)}</{name}>"


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from lo to hi, drawn from `start` to `end`."""

    lo: float
    hi: float
    start: float
    end: float
    log: bool
    least_step: float = 0.0

    def place(self, value: float) -> float:
        """The position at which a value is drawn; beyond the ends it sticks to them."""
        lo, hi = self._warp(self.lo), self._warp(self.hi)
        part = (self._warp(min(max(value, self.lo), self.hi)) - lo) / (hi - lo)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values between the ends: powers of ten, or steps of 1, 2 or 5."""
        if self.log:
            first, last = math.ceil(math.log10(self.lo)), math.floor(math.log10(self.hi))
            step = max(1, -(-(last - first) // 6))
            return [10.0**k for k in range(first, last + 1, step)]
        rough = max((self.hi - self.lo) / 5, self.least_step)
        power = 10.0 ** math.floor(math.log10(rough))
        step_size = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
        first = math.ceil(self.lo / step_size - 1e-9)
        last = math.floor(self.hi / step_size + 1e-9)
        return [k * step_size for k in range(first, last + 1)]

    def _warp(self, value: float) -> float:
        return math.log10(value) if self.log else value


def scales(
    points: Sequence[tuple[float, float]], axes: tuple[Axis, Axis], log: bool
) -> tuple[Scale, Scale]:
    """Scales for x and y that show all points: whole decades, or from zero upwards."""
    ends = [(LEFT, WIDTH - RIGHT), (HEIGHT - BOTTOM, TOP)]
    pair = []
    for values, (start, end), axis in zip(zip(*points, strict=True), ends, axes, strict=True):
        if log:
            shown = [value for value in values if value > 0] or [1.0]
            lo = 10.0 ** math.floor(math.log10(min(shown)))
            hi = 10.0 ** math.ceil(math.log10(max(shown)))
            pair.append(Scale(lo, hi if hi > lo else 10 * lo, start, end, log))
        else:
            pair.append(Scale(0.0, max(values) * 1.05 or 1.0, start, end, log, axis.least_step))
    return pair[0], pair[1]


def chart(
    lines: Sequence[Line],
    points: Sequence[Point],
    axes: tuple[Axis, Axis],
    log: bool = False,
) -> str:
    """Lines and points over two named axes with ticks."""
    shown = [at for line in lines for at in line.points] + [(p.x, p.y) for p in points]
    if not shown:
        return ""
    x, y = scales(shown, axes, log)
    parts = [*_grid(x, y, axes), *_names(axes)]
    parts += [_line(line, x, y) for line in lines]
    parts += [_point(point, x, y) for point in points]
    parts += _line_names(lines, x, y)  # over the points, which would hide them
    drawing = _drawing(HEIGHT, parts, f"{axes[1].name} over {axes[0].name}")
    return tag("div", tag("div", drawing, class_="chart"), class_="wide")


def shares(parts: Sequence[tuple[str, float]]) -> str:
    """One bar cut into named parts of the whole."""
    whole = sum(size for _, size in parts) or 1.0
    drawn, at = [], 0.0
    for number, (name, size) in enumerate(parts):
        width = size / whole * WIDTH
        title = tag("title", text(f"{name}: {size / whole:.1%}"))
        shape = tag(
            "rect", title, class_=f"c{number % COLOURS}", x=at, y=0,
            width=max(width - 1.5, 0.5), height=BAR_HEIGHT, rx=2,
        )  # fmt: skip
        drawn.append(shape)
        at += width
    return _drawing(BAR_HEIGHT, drawn, "shares of the whole")


def _grid(x: Scale, y: Scale, axes: tuple[Axis, Axis]) -> Iterable[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in x.ticks():
        at = x.place(value)
        yield tag("line", class_="grid", x1=at, x2=at, y1=TOP, y2=bottom)
        yield tag("text", text(axes[0].spell(value)), x=at, y=bottom + 18, text_anchor="middle")
    for value in y.ticks():
        at = y.place(value)
        yield tag("line", class_="grid", x1=LEFT, x2=right, y1=at, y2=at)
        yield tag("text", text(axes[1].spell(value)), x=LEFT - 8, y=at + 4, text_anchor="end")


def _names(axes: tuple[Axis, Axis]) -> Iterable[str]:
    middle, height = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    yield tag("text", text(axes[0].name), x=middle, y=HEIGHT - 8, text_anchor="middle")
    yield tag(
        "text", text(axes[1].name), x=14, y=height, text_anchor="middle",
        transform=f"rotate(-90 14 {height:.1f})",
    )  # fmt: skip


def _line(line: Line, x: Scale, y: Scale) -> str:
    placed = [(x.place(a), y.place(b)) for a, b in line.points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in placed)
    return tag("polyline", class_=line.kind, points=path)


def _line_names(lines: Sequence[Line], x: Scale, y: Scale) -> Iterable[str]:
    """The names of lines, each above the end of its line, or below it where another name stands
    above; to the right of an end at the left, where the names of values stand.
    """
    taken: list[tuple[float, float]] = []  # left ends and heights
    for line in sorted(lines, key=lambda line: -line.points[-1][1]):
        end, height = x.place(line.points[-1][0]), y.place(line.points[-1][1])
        is_left = end < LEFT + NAME_WIDTH
        left = end if is_left else end - NAME_WIDTH
        tries = itertools.chain((-NAME_ABOVE,), itertools.count(NAME_BELOW, NAME_HEIGHT))
        height += next(step for step in tries if _is_free(left, height + step, taken))
        taken.append((left, height))
        anchor = "start" if is_left else "end"
        yield tag("text", text(line.name), class_="name", x=end, y=height, text_anchor=anchor)


def _is_free(x: float, y: float, taken: Iterable[tuple[float, float]]) -> bool:
    """Does a name at this position touch none of those already drawn?"""
    return all(abs(y - b) >= NAME_HEIGHT or abs(x - a) >= NAME_WIDTH for a, b in taken)


def _point(point: Point, x: Scale, y: Scale) -> str:
    return tag(
        "circle", tag("title", text(point.note)), class_=f"c{point.colour % COLOURS}",
        cx=x.place(point.x), cy=y.place(point.y), r=6,
    )  # fmt: skip


def _drawing(height: float, parts: Iterable[str], label: str) -> str:
    box = f"0 0 {WIDTH} {height}"
    return tag("svg", *parts, viewBox=box, role="img", aria_label=label)


def _number(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
