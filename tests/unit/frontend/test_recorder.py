"""The Recorder: leaves, names, dims, sinks, results; and a Tensor's manners in Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import DimError, DTypeError, GraphError, LuminalError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.scan import scan
from luminal.memory.parameter import Parameter
from luminal.memory.state import State


def raises(error: type[LuminalError], text: str, make: Callable[[], Any]) -> None:
    with pytest.raises(error, match=re.escape(text)):
        make()


# --- leaves ---------------------------------------------------------------------------------------


def test_a_tuple_is_a_shape_and_a_list_is_data() -> None:
    cx = Recorder()
    x = cx.tensor((2, 3))
    assert (x.shape, x.dtype.name) == ((2, 3), "float32")
    y = cx.tensor([[1, 2], [3, 4]])
    assert (y.shape, y.dtype.name) == ((2, 2), "int64")
    np.testing.assert_array_equal(y.numpy(), [[1, 2], [3, 4]])
    assert cx.tensor([1.5]).dtype.name == "float32"
    assert cx.tensor(3).shape == ()
    assert cx.tensor(np.zeros(2)).dtype.name == "float64"
    assert cx.tensor(np.ones(2, np.float32), dtype="float64").dtype.name == "float64"
    assert list(cx.leaves) == ["in0", "in1", "in2", "in3", "in4", "in5"]


def test_names_are_unique() -> None:
    cx = Recorder()
    cx.tensor((2,), name="x")
    raises(
        GraphError,
        "x: the name stands for f32[2] already; choose another",
        lambda: cx.weight((3,), name="x"),
    )
    first, second = Parameter((2,), name="w"), Parameter((2,), name="w")
    assert cx.weight_of(first).value is not cx.weight_of(second).value
    assert cx.weight_of(first).value == cx.weight_of(first, "other").value
    assert list(cx.leaves) == ["x", "w", "w.1"]


def test_set_checks_shape_and_dtype() -> None:
    cx = Recorder()
    x = cx.tensor((cx.dim("s", 1, 4), 2), name="x")
    x.set([[1, 2]])
    assert cx.values["x"].dtype == np.float32
    raises(
        ShapeError, "x: expected shape (s, 2), got (5, 2)", lambda: x.set(np.zeros((5, 2), "f4"))
    )
    raises(ShapeError, "x: expected shape (s, 2), got (2,)", lambda: x.set([1.0, 2.0]))
    raises(
        DTypeError,
        "x: expected float32, got complex128; pass x.astype(np.float32)",
        lambda: x.set(np.full((1, 2), 1j)),
    )
    for value in (np.nan, 0.1):  # float64, whether or not float32 holds it
        x.set(np.array([[1.0, value]]))
        np.testing.assert_array_equal(cx.values["x"], np.float32([[1.0, value]]))
    raises(
        DTypeError,
        "expected int64, got float32",
        lambda: cx.tensor((1,), int).set(np.ones(1, "f4")),
    )
    raises(GraphError, "only inputs and weights are set", lambda: (x + 1).set([[1, 2]]))
    weight = cx.weight((2,), name="w").set(np.ones(2, np.float32))
    np.testing.assert_array_equal(weight.parameter.numpy(), 1)


def test_states() -> None:
    cx = Recorder()
    t = cx.state((2, 2), init=1.0, name="s")
    np.testing.assert_array_equal(t.state.numpy(), np.ones((2, 2)))
    raises(GraphError, "is not a Weight", lambda: t.parameter)
    raises(GraphError, "does not read a State", lambda: (t + 1).state)
    raises(GraphError, "cannot hold f32[2]", lambda: cx.assign(t.state, t[0]))
    cx.assign(t.state, t + 1)
    raises(GraphError, "State(s: f32[2, 2]) is assigned twice", lambda: cx.assign(t.state, t))


# --- dims -----------------------------------------------------------------------------------------


def test_dims() -> None:
    cx = Recorder()
    s = cx.dim("s", 1, 512)
    assert cx.dim("s", 1, 512) is s
    assert cx.tensor(("s", "n")).shape == (s, cx.dims["n"])
    raises(DimError, "dim s: declared as 1..512 and as 1..9", lambda: cx.dim("s", 1, 9))
    raises(ShapeError, "shape: 1.5 is not an int", lambda: cx.tensor((1.5,)))
    raises(ShapeError, "shape: s is not a tuple", lambda: cx.full(s, 0))  # type: ignore[arg-type]
    raises(ShapeError, "negative extent -1", lambda: cx.tensor((-1,)))
    other = Recorder()
    other.tensor((s + 1,))
    assert other.dims == {"s": s}


def test_requirements() -> None:
    cx = Recorder()
    s, past = cx.dim("s", 1, 512), cx.dim("past", 0, 511)
    cx.require(past + s <= 512)
    cx.require(s + past < 514)  # follows
    cx.require(s >= 1)  # holds by the interval
    assert [str(r) for r in cx.requirements] == ["past + s <= 512"]
    raises(DimError, "never holds", lambda: cx.require(s > 512))
    raises(DimError, "never holds", lambda: cx.require(False))
    kv = cx.state((8, 512, 4))
    kv[:, : past + s]
    assert len(cx.requirements) == 1


# --- constants and ranges -------------------------------------------------------------------------


def test_equal_constants_are_one_node() -> None:
    cx = Recorder()
    x = cx.tensor((3,))
    assert (x * 2.0 + 1).value == (x * 2 + 1.0).value
    assert cx.constant([1.0]).value == cx.constant(np.ones(1, np.float32)).value


def test_graph_freezes_what_is_recorded() -> None:
    cx = Recorder("g")
    raises(GraphError, "g: nothing to compute; call .output(name)", cx.graph)
    x = cx.tensor(("s",), name="x")
    (x + 1).retrieve()
    before = cx.graph()
    y = (x * 2).output("y").retrieve()
    y.keep()
    assert [(s.name, s.hidden) for s in cx.graph().sinks] == [  # type: ignore[union-attr]
        ("out0", False),
        ("y", False),
        ("keep0", True),
    ]
    assert len(before.sinks) == 1
    assert [str(d) for d in before.dims] == ["s"]
    raises(
        GraphError, "the name 'y' stands for f32[s] and for bool[s]", lambda: (x > 0).output("y")
    )


# --- a Tensor in Python ---------------------------------------------------------------------------


def test_a_tensor_has_no_value_before_a_run() -> None:
    cx = Recorder()
    x = cx.tensor((2,), name="x")
    text = "no result yet; call .retrieve() on the Tensor, then compile() and execute()"
    for use in (np.asarray, lambda t: 3 in t, lambda t: float(t[0]), lambda t: (t + 1).numpy()):
        raises(GraphError, text, lambda u=use: u(x))
    raises(ShapeError, "bool of x: f32[2]: it has 2 elements, not one; use any()", lambda: bool(x))
    raises(ShapeError, "item of x: f32[2]: it has 2 elements, not one", x.item)
    y = (x * 2).output()
    cx.results[y.value] = np.ones(2)
    np.testing.assert_array_equal(y.numpy(), 1)


def test_length_iteration_and_hash() -> None:
    cx = Recorder()
    x = cx.tensor((3, "s"))
    assert len(x) == 3
    assert [row.shape for row in x] == [(cx.dims["s"],)] * 3
    raises(ShapeError, "the first extent is s, not a literal", lambda: len(x[0]))
    raises(ShapeError, "a 0-d tensor has no length", lambda: len(x[0, 0]))
    assert {x: 1}[x] == 1
    assert (x == x).dtype.name == "bool"


def test_numpy_operands_on_the_left() -> None:
    cx = Recorder()
    x = cx.tensor((3,))
    assert (np.ones(3, np.float32) + x).shape == (3,)
    assert (np.float32(2) * x).dtype.name == "float32"
    assert ([1.0, 2.0, 3.0] - x).shape == (3,)


def test_mixed_graphs_are_named() -> None:
    a, b = Recorder("first"), Recorder("second")
    x, y = a.tensor((3,), name="x"), b.tensor((3,), name="y")
    text = (
        "tensors of two graphs meet: y: f32[3] of second, used in first; record both in one graph"
    )
    raises(GraphError, text, lambda: x + y)
    raises(GraphError, text, lambda: a.output(y))
    raises(GraphError, "two graphs", lambda: scan(lambda c, r: (c + y.sum(), None), x.sum(), x))


def test_dtype_errors() -> None:
    cx = Recorder()
    i8, f32, mask = cx.tensor((3,), "int8"), cx.tensor((3,)), cx.tensor((3,), bool)
    raises(DTypeError, "add: 300 does not fit int8 (-128..127)", lambda: i8 + 300)
    raises(DTypeError, "&: float32 has no such bit operation", lambda: f32 & f32)
    raises(DTypeError, "~: float32 has no bitwise complement", lambda: ~f32)
    raises(DTypeError, "sub: bools have no difference", lambda: mask - mask)
    raises(DTypeError, "neg: bool has no sign; use ~x for not", lambda: -mask)
    raises(DTypeError, "'float8' is not an element type", lambda: f32.cast("float8"))
    raises(
        DTypeError,
        'gelu: approximate=\'fast\' is not known; use "none" or "tanh"',
        lambda: f32.gelu("fast"),
    )


def test_ranges() -> None:
    cx = Recorder()
    s = cx.dim("s")
    assert cx.arange(5).shape == (5,)
    assert cx.arange(2, 11, 3).shape == (3,)
    assert cx.arange(s + 1).shape == (s + 1,)
    assert cx.arange(0.0, 1.0, 0.25).dtype.name == "float32"
    assert cx.arange(5, 2).shape == (0,)
    raises(ShapeError, "step is 0", lambda: cx.arange(1, 2, 0))
    raises(DTypeError, "full: [1] is not a number", lambda: cx.full((2,), [1]))


def test_module_state_is_found_by_reading_it() -> None:
    cx, kv = Recorder(), State((2,), name="kv")
    assert cx.read(kv).value == cx.read(kv).value


def test_functions_without_a_graph_record_into_the_one_named() -> None:
    cx = lm.Graph()
    x = cx.tensor((4,), dtype=lm.int64, name="x")
    with pytest.raises(lm.GraphError, match=r"default graph, .* `with lm\.recording\(cx\):`"):
        x + lm.arange(4)
    with lm.recording(cx):
        (x + lm.arange(4)).output("y")
    assert lm.compile(cx)(x=np.arange(4))["y"].tolist() == [0, 2, 4, 6]


def test_what_torch_users_ask_of_a_shape() -> None:
    cx = lm.Graph()
    x = cx.tensor((2, 3), name="x")
    assert (x.dim(), x.size(), x.size(-1), x.numel()) == (2, (2, 3), 3, 6)
    assert x.contiguous() is x
    assert x.clone() is x
    s = cx.dim("s", 1, 8)
    assert cx.tensor((s, 4), name="y").numel() == s * 4
