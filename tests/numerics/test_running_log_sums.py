"""logcumsumexp in blocks: beside PyTorch in float64, whatever rises, falls or jumps along a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from tests.close import close
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
SHAPES = (
    ((0,), 0), ((1,), 0), ((2,), 0), ((15,), 0), ((16,), 0), ((17,), 0), ((255,), 0), ((257,), 0),
    ((4097,), 0), ((70_001,), 0), ((3, 300), 1), ((300, 3), 0), ((5, 33, 4), 1), ((2, 0, 3), 1),
)  # fmt: skip


def rows(shape: tuple[int, ...], axis: int) -> dict[str, Array]:
    """Rows by how they run."""
    rng = np.random.default_rng([*shape, axis])
    x = rng.standard_normal(shape)
    at = np.moveaxis(
        np.broadcast_to(np.arange(shape[axis]), (*shape[:axis], *shape[axis + 1 :], shape[axis])),
        -1,
        axis,
    )
    rare = rng.random(shape) < 0.02
    return {
        "noise": x,
        "wide": 60 * x,
        "rising": x + at,
        "falling": x - at,
        "steep": 1000.0 * at,
        "walk": 20 * x.cumsum(axis),
        "jumps": np.where(rare, 5000 * x, x),
        "low": x - 1e30,
        "-inf first": np.where(at < 20, -np.inf, x),
        "-inf": np.where(rare, x, -np.inf),
        "inf": np.where(rare & (at > 30), np.inf, x),
        "nan": np.where(rare & (at > 30), np.nan, x),
        "largest": np.where(rare, 3.4e38, -3.4e38),
    }  # fmt: skip


def worst(found: Array, wanted: Array) -> float:
    """In units of the larger of 1 and the value."""
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(all="ignore"):
        apart = abs(found.astype(np.float64) - wanted) / np.maximum(1, abs(wanted))
    return float(np.where(same, 0, np.nan_to_num(apart, nan=np.inf)).max(initial=0))


@pytest.mark.parametrize("dtype", mostly_long(["float32", "float64"], 1))
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_like_float64(case: tuple[tuple[int, ...], int], dtype: str) -> None:
    shape, axis = case
    graph = lm.Graph()
    graph.output(graph.tensor(shape, dtype, "x").logcumsumexp(axis), "y")
    program = lm.compile(graph)
    for name, row in rows(shape, axis).items():
        x = row.astype(dtype)
        found = program({"x": x})["y"]
        wanted = torch.logcumsumexp(torch.from_numpy(x).double(), axis).numpy()
        assert worst(found, wanted) <= (1e-6 if dtype == "float32" else 5e-14), name


def test_rows_of_any_length() -> None:
    graph = lm.Graph()
    graph.output(graph.tensor(("rows", "n"), "float32", "x").logcumsumexp(1), "y")
    program = lm.compile(graph)
    for n in (1, 2, 16, 17, 300, 5000):
        x = rows((2, n), 1)["walk"].astype(np.float32)
        wanted = torch.logcumsumexp(torch.from_numpy(x).double(), 1).numpy()
        assert worst(program({"x": x})["y"], wanted) <= 1e-6, n


@pytest.mark.parametrize("n", mostly_long([17, 5000, 1, 2, 300], 2))
@pytest.mark.parametrize("name", ["noise", "wide", "rising", "falling", "walk", "jumps"])
def test_gradients(n: int, name: str) -> None:
    graph = lm.Graph()
    x, g = graph.tensor((2, n), "float32", "x"), graph.tensor((2, n), "float32", "g")
    graph.output(lm.grad(lambda x: (x.logcumsumexp(1) * g).sum())(x), "dx")
    program = lm.compile(graph)
    row = rows((2, n), 1)[name].astype(np.float32)
    weights = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
    given = torch.from_numpy(row).double().requires_grad_()
    (torch.logcumsumexp(given, 1) * torch.from_numpy(weights).double()).sum().backward()
    assert given.grad is not None
    found = program({"x": row, "g": weights})["dx"]
    wanted = given.grad.numpy()
    close(found, wanted, ulp=8)


def test_minus_infinity_has_no_gradient() -> None:
    graph = lm.Graph()
    x = graph.tensor((40,), "float32", "x")
    graph.output(lm.grad(lambda x: x.logcumsumexp(0).clip(-100, 100).sum())(x), "dx")
    row = np.linspace(0, 1, 40, dtype=np.float32)
    row[:20] = -np.inf
    found = lm.compile(graph)({"x": row})["dx"]
    assert np.isfinite(found).all()
    assert not found[:20].any()
    assert found[20:].all()
