"""Random sizes of the kernels that matter: with chunks, tiles, packing and their edges."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from tests.fuzz.cpu_run import check
from tests.fuzz.graphs import Case
from tests.long_share import mostly_long

EXTENTS = (1, 2, 3, 7, 8, 13, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 130, 200)


class Draw:
    """A graph under construction: random extents, literal or dims, and random inputs."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.arrays = np.random.default_rng(seed)
        self.cx = lm.Graph()
        self.dims: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.inputs: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self.integers = self.rng.random() < 0.2

    def extent(self, most: int = 200) -> Any:
        """A literal extent, or a dim that has such a value."""
        value = self.rng.choice([n for n in EXTENTS if n <= most])
        if self.rng.random() < 0.7:
            return value
        name = f"d{len(self.dims)}"
        self.dims[name], self.most[name] = value, most
        hi = self.rng.choice([value, 4096, 2**31 - 1])
        return self.cx.dim(name, self.rng.choice([0, 1, value]), hi)

    def tensor(self, *shape: Any) -> Any:
        name = f"x{len(self.inputs)}"
        dtype = self.rng.choice([lm.int32, lm.int64]) if self.integers else lm.float32
        self.inputs[name] = tuple(shape), dtype
        return self.cx.tensor(tuple(shape), dtype, name=name)

    def case(self, dims: dict[str, int]) -> Case:
        """The graph with random inputs of these dims."""
        given = {}
        for name, (shape, dtype) in self.inputs.items():
            sizes = [n if isinstance(n, int) else n.evaluate(dims) for n in shape]
            given[name] = self.arrays.normal(0, 2, sizes).astype(dtype.numpy)
        return Case(self.cx.graph(), given, dims, {})

    def others(self) -> dict[str, int]:
        """Other values of the dims."""
        found = {}
        for dim in self.cx.graph().dims:
            lo, hi, most = dim.lo or 0, dim.hi or 0, self.most[dim.name]
            found[dim.name] = self.rng.randint(lo, max(lo, min(most, hi)))
        return found

    def maybe_turned(self, m: Any, k: Any, *batch: Any) -> Any:
        """A matrix, or the transpose of one."""
        if self.rng.random() < 0.4:
            return self.tensor(*batch, k, m).transpose(-1, -2)
        return self.tensor(*batch, m, k)


def matmul(d: Draw) -> Any:
    m, n, k = d.extent(), d.extent(), d.extent()
    batch = [d.extent(3) for _ in range(d.rng.choice([0, 0, 1]))]
    a, b = (
        d.maybe_turned(m, k, *batch),
        d.maybe_turned(k, n, *(batch if d.rng.random() < 0.5 else ())),
    )
    b = b.cast(a.dtype)
    if d.rng.random() < 0.3:
        a = a * d.tensor(k).cast(a.dtype)  # a prologue
    y = a @ b
    if d.rng.random() < 0.5:
        y = y + d.tensor(n).cast(y.dtype)
    if d.rng.random() < 0.3 and not d.integers:
        y = y.relu() * 0.5
    return y


def gram(d: Draw) -> Any:
    x = d.tensor(d.extent(), d.extent())
    return x @ x.T if d.rng.random() < 0.5 else x.T @ x


def convolution(d: Draw) -> Any:
    channels, size = d.rng.choice([1, 2, 5, 8]), d.rng.choice([1, 2, 3])
    x = d.tensor(d.rng.choice([1, 2]), channels, d.rng.choice([9, 16, 23]), d.rng.choice([8, 17]))
    w = d.tensor(d.rng.choice([1, 3, 16, 20]), channels, size, size).cast(x.dtype)
    return x.conv2d(w, stride=d.rng.choice([1, 1, 2]), padding=d.rng.choice([0, 1]))


def rows(d: Draw) -> Any:
    x = d.tensor(*(d.extent(130) for _ in range(d.rng.choice([1, 2, 2, 3]))))
    axis = d.rng.randrange(len(x.shape))
    kind = d.rng.choice(["sum", "max", "mean", "centre", "both"])
    if kind == "max":
        return x.max(axis)[0]
    if kind == "centre":
        return x - x.sum(axis, keepdim=True)
    if kind == "both":
        return x.sum(axis) + x.max(axis)[0]
    return x.sum(axis) if d.integers or kind == "sum" else x.mean(axis)


def norm(d: Draw) -> Any:
    d.integers = False
    x = d.tensor(d.extent(130), d.extent())
    if d.rng.random() < 0.3:
        x = x.T
    return d.rng.choice([x.softmax, x.rms_norm, x.logsumexp])(d.rng.choice([0, 1]))


def moves(d: Draw) -> Any:
    x = d.tensor(d.extent(), d.extent(130))
    y = d.rng.choice([lambda: x.T, lambda: x.flip(0), lambda: x.T.flip(1), lambda: x + 0 * x])()
    return lm.concat([y, y], d.rng.choice([0, 1])) if d.rng.random() < 0.5 else y


def attention(d: Draw) -> Any:
    d.integers = False
    heads, queries, keys, width = d.extent(3), d.extent(65), d.extent(100), d.rng.choice([4, 16])
    q, k = d.tensor(heads, queries, width), d.tensor(heads, keys, width)
    return ((q @ k.transpose(-1, -2)) * 0.1).softmax(-1) @ d.tensor(heads, keys, width)


def ordered(d: Draw) -> Any:
    x = d.tensor(*(d.extent(65) for _ in range(d.rng.choice([1, 2, 3]))))
    axis = d.rng.randrange(len(x.shape))
    return x.cumsum(axis) if d.rng.random() < 0.5 else x.sort(axis)[0]


def masked(d: Draw) -> Any:
    """Rows of which a part counts: causal, banded, up to a dim, from a residue on."""
    n, m = d.extent(130), d.extent(130)
    x = d.tensor(n, m)
    row, column = d.cx.arange(n).reshape(n, 1), d.cx.arange(m).reshape(1, m)
    shift = d.rng.choice([0, 1, -3, 40])
    mask = d.rng.choice(
        [
            lambda: column <= row + shift,
            lambda: column > row + shift,
            lambda: (column <= row + 5) & (row <= column + 9),
            lambda: (row + column) % 3 == 1,
            lambda: (column >= shift) & (row < 70),
        ]
    )()
    kind = d.rng.choice(["sum", "product", "max", "softmax", "plain"])
    if kind == "sum":
        return lm.where(mask, x, 0).sum(d.rng.choice([0, 1]))
    if kind == "product":
        return lm.where(mask, x, 0) @ d.tensor(m, d.extent(70)).cast(x.dtype)
    if kind == "max":
        return lm.where(mask, x, -7).max(d.rng.choice([0, 1]))[0]
    if kind == "softmax" and not d.integers:
        return lm.where(mask, x, -np.inf).softmax(-1)
    return lm.where(mask, x, x * 2 - 1)


def pieces(d: Draw) -> Any:
    """Pads, slices and joins on the way into a reduction or a product."""
    n, m = d.rng.choice([5, 33, 64, 100]), d.rng.choice([4, 16, 70])
    x = d.tensor(n, m)
    y = d.rng.choice(
        [
            lambda: x.pad([(2, 3), (0, 1)]),
            lambda: lm.concat([x, x.flip(0)], 0),
            lambda: lm.concat([x, d.tensor(n, 9).cast(x.dtype)], 1),
            lambda: x[1:-1:2, 1:],
            lambda: x[::-2],
            lambda: x.reshape(n * m)[: n * m // 2 * 2].reshape(2, n * m // 2),
            lambda: lm.stack([x, x + 1], 1).reshape(2 * n, m),
            lambda: x.repeat(2, 3),
        ]
    )()
    kind = d.rng.choice(["sum", "product", "plain", "twice"])
    if kind == "sum":
        return y.sum(d.rng.choice([0, 1]))
    if kind == "product":
        return y.T @ y if d.rng.random() < 0.5 else y @ d.tensor(y.shape[1], 20).cast(y.dtype)
    return y + y.sum(1, keepdim=True) if kind == "twice" else y


def embedding(d: Draw) -> Any:
    """Rows gathered, some out of range, into a product or scattered back."""
    n, m, count = d.rng.choice([5, 33, 100]), d.rng.choice([4, 16, 70]), d.extent(100)
    x = d.tensor(n, m)
    rows = (d.tensor(count) * 5).cast(lm.int64) % n
    taken = x.take(rows, 0)
    kind = d.rng.choice(["plain", "product", "norm", "scatter"])
    if kind == "product":
        return taken @ d.tensor(m, 24).cast(x.dtype)
    if kind == "norm":
        return taken - taken.max(-1, keepdim=True)[0]
    if kind == "scatter":
        at = rows.reshape(rows.shape[0], 1).expand(rows.shape[0], m)
        return x.scatter(0, at, taken + 1)
    return taken


def merged(d: Draw, rank: int) -> Any:
    """A batch of one, channels, and axes each of which is made of two or comes out of one."""
    rng, channels = d.rng, d.rng.choice([1, 2, 4])
    outer, inner = rng.randint(1, 200 if rank == 1 else 17), rng.choice([1, 2, 3, 4, 5, 7, 16])
    rest = [rng.randint(1, 17)] * (rank - 1)
    kind = rng.choice(["outer", "turned", "stacked", "repeated", "split", "transposed"])
    if kind == "outer":
        x = (d.tensor(channels, outer, 1) * d.tensor(inner)).reshape(1, channels, outer * inner)
        return x.unsqueeze(3).repeat(1, 1, 1, *rest) if rank > 1 else x
    if kind == "turned":
        x = d.tensor(channels, inner, outer, *rest).transpose(1, 2)
        return x.reshape(1, channels, outer * inner, *rest)
    x = d.tensor(1, channels, outer, *rest)
    if kind == "stacked":
        return lm.stack([x, x + 1, x * 2], 3).reshape(1, channels, 3 * outer, *rest)
    if kind == "repeated":
        return x.repeat_interleave(inner, rng.choice(range(2, 2 + rank)))
    if kind == "split" and outer % 2 == 0:
        halves = x.reshape(1, channels, 2, outer // 2, *rest).transpose(2, 3)
        return halves.reshape(1, 2 * channels, outer // 2, *rest)
    if rank > 1 or d.integers:
        return x.flip(2)
    size, stride = rng.randint(1, 8), rng.randint(1, 4)
    w = d.tensor(channels, rng.choice([1, 2]), size)
    return x.conv_transpose1d(w, stride=stride, padding=rng.randint(0, (size - 1) // 2))


def windowed(d: Draw) -> Any:
    """Padded windows over merged axes: convolutions, pools, and neighbours added."""
    rng, rank = d.rng, d.rng.choice([1, 1, 2])
    x = merged(d, rank)
    if rng.random() < 0.2:
        before, after = rng.randint(0, 4), rng.randint(0, 4)
        y = x.pad([(0, 0)] * 2 + [(before, after)] + [(0, 0)] * (rank - 1))
        return y[:, :, before + after :] + x
    dilation, stride = rng.choice([1, 1, 2]), rng.choice([1, 1, 2, 3])
    size = [rng.randint(1, min(6, (n - 1) // dilation + 1)) for n in x.shape[2:]]
    if rng.random() < 0.3:
        pool, padding = (x.max_pool1d, x.max_pool2d)[rank - 1], [n // 2 for n in size]
        return pool(size, stride=stride, padding=padding)
    padding = [rng.randint(0, dilation * (n - 1)) for n in size]
    w = d.tensor(rng.choice([1, 1, 3, 8]), x.shape[1], *size).cast(x.dtype)
    convolve = (x.conv1d, x.conv2d)[rank - 1]
    return convolve(w, stride=stride, padding=padding, dilation=dilation)


KINDS: tuple[Callable[[Draw], Any], ...] = (
    matmul, matmul, gram, convolution, rows, norm, moves, attention, ordered,
    masked, masked, pieces, embedding, windowed, windowed,
)  # fmt: skip


def cases(seed: int) -> list[Case]:
    """One graph; if it has dims, at two values of them."""
    draw = Draw(seed)
    for k in range(2):
        draw.rng.choice(KINDS)(draw).output(f"y{k}")
    return [draw.case(dims) for dims in ([draw.dims, draw.others()] if draw.dims else [draw.dims])]


def windows(seed: int) -> list[Case]:
    """One graph of a padded window over merged axes."""
    draw = Draw(seed)
    windowed(draw).output("y")
    return [draw.case({})]


def check_seeds(seeds: range, make: Callable[[int], list[Case]] = cases) -> None:
    for seed in seeds:
        try:
            check(*make(seed), max_unstable=1.0)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("chunk", mostly_long(range(100), 1))
def test_sizes_of_seeds(chunk: int) -> None:
    check_seeds(range(5 * chunk, 5 * (chunk + 1)))


@pytest.mark.parametrize("chunk", mostly_long(range(200), 1))
def test_windows_over_merged_axes(chunk: int) -> None:
    check_seeds(range(10 * chunk, 10 * (chunk + 1)), windows)


@pytest.mark.parametrize(("outer", "inner"), [(100, 4), (140, 4), (140, 3), (129, 4)])
def test_a_tail_of_several_vectors_over_a_merged_axis(outer: int, inner: int) -> None:
    """Tails of 9 vectors of 16 that started at 256 were asked and read as if at 144."""
    cx = lm.Graph()
    x, y = cx.tensor((2, outer, 1), name="x"), cx.tensor((inner,), name="y")
    w = cx.tensor((1, 2, 5), name="w")
    (x * y).reshape(1, 2, outer * inner).conv1d(w, padding=2).output("z")
    given = {"x": np.arange(2 * outer, dtype=np.float32).reshape(2, outer, 1)}
    given |= {"y": np.ones(inner, np.float32), "w": np.ones((1, 2, 5), np.float32)}
    rows = given["x"].repeat(inner, 1)[:, :, 0].sum(0)
    wanted = np.convolve(rows, np.ones(5), "same")
    np.testing.assert_array_equal(lm.compile(cx)(given)["z"][0, 0], wanted)
