"""Rows that are reduced, ordered and moved: what memory and its order bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from bench.row import Rows
from bench.work import Work, normal, rows_of

LARGE, LONG, WIDE = (4096, 4096), (64, 50_257), (1024, 4096)


def rows() -> Rows:
    """Against the best of PyTorch and NumPy."""
    yield from rows_of(_works())


def _works() -> Iterator[Work]:
    x = {"x": normal(*LARGE)}
    long, wide = {"x": normal(*LONG)}, {"x": normal(*WIDE)}
    yield _work("softmax 64x50257", long, lambda x: x.softmax(-1), quick=True)
    yield _work("sum of all of 4096x4096", x, lambda x: x.sum(), numpy=lambda x: x.sum())
    yield _work("sum of rows of 4096x4096", x, lambda x: x.sum(-1), numpy=lambda x: x.sum(-1))
    yield _work("sum of columns of 4096x4096", x, lambda x: x.sum(0), numpy=lambda x: x.sum(0))
    few = {"x": normal(100_000, 64)}
    yield _work("sum of columns of 100000x64", few, lambda x: x.sum(0), numpy=lambda x: x.sum(0))
    yield _work(
        "transpose of 4096x4096",
        x,
        lambda x: x.transpose(0, 1) + 0,
        torch=lambda x: x.t().contiguous(),
        numpy=lambda x: x.T.copy(),
        quick=True,
    )
    yield _work("cumsum of rows of 1024x4096", wide, lambda x: x.cumsum(-1))
    yield _work("cumsum of columns of 1024x4096", wide, lambda x: x.cumsum(0))
    row, odd = {"x": normal(1 << 24)}, {"x": normal(1_000_003)}
    yield _work("cumsum of 16777216", row, lambda x: x.cumsum(0))
    yield _work("cumsum of 1000003", odd, lambda x: x.cumsum(0))
    yield _work("cummax of 1000003", odd, lambda x: x.cummax(0)[0])
    yield _work("sum of 1000003", odd, lambda x: x.sum(), numpy=lambda x: x.sum())
    yield _work("greatest of 1000003", odd, lambda x: x.amax(), numpy=lambda x: x.max())
    narrow = {"x": (40 * normal(1_000_003)).clip(-128, 127).astype("int8")}
    yield _work("greatest of 1000003 bytes", narrow, lambda x: x.amax(), numpy=lambda x: x.max())
    yield _work("argmax of 1000003", odd, lambda x: x.argmax(), numpy=lambda x: x.argmax())
    yield _work("sort of rows of 1024x4096", wide, lambda x: x.sort(-1)[0], quick=True)
    yield _work("topk(10) of rows of 1024x4096", wide, lambda x: x.topk(10)[0])
    logits = {"x": normal(50_257)}
    yield _work("topk(50) of 50257", logits, lambda x: x.topk(50)[0])
    yield _work(
        "median of rows of 1024x4096",
        wide,
        lambda x: x.median(-1)[0],
        torch=lambda x: torch.median(x, -1)[0],
    )


def _work(name: str, given: dict[str, Any], ours: Any, **options: Any) -> Work:
    return Work(name, 1.0, given, ours, **options)
