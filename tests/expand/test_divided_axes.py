"""Random loops whose accesses divide a tiled axis: expanded, they touch what tile IR says.

A merged axis under a window is asked `(i + 2) // 4 >= 1`. Whole tiles, tails of several pieces and
tails of one each write such a question in their own way, from the position at which they start;
so extents, tiles, starts and what the body holds are drawn with the tails in mind.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from luminal.kernel.tile_ir import Kernel, Tile
from luminal.kernel.tile_text import to_text
from luminal.shape.expression import TRUE, Expression, Symbol
from tests.backends.cpu.tile_builder import TileBuilder, run_all
from tests.expand.both_meanings import run_expanded
from tests.long_share import mostly_long

SIZE = 97  # elements of the input
CHUNK = 10


class Divided:
    """Draws one kernel: a tiled loop, inside it mostly another one, over loads that are asked."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.k = TileBuilder()
        self.n = self.k.param("n", 0, 200)
        self.k.buffer("a", SIZE)

    def kernel(self) -> Kernel:
        k, r = self.k, self.r
        vector, unroll = r.choice([1, 2, 4, 8, 16]), r.randint(1, 8)
        start = r.choice([0, 0, 0, 0, r.randint(1, 40), vector * unroll])
        trips: Expression | int = r.choice([self.n, *[r.randint(1, 150)] * 4])
        stop = start + trips
        with k.loop("i", stop, start=start, extent=stop, unroll=unroll, vector=vector) as loop:
            i = loop.axis
            total = self.summed(i, vector) if r.random() < 0.8 else self.value(i, i)
            name = k.buffer("out", stop, "inout")
            k.store(name, i, total, self.guard(i) if r.random() < 0.5 else TRUE)
        return k.kernel()

    def summed(self, i: Symbol, lanes: int) -> Tile:
        """A sum, by a loop inside, which has the lanes if the loop around it has none."""
        k, r = self.k, self.r
        vector, unroll = r.choice([1, 4]) if lanes == 1 else 1, r.choice([1, 1, 1, 2])
        with k.loop(
            "j", r.choice([1, 2, 3, 5]), unroll=unroll, vector=vector,
            carry=[(k.literal(0.0), [*k.tiled, "self"])],
        ) as loop:  # fmt: skip
            loop.next.append(k.map("Add", loop.inner[0], self.value(i, loop.axis)))
        (total,) = loop.results
        return k.reduce("Add", total, loop.axis) if loop.axis in total.axes else total

    def value(self, i: Symbol, j: Symbol) -> Tile:
        """An element of the input; the place and the question may both divide the axis."""
        r = self.r
        place = i + r.randint(-3, 3) + j * r.choice([0, 1, 7])
        if r.random() < 0.4:
            place = place // r.choice([2, 3, 4]) * r.choice([1, 5]) + place % r.choice([3, 4, 8])
        inside = (place >= 0) & (place < SIZE)
        return self.k.load("a", place, self.guard(i + j * r.choice([0, 0, 1])) & inside)

    def guard(self, position: Expression) -> Expression:
        """One or two questions about the position."""
        asked = [self.question(position + self.r.randint(-3, 5)) for _ in range(2)]
        kind = self.r.randrange(4)
        return asked[0] & asked[1] if kind == 0 else asked[0] | asked[1] if kind == 1 else asked[0]

    def question(self, position: Expression) -> Expression:
        r = self.r
        count = r.choice([2, 3, 4, 5, 8, 16, 100])
        kind = r.randrange(5)
        if kind < 3:
            bound = r.randint(0, 160) // count
            return position // count >= bound if kind else position // count <= bound
        if kind == 3:
            return position % count < r.randint(1, count)
        return position < r.choice([self.n, r.randint(0, 160)])


def check_seeds(seeds: range, native: bool) -> None:
    for seed in seeds:
        kernel = Divided(seed).kernel()
        rng = np.random.default_rng(seed)
        for n in (int(rng.integers(0, 70)), 70):
            arrays = {
                buffer.name: rng.integers(-5, 6, max(1, buffer.size.evaluate({"n": n}))).astype(
                    "f4"
                )
                for buffer in kernel.buffers
            }
            try:
                (run_all if native else run_expanded)(kernel, arrays, {"n": n})
            except BaseException as error:
                error.add_note(f"seed {seed}, n = {n}\n{to_text(kernel)}")
                raise


@pytest.mark.long
@pytest.mark.parametrize("chunk", mostly_long(range(200), 1))
def test_expanded(chunk: int) -> None:
    check_seeds(range(CHUNK * chunk, CHUNK * (chunk + 1)), native=False)


@pytest.mark.parametrize("chunk", mostly_long(range(200, 250), 1))
def test_native(chunk: int) -> None:
    check_seeds(range(CHUNK * chunk, CHUNK * (chunk + 1)), native=True)
