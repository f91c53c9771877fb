"""Loops that data ends: one program serves all trips, whose numbers are known all the same."""

from __future__ import annotations

import numpy as np
from onnx import parser

import luminal as lm
import luminal.onnx

LOOP = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[4] x, float[40] w, float last) => (float[4] y, float[T, 1] s) <bool go = {1}> {
  y, s = Loop(, go, x) <body = b (int64 k, bool d, float[4] p) => (bool e, float[4] q, float[1] o)
    <int64[1] one = {1}> {
      n = Cast<to=1>(k)  e = Less(n, last)  q = Add(p, n)  BODY
    }>
}
"""


def _run(body: str, last: int) -> tuple[list[float], list[float], int]:
    model = luminal.onnx.load(parser.parse_model(LOOP.replace("BODY", body)))
    model.compile(backend="reference")
    before = lm.compile_count()
    found = model(np.zeros(4, np.float32), np.arange(40, dtype=np.float32), np.float32(last))
    return found["y"].tolist(), found["s"].ravel().tolist(), lm.compile_count() - before


def test_trips_share_a_program():
    y, s, few = _run("i = Reshape(k, one)  o = Gather(w, i)", 12)
    assert y == [78] * 4
    assert s == [*range(13)]
    y, s, more = _run("i = Reshape(k, one)  o = Gather(w, i)", 30)
    assert y == [465] * 4
    assert s == [*range(31)]
    assert more == few


def test_numbers_of_trips_are_known_to_shapes():
    y, s, _ = _run("i = Add(k, one)  z = Reshape(i, one)  a = Slice(w, one, z)  "
                   "c = Shape(a)  o = Cast<to=1>(c)", 9)  # fmt: skip
    assert y == [45] * 4
    assert s == [*range(10)]
