"""The graph of docs/tour.md: the softmax of a matrix product, over rows of a length not yet known.

luminal compile examples/softmax_of_matmul.py:graph --dump selection --dump tile
"""

from __future__ import annotations

import luminal as lm


def graph() -> lm.Graph:
    """`(x @ w).softmax(-1)` with x of shape (s, 64)."""
    cx = lm.Graph("softmax of a matmul")
    s = cx.dim("s", 1, 512)
    x = cx.tensor((s, 64), name="x")
    w = cx.weight((64, 32), name="w")
    (x @ w).softmax(-1).output("y")
    return cx
