"""Tiles that are loaded along one axis and used along another: transposed in registers."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from tests.long_share import mostly_long


@pytest.mark.parametrize(
    "dtype", mostly_long([np.float32, np.int8, np.bool_, np.float64, np.float16, np.int64], 3)
)
@pytest.mark.parametrize(
    "shape", [(64, 48), (33, 17), (40, 30), (50, 9), (16, 16), (7, 5), (1, 40)]
)
def test_transposed_copies(shape: tuple[int, int], dtype: type) -> None:
    x = np.random.default_rng(0).integers(0, 2 if dtype is np.bool_ else 100, shape).astype(dtype)
    cx = lm.Graph()
    cx.tensor(x, name="x").transpose(0, 1).contiguous().output("y")
    assert (lm.compile(cx)({"x": x})["y"] == x.T).all()


def test_transposed_batches_of_dynamic_extent() -> None:
    x = np.random.default_rng(0).standard_normal((3, 50, 70), np.float32)
    cx = lm.Graph()
    s, t = cx.dim("s", 1, 100), cx.dim("t", 1, 100)
    (cx.tensor((3, s, t), name="x").permute(2, 0, 1) + 1).output("y")
    assert (lm.compile(cx)({"x": x})["y"] == x.transpose(2, 0, 1) + 1).all()
