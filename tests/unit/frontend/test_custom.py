"""Recording custom kernels and `t.diff`: rules, errors, and the meaning on the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.frontend.custom import CustomOperation
from luminal.hlir import parser, printer
from luminal.hlir.substitute import substitute_dims
from luminal.shape.expression import const

Array = np.ndarray[Any, Any]


def same(x: Any) -> Any:
    return x


def square_of(x: Array, out: Array) -> None:
    out[...] = x * x


def split_of(x: Array, low: Array, high: Array) -> None:
    np.floor(x, out=high)
    low[...] = x - high


square = lm.custom_kernel("square", square_of, results=same)
split = lm.custom_kernel("split", split_of, results=lambda x: [x, (x.shape, "float32")])


def test_a_call_is_an_operation_of_the_graph() -> None:
    cx = lm.Graph()
    n = cx.dim("n", 0, 64)
    x = cx.tensor((n, 3), name="x")
    low, high = split(square(x))
    (low + high).output("y")
    assert low.shape == (n, 3)
    assert square(x).value is not None
    assert square(x).value == square(x).value  # one call, as of any other operation
    exe = cx.compile("reference")
    for rows in (5, 0):
        a = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) / 7
        np.testing.assert_allclose(exe({"x": a})["y"], a * a)
    assert "Custom" in str(exe.report())


def test_kernels_of_one_name_are_different_operations() -> None:
    cx = lm.Graph()
    x = cx.tensor((2,), name="x")
    other = lm.custom_kernel("square", square_of, results=same)
    assert square(x).value != other(x).value
    square(x).output("a")
    other(x).output("b")
    graph = cx.graph()
    text = printer.to_text(graph)
    assert "Custom square chunks=(1) flops=(2) %0" in text
    assert "Custom square.1 chunks=(1) flops=(2) %0" in text
    kernels = {"square": square.kernel, "square.1": other.kernel}
    assert printer.to_text(parser.parse(text, kernels)) == text


def test_shapes_may_have_dims() -> None:
    cx = lm.Graph()
    n = cx.dim("n", 1, 64)
    x = cx.tensor((n,), name="x")
    pairs = lm.custom_kernel(
        "pairs",
        lambda x, out: np.multiply.outer(x, x, out=out),
        results=lambda x: ((*x.shape, *x.shape), x.dtype),
        chunks=lambda x: x.shape[0] // 16 + 1,
        flops=n * n,
    )
    y = pairs(x)
    assert y.shape == (n, n)
    y.output("y")
    shrink = lm.custom_kernel("shrink", square_of, results=((n - 4,), "float32"))
    shrink(x[4:]).output("z")
    narrowed = substitute_dims(cx.graph(), {n: const(8)})
    call = narrowed.roots[0].node
    assert str(call.types[0]) == "f32[8, 8]"
    assert (call.attrs.chunks, call.attrs.flops) == (const(1), const(64))
    with pytest.raises(lm.DimError, match="n = 3"):
        cx.compile("reference")({"x": np.ones(3, np.float32)})


def test_numbers_and_arrays_are_operands() -> None:
    cx = lm.Graph()
    add = lm.custom_kernel(
        "add", lambda x, y, z, out: np.add(x + y, z, out=out), results=lambda x, y, z: x
    )
    add(cx.tensor((2,), name="x"), 3.0, np.ones(2, np.float32)).output("y")
    exe = cx.compile("reference")
    np.testing.assert_array_equal(exe({"x": np.zeros(2, np.float32)})["y"], [4, 4])
    with pytest.raises(lm.DTypeError, match="add: no operand is a Tensor"):
        add(1, 2, 3)


def test_operands_are_read_only() -> None:
    cx = lm.Graph()

    def spoil(x: Array, out: Array) -> None:
        x += 1

    lm.custom_kernel("spoil", spoil, results=same)(cx.tensor((2,), name="x")).output()
    with pytest.raises(ValueError, match="read-only"):
        cx.compile("reference")({"x": np.zeros(2, np.float32)})


def test_a_kernel_returns_nothing() -> None:
    cx = lm.Graph()
    bad = lm.custom_kernel("bad", lambda x, out: x * x, results=same)
    bad(cx.tensor((2,), name="x")).output()
    with pytest.raises(
        lm.InputError, match=r"bad: the custom kernel returned a ndarray; it writes"
    ):
        cx.compile("reference")({"x": np.zeros(2, np.float32)})


def test_ir_alone_has_no_meaning_on_the_reference() -> None:
    cx = lm.Graph()
    native = lm.custom_kernel("native", ir="define void @native() { ret void }", results=same)
    native(cx.tensor((2,), name="x")).output()
    with pytest.raises(lm.CompileError, match=r"native: .* give custom_kernel\(evaluate=\)"):
        cx.compile("reference")({"x": np.zeros(2, np.float32)})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "custom_kernel: '' is no name"),
        ({"evaluate": None}, "custom_kernel: k has no code; give a function or ir="),
        ({"evaluate": "define"}, "'define' is not a function; IR goes to ir="),
        ({"name": "a b", "ir": "x"}, "'a b' names the function in ir; use letters"),
    ],
)
def test_wrong_kernels(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(lm.LuminalError, match=message):
        lm.custom_kernel(**{"name": "k", "evaluate": square_of, "results": same, **arguments})


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"results": 3}, r"k: results gave 3; it gives \(shape, dtype\)"),
        ({"results": []}, r"k: results gave \[\]; "),
        ({"results": lambda x: (x.shape,)}, r"k: results gave .*; it gives \(shape, dtype\)"),
        ({"results": ((2,), "int7")}, "k: results: dtype: 'int7' is not an element type"),
        ({"results": ((2.5,), "float32")}, "k: results: shape: 2.5 is not an int"),
        ({"results": (2, "float32")}, "k: results: shape: 2 is not a tuple"),
        ({"results": ((-2,), "float32")}, "k: results: shape: .* has the negative extent -2"),
        ({"results": (None, "float32")}, "k: results gave"),
        ({"chunks": 1.5}, "k: chunks is 1.5; give an int or an Expression"),
        ({"chunks": -1}, "k: chunks: .* never holds"),
        ({"flops": lambda x: None}, "k: flops is None; give an int or an Expression"),
    ],
)
def test_wrong_rules(rules: dict[str, Any], message: str) -> None:
    x = lm.Graph().tensor((2,), name="x")
    with pytest.raises(lm.LuminalError, match=message):
        lm.custom_kernel("k", square_of, **{"results": same, **rules})(x)


def test_the_vjp_stays_on_the_record() -> None:
    def vjp(operands: Any, results: Any, cotangents: Any) -> Any:
        return [operands[0] * 2 * cotangents[0]]

    operation = lm.custom_kernel("square", square_of, results=same, vjp=vjp)
    assert isinstance(operation, CustomOperation)
    y = operation(lm.Graph().tensor((2,)))
    assert y.value.node.attrs.kernel.vjp is vjp


# --- t.diff ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_diff_writes_raw_values(dtype: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    a = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    cx = lm.Graph()
    y = cx.tensor(shape, dtype, name="x").diff(str(tmp_path / "deep/down/x"))
    y.output("y")
    exe = cx.compile("reference")
    for array in (1 - a if dtype is not np.bool_ else ~a, a):
        assert exe({"x": array})["y"].tobytes() == array.tobytes()
        assert (tmp_path / "deep/down/x.bin").read_bytes() == array.tobytes()


def test_diff_with_a_number_is_the_difference_of_neighbours() -> None:
    cx = lm.Graph()
    cx.tensor((4,), name="x").diff().output("y")
    y = cx.compile("reference")({"x": np.array([1, 4, 9, 16], np.float32)})["y"]
    np.testing.assert_array_equal(y, [3, 5, 7])


def test_two_tensors_in_one_file(tmp_path: Path) -> None:
    cx = lm.Graph()
    x, h = cx.tensor((3,), name="x"), str(tmp_path / "h")
    assert x.diff(h).value == x.diff(h).value
    with pytest.raises(lm.GraphError, match=r"h.bin is written by x: f32\[3\] and by f32\[2\]; "):
        x[:2].diff(h)
    with pytest.raises(lm.GraphError, match=r"h.bin is written by x: f32\[3\] and by arg0: f32"):
        lm.scan(lambda c, y: (c.diff(h), y), x, length=2)


def test_diff_in_a_scan_keeps_the_last_trip(tmp_path: Path) -> None:
    cx = lm.Graph()
    x = cx.tensor((2,), name="x")
    last, _ = lm.scan(lambda c, _: ((c + 1).diff(str(tmp_path / "c")), c), x, length=3)
    last.output("y")
    cx.compile("reference")({"x": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(np.fromfile(tmp_path / "c.bin", "<f4"), [3, 3])
