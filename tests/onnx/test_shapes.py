"""Dims stay open where shapes are computed from dims; what data decides runs in pieces."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import luminal as lm
import luminal.onnx
from luminal.onnx import OnnxError

ATTENTION = """
<ir_version: 9, opset_import: ["" : 17]>
block (float[b, s, 16] x) => (float[b, s, 16] y) {
  shape = Shape(x)
  zero = Constant<value = int64[1] {0}>()
  one = Constant<value = int64[1] {1}>()
  b = Gather(shape, zero)
  s = Gather(shape, one)
  heads = Constant<value = int64[2] {4, -1}>()
  split = Concat<axis = 0>(b, s, heads)
  r = Reshape(x, split)
  q = Transpose<perm = [0, 2, 1, 3]>(r)
  k = Transpose<perm = [0, 2, 3, 1]>(r)
  scores = MatMul(q, k)
  weights = Softmax<axis = -1>(scores)
  mixed = MatMul(weights, q)
  back = Transpose<perm = [0, 2, 1, 3]>(mixed)
  joined = Constant<value = int64[3] {0, -1, 16}>()
  z = Reshape(back, joined)
  y = Add(z, x)
}
"""

POSITIONS = """
<ir_version: 9, opset_import: ["" : 17]>
table (float[b, s] x) => (float[b, s] y) <float[1, 6] t = {1, 2, 3, 4, 5, 6}> {
  shape = Shape(x)
  one = Constant<value = int64[1] {1}>()
  two = Constant<value = int64[1] {2}>()
  zero = Constant<value = int64[1] {0}>()
  s = Slice(shape, one, two)
  part = Slice(t, zero, s, one)
  y = Add(x, part)
}
"""

POSITIVE = """
<ir_version: 9, opset_import: ["" : 17]>
chosen (float[n] x) => (float[m] y) {
  zero = Constant<value = float {0.0}>()
  mask = Greater(x, zero)
  places = NonZero(mask)
  flat = Transpose(places)
  axis = Constant<value = int64[1] {1}>()
  rows = Squeeze(flat, axis)
  found = Gather(x, rows)
  y = Mul(found, found)
}
"""

COMPRESSED = """
<ir_version: 9, opset_import: ["" : 17]>
kept (float[90, 4] x, bool[90] mask) => (float[k, 4] y) {
  z = Exp(x)
  found = Compress<axis = 0>(z, mask)
  y = Mul(found, found)
}
"""

HALVES = """
<ir_version: 9, opset_import: ["" : 17]>
until (float[4] x) => (float[4] y, int64 n) {
  true = Constant<value = bool {1}>()
  count = Constant<value = int64 {0}>()
  y, n = Loop(, true, x, count) <body = step (int64 i, bool c, float[4] v, int64 k)
    => (bool go, float[4] w, int64 next) {
      half = Constant<value = float {0.5}>()
      one = Constant<value = int64 {1}>()
      w = Mul(v, half)
      total = ReduceMax<keepdims = 0>(w)
      limit = Constant<value = float {1.0}>()
      go = Greater(total, limit)
      next = Add(k, one)
  }>
}
"""


def _both(text: str) -> tuple[luminal.onnx.Model, onnxruntime.InferenceSession]:
    proto = parser.parse_model(text)
    return luminal.onnx.load(proto), onnxruntime.InferenceSession(proto.SerializeToString())


def _check(model, oracle, **inputs: np.ndarray) -> None:
    expected = oracle.run(None, inputs)
    for found, wanted in zip(model(**inputs).values(), expected, strict=True):
        assert found.shape == wanted.shape
        # 80 ulp: sums of some ten terms in another order
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_one_program_for_the_first_shape_and_one_for_all_others():
    model, oracle = _both(ATTENTION)
    draw = np.random.default_rng(0)
    before = lm.compile_count()
    for b, s in ((2, 3), (1, 7), (3, 1), (2, 3), (4, 4)):
        _check(model, oracle, x=draw.standard_normal((b, s, 16)).astype(np.float32))
    assert lm.compile_count() == before + 2


def test_a_slice_of_a_table_is_open_up_to_its_end():
    model, _ = _both(POSITIONS)
    before = lm.compile_count()
    for s in (2, 5, 6, 4):
        found = model(np.zeros((2, s), np.float32))["y"]
        np.testing.assert_array_equal(found, np.tile(np.arange(1, s + 1), (2, 1)))
    assert lm.compile_count() == before + 2
    with pytest.raises(OnnxError, match=r"\(Add\).*7"):
        model(np.zeros((2, 7), np.float32))


def test_a_model_stays_with_the_device_that_it_was_loaded_for():
    def latest() -> str:
        form = [*model._forms.values()][-1]
        return repr([*form._programs.values()])

    with lm.device("interpreted"):
        model, _ = _both(POSITIONS)
    model(np.ones((2, 3), np.float32))
    assert "interpreted, fast" in latest()
    for chosen, expected in (({"backend": "cpu"}, "cpu"), ({"mode": "fast"}, "interpreted")):
        with lm.device("reference"):
            model.compile(**chosen)(np.ones((2, 3), np.float32))
        assert f"{expected}, fast" in latest()


def test_sizes_that_depend_on_data():
    model, oracle = _both(POSITIVE)
    draw = np.random.default_rng(1)
    for _ in range(4):
        _check(model, oracle, x=draw.standard_normal(9).astype(np.float32))
    _check(model, oracle, x=-np.ones(9, np.float32))


def test_programs_do_not_depend_on_elements_that_were_read():
    model, oracle = _both(COMPRESSED)
    draw = np.random.default_rng(2)
    mask = np.arange(90) % 3 == 0
    _check(model, oracle, x=draw.standard_normal((90, 4)).astype(np.float32), mask=mask)
    before = lm.compile_count()
    for _ in range(4):
        x = draw.standard_normal((90, 4)).astype(np.float32)
        _check(model, oracle, x=x, mask=draw.permutation(mask))
    assert lm.compile_count() == before


def test_a_loop_that_data_ends_compiles_its_body_once():
    model, oracle = _both(HALVES)
    _check(model, oracle, x=np.array([3, 40, 5, 0], np.float32))
    before = lm.compile_count()
    _check(model, oracle, x=np.array([3, 4000, 5, 0], np.float32))
    assert lm.compile_count() <= before + 1


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 5, -1), (-7, 3, -1), (-7, -8, -2), (7, -9, -3), (-1, -(2**62), -1), (3, 9, 2), (-9, 2, 1)],
)
def test_slices_are_cut_as_onnx_says(start: int, end: int, step: int):
    text = """
<ir_version: 9, opset_import: ["" : 17]>
part (float[5] x, int64[1] start, int64[1] end, int64[1] step) => (float[n] y) {
  y = Slice(x, start, end, , step)
}
"""
    model, oracle = _both(text)
    bounds = {"start": start, "end": end, "step": step}
    x = np.arange(5, dtype=np.float32)
    _check(model, oracle, x=x, **{name: np.array([n]) for name, n in bounds.items()})
