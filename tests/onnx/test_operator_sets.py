"""Operators whose operator sets differ, each set in its own words, as ONNX Runtime runs them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import luminal.onnx
from tests.close import close
from tests.long_share import mostly_long

REDUCTIONS = ("Sum", "Mean", "Max", "L1", "L2", "LogSumExp", "SumSquare", "Prod")
AXES = {"Sum": 13}  # from there on an input, like all others from 18 on


def model_of(name: str, opset: int, inputs: dict[str, Any], **attributes: Any) -> ModelProto:
    """One node of `x` and of constants; attributes that are None are left out."""
    said = {key: value for key, value in attributes.items() if value is not None}
    x, *constants = inputs
    node = helper.make_node(name, [x, *constants], ["y"], **said)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, inputs[x].shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(inputs[each], each) for each in constants],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def compare(model: ModelProto, x: np.ndarray[Any, Any]) -> None:
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = luminal.onnx.load(model)(x)["y"]
    assert found.shape == wanted.shape
    close(found, wanted)


@pytest.mark.parametrize("opset", mostly_long([7, 18, 11, 13, 21], 2))
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, opset: int) -> None:
    draw = random.Random(f"{name}{opset}")
    x = np.random.default_rng(opset).standard_normal((2, 3, 4), np.float32)
    for _ in range(4):
        axes = draw.choice([None, [], [1], [-1, 0]])
        said: dict[str, Any] = {"keepdims": draw.choice([None, 0, 1])}
        inputs = {"x": x}
        if opset >= AXES.get(name, 18):
            said["noop_with_empty_axes"] = draw.choice([None, 0, 1])
            inputs |= {} if axes is None else {"axes": np.array(axes, np.int64)}
        else:
            axes = [axis % 3 for axis in axes] if axes else None  # -1 is new in 11
            said["axes"] = axes
        if said.get("noop_with_empty_axes") and not axes and name != "Sum":
            continue  # ONNX Runtime leaves out the square or the logarithm
        compare(model_of(f"Reduce{name}", opset, inputs, **said), x)


@pytest.mark.parametrize("factor", [0.3, 0.5, 0.6, 0.7, 0.9, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_before_it_had_options(mode: str, factor: float) -> None:
    """Version 10 reads the neighbour above where a dim shrinks, below where it grows."""
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 7), np.float32)
    scales = np.array([1, 1, 2, factor], np.float32)
    compare(model_of("Resize", 10, {"x": x, "scales": scales}, mode=mode), x)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [8, 9])
def test_upsample(opset: int, mode: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 7), np.float32)
    scales = [1.0, 1.0, 2.0, 1.5]
    if opset == 9:
        compare(
            model_of("Upsample", 9, {"x": x, "scales": np.array(scales, np.float32)}, mode=mode), x
        )
    else:
        compare(model_of("Upsample", 8, {"x": x}, mode=mode, scales=scales), x)
