"""Differences along a dim that may be of no element."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm


@pytest.mark.parametrize("lo", [0, 1])
def test_along_a_dim(lo: int) -> None:
    cx = lm.Graph()
    n = cx.dim("n", lo, 9)
    x = cx.tensor((n, 4), name="x")
    x.diff(dim=0).output("once")
    x.diff(n=2, dim=0).output("twice")
    exe = lm.compile(cx)
    for count in range(lo, 6):
        given = np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32)
        found = exe({"x": given})
        np.testing.assert_array_equal(found["once"], np.diff(given, axis=0))
        np.testing.assert_array_equal(found["twice"], np.diff(given, 2, axis=0))
