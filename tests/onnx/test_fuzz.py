"""Random models, and single nodes with random options: as ONNX Runtime runs them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

import luminal.onnx
from tests.onnx.random_models import random_model
from tests.onnx.random_nodes import random_node

Make = Callable[[int], tuple[ModelProto, dict[str, np.ndarray]]]

TOLERANCE = 2e-4  # of the largest: chains of up to a dozen float32 operators, sums of products


def _differences(make: Make, seed: int) -> str:
    """What is wrong with the outputs of a model, in words."""
    proto, inputs = make(seed)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    oracle = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    expected = oracle.run(None, inputs)
    found = luminal.onnx.load(proto)(inputs)
    wrong = []
    for (name, value), wanted in zip(found.items(), expected, strict=True):
        if value.shape != wanted.shape or value.dtype != wanted.dtype:
            wrong.append(f"{name}: {value.dtype}{value.shape}, not {wanted.dtype}{wanted.shape}")
            continue
        size = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
        if not np.allclose(value, wanted, rtol=TOLERANCE, atol=TOLERANCE * size, equal_nan=True):
            wrong.append(f"{name}: off by {np.abs(value - wanted).max()} of {size}")
    return "; ".join(wrong)


def _check(make: Make, seeds: range) -> None:
    faults = {seed: found for seed in seeds if (found := _differences(make, seed))}
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
    _check(random_node, range(20))


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_many_nodes(block: int):
    _check(random_node, range(50 * (block + 1), 50 * (block + 2)))
