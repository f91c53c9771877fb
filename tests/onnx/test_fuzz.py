"""Random models, and single nodes with random options: as ONNX Runtime runs them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

import luminal.onnx
from luminal.base.errors import LuminalError
from tests.onnx.random_models import random_model
from tests.onnx.random_nodes import random_node
from tests.onnx.random_ranges import random_range

Make = Callable[[int], tuple[ModelProto, dict[str, np.ndarray]]]

TOLERANCE = 2e-4  # of the largest: chains of up to a dozen float32 operators, sums of products


def _oracle(proto: ModelProto, inputs: dict[str, np.ndarray]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return list(session.run(None, inputs))


def _differences(make: Make, seed: int) -> str:
    """What is wrong with the outputs of a model, in words."""
    proto, inputs = make(seed)
    return _compared(luminal.onnx.load(proto)(inputs), _oracle(proto, inputs))


def _refusals(make: Make, seed: int, backend: str = "reference") -> str:
    """The same of a model that may be refused: by both or by none. Where ONNX Runtime gives nothing
    but empty arrays (windows beyond the input), it may be refused here.
    """
    proto, inputs = make(seed)
    try:
        expected = _oracle(proto, inputs)
    except Exception as error:  # its classes have no other base in common
        expected, reason = None, str(error)
    try:
        model = luminal.onnx.load(proto).compile(backend)
        if any(dim.dim_param for dim in proto.graph.input[0].type.tensor_type.shape.dim):
            with suppress(LuminalError):  # so that a form with an open dim is met, too
                model(inputs | {"x0": np.concatenate([inputs["x0"]] * 2)})
        found = model(inputs)
    except LuminalError as error:
        if "node " not in str(error):
            return f"names no node: {error}"
        is_needed = expected is not None and any(np.size(x) for x in expected)
        return f"raises {error}" if is_needed else ""
    return f"{found}, but refused: {reason}" if expected is None else _compared(found, expected)


def _compared(found: dict[str, Any], expected: list[Any]) -> str:
    wrong = []
    for (name, value), wanted in zip(found.items(), expected, strict=True):
        if isinstance(wanted, list):
            items = {f"{name}[{k}]": each for k, each in enumerate(value)}
            wrong.append(_compared(items, wanted) if len(value) == len(wanted) else f"{name}: long")
            continue
        if value.shape != wanted.shape or value.dtype != wanted.dtype:
            wrong.append(f"{name}: {value.dtype}{value.shape}, not {wanted.dtype}{wanted.shape}")
            continue
        size = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
        if not np.allclose(value, wanted, rtol=TOLERANCE, atol=TOLERANCE * size, equal_nan=True):
            wrong.append(f"{name}: off by {np.abs(value - wanted).max()} of {size}")
    return "; ".join(filter(None, wrong))


def _check(
    make: Make, seeds: range, differences: Callable[[Make, int], str] = _differences
) -> None:
    faults = {seed: found for seed in seeds if (found := differences(make, seed))}
    assert not faults


def test_ten():
    _check(random_model, range(10))


@pytest.mark.long
def test_twenty_more():
    _check(random_model, range(10, 30))


@pytest.mark.long
@pytest.mark.parametrize("block", range(9))
def test_many(block: int):
    _check(random_model, range(30 * (block + 1), 30 * (block + 2)))


def test_twenty_nodes():
    _check(random_node, range(20), partial(_refusals, backend="cpu"))


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_many_nodes(block: int):
    seeds = range(50 * (block + 1), 50 * (block + 2))
    _check(random_node, seeds, partial(_refusals, backend="cpu"))


def test_forty_ranges():
    _check(random_range, range(40), _refusals)


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_many_ranges(block: int):
    _check(random_range, range(100 * block + 40, 100 * block + 140), _refusals)
