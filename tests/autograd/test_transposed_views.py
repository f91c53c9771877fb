"""Gradients of chains of movements against `np.add.at`, and which of them are views or sums."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import luminal as lm
from tests.close import close
from tests.long_share import mostly_long

CHUNK, CHUNKS = 60, 10
LARGEST = 400  # elements

Movement = Callable[[Random, lm.Tensor], lm.Tensor]


def permuted(rng: Random, x: lm.Tensor) -> lm.Tensor:
    return x.permute(*rng.sample(range(x.ndim), x.ndim))


def expanded(rng: Random, x: lm.Tensor) -> lm.Tensor:
    stretched = [rng.randint(1, 4) if n == 1 else n for n in x.shape]
    return x.expand(rng.randint(1, 3), *stretched)


def sliced(rng: Random, x: lm.Tensor) -> lm.Tensor:
    axis = rng.randrange(x.ndim)
    n = int(x.shape[axis])
    start = rng.randrange(n)
    key = slice(start, rng.randint(start + 1, n), rng.randint(1, 3))
    return x[(*(slice(None),) * axis, key)]


def flipped(rng: Random, x: lm.Tensor) -> lm.Tensor:
    return x.flip(rng.randrange(x.ndim))


def rolled(rng: Random, x: lm.Tensor) -> lm.Tensor:
    return x.roll(rng.randint(-3, 3), rng.randrange(x.ndim))


def padded(rng: Random, x: lm.Tensor) -> lm.Tensor:
    return lm.pad(x, [(rng.randint(0, 2), rng.randint(0, 2)) for _ in x.shape])


def reshaped(rng: Random, x: lm.Tensor) -> lm.Tensor:
    count, shape = int(np.prod(x.shape)), []
    while count > 1 and len(shape) < 4:
        shape.append(rng.choice([k for k in range(1, count + 1) if count % k == 0]))
        count //= shape[-1]
    return x.reshape(*shape, count)


def windows(rng: Random, x: lm.Tensor) -> lm.Tensor:
    axis = rng.randrange(x.ndim)
    n = int(x.shape[axis])
    size = rng.randint(1, n)
    return x.unfold(axis, size, rng.randint(1, 3))


def diagonal(rng: Random, x: lm.Tensor) -> lm.Tensor:
    return x.diagonal(rng.randint(0, 1)) if x.ndim > 1 and min(x.shape[:2]) > 1 else x


def repeated(rng: Random, x: lm.Tensor) -> lm.Tensor:
    return x.repeat(*(rng.randint(1, 2) for _ in x.shape))


MOVEMENTS: list[Movement] = [
    permuted, expanded, sliced, flipped, rolled, padded, reshaped, windows, diagonal, repeated,
]  # fmt: skip


def chain(rng: Random, x: lm.Tensor) -> lm.Tensor:
    """Up to five movements, one after the other."""
    for _ in range(rng.randint(1, 5)):
        moved = rng.choice(MOVEMENTS)(rng, x)
        if moved.ndim and 0 < np.prod(moved.shape) <= LARGEST:
            x = moved
    return x


def source(cx: lm.Graph, rng: Random, name: str) -> lm.Tensor:
    return cx.tensor(tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 4))), "float64", name)


def numbered(shape: tuple[Any, ...]) -> Any:
    """1, 2, 3 ...: what a view shows of it says where it reads; 0 is padding."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float64).reshape(shape)


@pytest.mark.parametrize("chunk", mostly_long(range(CHUNKS), 5))
def test_chains_of_movements(chunk: int) -> None:
    cx, values, shown = lm.Graph(), {}, {}
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        rng = Random(seed)
        x = source(cx, rng, f"x{seed}")
        y = chain(rng, x)
        weights = np.random.default_rng(seed).standard_normal(y.shape)
        values[f"x{seed}"], shown[seed] = numbered(x.shape), weights
        y.output(f"y{seed}")
        lm.grad(y, x, cx.constant(weights)).output(f"g{seed}")
    found = lm.compile(cx, "reference")(values)
    for seed, weights in shown.items():
        wanted = np.zeros(values[f"x{seed}"].size + 1)
        np.add.at(wanted, found[f"y{seed}"].astype(np.int64).ravel(), weights.ravel())
        mine = found[f"g{seed}"].ravel()
        close(mine, wanted[1:], ulp=16, err_msg=f"seed {seed}")


SOLVED: dict[str, Callable[[lm.Tensor], lm.Tensor]] = {
    "the first of each row in a row": lambda x: x[:, :6].reshape(3, 8),
    "some of each row in a row": lambda x: x[:, 1:7].reshape(3, 8),
    "every second": lambda x: x[:, ::2].reshape(-1),
    "every second, backwards": lambda x: x[:, ::2].flip(1).reshape(2, 10),
    "the last ones, backwards": lambda x: x.flip(1)[:, :3].reshape(-1)[1:11],
    "some rows in windows": lambda x: x[1:3].reshape(-1).unfold(0, 3, 2),
    "padded, then in other rows": lambda x: lm.pad(x, [(0, 0), (1, 1)]).reshape(8, 6),
}


@pytest.mark.parametrize("name", SOLVED)
def test_parts_of_rows_in_other_rows(name: str) -> None:
    """Positions that no element of the result reads have no gradient."""
    cx = lm.Graph()
    x = cx.tensor((4, 10), "float64", "x")
    y = SOLVED[name](x)
    weights = np.random.default_rng(0).standard_normal(y.shape)
    y.output("y")
    lm.grad(y, x, cx.constant(weights)).output("g")
    assert "Scatter" not in cx.graph().by_op()
    found = lm.compile(cx, "reference")({"x": numbered((4, 10))})
    wanted = np.zeros(41)
    np.add.at(wanted, found["y"].astype(np.int64).ravel(), weights.ravel())
    close(found["g"].ravel(), wanted[1:])


@pytest.mark.parametrize("movement", MOVEMENTS, ids=lambda movement: movement.__name__)
def test_a_movement_alone_needs_no_scatter(movement: Movement) -> None:
    for seed in range(40):
        rng, cx = Random(seed), lm.Graph()
        x = source(cx, rng, "x")
        lm.grad(movement(rng, x).sum(), x).output("g")
        assert "Scatter" not in cx.graph().by_op(), f"seed {seed}"


def test_a_window_is_a_sum_over_taps_of_a_dynamic_dim() -> None:
    cx = lm.Graph()
    n = cx.dim("n", 4, 64)
    x = cx.tensor((n,), "float64", "x")
    y = lm.nn.functional.avg_pool1d(x.unsqueeze(0), 3, 1).sum()
    lm.grad(y, x).output("g")
    assert "Scatter" not in cx.graph().by_op()
    found = lm.compile(cx, "reference")({"x": np.arange(6.0)})["g"]
    np.testing.assert_allclose(found, np.array([1, 2, 3, 3, 2, 1]) / 3)


def test_most_chains_need_none() -> None:
    scattered = 0
    for seed in range(300):
        rng, cx = Random(seed), lm.Graph()
        x = source(cx, rng, "x")
        lm.grad(chain(rng, x).sum(), x).output("g")
        scattered += "Scatter" in cx.graph().by_op()
    assert scattered <= 8


def test_one_element_that_is_read_is_no_sum_over_all() -> None:
    """Else the gradient takes the square of the length: a row of 2^k + 1 in rounds ended in one."""
    cx = lm.Graph()
    x, u = (cx.tensor((1000,), name=name) for name in "xu")
    lm.grad((x.narrow(0, 3, 1).pad(((990, 9),)) * u).sum(), x).output("g")
    exe = lm.compile(cx)
    arrays = {name: np.random.default_rng(0).standard_normal(1000, np.float32) for name in "xu"}
    want = np.zeros(1000, np.float32)
    want[3] = arrays["u"][990]
    np.testing.assert_array_equal(exe(arrays)["g"], want)
    assert exe.report().flops < 20_000
