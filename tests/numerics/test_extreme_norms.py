"""Norms, deviations and their like at the ends of the range, element by element like PyTorch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base import dtypes
from tests.long_share import long_rows
from tests.numerics.special_values import BOTH, Op, failures

F, TF = lm.nn.functional, torch.nn.functional
# By dtype: small enough for squares to vanish, large enough for them to overflow.
SCALES = {
    "float32": (1e-30, 1e-20, 1.0, 1e19, 1e20, 1e30),
    "bfloat16": (1e-30, 1.0, 1e19, 1e30),
    "float16": (1e-4, 1.0, 3e3),
    "float64": (1e-200, 1.0, 1e200),
}
NARROW = ("bfloat16", "float16")
ORDERS: tuple[Any, ...] = (1, 2, 3, 0.5, -1, -2, float("inf"), -float("inf"), 0, "fro")
SHAPES = [(4, 6), (3, 1), (1, 5)]


def same(name: str, call: Any, ulp: float) -> Op:
    return Op(name, call, call, ulp)


def ops(dims: tuple[int | None, ...], ulp: float) -> list[Op]:
    """Of a matrix, along each of the dims."""
    found = []
    for dim in dims:
        found += [
            same(f"norm {p} dim {dim}", lambda x, p=p, d=dim: x.norm(p, d), 4 * ulp) for p in ORDERS
        ]
        found += [
            same(f"var dim {dim}", lambda x, d=dim: x.var(d, unbiased=False), ulp),
            same(f"std dim {dim}", lambda x, d=dim: x.std(d, unbiased=False), ulp),
            same(f"dist {dim}", lambda x: x.dist(x.flip(0) * 2), ulp),
        ]
    return found


@pytest.mark.parametrize(
    ("dtype", "backend"),
    long_rows(product(SCALES, BOTH), [("float32", "cpu"), *product(NARROW, ["reference"])]),
)
def test_norms_and_deviations(dtype: str, backend: str) -> None:
    rng = np.random.default_rng(0)
    wrong = []
    for shape in SHAPES:
        for scale in SCALES[dtype]:
            x = (rng.uniform(0.5, 2, shape) * scale).astype(dtypes.dtype_of(dtype).numpy)
            wrong += failures(ops((None, 0, 1), 8), backend, x)
    assert wrong == []


@pytest.mark.parametrize("backend", BOTH)
def test_cosines_and_distances(backend: str) -> None:
    """PyTorch rounds squares to 16 bits in float16; the library does not."""
    rng = np.random.default_rng(1)
    pairs = [
        Op(
            f"cosine_similarity {d}",
            lambda x, y, d=d: F.cosine_similarity(x, y, d),
            lambda x, y, d=d: TF.cosine_similarity(x, y, d),
            64,
        )
        for d in (0, 1)
    ]
    pairs += [
        Op("pairwise_distance", F.pairwise_distance, TF.pairwise_distance, 64),
        Op("normalize", lambda x, y: F.normalize(x), lambda x, y: TF.normalize(x), 16),
        Op("mean", lambda x, y: x.mean(0), lambda x, y: x.mean(0), 8),
    ]
    wrong = []
    for shape in SHAPES:
        for scale in SCALES["float32"]:
            x, y = (rng.uniform(0.5, 2, (2, *shape)) * scale).astype(np.float32)
            wrong += failures(pairs, backend, x, y)
    assert wrong == []
