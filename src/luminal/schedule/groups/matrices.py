"""The blocks in which lanes multiply matrices together by a dot, and what is by rule.

A step of the sum keeps a unit busy with what it multiplies, with shared memory, or with what it
gets from the last cache; and once a block of steps a group waits, for the block and at a barrier,
while others that the unit holds do not. Large blocks copy less for each result, deep ones wait
less often, and both leave room for fewer of them. So blocks are ranked by the time that all take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import product

from luminal.base.dots import TENSOR_COLUMNS, Dot
from luminal.base.records import dataclass
from luminal.kernel.boxes import SQUARE
from luminal.kernel.knobs import Choices
from luminal.kernel.product_blocks import LOADED
from luminal.kernel.product_boxes import cut
from luminal.kernel.product_sides import Sides
from luminal.kernel.product_tiling import ProductTiling, shared_bytes
from luminal.memory.alignment import ACCESS
from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.pipes import FAR
from luminal.schedule.groups.powers import powers_to

Shape = tuple[int, int, tuple[int, int]]
"""Rows and columns of a block, and of the tile in it."""
OFFERED = 10  # blocks that a search may choose among: the best by rule
BOXES, LANES, VALUES = "boxes", "lanes", "values"  # how blocks come, or who copies them
RING = {4: 0.75, 3: 1.0, 2: 1.5, 1: 4.0}
"""How often a group waits for a block of the sum, by the blocks in a ring."""
LOADS = 128  # bytes of shared memory that a unit reads or writes in a cycle
WAIT = 700  # cycles from asking for a block of the sum to having multiplied it
REGISTERS = 64 << 10  # of a unit, of which a lane has those of its results and some more
OTHERS = 72
IN_LINES = 4  # turns of shared memory for elements that a row of lanes stores across swizzled lines
PARTS, ROW = 4, 32  # of a unit, each of which multiplies for rows of lanes
RESULTS = 128  # registers of a lane that may be results
HELD = 224  # registers of a lane, for results and what is on its way
MOST = 8  # blocks of a dot along a side of a tile
ROUNDS, MOST_BANDS = 4, 32  # of all units, below which bands change little; rows of blocks in one
DEPTHS = (2, 4, 8, 1)  # steps of the dot in a block of the sum


@dataclass(frozen=True)
class MatrixChoices:
    """The choices of products by one of some dots, which differ in their columns only, on a device
    with so many units and such groups; `extents` are about how many products, rows, columns and
    steps there are.
    """

    sides: Sides
    dots: tuple[Dot, ...]
    units: int
    groups: Groups
    extents: tuple[int, int, int, int]
    deep_first: tuple[bool, bool]

    def tiling(self, choices: Choices) -> ProductTiling:
        """The blocks, depth, copies and stages that are chosen."""
        named = self.named
        shape = named[choices.pick("blocks", next(iter(named)), list(named))]
        _, rule, blocks = self.plan(shape)
        depths = [n for n in self.depths() if self.fits(self.made(shape, n, 1))]
        light = [n for n in depths if not self.is_heavy(self.made(shape, n, 2))]
        rule = rule if rule in light else max(light, default=min(depths))
        deep = choices.pick("deep", rule, depths)
        ways = [VALUES]
        if self.copies_whole(self.made(shape, deep, 2)):
            # Words of 4 bytes are four copies for one load and one store.
            ways.insert(0 if self.groups.copies == ACCESS else 1, LANES)
        boxed = self.made(shape, deep, 2, ring=True)
        if self.brings(boxed):
            ways = [BOXES, *ways]
        way = choices.pick("copies", ways[0], ways)
        ring = way != VALUES
        wanted = [n for n in (blocks, *RING) if n > 1] if ring else [2, 1]
        stages = [n for n in wanted if self.fits(self.made(shape, deep, n, ring))] or [1]
        tiling = self.made(shape, deep, choices.pick("stages", stages[0], stages), ring)
        tiling = replace(tiling, boxes=way == BOXES)
        clusters = self.clusters(shape, tiling) if tiling.boxes else [1]
        cluster = choices.pick("cluster", clusters[0], clusters)
        bands = self.bands(shape, cluster)
        return replace(tiling, band=choices.pick("band", bands[0], bands), cluster=cluster)

    # Groups that share boxes wait for each other, so they do so where it is the last cache that
    # products wait for.
    def clusters(self, shape: Shape, tiling: ProductTiling) -> list[int]:
        """How many groups may bring boxes of the second factor together, the best first."""
        most, (rows, columns, tile) = self.groups.cluster, shape
        if most == 1 or self.extents[1] <= rows or self.dots[0].scale is not None:
            return [1]
        shared = replace(tiling, ring=True, boxes=True, cluster=most)
        if not all(cut(self.sides, shared, 1, term) for side, term in self.sides.kept if side):
            return [1]
        dot = self.dot_of(tile)
        multiplied = rows * columns / self.groups.pipes.products(dot)

        def cycles(cluster: int) -> float:
            copied = (rows + columns / cluster) * dot.a.size / FAR
            return max(multiplied, copied) * self.down(shape, cluster)

        return sorted((1, most), key=cycles)

    def down(self, shape: Shape, cluster: int) -> int:
        """Rows of blocks, whole clusters of them."""
        return -(-self.extents[1] // (shape[0] * cluster)) * cluster

    # Units work on as many blocks at once, in order. Those of a row have all columns, so that each
    # block is of another part of the second factor: blocks of a square share more of both, which
    # the last cache keeps then.
    def bands(self, shape: Shape, cluster: int) -> list[int]:
        """How many rows of blocks groups may walk together, the best first: those of the square
        that all units have at once, where they have many, and the rows are whole bands.
        """
        members = [a for loop in (*self.sides.rows, *self.sides.columns) for a in loop.members]
        if any(a.extent is None or not a.extent.is_const for a in members):
            return [cluster]
        batch, _, all_columns, _ = self.extents
        rows, columns, _ = shape
        down, across = self.down(shape, cluster), -(-all_columns // columns)
        able = [n * cluster for n in powers_to(MOST_BANDS // cluster) if down % (n * cluster) == 0]
        square = (self.units * columns / rows) ** 0.5
        able.sort(key=lambda n: max(n / square, square / n))
        if batch * down * across < ROUNDS * self.units:
            able.sort(key=lambda n: n > 1)
        return able

    def is_heavy(self, tiling: ProductTiling) -> bool:
        """Do lanes hold more than they have room for, where the next block passes by registers?"""
        fetched = (tiling.rows + tiling.columns) * tiling.deep // tiling.lanes
        is_by_lanes = not self.copies_whole(tiling)
        return is_by_lanes and fetched + self.results(tiling.tile) > HELD

    def copies_whole(self, tiling: ProductTiling) -> bool:
        """Can lanes copy one of the factors to shared memory without registers?"""
        if not self.groups.copies or not self.fits(tiling):
            return False
        tiling = replace(tiling, ring=True)
        return any(tiling.copies_whole(self.sides, side, term) for side, term in self.sides.kept)

    def brings(self, tiling: ProductTiling) -> bool:
        """Does the device bring blocks of one of the factors to shared memory by itself?"""
        if not self.groups.boxes or not self.fits(tiling):
            return False
        return any(cut(self.sides, tiling, side, term) for side, term in self.sides.kept)

    def fits(self, tiling: ProductTiling) -> bool:
        """Is there room for it in shared memory, and for its sums in tensor memory?"""
        columns = tiling.tensor_columns(len(self.sides.factors)) + tiling.scale_columns(self.sides)
        is_beside = shared_bytes(self.sides, tiling) <= self.groups.shared_bytes
        return is_beside and columns <= TENSOR_COLUMNS

    @cached_property
    def named(self) -> dict[str, Shape]:
        """The best blocks by their names."""
        ranked = sorted(
            (self.plan(shape)[0], -shape[0] * shape[1], shape) for shape in self.shapes()
        )
        return {name_of(shape): shape for _, _, shape in ranked[:OFFERED]}

    @cached_property
    def cycles(self) -> float:
        """About how many cycles products take by the best of them."""
        return min(self.plan(shape)[0] for shape in self.named.values())

    def dot_of(self, tile: tuple[int, int]) -> Dot:
        """The dot of a tile: of those that read shared memory the one of all its columns."""
        return next((dot for dot in self.dots if dot.n == tile[1]), self.dots[0])

    def made(self, shape: Shape, deep: int, buffers: int, ring: bool = False) -> ProductTiling:
        """The tiling of these choices."""
        rows, columns, tile = shape
        dot = self.dot_of(tile)
        groups = self.groups
        beside = groups.copies * dot.row if groups.copies_beside else 0
        return ProductTiling(
            rows, columns, deep, tile, buffers, self.deep_first, dot=dot, ring=ring,
            word=groups.copies or ACCESS, beside=beside,
        )  # fmt: skip

    def shapes(self) -> Iterator[Shape]:
        """All that the device could run, and that are not twice as large as the products."""
        first, (_, most_rows, most_columns, _) = self.dots[0], self.extents
        usual = max(1, self.groups.lanes // first.together)
        sides = (powers_to(MOST), powers_to(1 if first.is_from_memory else MOST))
        for dot, down, across in product(self.dots, *sides):
            tile = dot.m * down, dot.n * across
            if self.results(tile) > RESULTS:
                continue
            # Scales are brought to tensor memory by the lane that multiplies.
            alone = dot.in_tensor and dot.scale is not None
            for teams in [1] if alone else sorted({max(1, usual // 2), usual, 2 * usual}):
                for beside in powers_to(teams):
                    shape = tile[0] * (teams // beside), tile[1] * beside, tile
                    small = shape[0] < 2 * max(most_rows, dot.m)
                    small = small and shape[1] < 2 * max(most_columns, dot.n)
                    tiling = self.made(shape, min(self.depths()), 1)
                    lies = not dot.is_from_memory or all(map(tiling.swizzle, (0, 1)))
                    small = small and tiling.lanes <= self.groups.most and lies
                    if small and self.fits(tiling):
                        yield shape

    def results(self, tile: tuple[int, int]) -> int:
        """Registers of a lane that hold results."""
        dot, sums = self.dots[0], len(self.sides.factors)
        if dot.in_tensor:
            return LOADED * sums
        return tile[0] * tile[1] * sums * max(1, dot.accumulator.size // 4) // dot.together

    def plan(self, shape: Shape) -> tuple[float, int, int]:
        """About how many cycles products in such blocks take at best, with how many steps of the
        sum at once and how many blocks of these.
        """
        # Where products run on all depths and rings may take as long: a barrier less is better, and
        # so is a block more that may come late.
        none = float("inf"), min(self.depths()), 1
        return min(self._plans(shape), key=lambda plan: (plan[0], -plan[1], -plan[2]), default=none)

    def _plans(self, shape: Shape) -> Iterator[tuple[float, int, int]]:
        batch, _, all_columns, steps = self.extents
        rows, columns, tile = shape
        dot = self.dot_of(tile)
        size, teams = dot.a.size, rows // tile[0] * (columns // tile[1])
        left = dot.is_from_memory
        multiplied = rows * columns / self.groups.pipes.products(dot)
        # What is read in shared memory is so for each of its rows of blocks.
        read = tile[0] // dot.m * (dot.m + dot.n) if left else sum(tile)
        touched = (teams * read + rows + columns) * size / LOADS
        if left:  # what is turned on its way is stored by elements, in few banks
            small = self.made(shape, min(self.depths()), 1)
            turned = (s for s in (0, 1) if small.is_along_sum(s) and not self.deep_first[s])
            touched += sum(map(small.across, turned)) / ROW * IN_LINES
        cluster, *_ = self.clusters(shape, self.made(shape, max(self.depths()), 1))
        copied = (rows + columns / cluster) * size / FAR
        # Rows of lanes that a unit lacks, to fill its four parts, are idle.
        lanes = teams * dot.together
        busy = max(multiplied * max(1.0, PARTS * ROW / lanes), touched, copied)
        blocks = batch * self.down(shape, cluster) * -(-all_columns // columns)
        share = -(-blocks // self.units)
        by_registers = REGISTERS // (lanes * (self.results(tile) + OTHERS))
        columns = self.made(shape, min(self.depths()), 1).tensor_columns(len(self.sides.factors))
        by_registers = min(by_registers, TENSOR_COLUMNS // max(1, columns))
        for deep in self.depths():
            one = shared_bytes(self.sides, self.made(shape, deep, 1))
            for ring, waits in RING.items():
                # One block more is free only when the products before these have ended.
                waits = RING[ring - 1] if left and ring > 2 else waits
                by_memory = self.groups.shared_bytes // (ring * one)
                if by_memory:
                    held = max(1, min(share, by_registers, by_memory))
                    late = waits * WAIT / deep / held
                    # Products run on while lanes wait, in a ring that has room for it.
                    runs_on = left and ring > 2
                    step = max(busy, late) + (0 if runs_on else min(busy, late) / held)
                    yield share * step * -(-steps // deep) * deep, deep, ring

    def depths(self) -> list[int]:
        """Steps of a sum at once."""
        steps, dot = self.extents[3], self.dots[0]
        # Of tensor memory's squares of scales all are written.
        least = max(dot.k, SQUARE[1] * dot.block) if dot.in_tensor and dot.scale else dot.k
        depths = [n * dot.k for n in DEPTHS if n * dot.k % least == 0]
        return [n for n in depths if n < 2 * steps] or [least]


def name_of(shape: Shape) -> str:
    """The name that a knob has for a shape of blocks."""
    rows, columns, tile = shape
    return f"{rows}x{columns} by {tile[0]}x{tile[1]}"
