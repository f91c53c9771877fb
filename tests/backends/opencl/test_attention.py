"""Attention of few rows, whose loops the device's compiler writes out."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from tests.backends.opencl.devices import compiled
from tests.close import close


@pytest.mark.parametrize(
    "extents",
    [
        (2, 4, 4, 4, 4),
        (2, 4, 11, 11, 4),
        *(
            pytest.param(tuple(map(int, each)), marks=pytest.mark.long)
            for each in np.random.default_rng(5).integers(
                (2, 3, 1, 1, 1), (4, 6, 14, 14, 14), (40, 5)
            )
        ),
    ],
)
def test_of_any_small_extents(extents: tuple[int, ...]) -> None:
    """Nothing that a lane stores is read as it was before, on whichever side of a barrier."""
    batch, rows, keys, width, values = extents
    cx, rng = lm.Graph(), np.random.default_rng(0)
    shapes = {"q": (batch, rows, width), "k": (batch, keys, width), "v": (batch, keys, values)}
    q, k, v = (cx.tensor(shape, name=name) for name, shape in shapes.items())
    ((q @ k.mT * 0.2).softmax(-1) @ v).output("y")
    given = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    exact = {name: value.astype(np.float64) for name, value in given.items()}
    weights = np.exp(exact["q"] @ exact["k"].swapaxes(-1, -2) * 0.2)
    want = weights / weights.sum(-1, keepdims=True) @ exact["v"]
    close(compiled(cx.graph())(given)["y"], want, ulp=16)
