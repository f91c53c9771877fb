"""The blocks in which groups of lanes multiply matrices: what can be chosen, and what is by rule.

A step of the sum costs a group its multiplications, or, if these are fewer, the loads from shared
memory that its lanes' tiles need; and copying one element of each row and column. Large blocks copy
less for each result and large tiles load less, but leave units idle where there are few of them: so
blocks are ranked by the time that all take, in rounds of as many as there are units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from itertools import product
from math import prod

from luminal.base.dots import Dot
from luminal.base.records import dataclass
from luminal.kernel.knobs import Choices
from luminal.kernel.loops import Access, LoopAxis, accesses
from luminal.kernel.product_blocks import ProductTiling, shared_bytes
from luminal.kernel.product_sides import Sides
from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.powers import ceiling
from luminal.schedule.vectors.vector_target import VectorTarget

OFFERED = 10  # blocks that a search may choose among: the best by rule
FEW = 4  # rows, or columns, below which a lane had better keep a row to itself
SHORT = 8  # steps of a sum, below which copies cost more than they save
LONGEST = 8  # vectors of lanes: of more, blocks of 128 steps leave the second-level cache
NO_BLOCKS = "none"
Shape = tuple[int, int, tuple[int, int]]
"""Rows and columns of a block, and of the tile in it."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a unit does in a cycle: `products`, `loads` from shared memory, and `copies` into it, of
    elements. `deep` are the steps of a sum at once, `buffers` the blocks in turns; a lane has
    `results` in registers at most, in tiles of up to `rows` by `columns`.
    """

    products: int
    loads: int
    copies: int
    deep: int
    buffers: int
    results: int
    rows: int
    columns: int


GPU = Rates(128, 32, 8, 16, 2, 64, 8, 8)
"""The rates of a multiprocessor: four rows of 32 lanes multiply, one loads. Half of the registers
that a lane of 256 has are results."""


def vectors(lanes: int) -> Rates:
    """The rates of a core whose vectors are a group's lanes: two loads and a multiplication a
    cycle. At each barrier results leave the registers, so blocks of the sum are long; another block
    on its way would only take room.
    """
    return Rates(lanes, 2 * lanes, lanes // 4, 128, 1, 32, 32, 2)


@dataclass(frozen=True)
class ProductChoices:
    """The choices of a kernel that is products, on a device with such groups."""

    sides: Sides
    target: VectorTarget
    groups: Groups

    def tiling(self, choices: Choices) -> ProductTiling | None:
        """What is chosen; None: the loops of any other reduction."""
        dot = self.by_dot(choices)
        if dot is not None:
            return MatrixChoices(self, dot).tiling(choices)
        ranked = self.ranked
        named = {_name(shape): shape for shape in ranked[:OFFERED]}
        if not named:
            return None
        rule = next(iter(named)) if self.pay else NO_BLOCKS
        chosen = choices.pick("blocks", rule, [*named, NO_BLOCKS], self.refusal)
        if chosen == NO_BLOCKS:
            return None
        rows, columns, tile = named[chosen]
        short = choices.pick("floats", 32, (16,) if self.has_short else ()) == 16
        tiling = partial(self.made, rows, columns, tile, short=short)
        depths = [n for n in self.depths() if self.fits(tiling(n, 1))]
        turns = self.rates.buffers
        usual = [n for n in depths if self.fits(tiling(n, turns))]
        deep = choices.pick("deep", (usual or depths)[0], depths)
        buffers = [n for n in (turns, 1, 2) if self.fits(tiling(deep, n))]
        return tiling(deep, choices.pick("stages", buffers[0], buffers))

    def by_dot(self, choices: Choices) -> Dot | None:
        """The dot by which lanes multiply matrices together, if there is one for them."""
        dot = self.sides.dot
        if dot is None or not MatrixChoices(self, dot).named:
            return None
        rule = dot.name if self.pay else NO_BLOCKS
        return dot if choices.pick("dot", rule, (dot.name, NO_BLOCKS)) == dot.name else None

    def refusal(self, name: str) -> str:
        """Why blocks of a name are not offered."""
        match = re.fullmatch(r"(\d+)x(\d+) by (\d+)x(\d+)", name)
        if match is None or "0" in match.groups():
            return "it is no block, such as 64x64 by 4x4"
        rows, columns, *tile = map(int, match.groups())
        tiling = self.made(rows, columns, (tile[0], tile[1]), min(self.depths()), 1)
        if tiling.lanes > self.groups.most:
            return f"its groups have {tiling.lanes} lanes, the device's {self.groups.most} at most"
        if not self.fits(tiling):
            needed, most = shared_bytes(self.sides, tiling), self.groups.shared_bytes
            return f"it takes {needed} bytes of shared memory, of which a group has {most}"
        return "others are better by rule"

    @cached_property
    def rates(self) -> Rates:
        return vectors(self.groups.lanes) if self.groups.in_vectors else GPU

    @cached_property
    def extents(self) -> tuple[int, int, int, int]:
        """About how many products, rows, columns and steps of sums there are."""
        sides = self.sides
        return (
            _positions(sides.batch), _positions(sides.rows), _positions(sides.columns),
            _positions(sides.summed),
        )  # fmt: skip

    @property
    def pay(self) -> bool:
        """Are elements read often enough to be copied?"""
        _, rows, columns, steps = self.extents
        return min(rows, columns) >= FEW and steps >= SHORT

    @cached_property
    def ranked(self) -> list[tuple[int, int, tuple[int, int]]]:
        """Rows and columns of blocks and tiles, the best first."""
        by_cycles = sorted(
            (self.cycles(*shape), -shape[0] * shape[1], shape) for shape in self.shapes()
        )
        return [shape for _, _, shape in by_cycles]

    def shapes(self) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """All that the device could run, and that are no larger than the products."""
        rates, sums = self.rates, len(self.sides.factors)
        _, most_rows, most_columns, _ = self.extents
        for rows, columns in product(_powers(rates.rows), _powers(rates.columns)):
            if rows * columns * sums > rates.results:
                continue
            for down, across in self.arrangements():
                shape = rows * down, columns * across, (rows, columns)
                small = self.made(*shape, min(self.depths()), 1)
                if self.fits(small) and shape[0] < 2 * most_rows and shape[1] < 2 * most_columns:
                    yield shape

    def arrangements(self) -> Iterator[tuple[int, int]]:
        """Lanes along the rows by those along the columns."""
        if self.groups.in_vectors:  # only what all lanes share is read as one value
            most = min(self.groups.most, LONGEST * self.groups.lanes)
            yield from ((1, n) for n in _powers(most) if n > 1)
            return
        for lanes in (self.groups.lanes // 2, self.groups.lanes, 2 * self.groups.lanes):
            for across in _powers(lanes):
                if 1 < lanes <= self.groups.most:
                    yield lanes // across, across

    # What the rule takes is within 4% of the best of the ten that it offers (OpenCL on two cores),
    # so a search of blocks seldom pays.
    def cycles(self, rows: int, columns: int, tile: tuple[int, int]) -> float:
        """About how long a step of all sums takes."""
        batch, all_rows, all_columns, _ = self.extents
        rates, lanes = self.rates, rows // tile[0] * (columns // tile[1])
        blocks = batch * -(-all_rows // rows) * -(-all_columns // columns)
        loads = lanes * (tile[0] + tile[1]) / rates.loads
        step = max(rows * columns / rates.products, loads) + (rows + columns) / rates.copies
        # Lanes that a row of them, or a vector, lacks are idle all the same.
        idle = max(1.0, self.row / lanes)
        return -(-blocks // self.target.cores) * step * idle

    @property
    def row(self) -> int:
        """Lanes that step together."""
        return self.groups.lanes if self.groups.in_vectors else min(32, self.groups.lanes)

    def depths(self) -> list[int]:
        """Steps of a sum at once, the best first."""
        steps = self.extents[3]
        rule = self.rates.deep
        # A step costs what an eighth of the longest does beside its work; the last may be idle.
        usual = sorted((rule, rule // 2, rule // 4), key=lambda n: -(-steps // n) * (n + rule // 8))
        return [n for n in (*usual, 2 * rule, 4 * rule) if n < 2 * steps] or [ceiling(steps)]

    @property
    def has_short(self) -> bool:
        """Are there 16-bit floats that shared memory may hold as they are?"""
        return any(self.sides.short(factor) is not factor for _, factor in self.sides.kept)

    def made(
        self, rows: int, columns: int, tile: tuple[int, int], deep: int, buffers: int,
        short: bool = False,
    ) -> ProductTiling:  # fmt: skip
        return ProductTiling(rows, columns, deep, tile, buffers, self.deep_first, short)

    def fits(self, tiling: ProductTiling) -> bool:
        """Is there room for it in shared memory?"""
        return shared_bytes(self.sides, tiling) <= self.groups.shared_bytes

    @cached_property
    def deep_first(self) -> tuple[bool, bool]:
        """Do factors lie along the sum, rather than along the rows, or the columns?"""
        sides = self.sides
        loops = (*sides.batch, *sides.rows, *sides.columns, *sides.summed)
        touched = accesses(sides.fused, loops)
        summed = sides.summed[-1]
        ends = (sides.rows[-1], sides.columns[-1])
        return self.is_nearer(touched, summed, *ends), self.is_nearer(touched, summed, *ends[::-1])

    @staticmethod
    def is_nearer(touched: list[Access], summed: LoopAxis, mine: LoopAxis, other: LoopAxis) -> bool:
        """Does the sum's axis lie closer than a side's own, in the reads with that side's axis and
        not the other's?
        """
        reads = [a for a in touched if a.is_factor and a.moves(summed) and not a.moves(other)]
        deep = sum(access.stride(summed) == 1 for access in reads)
        return deep > sum(access.stride(mine) == 1 for access in reads)


MATRIX_LOADS = 128  # bytes of shared memory that a unit reads or writes in a cycle
MATRIX_COPIES = 24  # bytes that it gets from the last cache
MATRIX_WAIT = 700  # cycles from asking for a block of the sum to having multiplied it
MATRIX_REGISTERS = 64 << 10  # of a unit, of which a lane has those of its results and some more
OTHERS = 72
MATRIX_RESULTS = 128  # registers of a lane that may be results
PARTS, ROW = 4, 32  # of a unit, each of which multiplies for rows of lanes
LANES, VALUES = "lanes", "values"  # who copies
RING = (4, 3, 2)  # blocks
RING_WAITS = {3: 1.0, 2: 1.5, 1: 4.0}
MATRIX_STEPS = 2  # of the dot in a block of the sum, at least


@dataclass(frozen=True)
class MatrixChoices:
    """The choices of products that lanes multiply together by a dot."""

    products: ProductChoices
    dot: Dot

    def tiling(self, choices: Choices) -> ProductTiling:
        """What is chosen."""
        products, named = self.products, self.named
        chosen = choices.pick("blocks", next(iter(named)), list(named))
        shape = named[chosen]
        depths = [n for n in self.depths() if products.fits(self.made(shape, n, 1))]
        deep = choices.pick("deep", self.ring_of(shape)[0], depths)
        ways = [LANES, VALUES] if self.copies_whole(self.made(shape, deep, 2)) else [VALUES]
        ring = choices.pick("copies", ways[0], ways) == LANES
        offered = RING if ring else (2, 1)
        stages = [n for n in offered if products.fits(self.made(shape, deep, n))] or [1]
        return self.made(shape, deep, choices.pick("stages", stages[0], stages), ring)

    def copies_whole(self, tiling: ProductTiling) -> bool:
        """Can lanes copy one of the factors to shared memory without registers?"""
        if not self.products.groups.copies or not self.products.fits(tiling):
            return False
        tiling, sides = replace(tiling, ring=True), self.products.sides
        return any(tiling.copies_whole(sides, side, factor) for side, factor in sides.kept)

    @cached_property
    def named(self) -> dict[str, Shape]:
        """The best blocks by their names."""
        ranked = sorted(
            (self.cycles(*shape), -shape[0] * shape[1], shape) for shape in self.shapes()
        )
        return {_name(shape): shape for _, _, shape in ranked[:OFFERED]}

    def made(self, shape: Shape, deep: int, buffers: int, ring: bool = False) -> ProductTiling:
        rows, columns, tile = shape
        return ProductTiling(
            rows, columns, deep, tile, buffers, self.products.deep_first, dot=self.dot, ring=ring
        )

    def shapes(self) -> Iterator[Shape]:
        """All that the device could run, and that are not twice as large as the products."""
        products, dot = self.products, self.dot
        _, most_rows, most_columns, _ = products.extents
        sums = len(products.sides.factors)
        usual = max(1, products.groups.lanes // dot.together)
        for down, across in product(_powers(8), _powers(8)):
            tile = dot.m * down, dot.n * across
            if tile[0] * tile[1] * sums > MATRIX_RESULTS * dot.together:
                continue
            for teams in sorted({max(1, usual // 2), usual, 2 * usual}):
                for beside in _powers(teams):
                    shape = tile[0] * (teams // beside), tile[1] * beside, tile
                    tiling = self.made(shape, min(self.depths()), 1)
                    small = shape[0] < 2 * max(most_rows, dot.m)
                    small = small and shape[1] < 2 * max(most_columns, dot.n)
                    if small and tiling.lanes <= products.groups.most and products.fits(tiling):
                        yield shape

    def cycles(self, rows: int, columns: int, tile: tuple[int, int]) -> float:
        """About how long a step of all sums takes: what a unit is busy with, and its waits, of
        which the groups that it runs at once have one each.
        """
        batch, all_rows, all_columns, _ = self.products.extents
        blocks = batch * -(-all_rows // rows) * -(-all_columns // columns)
        size, teams = self.dot.a.size, rows // tile[0] * (columns // tile[1])
        multiplied = rows * columns * size / 2 / self.products.groups.matrix
        touched = (teams * sum(tile) + rows + columns) * size / MATRIX_LOADS
        copied = (rows + columns) * size / MATRIX_COPIES
        # Rows of lanes that a unit lacks, to fill its four parts, are idle.
        idle = max(1.0, PARTS / (teams * self.dot.together / ROW))
        busy = max(multiplied * idle, touched, copied)
        share = -(-blocks // self.products.target.cores)
        lanes = teams * self.dot.together
        results = tile[0] * tile[1] // self.dot.together * len(self.products.sides.factors)
        held = max(1, min(share, MATRIX_REGISTERS // (lanes * (results + OTHERS))))
        deep, waits = self.ring_of((rows, columns, tile))
        late = waits * MATRIX_WAIT / deep / held
        return share * (max(busy, late) + min(busy, late) / held)

    def ring_of(self, shape: Shape) -> tuple[int, float]:
        """Steps of a sum at once by rule, and how often a group waits for a block of them: once
        where others are on their way.
        """
        depths = self.depths()
        for blocks, waits in RING_WAITS.items():
            for deep in depths:
                if self.products.fits(self.made(shape, deep, blocks)):
                    return deep, waits
        return depths[0], RING_WAITS[1]

    def depths(self) -> list[int]:
        """Steps of a sum at once, the best first."""
        steps, k = self.products.extents[3], self.dot.k
        usual = [MATRIX_STEPS * k, k, 2 * MATRIX_STEPS * k]
        return [n for n in usual if n < 2 * steps] or [k]


def _name(shape: Shape) -> str:
    """The name that a knob has for a shape of blocks."""
    rows, columns, tile = shape
    return f"{rows}x{columns} by {tile[0]}x{tile[1]}"


def _positions(loops: tuple[LoopAxis, ...]) -> int:
    return prod(loop.estimate for loop in loops)


def _powers(most: int) -> list[int]:
    """Powers of two, up to that."""
    return [1 << n for n in range(most.bit_length())]
