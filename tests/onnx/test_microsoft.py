"""Operators that onnxruntime.quantization writes, beside ONNX Runtime: one step apart at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import luminal.onnx
from luminal.onnx import OnnxError, UnsupportedError
from tests.close import close

Array = np.ndarray[Any, Any]
U8, I8 = np.uint8, np.int8


def model_of(name: str, inputs: Mapping[str, Array], elements: int, **said: Any) -> ModelProto:
    """One node of com.microsoft; what begins with x is an input, all else a constant."""
    node = helper.make_node(name, list(inputs), ["y"], domain="com.microsoft", **said)
    of_model = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for key, x in inputs.items()
        if key in ("x", "x2")
    ]
    constants = [
        numpy_helper.from_array(x, key) for key, x in inputs.items() if key not in ("x", "x2")
    ]
    graph = helper.make_graph(
        [node], "g", of_model, [helper.make_tensor_value_info("y", elements, None)], constants
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def compare(model: ModelProto, inputs: Mapping[str, Array], step: float) -> None:
    """Quantised results a step apart at most, and few of them: sums of floats may round apart."""
    given = {key: inputs[key] for key in ("x", "x2") if key in inputs}
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    found = luminal.onnx.load(model)(given)["y"]
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    assert apart.max() <= step
    assert (apart > step / 2).mean() < 0.1


def codes(seed: int, *shape: int, dtype: Any = U8) -> Array:
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


def scale(*values: float) -> Array:
    return np.array(values[0] if len(values) == 1 else values, np.float32)


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [U8, I8])
def test_pairs(name: str, dtype: Any) -> None:
    inputs = {
        "x": codes(0, 2, 3, 4, dtype=dtype), "as": scale(0.0971), "az": np.array(3, dtype),
        "x2": codes(1, 3, 1, dtype=dtype), "bs": scale(0.0313), "bz": np.array(7, dtype),
        "ys": scale(0.2137), "yz": np.array(11, dtype),
    }  # fmt: skip
    elements = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    compare(model_of(name, inputs, elements), inputs, 1)


POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.3}),
        ("QLinearAveragePool", POOL),
        ("QLinearAveragePool", {**POOL, "count_include_pad": 1}),
        ("QLinearAveragePool", {**POOL, "ceil_mode": 1}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearSoftmax", {"axis": 1, "opset": 13}),
        ("QLinearSoftmax", {"axis": 2, "opset": 11}),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [U8, I8])
def test_singles(name: str, said: dict[str, Any], dtype: Any) -> None:
    small = name in ("QLinearSigmoid", "QLinearSoftmax")
    inputs = {
        "x": codes(2, 2, 3, 6, 7, dtype=dtype), "xs": scale(0.0511), "xz": np.array(40, dtype),
        "ys": scale(1 / 256 if small else 0.0417), "yz": np.array(0, dtype),
    }  # fmt: skip
    elements = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    compare(model_of(name, inputs, elements, **said), inputs, 1)


def test_concat() -> None:
    inputs = {
        "ys": scale(0.1), "yz": np.array(5, U8),
        "x": codes(3, 2, 3), "xs": scale(0.07), "xz": np.array(9, U8),
        "x2": codes(4, 2, 5), "x2s": scale(0.2), "x2z": np.array(0, U8),
    }  # fmt: skip
    compare(model_of("QLinearConcat", inputs, TensorProto.UINT8, axis=1), inputs, 1)


def test_where() -> None:
    inputs = {
        "where": np.array([[True], [False]]),
        "x": codes(3, 2, 3), "xs": scale(0.0711), "xz": np.array(9, U8),
        "x2": codes(4, 2, 3), "x2s": scale(0.2), "x2z": np.array(0, U8),
        "ys": scale(0.1), "yz": np.array(5, U8),
    }  # fmt: skip
    compare(model_of("QLinearWhere", inputs, TensorProto.UINT8), inputs, 1)


@pytest.mark.parametrize("across", [0, 1])
@pytest.mark.parametrize("columns", [1, 5])
@pytest.mark.parametrize("floats", [False, True])
def test_gemm(across: int, columns: int, floats: bool) -> None:
    inputs: dict[str, Array] = {
        "x": codes(5, 4, 6), "as": scale(0.1), "az": np.array(50, U8),
        "b": codes(6, *((5, 6) if across else (6, 5)), dtype=I8),
        "bs": scale(*(0.01 * (k + 1) for k in range(columns))),
        "bz": np.array(0 if columns == 1 else [0] * 5, I8),
        "c": codes(7, 5).astype(np.int32),
    }  # fmt: skip
    if not floats:
        inputs |= {"ys": scale(3.0), "yz": np.array(100, U8)}
    elements = TensorProto.FLOAT if floats else TensorProto.UINT8
    model = model_of("QGemm", inputs, elements, transB=across, alpha=1.0)
    compare(model, inputs, 1e-3 if floats else 1)


@pytest.mark.parametrize("dtype", [U8, I8, np.uint16, np.int16, ml_dtypes.int4, ml_dtypes.uint4])
def test_there_and_back(dtype: Any) -> None:
    """In operator sets before 21 ONNX's own had no integers of 16 and of 4 bits."""
    x = np.random.default_rng(8).standard_normal((3, 4)).astype(np.float32)
    inputs: dict[str, Array] = {
        "s": scale(0.1, 0.2, 0.3), "z": np.zeros(3, np.float32).astype(dtype)
    }  # fmt: skip
    nodes = [
        helper.make_node(
            f"{way}Linear", [one, "s", "z"], [other], domain="com.microsoft", axis=0
        )
        for way, one, other in (("Quantize", "x", "q"), ("Dequantize", "q", "y"))
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
        [numpy_helper.from_array(value, name) for name, value in inputs.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    compare(helper.make_model(graph, opset_imports=imports, ir_version=10), {"x": x}, 1e-6)


def test_others_are_refused_by_name() -> None:
    inputs: dict[str, Array] = {"x": np.zeros((1, 2), np.float32)}
    model = model_of("BiasGelu", inputs, TensorProto.FLOAT)
    with pytest.raises(UnsupportedError, match=r"BiasGelu of com\.microsoft 1 is not supported"):
        luminal.onnx.load(model)(inputs["x"])


def packed(numbers: Array, bits: int) -> Array:
    """Rows of numbers of so many bits in bytes, the lowest first, zeros behind the last."""
    each = 8 // bits
    padded = np.pad(numbers, ((0, 0), (0, -numbers.shape[1] % each))).astype(U8)
    parts = padded.reshape(len(numbers), -1, each) << (np.arange(each, dtype=U8) * bits)
    return np.asarray(np.bitwise_or.reduce(parts, axis=-1))


WEIGHTS = [
    (4, 32, 96, None), (4, 32, 96, "packed"), (4, 32, 96, "floats"), (4, 16, 100, None),
    (4, 16, 100, "packed"), (4, 16, 100, "floats"), (8, 32, 70, None), (8, 32, 70, "packed"),
    (2, 32, 96, None), (2, 32, 96, "packed"), (2, 16, 100, "packed"),
]  # fmt: skip


@pytest.mark.parametrize(("bits", "size", "columns", "zeros"), WEIGHTS)
@pytest.mark.parametrize("rows", [1, 5])
def test_products_of_few_bits(
    rows: int, bits: int, size: int, columns: int, zeros: str | None
) -> None:
    rng = np.random.default_rng(bits)
    outer, blocks = 24, -(-columns // size)
    inputs = {
        "x": rng.standard_normal((2, rows, columns)).astype(np.float32),
        "b": packed(rng.integers(0, 1 << bits, (outer, blocks * size)), bits),
        "scales": (rng.random((outer, blocks)) / 8).astype(np.float32).reshape(-1),
    }
    inputs["b"] = inputs["b"].reshape(outer, blocks, size * bits // 8)
    shifts = rng.integers(0, 1 << bits, (outer, blocks))
    if zeros == "packed":
        inputs["zeros"] = packed(shifts, bits).reshape(-1)
    elif zeros is not None:
        inputs["zeros"] = shifts.astype(np.float32).reshape(-1)
    said = {"K": columns, "N": outer, "bits": bits, "block_size": size}
    model = model_of("MatMulNBits", inputs, TensorProto.FLOAT, **said)
    x = {"x": inputs["x"]}
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)
    close(luminal.onnx.load(model)(x)["y"], wanted, ulp=16)


@pytest.mark.parametrize("has_zeros", [False, True])
def test_columns_that_name_their_blocks(has_zeros: bool) -> None:
    rng = np.random.default_rng(has_zeros)
    columns, outer, blocks = 96, 24, 3
    codes = rng.integers(0, 16, (outer, columns))
    zeros = rng.integers(0, 16, (outer, blocks)) if has_zeros else np.full((outer, blocks), 8)
    scales = (rng.random((outer, blocks)) / 8).astype(np.float32)
    groups = rng.integers(0, blocks, columns).astype(np.int32)
    inputs: dict[str, Array] = {
        "x": rng.standard_normal((5, columns)).astype(np.float32),
        "b": packed(codes, 4).reshape(outer, blocks, 16),
        "scales": scales.reshape(-1),
        "zeros": packed(zeros, 4).reshape(-1),
        "groups": groups,
    }
    said = {"K": columns, "N": outer, "bits": 4, "block_size": 32}
    model = model_of("MatMulNBits", inputs, TensorProto.FLOAT, **said)
    if not has_zeros:
        model.graph.node[0].input[3] = ""
    x = {"x": inputs["x"]}
    found = luminal.onnx.load(model)(x)["y"]
    wanted = inputs["x"] @ ((codes - zeros[:, groups]) * scales[:, groups]).T
    close(found, wanted)
    if not has_zeros:  # ONNX Runtime takes 8 for all zeros there, given or not
        (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)
        close(found, theirs, ulp=8)


def test_products_of_few_bits_keep_their_codes() -> None:
    """The matrix of floats, four times as large as all else, is nowhere."""
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {
        "x": rng.standard_normal((1, 512)).astype(np.float32),
        "b": rng.integers(0, 256, (512, 16, 16)).astype(U8),
        "scales": rng.random(512 * 16).astype(np.float32),
    }
    said = {"K": 512, "N": 512, "bits": 4, "block_size": 32}
    model = luminal.onnx.load(model_of("MatMulNBits", inputs, TensorProto.FLOAT, **said))
    (report,) = model.profile({"x": inputs["x"]})
    assert len(report.kernels) == 1
    assert report.bytes < 512 * 512


def test_codes_of_other_widths_are_refused() -> None:
    x = np.ones((1, 32), np.float32)
    inputs: dict[str, Array] = {"x": x, "b": np.ones((2, 1, 12), U8), "s": scale(1, 1)}
    said = {"K": 32, "N": 2, "bits": 3, "block_size": 32}
    model = luminal.onnx.load(model_of("MatMulNBits", inputs, TensorProto.FLOAT, **said))
    with pytest.raises(OnnxError, match="codes of 3 bits are not supported; of 2, 4"):
        model({"x": x})
