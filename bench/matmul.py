"""Products of two f32 matrices that are both given per call."""

from __future__ import annotations

import numpy as np
import torch

import luminal as lm
from bench.pair import caller, compare
from bench.row import Row, Rows


def rows() -> Rows:
    """A square product and one whose extents fit no tile, against PyTorch eager."""
    yield _row(1024, 1024, 1024, 0.9)
    yield _row(1000, 777, 1333, 0.8)


def _row(m: int, k: int, n: int, target: float) -> Row:
    random = np.random.default_rng(0)
    a = random.standard_normal((m, k), np.float32)
    b = random.standard_normal((k, n), np.float32)
    graph = lm.Graph()
    (graph.tensor((m, k), name="a") @ graph.tensor((k, n), name="b")).output("c")
    ours, (x, y) = caller(graph, a=a, b=b), map(torch.from_numpy, (a, b))
    return compare(f"matmul {m}x{k}x{n}", ours, lambda: x @ y, target, flops=2 * m * k * n)
