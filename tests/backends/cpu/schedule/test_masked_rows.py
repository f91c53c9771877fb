"""Rows that a mask leaves nothing of: NaN as in two passes, though no block of keys is visited."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from tests.long_share import mostly_long

KEYS = 320
Mask = Callable[[lm.Tensor, lm.Tensor], lm.Tensor]

MASKS: dict[str, Mask] = {
    "late": lambda i, j: j <= i - 100,
    "early": lambda i, j: j >= i + 100,
    "all": lambda i, j: j <= i - 2 * KEYS,
    "window": lambda i, j: (j <= i - 50) & (j > i - 70),
    "ends_within": lambda i, j: (j >= i + 20) & (j < 200),
    "window_and_first": lambda i, j: (j <= i - 100) & ((j > i - 120) | (j < 4)),
    "two_windows": lambda i, j: ((j > i + 100) & (j < i + 110)) | ((j > i + 200) & (j < i + 205)),
    "some_rows": lambda i, j: (j <= i) & (i % 3 > 0),
}
FORMS: dict[str, Callable[[lm.Tensor], lm.Tensor]] = {
    "softmax": lambda p: p,
    "sqrt": lambda p: p.sqrt(),
    "relu": lambda p: (p - 0.001).relu(),
}
CASES = [(mask, form, dtype) for mask in MASKS for form in FORMS for dtype in ("f32", "bf16")]


@pytest.mark.parametrize("case", mostly_long(CASES, 6), ids="-".join)
def test_rows_of_nothing_are_nan(case: tuple[str, str, str]) -> None:
    mask, form, dtype = case
    cx = lm.Graph()
    kind = lm.float32 if dtype == "f32" else lm.bfloat16
    q, k, v = (cx.tensor((KEYS, 48), kind, name) for name in "qkv")
    places = cx.arange(KEYS)
    seen = MASKS[mask](places.reshape(KEYS, 1), places.reshape(1, KEYS))
    p = lm.where(seen, q @ k.mT, float("-inf")).softmax(-1)
    (FORMS[form](p) @ v).output("y")
    seen.output("seen")
    random = np.random.default_rng(3)
    drawn = {n: random.standard_normal((KEYS, 48), np.float32).astype(kind.numpy) for n in "qkv"}
    got = lm.compile(cx)(drawn)
    y, rows = np.asarray(got["y"]).astype(np.float64), np.asarray(got["seen"])
    wide = [drawn[name].astype(np.float64) for name in "qkv"]
    with np.errstate(invalid="ignore"):
        e = np.where(rows, np.exp(wide[0] @ wide[1].T), 0)
        p64 = e / e.sum(-1, keepdims=True)
        applied = {"softmax": p64, "sqrt": np.sqrt(p64), "relu": np.maximum(p64 - 0.001, 0)}
        expected = applied[form] @ wide[2]
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    error = {"f32": 1e-4, "bf16": 0.2}[dtype]
    np.testing.assert_allclose(y, expected, rtol=error, atol=error)
