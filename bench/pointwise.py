"""A chain of elementwise operations, and the row kernels softmax and layer_norm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

import luminal as lm
from bench.pair import caller, compare
from bench.row import Row, Rows

SHAPE = (4096, 4096)


def rows() -> Rows:
    """Each against PyTorch eager."""
    yield _row(
        "sqrt(exp(sin(x)*2+1))/(1+x*x)",
        8.0,
        lambda x: ((x.sin() * 2 + 1).exp()).sqrt() / (1 + x * x),
        lambda x: ((x.sin() * 2 + 1).exp()).sqrt() / (1 + x * x),
    )
    yield _row("softmax", 3.0, lambda x: x.softmax(-1), lambda x: x.softmax(-1))
    yield _row(
        "layer_norm",
        3.0,
        lambda x: x.layer_norm(-1),
        lambda x: torch.nn.functional.layer_norm(x, SHAPE[-1:]),
    )


def _row(
    name: str,
    target: float,
    ours: Callable[[lm.Tensor], lm.Tensor],
    theirs: Callable[[torch.Tensor], torch.Tensor],
) -> Row:
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    graph = lm.Graph()
    ours(graph.tensor(SHAPE, name="x")).output("y")
    peer = torch.from_numpy(x)
    return compare(f"{name} 4096x4096", caller(graph, x=x), lambda: theirs(peer), target)
