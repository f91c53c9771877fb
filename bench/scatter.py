"""Writing at computed positions: rows added by index, an embedding's gradient, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import luminal as lm
from bench.pair import caller, compare
from bench.row import Row, Rows
from luminal.nn import functional as F

Array = np.ndarray[Any, Any]
TABLE, WIDTH, TOKENS = 4096, 384, 1024
VALUES, BINS = 1_000_000, 1000


def rows() -> Rows:
    """Each against PyTorch eager."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    def below(n: int, *shape: int) -> Array:
        return rng.integers(0, n, shape)

    yield _row(
        "index_add of 4096 rows to 4096x256",
        1.0,
        lambda x, i, s: x.index_add(0, i, s),
        lambda x, i, s: x.index_add(0, i, s),
        x=normal(TABLE, 256),
        i=below(TABLE, TABLE),
        s=normal(TABLE, 256),
    )
    yield _row(
        "scatter_add along rows of 4096x256",
        1.0,
        lambda x, i, s: x.scatter_add(1, i, s),
        lambda x, i, s: x.scatter_add(1, i, s),
        x=normal(TABLE, 256),
        i=below(256, TABLE, 256),
        s=normal(TABLE, 256),
    )
    yield _row(
        f"gradient of an embedding, {TOKENS} of {TABLE}x{WIDTH}",
        1.0,
        _embedding,
        lambda i, g: torch.ops.aten.embedding_dense_backward(g, i, TABLE, -1, False),
        i=below(TABLE, TOKENS),
        g=normal(TOKENS, WIDTH),
    )
    yield _row(
        f"bincount of {VALUES}",
        1.0,
        lambda i: i.bincount(size=BINS),
        lambda i: torch.bincount(i, minlength=BINS),
        i=below(BINS, VALUES),
    )


def _embedding(i: lm.Tensor, g: lm.Tensor) -> lm.Tensor:
    weight = i.graph.weight((TABLE, WIDTH))
    gradients: list[lm.Tensor] = lm.grad((F.embedding(i, weight) * g).sum(), [weight])
    return gradients[0]


def _row(
    name: str,
    target: float,
    ours: Callable[..., lm.Tensor],
    theirs: Callable[..., torch.Tensor],
    **arrays: Array,
) -> Row:
    graph = lm.Graph()
    inputs = [graph.tensor(x.shape, str(x.dtype), name=key) for key, x in arrays.items()]
    ours(*inputs).output("y")
    peers = [torch.from_numpy(x) for x in arrays.values()]
    return compare(name, caller(graph, **arrays), lambda: theirs(*peers), target)
