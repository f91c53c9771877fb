"""Contractions that run by the machine's dots, of every kind of kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import luminal as lm

SCORES = ((3, 100, 64),) * 2
ATTENTION = ((3, 100, 64),) * 3
Shapes = tuple[tuple[int, ...], ...]
Case = tuple[Callable[..., Any], Shapes, bool]


def scores(q: Any, k: Any) -> Any:
    return (q.float() @ k.float().mT) * 0.125


def joined(a: Any, b: Any) -> Any:
    return lm.einsum("shd,nhd->sn", a, b)


CASES: dict[str, Case] = {
    "a batch": (lambda a, b: a @ b, ((5, 33, 64), (5, 64, 47)), True),
    "a batch, turned": (lambda a, b: a.mT @ b.mT, ((5, 64, 33), (5, 47, 64)), True),
    "a row": (lambda a, b: a @ b, ((64,), (64, 47)), True),
    "a column": (lambda a, b: b @ a, ((64,), (47, 64)), True),
    "a sum of products": (lambda a, b: (a.float() * b.float()).sum(), ((640,), (640,)), True),
    "one word long": (lambda a, b: a @ b, ((40, 2), (2, 47)), True),
    "an odd sum": (lambda a, b: a @ b, ((40, 35), (35, 47)), False),
    "with itself": (lambda a: a.mT @ a, ((66, 70),), True),
    "two sums of one": (lambda a, b, c: (a @ b) * (a @ c.mT), ((9, 64), (64, 48), (48, 64)), True),
    "columns over their sums": (
        lambda a: a / (a.float() * a.float()).sum(0, keepdim=True),
        ((6, 2),),
        True,
    ),
    "rows over their sums": (
        lambda a: a / (a.float() * a.float()).sum(1, keepdim=True),
        ((9, 6),),
        True,
    ),
    "heads": (lambda a, b: lm.einsum("hsd,thd->hst", a, b), ((3, 9, 64), (47, 3, 64)), True),
    "heads summed": (lambda a, b: lm.einsum("hsd,nhd->sn", a, b), ((3, 9, 50), (70, 3, 50)), True),
    "heads joined": (joined, ((9, 3, 50), (70, 3, 50)), True),
    "a row joined": (lambda a, b: lm.einsum("hd,nhd->n", a, b), ((8, 64), (70, 8, 64)), True),
    "three joined": (
        lambda a, b: lm.einsum("shcd,nhcd->sn", a, b),
        ((5, 2, 3, 6), (40, 2, 3, 6)),
        True,
    ),
    "joined, not alone": (
        lambda a, b: joined(a, b) * a.float().amax((1, 2)).unsqueeze(1) + b.float().sum((1, 2)),
        ((9, 3, 50), (70, 3, 50)),
        True,
    ),
    "joined by one of two sums": (
        lambda a, b: lm.einsum("hd,nhd->n", a, b).float() + b.float().amax((1, 2)),
        ((8, 64), (70, 8, 64)),
        True,
    ),
    "joined and apart": (
        lambda a, b, c: joined(a, b) + joined(a, c.transpose(1, 2)),
        ((9, 3, 50), (70, 3, 50), (70, 50, 3)),
        True,
    ),
    "a convolution": (lambda x, w: x.conv2d(w), ((2, 16, 9, 9), (32, 16, 1, 1)), True),
    "relu scores": (lambda q, k, v: scores(q, k).relu() @ v.float(), ATTENTION, True),
    "softmax": (lambda q, k, v: scores(q, k).softmax(-1) @ v.float(), ATTENTION, True),
    "the largest": (lambda q, k: scores(q, k).amax(-1), SCORES, True),
    "a variance": (lambda q, k: scores(q, k).var(-1), SCORES, True),
    "turned keys": (lambda q, k: scores(q, k.mT).amax(-1), ((3, 90, 64), (3, 64, 90)), True),
    "one query": (
        lambda q, k, v: scores(q, k).softmax(-1) @ v.float(),
        ((8, 1, 64), (8, 300, 64), (8, 300, 64)),
        True,
    ),
}  # fmt: skip
