"""What moves between the levels of the cache while a kernel runs.

What a loop touches in all of its steps is its footprint. Inside the outermost loop whose footprint
a cache holds, everything is fetched once; each step of the loops around that fetches it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from math import gcd, prod

from luminal.backends.cpu.core import Core
from luminal.base.records import dataclass
from luminal.shape.expression import Expression


@dataclass(slots=True, eq=False)
class Level:
    """A loop around some accesses: its axis, positions and steps, and where they begin."""

    axis: str
    start: Expression | None  # None: a grid's axis
    positions: int
    trips: int
    tile: int
    neighbours: int = 1
    accesses: list[Access] = field(default_factory=list)  # of all inside
    fits: dict[int, bool] = field(default_factory=dict)  # by the size of a cache


# Rows a power of two apart meet in few sets of a cache, which then holds less than its size: so
# what a footprint needs is more than its bytes. The last cache scatters addresses over its sets,
# and has no such sizes.
@dataclass(frozen=True, slots=True)
class Touched:
    """Bytes that an access touches: some runs of neighbours, each in whole lines, that begin apart
    from each other by `far` (a stride and how many, for each loop).
    """

    size: float
    run: int
    far: tuple[tuple[int, int], ...]

    def needs(self, cache: int, core: Core) -> float:
        """The bytes of a cache that holds all of it: more where lines meet in few of its sets. The
        last cache scatters addresses.
        """
        if cache > core.target.l2_bytes:
            return self.size
        line, way = core.target.line_bytes, cache // core.ways
        sets = way // line
        covered = -(-self.run // line) * prod(min(n, way // gcd(s, way)) for s, n in self.far)
        in_a_set = self.size / line / min(sets, covered)
        return self.size if in_a_set <= core.ways else in_a_set * sets * line

    def reaches(self, distance: int) -> bool:
        """Does the access overlap a copy of itself at a distance?"""
        left = abs(distance)
        for stride, count in reversed(self.far):
            left -= min(left // stride, count - 1) * stride
        return left < self.run

    def fetched(self, core: Core) -> float:
        """Bytes, or as many as would take as long: short runs come too late, none is foreseen."""
        is_long = self.run > 2 * core.target.line_bytes
        foreseen = is_long or all(s < core.foreseen for s, _ in self.far)
        return self.size * (1 if foreseen else core.jump)


@dataclass(slots=True, eq=False)
class Access:
    """A Load or Store inside some loops, outermost first; `strides` in bytes along each, from a
    constant `offset`.
    """

    buffer: str
    size: int  # bytes of an element
    whole: float  # bytes of the buffer
    times: int  # that a line moves
    levels: tuple[Level, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def touched(self, depth: int, line: int) -> Touched:
        """What the access touches in all steps of the loops from a depth on, within one step of
        those around.
        """
        # Strides no longer than what is touched already extend one run; longer ones start runs of
        # their own.
        moved = []
        for k, (stride, level) in enumerate(zip(self.strides, self.levels, strict=True)):
            positions = level.positions if k >= depth else min(level.tile, level.positions)
            if stride and positions > 1:
                moved.append((abs(stride), positions))
        run, far = self.size, []
        for stride, positions in sorted(moved):
            if stride <= max(run, line):
                run += stride * (positions - 1)
            else:
                far.append((stride, positions))
        size = max(run, line) * prod(n for _, n in far)
        return Touched(min(max(self.whole, line), size), run, tuple(far))


def traffic(accesses: Iterable[Access], cache: int, core: Core) -> float:
    """The bytes that come into a cache of a size."""
    places_of: dict[object, list[tuple[Touched, int, float]]] = {}
    line = core.target.line_bytes
    for access in accesses:
        levels = access.levels
        depth = next((k for k in range(len(levels)) if _is_held(levels[k], k, cache, core)), None)
        if depth is None:  # a step may still leave the next one's lines there
            step = access.touched(len(levels), line)
            depth = len(levels) + (step.needs(cache, core) > cache)
        inside = max(0, depth - 1)
        times = access.times * prod(level.trips for level in levels[:inside])
        # What one loop holds, it fetches once for all that read it there.
        key = access.buffer, levels[depth] if depth < len(levels) else access
        touched = access.touched(inside, line)
        _add(places_of.setdefault(key, []), touched, access.offset, touched.fetched(core) * times)
    return sum(size for places in places_of.values() for _, _, size in places)


def _add(
    places: list[tuple[Touched, int, float]], touched: Touched, offset: int, size: float
) -> None:
    """Adds a place of a buffer to those touched; those that overlap are one, as large as the
    largest.
    """
    for k, (other, start, other_size) in enumerate(places):
        if touched.reaches(offset - start) or other.reaches(offset - start):
            if size > other_size:
                places[k] = touched, offset, size
            return
    places.append((touched, offset, size))


def _is_held(level: Level, depth: int, cache: int, core: Core) -> bool:
    """Does a cache hold what a loop touches in all its steps?"""
    if cache not in level.fits:
        needs: dict[str, list[tuple[Touched, int, float]]] = {}
        for access in level.accesses:
            touched = access.touched(depth, core.target.line_bytes)
            size = touched.needs(cache, core)
            _add(needs.setdefault(access.buffer, []), touched, access.offset, size)
        level.fits[cache] = sum(size for places in needs.values() for _, _, size in places) <= cache
    return level.fits[cache]
