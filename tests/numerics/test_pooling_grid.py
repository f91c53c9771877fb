"""Pooling over grids of its options: values, positions, and which options are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import ShapeError
from luminal.frontend.graph import Recorder
from tests.numerics.batch import Case, check
from tests.numerics.recording import on, run

F, TF = lm.nn.functional, torch.nn.functional
rng = np.random.default_rng(0)


class Options(NamedTuple):
    """Of one pooling, alike for all its dims."""

    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil: bool


GRID = [
    Options(*each)
    for each in itertools.product((1, 2, 3, 6), (1, 2, 5), (0, 1, 3), (1, 2), (False, True))
]
PLAIN = [o for o in GRID if o.dilation == 1]


def max_pool(lib: Any, rank: int, x: Any, o: Options) -> Any:
    pool = getattr(lib, f"max_pool{rank}d")
    return pool(x, *o[:4], ceil_mode=o.ceil, return_indices=True)


def avg_pool(lib: Any, rank: int, x: Any, o: Options) -> Any:
    pool = getattr(lib, f"avg_pool{rank}d")
    return pool(x, *o[:3], o.ceil), pool(x, *o[:3], o.ceil, False)


def lp_pool(lib: Any, rank: int, x: Any, o: Options) -> Any:
    pool = getattr(lib, f"lp_pool{rank}d")
    orders = (1, 3, 0.5, float("inf"), -float("inf"))
    return [pool(x, p, o.kernel, o.stride, o.ceil) for p in orders]


Pool = Callable[[Any, int, Any, Options], Any]
POOLS: dict[str, tuple[Pool, list[Options]]] = {
    "max": (max_pool, GRID),
    "avg": (avg_pool, PLAIN),
    "lp": (lp_pool, [o for o in PLAIN if o.padding == 0]),
}


def allowed(pool: Pool, rank: int, x: np.ndarray[Any, Any], grid: list[Options]) -> Iterator[Case]:
    """A case for each choice that PyTorch takes; asserts that Luminal takes the same ones."""
    cx = Recorder()
    t = cx.tensor(x.shape, x.dtype)
    for o in grid:
        try:
            pool(TF, rank, torch.from_numpy(x), o)
        except RuntimeError:
            with pytest.raises(ShapeError):
                pool(F, rank, t, o)
            continue
        yield Case(
            f"{pool.__name__}{rank}d of {x.shape[2]}, {o}",
            lambda x, o=o: pool(F, rank, x, o),
            lambda x, o=o: pool(TF, rank, x, o),
            [x],
        )


def inputs(rank: int, extent: int) -> list[np.ndarray[Any, Any]]:
    """Numbers, and the same with NaN and infinities at several places of a window."""
    x = rng.normal(size=(1, 2, *(extent,) * rank)).astype(np.float32)
    special = x.copy()
    special.reshape(-1)[::3] = np.nan
    special.reshape(-1)[1::5] = -np.inf
    return [x, special]


@pytest.mark.parametrize("extent", [1, 5])
@pytest.mark.parametrize("name", POOLS)
def test_every_choice_in_one_dim(name: str, extent: int) -> None:
    pool, grid = POOLS[name]
    check([c for x in inputs(1, extent) for c in allowed(pool, 1, x, grid)], "reference")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", POOLS)
def test_some_choices_in_two_dims(name: str, backend: str) -> None:
    pool, grid = POOLS[name]
    some = [grid[k] for k in np.random.default_rng(1).choice(len(grid), 12, replace=False)]
    check([c for x in inputs(2, 5) for c in allowed(pool, 2, x, some)], backend)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_window_beyond_the_input_and_the_last_nan(backend: str) -> None:
    """A window of 6 over 5 elements is one of ceil_mode; each NaN takes the place of the last."""
    x = np.array([[[1, np.nan, 0, np.nan, 2]]], np.float32)
    with on(backend):
        values, places = run(lambda x: F.max_pool1d(x, 6, 2, 0, 1, True, True), x)
        assert np.isnan(values).tolist() == [[[True]]]
        assert places.tolist() == [[[3]]]
        found = run(lambda x: F.lp_pool1d(x, 3, 2), -x[..., 4:].repeat(2, -1))
    assert np.isnan(found).all()


# --- of an element without dims -------------------------------------------------------------------


@pytest.mark.parametrize("value", [5.0, 0.0])
def test_nonzero_of_a_0d_constant(value: float) -> None:
    cx = Recorder()
    t = torch.tensor(value)
    found = cx.constant(np.float32(value)).nonzero()
    assert found.shape == tuple(t.nonzero().shape)
    (row,) = cx.constant(np.float32(value)).nonzero(as_tuple=True)
    assert row.shape == tuple(t.nonzero(as_tuple=True)[0].shape)
