"""Weights are read where the file is mapped, and once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import luminal.onnx
from luminal.base.errors import LoadError
from luminal.loaders.mapped import map_file
from luminal.onnx.source import Source
from luminal.onnx.wire import without_data

WIDE = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)


def _model(*names: str) -> onnx.ModelProto:
    nodes, x = [], "x"
    for k, name in enumerate(names):
        nodes.append(helper.make_node("Mul", [x, name], [f"y{k}"]))
        x = f"y{k}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, (48,))],
        [helper.make_tensor_value_info(x, 1, (64, 48))],
        [numpy_helper.from_array(WIDE + k, name) for k, name in enumerate(names)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_the_message_without_data_differs_in_data_only(tmp_path: Path):
    path = tmp_path / "m.onnx"
    onnx.save(_model("a", "b"), path)
    message, found = without_data(map_file(path))
    assert len(message) < 1000
    proto = onnx.ModelProto.FromString(message)
    for number, data in found.items():
        proto.graph.initializer[number].raw_data = bytes(data)
    assert proto == _model("a", "b")


def _lies_in_a_file(array: np.ndarray) -> bool:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base is not None


def test_arrays_lie_in_the_file(tmp_path: Path):
    path = tmp_path / "m.onnx"
    places = set()
    for pad in range(4):  # names of other lengths move the data
        proto = _model("a" * (pad + 1))
        onnx.save(proto, path)
        model = luminal.onnx.load(path)
        (name,) = [tensor.name for tensor in proto.graph.initializer]
        x = np.ones(48, np.float32)
        np.testing.assert_array_equal(model(x)["y0"], WIDE)
        is_aligned = path.read_bytes().index(WIDE.tobytes()) % 4 == 0
        assert _lies_in_a_file(model._source.parameters[name].memory) == is_aligned
        places.add(is_aligned)
    assert places == {True, False}


def test_what_is_no_sound_message_comes_back_whole():
    whole = _model("a").SerializeToString()
    for cut in (1, 7, 100, len(whole) - 1):
        assert without_data(memoryview(whole[:cut])) == (whole[:cut], {})


def test_two_initializers_of_one_name(tmp_path: Path):
    proto = _model("a", "b")
    proto.graph.initializer[1].name = "a"
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="two initializers have the name"):
        Source.of(tmp_path / "m.onnx")
