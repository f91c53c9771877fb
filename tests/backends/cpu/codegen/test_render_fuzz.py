"""Random kernels: the code of every target gives the interpreter's bits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import pytest

from luminal.kernel.tile_ir import Tile
from luminal.kernel.tile_text import to_text
from luminal.shape.expression import TRUE, Expression, Symbol, minimum, product_of
from tests.backends.cpu.tile_builder import LoopHandle, TileBuilder, run_all
from tests.long_share import mostly_long

SIZE = 61  # elements of each input


class Generator:
    """Draws one kernel: a nest of loops, some of them reductions, over random loads."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.k = TileBuilder()
        self.n = self.k.param("n", 0, 40)
        self.dtype = self.r.choice(["i32", "f32", "i64", "u8", "f64"])
        for name in ("a", "b"):
            self.k.buffer(name, SIZE, dtype=self.dtype)
        self.axes: list[Symbol] = [self.k.grid("g", 2)]
        self.extents: list[Expression | int] = [2]
        self.vector_used = False

    def loop(
        self, carry: Sequence[tuple[Tile, Sequence[Symbol | str]]] = ()
    ) -> AbstractContextManager[LoopHandle]:
        """The context manager of a loop with a random range and tile."""
        r = self.r
        vector = 1 if self.vector_used or r.random() < 0.4 else r.choice([2, 4, 8, 16])
        self.vector_used |= vector > 1
        extent = r.choice([self.n, self.n, 1, 7, 16, 33])
        start = r.choice([0, 0, 0, 1, 5, 16])
        stop = r.choice([extent, extent, minimum(extent, self.n)])
        return self.k.loop(
            f"x{len(self.axes)}", stop, start=start, extent=extent,
            unroll=r.choice([1, 1, 2, 3, 4]), vector=vector, carry=carry,
        )  # fmt: skip

    def expression(self) -> Expression:
        """Some index in the axes."""
        r = self.r
        total: Expression = self.axes[0] * 0 + r.randrange(-3, 4)
        for axis in self.axes:
            total = total + axis * r.choice([0, 1, 1, 1, -1, 2, 5, self.n])
        shape = r.randrange(6)
        if shape == 0:
            return total // r.choice([2, 3, 16]) + total % r.choice([2, 5, 32])
        if shape == 1:
            return total % r.choice([7, 16]) * 3 + r.choice(self.axes)
        return total

    def guard(self) -> Expression:
        r = self.r
        if r.random() < 0.5:
            return TRUE
        left, right = self.expression(), self.expression()
        kind = r.randrange(5)
        if kind == 0:
            return left.eq(right)
        if kind == 1:
            return (left < right) | (r.choice(self.axes) > r.randrange(9))
        if kind == 2:
            return left.ne(r.randrange(9))
        return (left < right) & (r.choice(self.axes) < self.n)

    def value(self) -> Tile:
        """An element of an input: checked, wrapped around, or in place."""
        k, r = self.k, self.r
        name, offset, guard = r.choice(["a", "b"]), self.expression(), self.guard()
        if r.random() < 0.5:
            return k.load(name, offset, guard & (offset >= 0) & (offset < SIZE))
        return k.load(name, offset % SIZE, guard)

    def mixed(self, first: Tile) -> Tile:
        for _ in range(self.r.randrange(3)):
            op = self.r.choice(["Add", "Mul", "Maximum", "Select"])
            args = [first, self.value()]
            if op == "Select":
                args.insert(0, self.k.map("LessThan", first, self.value()))
            first = self.k.map(op, *args)
        return first

    def reduction(self) -> Tile:
        """A loop that folds random values, with one partial result per position or not."""
        k, r = self.k, self.r
        tiled = list(k.tiled)
        init = k.literal(r.randrange(3), self.dtype)
        op = r.choice(["Add", "Maximum", "Mul"])
        partial: list[Symbol | str] = [*tiled, "self"]
        with self.loop(carry=[(init, partial)]) as handle:
            self.axes.append(handle.axis)
            handle.next.append(k.map(op, handle.inner[0], self.value()))
            self.axes.pop()
        (total,) = handle.results
        return k.reduce(op, total, handle.axis) if handle.axis in total.axes else total

    def body(self, depth: int) -> None:
        k, r = self.k, self.r
        if depth:
            with self.loop() as handle:
                self.axes.append(handle.axis)
                self.body(depth - 1)
                self.axes.pop()
            return
        results = [self.mixed(self.value())]
        if r.random() < 0.6:
            results.append(self.mixed(self.reduction()))
        place: Expression = self.axes[0]
        for axis in self.axes[1:]:
            assert axis.extent is not None
            place = place * axis.extent + axis
            results[0] = k.map("Add", results[0], k.map("Cast", k.index(axis), dtype=self.dtype))
        size = product_of(axis.extent for axis in self.axes if axis.extent is not None)
        for number, result in enumerate(results):
            name = k.buffer(f"out{number}", size, "inout", self.dtype)
            k.store(name, place, result, self.guard())


def check(seed: int) -> None:
    generator = Generator(seed)
    depth = generator.r.choice([1, 1, 2, 2, 3])
    generator.body(depth)
    kernel = generator.k.kernel()
    rng = np.random.default_rng(seed)
    print(to_text(kernel))
    largest = 7 if depth == 3 else 19  # the interpreter is slow
    for n in (generator.r.randrange(largest), largest):
        arrays = {}
        for buffer in kernel.buffers:
            size = max(1, int(buffer.size.evaluate({"n": n})))
            drawn = rng.integers(-5, 6, size)
            arrays[buffer.name] = drawn.astype(buffer.dtype.numpy)
        run_all(kernel, arrays, {"n": n})


@pytest.mark.parametrize("seed", mostly_long(range(12, 32), 10))
def test_random_kernels(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", [*range(12), *range(32, 250)])
def test_more_random_kernels(seed: int) -> None:
    check(seed)
