"""Random Scatters: index maps of every kind, values at which mistakes show."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import luminal as lm
from luminal.frontend.handle import along
from luminal.frontend.movement.scatter import written
from luminal.shape.expression import Expression, const
from tests.fuzz.graphs import Case

DTYPES = (lm.float32, lm.float32, lm.float64, lm.int32, lm.int64, lm.uint8, lm.float16, lm.bfloat16)
WILD = (np.nan, np.inf, -np.inf, -0.0)
FACTORS = (1, 1, 1, 2, 3, -1)


def random_scatter(seed: int, *, whole: bool = False) -> Case:
    """A Case of one Scatter, of whole numbers (whose sums are exact) or of any."""
    return _Draw(seed, whole).case()


class _Draw:
    def __init__(self, seed: int, whole: bool) -> None:
        self.rng = random.Random(seed)
        self.arrays = np.random.default_rng(seed)
        self.whole = whole
        self.cx = lm.Graph()
        self.dims: dict[str, int] = {}
        self.inputs: dict[str, np.ndarray[Any, Any]] = {}

    def case(self) -> Case:
        dtype = self.rng.choice(DTYPES)
        shape = tuple(self.extent(9) for _ in range(self.rng.choice((0, 1, 2, 2, 3, 3))))
        self.index = [along(k, self.cx.extent(n)) for k, n in enumerate(shape)]
        self.shape = shape
        entries = [self.entry() for _ in range(self.rng.randint(1, 3))]
        dest = tuple(n for _, n in entries)
        x, source = self.tensor("x", dest, dtype), self.tensor("s", shape, dtype)
        if self.rng.random() < 0.2 and shape:
            source = source.narrow(0, 0, 1).expand(*shape)
        if self.rng.random() < 0.3:
            source = source * 2
        mode = "add" if self.rng.random() < 0.6 else "set"
        written(x, [entry for entry, _ in entries], source, mode).output("y")
        return Case(self.cx.graph(), self.inputs, self.dims, {})

    def extent(self, most: int) -> Any:
        """A literal extent, or a dim that has such a value."""
        value = self.rng.randint(1, most)
        if self.rng.random() < 0.75:
            return value
        name = f"d{len(self.dims)}"
        self.dims[name] = value
        return self.cx.dim(name, self.rng.choice([0, 1, value]), self.rng.choice([value, 40]))

    def entry(self) -> tuple[Any, Any]:
        """A coordinate, and the extent of its dimension: sometimes too small for all positions."""
        kind = self.rng.random()
        if kind < 0.3:
            return self.computed()
        position = self.digits() if kind < 0.6 else self.affine()
        if kind > 0.9:
            by = self.rng.randint(1, 4)
            position = position // by if self.rng.random() < 0.5 else position % by
        return position, self.rng.choice([self.extent(8), self.extent(30)])

    def computed(self) -> tuple[Any, Any]:
        """An index tensor that moves along some of the axes; a few elements are out of range."""
        shape = tuple(n if self.rng.random() < 0.6 else 1 for n in self.shape)
        dtype = self.rng.choice([lm.int64, lm.int64, lm.int32])
        name = f"i{len(self.inputs)}"
        n = self.rng.randint(1, 6)
        self.inputs[name] = self.arrays.integers(-1, n + 1, self.sizes(shape)).astype(dtype.numpy)
        index = self.cx.tensor(shape, dtype, name=name)
        return index.expand(*self.shape) if shape else index, n

    def affine(self) -> Expression:
        position = const(self.rng.choice([0, 0, 1, 5]))
        for i in self.index:
            if self.rng.random() < 0.6:
                position = position + i * self.rng.choice(FACTORS)
        return position

    def digits(self) -> Expression:
        """A number in mixed radix, with gaps or without, sometimes with digits that overlap."""
        position, radix = const(0), const(1)
        for k in self.rng.sample(range(len(self.index)), min(len(self.index), 2)):
            position = position + self.index[k] * radix
            radix = radix * self.shape[k] + self.rng.choice([0, 0, 0, 1, -1])
        return position

    def tensor(self, name: str, shape: tuple[Any, ...], dtype: lm.DType) -> Any:
        size = self.sizes(shape)
        values = self.arrays.normal(0, 8, size)
        if self.whole or dtype.is_int:
            values = np.abs(np.rint(values))
        if dtype.is_float:
            values = np.where(self.arrays.random(size) < 0.05, self.rng.choice(WILD), values)
        self.inputs[name] = np.asarray(values).astype(dtype.numpy)
        return self.cx.tensor(shape, dtype, name=name)

    def sizes(self, shape: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(n if isinstance(n, int) else n.evaluate(self.dims) for n in shape)
