"""Attention on the rows where a one-pass softmax goes wrong, against the two-pass reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.reference import evaluate_with_bounds
from tests.long_share import mostly_long
from tests.numerics.tolerance import compare

Array = np.ndarray[Any, Any]
KEYS, WIDTH = 300, 16
INF = np.float32(np.inf)


def scores(kind: str) -> Array:
    """One row of scores per case, over KEYS keys."""
    rng = np.random.default_rng(3)
    row = rng.normal(0, 3, KEYS).astype(np.float32)
    changes: dict[str, Callable[[], None]] = {
        "ordinary": lambda: None,
        "rising": lambda: row.sort(),
        "falling": lambda: row[::-1].sort(),
        "all far below": lambda: row.__isub__(200),
        "all far above": lambda: row.__iadd__(3e4),
        "first tile masked": lambda: row.__setitem__(slice(0, 70), -INF),
        "first masked, rest far below": lambda: (
            row.__isub__(200),
            row.__setitem__(slice(0, 130), -INF),
        )[0],
        "last masked": lambda: row.__setitem__(slice(40, None), -INF),
        "fully masked": lambda: row.fill(-INF),
        "one +inf": lambda: row.__setitem__(150, INF),
        "one NaN": lambda: row.__setitem__(299, np.nan),
        "one key": lambda: (row.fill(-INF), row.__setitem__(299, 2.0))[0],
        "equal": lambda: row.fill(-5.0),
    }
    changes[kind]()
    return row


KINDS = (
    "ordinary", "rising", "falling", "all far below", "all far above", "first tile masked",
    "first masked, rest far below", "last masked", "fully masked", "one +inf", "one NaN",
    "one key", "equal",
)  # fmt: skip


def attended(fn: Callable[..., Any], *arrays: Array) -> None:
    """`fn` of tensors on the CPU is near the reference, its NaN and infinities in place."""
    cx = lm.Graph()
    tensors = [cx.tensor(a.shape, name=f"x{k}") for k, a in enumerate(arrays)]
    fn(*tensors).output("y")
    given = {f"x{k}": a for k, a in enumerate(arrays)}
    value, error, unstable = evaluate_with_bounds(cx.graph(), given).outputs["y"]
    found = lm.compile(cx, backend="cpu")(given)["y"]
    compare(found, value, error, unstable, max_unstable=1.0)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(value))


def test_given_scores() -> None:
    s = np.stack([scores(kind) for kind in KINDS])
    v = np.random.default_rng(4).normal(size=(KEYS, WIDTH)).astype(np.float32)
    attended(lambda s, v: s.softmax(-1) @ v, s, v)


def test_heads_of_given_scores() -> None:
    s = np.stack([scores(kind) for kind in KINDS])
    both = np.stack([s, s[::-1]])
    v = np.random.default_rng(4).normal(size=(2, KEYS, WIDTH)).astype(np.float32)
    attended(lambda s, v: s.softmax(-1) @ v, both, v)


@pytest.mark.parametrize("queries", mostly_long([1, 3, 65, 300], 3))
def test_causal(queries: int) -> None:
    rng = np.random.default_rng(5)
    q = rng.normal(size=(2, queries, WIDTH)).astype(np.float32)
    k, v = rng.normal(size=(2, 2, KEYS, WIDTH)).astype(np.float32)

    def causal(q: Any, k: Any, v: Any) -> Any:
        row, column = (q.graph.arange(n) for n in (queries, KEYS))
        seen = column.reshape(1, KEYS) <= row.reshape(queries, 1) + (KEYS - queries)
        s = (q @ k.transpose(-1, -2)) * WIDTH**-0.5
        return lm.where(seen, s, -np.inf).softmax(-1) @ v

    attended(causal, q, k, v)


def test_a_mask_that_leaves_rows_without_a_key() -> None:
    rng = np.random.default_rng(6)
    q, k, v = (rng.normal(size=(70, WIDTH)).astype(np.float32) for _ in range(3))
    bias = np.where(rng.random((70, 70)) < 0.3, -INF, rng.normal(size=(70, 70))).astype(np.float32)
    bias[[0, 33, 69]] = -INF

    def biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return ((q @ k.T) * 0.3 + bias).softmax(-1) @ v

    attended(biased, q, k, v, bias)


def test_the_log_of_the_sum_beside_the_result() -> None:
    s = np.stack([scores(kind) for kind in KINDS if kind != "one NaN"])
    attended(lambda s: s.logsumexp(-1), s)
    attended(lambda s: s.log_softmax(-1), s)
