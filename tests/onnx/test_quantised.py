"""Quantised operators beside ONNX Runtime, where their ranges have no width too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import luminal as lm
from luminal import onnx as lm_onnx
from luminal.program.buffers import BufferKind
from luminal.session.graph import stages

RANGES = {
    "zeros": [0, 0, 0, 0],
    "both zeros": [0, -0.0, 0, -0.0],
    "one number": [3, 3, 3, 3],
    "above 0": [1, 2, 3, 4],
    "below 0": [-1, -2, -3, -4],
    "around 0": [-1.5, 0.25, 7, -0.125],
    "small": [1e-38, 0, 0, 0],
    "large": [3e38, 0, 1e38, -1e37],
}


@pytest.mark.parametrize("name", RANGES)
def test_dynamic_quantize_linear(name: str, tmp_path: Any) -> None:
    x = np.array(RANGES[name], np.float32)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    made = {"y": (TensorProto.UINT8, [4]), "scale": (TensorProto.FLOAT, [])}
    made["zero"] = (TensorProto.UINT8, [])
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info(key, *kind) for key, kind in made.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    found = lm_onnx.load(path)({"x": x})
    wanted = onnxruntime.InferenceSession(path).run(None, {"x": x})
    for key, exact in zip(made, wanted, strict=True):
        np.testing.assert_array_equal(found[key], exact, key)


KINDS = ("u8s8", "s8s8", "u8u8", "s8u8")
NUMBERS = {"u": np.uint8, "s": np.int8}


def _quantised_model(seed: int) -> tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A product or a pointwise convolution between Q and DQ: its text, initializers, inputs."""
    random = np.random.default_rng([11, seed])
    kind = KINDS[seed % 4]
    act, weight = (NUMBERS[kind[k]] for k in (0, 2))
    form, by_channel = seed // 4 % 3, bool(seed // 12 % 2)
    count, k, n = (int(x) for x in random.integers(3, 40, 3))
    count, k = (count, 4 * k) if seed % 2 else (count, k)
    shape = {0: (k, n), 1: (n, k), 2: (n, k, 1, 1)}[form]
    axis = 1 if form == 0 else 0
    codes = random.integers(np.iinfo(weight).min, np.iinfo(weight).max, shape, endpoint=True)
    slices = (n,) if by_channel else ()
    zero_of_weight = 0 if form == 2 and seed % 3 else 7
    initial = {
        "w": codes.astype(weight),
        "ws": random.uniform(0.01, 0.02, slices).astype(np.float32),
        "wz": np.full(slices, zero_of_weight, weight),
        "s": np.float32(0.02),
        "z": np.array(random.integers(np.iinfo(act).min, np.iinfo(act).max), act),
        "b": random.standard_normal(n).astype(np.float32),
    }
    given = (count, k) if form < 2 else (2, k, 3, 5)
    step = {0: "MatMul(d, v)", 1: "Gemm<transB = 1>(d, v, b)", 2: "Conv(d, v, b)"}[form]
    text = (
        f'<ir_version: 9, opset_import: ["" : 17]> g (float{[*given]} x) => (float y) {{ '
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) "
        f"v = DequantizeLinear<axis = {axis}>(w, ws, wz) y = {step} }}"
    )
    return text, initial, {"x": random.standard_normal(given).astype(np.float32)}


def _check_products_of_codes(seed: int) -> None:
    text, initial, inputs = _quantised_model(seed)
    model = parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in initial.items())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)
    found = lm_onnx.load(model)(inputs)["y"]
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max(), seed


def test_products_of_dequantised_numbers():
    for seed in (0, 5, 6, 11, 12, 17, 20, 22):
        _check_products_of_codes(seed)


@pytest.mark.long
def test_more_products_of_dequantised_numbers():
    for seed in range(500):
        _check_products_of_codes(seed)


def test_they_are_products_of_bytes():
    """In memory, as instructions for bytes take them: what is quantised is stored as bytes."""
    cx = lm.Graph()
    x, w = cx.tensor((64, 128), name="x"), cx.tensor((128, 64), lm.int8, name="w")
    q = lm.round(x * 20.0).clip(-128, 127).cast(lm.int8).cast(lm.int32)
    lm.matmul(q, w.cast(lm.int32)).cast(lm.float32).output("y")
    program = stages(cx, "cpu").program
    stored = [each.dtype for each in program.buffers if each.kind is BufferKind.ARENA]
    assert stored == [lm.int8]
