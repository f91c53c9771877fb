"""Constants, ranges and fills against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.frontend.graph import Recorder
from tests.close import close
from tests.numerics.recording import results

pytestmark = pytest.mark.usefixtures("every_backend")


def test_creation_like_numpy() -> None:
    cx = Recorder()
    s = cx.dim("s", 1, 8)
    cases = [
        (cx.arange(5), np.arange(5)),
        (cx.arange(2, 11, 3, dtype="int32"), np.arange(2, 11, 3, dtype=np.int32)),
        (cx.arange(9, 2, -2), np.arange(9, 2, -2)),
        (cx.arange(0.0, 1.0, 0.3), np.arange(0, 1, 0.3, np.float32)),
        (cx.arange(s, s + 3), np.arange(4, 7)),
        (cx.zeros((2, s)), np.zeros((2, 4), np.float32)),
        (cx.ones((), "int8"), np.ones((), np.int8)),
        (cx.full((2, 2), 7), np.full((2, 2), 7)),
        (cx.full((2,), -0.5, "bfloat16").cast("float32"), np.full(2, -0.5, np.float32)),
        (cx.eye(3), np.eye(3, dtype=np.float32)),
        (cx.eye(2, s), np.eye(2, 4, dtype=np.float32)),
        (cx.eye(1), np.eye(1, dtype=np.float32)),
        (cx.iota((2, s), 0), np.indices((2, 4))[0]),
        (cx.iota((2, 3), -1, "float32"), np.indices((2, 3))[1].astype(np.float32)),
        (cx.constant(s * 2 + 1), np.int64(9)),
        (cx.constant([[True], [False]]), np.array([[True], [False]])),
        (cx.zeros((3,)) + s, np.full(3, 4, np.float32)),
        (cx.constant(np.zeros((0, 2), np.uint8)), np.zeros((0, 2), np.uint8)),
    ]
    for tensor, _ in cases:
        cx.output(tensor)
    found = results(cx, [tensor for tensor, _ in cases], {}, {"s": 4})
    for array, (_, expected) in zip(found, cases, strict=True):
        close(array, expected)
