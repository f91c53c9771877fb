"""Elements that must lie in a range: the error names the node, the element and the range, be they
constants, inputs or computed, in pieces, loops and branches; what is not read may hold anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import luminal.onnx
from luminal.base.errors import InputError
from luminal.onnx import OnnxError

W = np.arange(8, dtype=np.float32)


def _model(graph: str, opset: int = 17) -> luminal.onnx.Model:
    text = f'<ir_version: 9, opset_import: ["" : {opset}]>\n{graph}'
    return luminal.onnx.load(parser.parse_model(text)).compile(backend="reference")


COMPUTED = """
g (float[8] w, int64[N] i) => (float[M] y) <int64[1] one = {1}> {
  j = Add(i, one)  y = Gather(w, j)
}
"""


def test_computed_positions_are_looked_at_in_every_run():
    model = _model(COMPUTED.replace("", ""))
    for shape in (2, 3):  # compiled for the first shape, then for all of them
        good = np.full(shape, 6)
        assert model(W, good)["y"].tolist() == [7.0] * shape
        for wrong in (7, -10, 2**40, -(2**63)):
            bad = good.copy()
            bad[-1] = wrong
            text = rf"node of 'y' \(Gather\): index {wrong + 1} is out of range; .* -8..7"
            with pytest.raises(OnnxError, match=text):
                model(W, bad)
        assert model(W, good)["y"].tolist() == [7.0] * shape


def test_the_compiled_program_looks_too():
    model = _model(COMPUTED.replace("", "")).compile(backend="cpu")
    for _ in range(3):  # the third call is recognized
        assert model(W, np.array([0, -3]))["y"].tolist() == [1, 6]
    with pytest.raises(OnnxError, match="index 9 is out of range"):
        model(W, np.array([8, 0]))


def test_an_input_names_the_node_that_takes_it():
    model = _model("g (float[8] w, int64[2] i) => (float[2] y) { y = Gather(w, i) }")
    with pytest.raises(InputError, match=r"node of 'y' \(Gather\): i: index 8 is out of range"):
        model(W, np.array([0, 8]))


SCATTERED = """
g (float[8] w, float[1] u) => (float[8] y) <int64[1, 1] i = {-9}> { y = ScatterND(w, i, u) }
"""


def test_constants_are_looked_at_before_the_run():
    with pytest.raises(OnnxError, match=r"node of 'y' \(ScatterND\): index -9 is out of range"):
        _model(SCATTERED)(W, W[:1])


def test_what_dims_decide_is_required_of_them():
    model = _model("""
        g (float[N] w) => (float[M] y) <int64[1] i = {2}, int64[1] far = {4}> {
          s = Shape(w)  j = Sub(s, far)  a = Gather(w, i)  b = Gather(w, j)  y = Add(a, b)
        }""")
    for n in (4, 5, 3, 6, 2):
        if n > 2:
            assert model(W[:n])["y"].tolist() == [2 + W[:n][n - 4]]
        else:
            with pytest.raises(OnnxError, match=r"'a' \(Gather\): index 2 is out of range"):
                model(W[:n])


LOOP = """
g (float[8] w, int64 n, int64[1] s) => (float[M, 1] y) <bool go = {1}, int64[1] three = {3}> {
  y = Loop(n, go) <body = b (int64 k, bool d) => (bool e, float[1] q) {
    e = Identity(d)  i = Add(k, s)  BODY
  }>
}
"""
BRANCHES = """
    t = Less(i, three)  f = Squeeze(t)
    q = If(f) <then_branch = yes () => (float[1] a) { a = Gather(w, i) },
               else_branch = no () => (float[1] b) { j = Sub(i, three)  b = Gather(w, j) }>
"""


@pytest.mark.parametrize("trips", [3, 6])  # written out, and as a loop
def test_loops(trips: int):
    model = _model(LOOP.replace("BODY", "q = Gather(w, i)"))
    start = 8 - trips
    assert len(model(W, np.array(trips), np.array([start]))["y"]) == trips
    with pytest.raises(OnnxError, match=r"node of 'q' \(Gather\): index 8 is out of range"):
        model(W, np.array(trips), np.array([start + 1]))


def test_a_branch_that_is_not_taken_may_hold_anything():
    model = _model(LOOP.replace("BODY", BRANCHES))
    y = model(W, np.array(11), np.array([0]))["y"]
    assert y.ravel().tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(OnnxError, match=r"node of 'b' \(Gather\): index 8 is out of range"):
        model(W, np.array(12), np.array([0]))


def test_pieces_look_at_what_is_theirs():
    model = _model("""
        g (float[8] w, int64[2] i) => (float[M] y) <int64[1] one = {1}, float[1] zero = {0}> {
          j = Add(i, one)  a = Gather(w, j)  p = Greater(a, zero)  k = NonZero(p)
          r = Gather(j, k)  y = Gather(w, r)
        }""")
    assert model(W, np.array([1, 3]))["y"].tolist() == [[2, 4]]
    with pytest.raises(OnnxError, match=r"node of 'a' \(Gather\): index 9"):
        model(W, np.array([1, 8]))


OTHERS: dict[str, tuple[str, Any, str]] = {
    "ReverseSequence": ("y = ReverseSequence<time_axis=0, batch_axis=1>(x, n)", [5, 0], "length 5"),
    "OneHot": ("d = ReduceMin<keepdims=0>(n)  y = OneHot(n, d, v)", [-3, 1], "depth is -3"),
    "Expand": ("y = Expand(x, n)", [4, -1], "extent below 0"),
    "Split": ("y, z = Split<axis=0>(x, n)", [1, 2], "parts of"),
    "Tile": ("y = Tile(x, n)", [1, -2], "negative"),
    "TopK": ("y, z = TopK(x, n)", [1, 2], "takes one number"),
    "CumSum": ("y = CumSum(x, n)", [0, 1], "takes one number"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_numbers_out_of_range(name: str):
    node, numbers, text = OTHERS[name]
    model = _model(f"g (float[4, 2] x, int64[2] n) => (y) <float[2] v = {{0, 1}}> {{ {node} }}")
    with pytest.raises(OnnxError, match=text):
        model(np.ones((4, 2), np.float32), np.array(numbers))
