"""Fourier transforms of as many samples as sound has: two small tables instead of one large."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import luminal.onnx
from luminal.onnx import OnnxError


def transform(count: int, parts: int, length: int, **attributes: int) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, count, parts])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    sizes = [helper.make_tensor("n", TensorProto.INT64, [], [length])]
    node = helper.make_node("DFT", ["x", "n"], ["y"], axis=1, **attributes)
    graph = helper.make_graph([node], "g", [x], [y], sizes)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("count", "parts", "length", "attributes"),
    [
        (6000, 1, 6000, {}),
        (6001, 1, 6000, {"onesided": 1}),
        (16000, 2, 16000, {}),
        (4800, 2, 4800, {"inverse": 1}),
        (5000, 2, 6144, {}),
    ],
    ids=str,
)
def test_values_are_numpy_s(
    count: int, parts: int, length: int, attributes: dict[str, int]
) -> None:
    x = np.random.default_rng(0).standard_normal((2, count, parts)).astype(np.float32)
    numbers = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    there = np.fft.ifft if "inverse" in attributes else np.fft.fft
    expected = there(numbers.astype(np.complex128), length, axis=1)
    if "onesided" in attributes:
        expected = expected[:, : length // 2 + 1]
    found = luminal.onnx.load(transform(count, parts, length, **attributes))(x)["y"]
    error = np.abs(found[..., 0] + 1j * found[..., 1] - expected).max()
    assert error < 2e-6 * np.abs(expected).max()


def test_a_long_prime_is_refused() -> None:
    x = np.ones((2, 6007, 1), np.float32)
    with pytest.raises(OnnxError, match="takes a table of 6,007 x 6,007 numbers"):
        luminal.onnx.load(transform(6007, 1, 6007))(x)
