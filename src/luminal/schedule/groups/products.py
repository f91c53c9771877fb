"""The blocks in which groups of lanes multiply matrices: what can be chosen, and what is by rule.

A step of the sum costs a group its multiplications, or, if these are fewer, the loads from shared
memory that its lanes' tiles need; and copying one element of each row and column. Large blocks copy
less for each result and large tiles load less, but leave units idle where there are few of them: so
blocks are ranked by the time that all take, in rounds of as many as there are units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import product
from math import prod

from luminal.base.dots import Dot
from luminal.base.records import dataclass
from luminal.kernel.knobs import Choices
from luminal.kernel.loops import Access, LoopAxis, accesses
from luminal.kernel.product_sides import Sides
from luminal.kernel.product_tiling import ProductTiling, shared_bytes
from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.matrices import OFFERED, MatrixChoices, name_of
from luminal.schedule.groups.nests import FEW_ROWS
from luminal.schedule.groups.powers import ceiling, powers_to
from luminal.schedule.vectors.vector_target import VectorTarget

FEW = 4  # rows, or columns, below which a lane had better keep a row to itself
SHORT = 8  # steps of a sum, below which copies cost more than they save
LONG = 256  # steps from which on lanes along a sum have some each
LONGEST = 8  # vectors of lanes: of more, blocks of 128 steps leave the second-level cache
NO_BLOCKS = "none"


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
        by_dot = self.by_dot(choices)
        if by_dot is not None:
            return by_dot.tiling(choices)
        ranked = self.ranked
        named = {name_of(shape): shape for shape in ranked[:OFFERED]}
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

    def by_dot(self, choices: Choices) -> MatrixChoices | None:
        """The choices of products by a dot by which lanes multiply matrices together, if there is
        one for them: the selection's, or one like it whose factors stay in shared memory.
        """
        dot = self.sides.dot
        if dot is None:
            return None
        families: dict[str, tuple[Dot, ...]] = {}
        for row in dict.fromkeys((*(row for row in self.groups.left if row.replaces(dot)), dot)):
            families[row.family] = *families.get(row.family, ()), row
        ways = [ways for rows in families.values() if (ways := self.by_matrices(rows)).named]
        named = {ways.dots[0].family: ways for ways in sorted(ways, key=lambda ways: ways.cycles)}
        if not named:
            return None
        rule = next(iter(named)) if self.pay else NO_BLOCKS
        return named.get(choices.pick("dot", rule, (*named, NO_BLOCKS)))

    def by_matrices(self, dots: tuple[Dot, ...]) -> MatrixChoices:
        """The choices of products by one of these dots."""
        batch, rows, columns, values = self.extents
        extents = batch, rows, columns, values // dots[0].values
        return MatrixChoices(
            self.sides, dots, self.target.cores, self.groups, extents, self.deep_first
        )

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
        few = FEW_ROWS + 1 if self.are_read_along_sums else FEW
        return min(rows, columns) >= few and steps >= SHORT

    @property
    def are_read_along_sums(self) -> bool:
        """Would lanes along long sums read whole lines of both factors, each element of the longer
        one once for a few rows, without waiting for blocks of them?
        """
        by_words = self.sides.dot is None and not self.groups.in_vectors
        return by_words and self.deep_first == (True, True) and self.extents[3] >= LONG

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
        for rows, columns in product(powers_to(rates.rows), powers_to(rates.columns)):
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
            yield from ((1, n) for n in powers_to(most) if n > 1)
            return
        for lanes in (self.groups.lanes // 2, self.groups.lanes, 2 * self.groups.lanes):
            for across in powers_to(lanes):
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


def _positions(loops: tuple[LoopAxis, ...]) -> int:
    return prod(loop.estimate for loop in loops)
