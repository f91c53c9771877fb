"""Programs whose last vectors are masked, and end where their arrays do."""

from __future__ import annotations

import numpy as np

import luminal as lm
from tests.fuzz.cpu_run import compiled


def sums_of_products(width: int) -> None:
    """Of rows, each the last vector's masked part; the last row ends where the array does."""
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 1, 50), width), name="x")
    (x * (cx.arange(width) + 2).cast("f32")).sum(-1).output("y")
    exe, _ = compiled(cx.graph())
    exe({"x": np.ones((21, width), np.float32)})


def transposed(columns: int) -> None:
    """Fewer than there are lanes, each row of which is read as one masked vector."""
    cx = lm.Graph()
    (cx.tensor((48, columns), name="x").permute(1, 0) * 2).output("y")
    exe, _ = compiled(cx.graph())
    exe({"x": np.ones((48, columns), np.float32)})
