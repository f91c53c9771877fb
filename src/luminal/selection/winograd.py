"""Convolutions of 3 x 3 taps with fewer multiplications: Winograd's F(2 x 2, 3 x 3).

Two neighbouring outputs of three taps take four multiplications, not six: with the inputs d0..d3

    m0 = (d0 - d2) g0                   m1 = (d1 + d2) (g0 + g1 + g2) / 2
    m3 = (d1 - d3) g2                   m2 = (d2 - d1) (g0 - g1 + g2) / 2
    y0 = m1 + (m0 + m2)                 y1 = m1 - (m3 + m2)

In both directions of a picture: 16 for 36, and the sum over channels is a product of matrices for
each of the 16. Taps that are weights are transformed by the prologue. Class *domain*: the four
outputs of a tile share its 4 x 4 inputs, and so what is not finite, or far larger than the rest,
in any of them. Lavin & Gray 2016.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from luminal.algebra.frames import upper
from luminal.algebra.terms import Frame, Phase, Term, Terms, axis_order
from luminal.base.costs import Tiles
from luminal.base.dtypes import float32
from luminal.base.records import dataclass
from luminal.selection.rewrite import Respelled
from luminal.shape.expression import Expression, Symbol, axis, ceil_div, const

TAPS = 3
POINTS = 4  # multiplications for two outputs


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution along one axis: taps at the positions s + k of a picture. The results' axis s
    may be split into pairs already, s = 2 * pair + along.
    """

    along: Symbol
    tap: Symbol
    pair: Symbol | None = None
    spare: int = 0  # tiles that nobody reads

    @property
    def tile(self) -> Symbol:
        """Which pair of results, the spare ones too."""
        return axis(f"{self.along.name}.tile", self._pairs + self.spare)

    @property
    def point(self) -> Symbol:
        """Which one of the multiplications."""
        return axis(f"{self.along.name}.point", POINTS)

    @property
    def results(self) -> tuple[Symbol, ...]:
        """The axes of the window's results, outermost first."""
        return (self.along,) if self.pair is None else (self.pair, self.along)

    @property
    def split(self) -> tuple[Symbol, Symbol]:
        """Which pair of results, and which one of it."""
        if self.pair is not None:
            return self.pair, self.along
        return axis(f"{self.along.name}.pair", self._pairs), axis(f"{self.along.name}.of2", 2)

    @property
    def place(self) -> dict[Symbol, Expression]:
        """The split axes of a result."""
        pair, output = self.split
        return {pair: self.along // 2, output: self.along % 2} if self.pair is None else {}

    def at(self, position: Expression) -> dict[Symbol, Expression]:
        """What makes a position of the picture s + k."""
        zeros = dict.fromkeys((self.tap, *self.results), const(0))
        return zeros | {self.along: position}

    @property
    def _pairs(self) -> Expression:
        extent = self.results[0].extent
        assert extent is not None
        return ceil_div(extent, 2) if self.pair is None else extent


def winograd(program: Respelled, worth: Tiles) -> Respelled:
    """The program with 3 x 3 convolutions in tiles of 2 x 2 outputs, where that gains."""
    terms, shapes = program.lowered.terms, program.lowered.shapes
    order = [term for term in program.order() if term in shapes]
    windows_of = {term: w for term in order if (w := _windows(term, worth)) is not None}
    if not windows_of:
        return program
    stored_frames: dict[Term, Frame] = {}  # what is stored on the way, and how

    def replaced(old: Term, same: Term) -> Term:
        if old not in windows_of:
            return same
        return _Tiled(terms, worth, *windows_of[old]).of(same, shapes[old], stored_frames)

    tiled = program.rewrite(replaced)
    lowered = tiled.lowered
    shapes, kept = {**stored_frames, **lowered.shapes}, lowered.kept | stored_frames.keys()
    return replace(tiled, lowered=replace(lowered, shapes=shapes, kept=kept))


def _windows(term: Term, worth: Tiles) -> tuple[Window, Window] | None:
    """The two windows of a 3 x 3 convolution that is worth it."""
    if term.op != "Sum" or term.dtype is not float32 or term.args[0].op != "Mul":
        return None
    data, taps = term.args[0].args
    taps_axes = axis_order(a for a in term.attrs if upper((a,)) == TAPS and a in taps.axes)
    if len(taps_axes) != 2 or taps.phase is Phase.RUN or not _is_picture(data):
        return None
    windows = [w for tap in taps_axes if (w := _window(term, data, taps, tap)) is not None]
    if len(windows) != 2 or not set(windows[0].results).isdisjoint(windows[1].results):
        return None
    channels = upper(set(term.attrs) - {*taps_axes})
    results = upper(taps.axes & term.axes)
    others = data.axes & term.axes - {a for w in windows for a in w.results}
    tiles = upper(others) * prod(upper((w.tile,)) for w in windows)
    if min(channels, results) < worth.channels or not worth.fewest <= tiles <= worth.most:
        return None
    rows, columns = windows
    # Channels that lie a power of two apart would meet in few sets of a cache.
    return rows, replace(columns, spare=int(tiles % worth.colliding == 0))


def _is_picture(data: Term) -> bool:
    """Is the data read at computed positions, perhaps with zeros around it?"""
    if data.op == "Select":
        condition, data, outside = data.args
        if condition.op != "Index" or outside.op != "Literal":
            return False
    return data.op == "At" and len(data.args) == 1


def _positions(data: Term) -> list[Expression]:
    """The expressions by which a picture depends on taps and outputs."""
    if data.op == "Select":
        return [data.args[0].attrs, *_positions(data.args[1])]
    return [position for _, position in data.attrs]


def _window(term: Term, data: Term, taps: Term, tap: Symbol) -> Window | None:
    """The window of a tap: the picture depends on its sum with axes of the results only."""
    base = _unmoved(data)
    if tap in base.axes:
        return None
    expressions = _positions(data)
    candidates = axis_order(
        a for a in term.axes & data.axes - taps.axes - base.axes if _is_fixed(a)
    )
    for along in candidates:
        pairs = [a for a in candidates if a is not along] if upper((along,)) == 2 else []
        for window in (*(Window(along, tap, pair) for pair in pairs), Window(along, tap)):
            # What depends on s + k alone has no tap left once s stands for s - k.
            position = along - tap - (0 if window.pair is None else 2 * window.pair)
            rest = {s for e in expressions for s in e.substitute({along: position}).symbols()}
            if rest.isdisjoint({tap, window.pair}) and along in rest:
                return window
    return None


def _is_fixed(a: Symbol) -> bool:
    return a.extent is not None and a.extent.is_const and a.extent.value > 1


def _unmoved(data: Term) -> Term:
    return _unmoved(data.args[1]) if data.op == "Select" else data.args[0]


# Each axis by itself is F(2, 3): four products for two results of three taps. Applied to rows and
# columns that is 16 products for four results, which would take 36 (Lavin and Gray, arXiv
# 1509.09308). It is spelled in the algebra, so that transformed weights are a prologue's and the
# products are products like any others.
class _Tiled:
    """The terms of one convolution in tiles; `windows` are those of rows and columns."""

    def __init__(self, terms: Terms, worth: Tiles, rows: Window, columns: Window) -> None:
        self.terms = terms
        self.worth = worth
        self.windows = rows, columns

    def of(self, conv: Term, frame: Frame, stored_frames: dict[Term, Frame]) -> Term:
        """The convolution, whose axes stand in `frame`; `stored_frames` takes what is stored."""
        x, weights = conv.args[0].args
        data, taps = self.data(x), self.taps(weights)
        product = self.terms.pointwise("Mul", (data, taps), float32)
        bound = set(conv.attrs) - {w.tap for w in self.windows}
        products = self.terms.reduce("Sum", bound, product, merge=False)
        result = products
        for window in self.windows:
            result = self.outputs(result, window)
        # Points outermost in memory: each has a product
        # of matrices, which lie as those of any other do.
        groups = tuple((a,) for a in axis_order(data.axes & taps.axes & conv.axes))
        points = *((w.point,) for w in self.windows), *groups
        channels = axis_order(bound)
        tiles = {a: (w.tile,) * (a is w.results[0]) for w in self.windows for a in w.results}
        columns = tuple(
            c for d in frame for a in d if a not in taps.axes for c in tiles.get(a, (a,))
        )
        rows = axis_order(taps.axes & conv.axes - data.axes)
        stored_frames[data] = *points, channels, columns
        stored_frames[taps] = *points, rows, channels
        fill = upper(columns) > self.worth.columns
        stored_frames[products] = (*points, rows, columns) if fill else (*points, columns, rows)
        parts = {w.along: w.split for w in self.windows if w.pair is None}
        stored_frames[result] = tuple(
            tuple(c for a in d for c in parts.get(a, (a,))) for d in frame
        )
        return self.terms.at(result, self.windows[0].place | self.windows[1].place)

    def data(self, data: Term) -> Term:
        """The picture at the points of every tile: columns first, each for several rows."""
        rows, columns = self.windows
        assert rows.tile.extent is not None
        row = axis(f"{rows.along.name}.row", 2 * rows.tile.extent + TAPS - 1)
        inside = self.differences(
            columns, lambda u: self.picture(data, rows.at(row) | columns.at(u))
        )
        return self.differences(rows, lambda u: self.terms.at(inside, {row: u}))

    def picture(self, data: Term, where: dict[Symbol, Expression]) -> Term:
        """The picture at other positions; 0 behind its end, where half a tile lies."""
        terms = self.terms
        if data.op == "Select":
            condition, x, outside = data.args
            inner = terms.boolean(condition.attrs.substitute(where))
            return terms.pointwise("Select", (inner, self.picture(x, where), outside), float32)
        base = data.args[0]
        positions = {a: position.substitute(where) for a, position in data.attrs}
        x = terms.at(base, positions)
        for a, position in positions.items():
            assert a.extent is not None
            inside = position < a.extent
            # A last tile of one result reads on behind the picture, for a result that nobody reads.
            if not (inside.is_const and inside.value):
                zero = terms.literal(bytes(float32.size), float32)
                x = terms.pointwise("Select", (terms.boolean(inside), x, zero), float32)
        return x

    def differences(self, window: Window, at: Callable[[Expression], Term]) -> Term:
        """d0 - d2, d1 + d2, d2 - d1, d1 - d3 by the window's point."""
        m, start = window.point, 2 * window.tile
        # By the points 0 to 3: first is 0, 1, 2, 1 and second 2, 2, 1, 3.
        first, second = m - 2 * (m // 3), 2 - m // 2 + 2 * (m // 3)
        sign = 2 * ((m + 2) // 3 - m // 2) - 1  # 1 at the point 1, else -1
        a, b = at(start + first), at(start + second)
        return self.sum(a, self.times(b, sign))

    def taps(self, taps: Term) -> Term:
        """g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2 by the points of both windows."""
        terms = self.terms
        for window in self.windows:
            m = window.point
            g0, g1, g2 = (terms.at(taps, {window.tap: const(k)}) for k in range(TAPS))
            half = terms.literal(np.float32(0.5).tobytes(), float32)
            sign = 3 - 2 * m  # 1 at the point 1, -1 at the point 2
            middle = self.sum(self.sum(g0, g2), self.times(g1, sign))
            inner = terms.pointwise("Mul", (middle, half), float32)
            # Selects compute all their arms: here in the
            # prologue. What runs has arithmetic of the point.
            is_first, is_last = (terms.boolean(m.eq(const(k))) for k in (0, POINTS - 1))
            rest = terms.pointwise("Select", (is_last, g2, inner), float32)
            taps = terms.pointwise("Select", (is_first, g0, rest), float32)
        return taps

    def outputs(self, products: Term, window: Window) -> Term:
        """m1 + (m0 + m2) and m1 - (m3 + m2), by the window's pair of results and which of it."""
        m, (pair, p) = window.point, window.split
        outer, one, two = (
            self.terms.at(products, {m: k, window.tile: pair}) for k in (3 * p, const(1), const(2))
        )
        return self.sum(one, self.times(self.sum(outer, two), 1 - 2 * p))

    def sum(self, a: Term, b: Term) -> Term:
        return self.terms.pointwise("Add", (a, b), float32)

    def times(self, x: Term, sign: Expression) -> Term:
        return self.terms.pointwise("Mul", (x, self.terms.index(sign, float32)), float32)
