"""Quantised operators beside ONNX Runtime, where their ranges have no width too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from luminal import onnx as lm_onnx

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
