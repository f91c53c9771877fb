"""The lesser of two floats is one operation, and has the bits of `-max(-x, -y)`; so is the
magnitude of one, `max(x, -x)`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.compiler.dump import Dump

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 6.0, 7.5, 1e-40, 3e38]
PAIRS = np.array([*itertools.product(SPECIAL, repeat=2)])  # 121: whole vectors and a rest

GRAPHS: dict[str, tuple[Callable[[lm.Tensor, lm.Tensor], lm.Tensor], bool]] = {
    "two tensors": (lambda x, y: x.minimum(y), True),
    "a number": (lambda x, y: x.minimum(6.0), True),
    "zero": (lambda x, y: x.minimum(0.0), True),
    "minus zero": (lambda x, y: x.minimum(-0.0), True),
    "clip": (lambda x, y: x.clip(0, 6), True),
    "clip to tensors": (lambda x, y: x.clip(y, y + 1), True),
    "of minima": (lambda x, y: x.minimum(y).minimum(x * 2).minimum(3.0), True),
    "of negatives": (lambda x, y: (-x).minimum(-y), True),
    "both": (lambda x, y: x.minimum(y) + (-x).maximum(-y), True),
    "by hand": (lambda x, y: -(-x).maximum(-y), True),
    "a number by hand": (lambda x, y: -(-x).maximum(3.0), True),
    "not quite": (lambda x, y: -(-x).maximum(y), False),
    "twice the negative": (lambda x, y: (-x).maximum(-y) * -2, False),
    "the negative first": (lambda x, y: -1 * lm.maximum(-1 * x, -1 * y), True),
    "of nothing": (lambda x, y: -x.maximum(0), False),
}
MAGNITUDES: dict[str, tuple[Callable[[lm.Tensor, lm.Tensor], lm.Tensor], bool]] = {
    "abs": (lambda x, y: abs(x), True),
    "the negative first": (lambda x, y: lm.maximum(-x, x), True),
    "of a sum": (lambda x, y: abs(x + y), True),
    "of two": (lambda x, y: x.maximum(-y), False),
    "of twice": (lambda x, y: x.maximum(x * -2), False),
}
ALL = {f"min {k}": v for k, v in GRAPHS.items()} | {f"abs {k}": v for k, v in MAGNITUDES.items()}


def graph(name: str, dtype: lm.DType) -> lm.Graph:
    cx = lm.Graph()
    x, y = (cx.tensor((len(PAIRS),), dtype, each) for each in "xy")
    ALL[name][0](x, y).output("z")
    return cx


@pytest.mark.parametrize("dtype", [lm.float32, lm.float64], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_bits_are_the_references(name: str, dtype: lm.DType) -> None:
    cx = graph(name, dtype)
    given: Any = dict(zip("xy", PAIRS.T.astype(dtype.numpy), strict=True))
    found, expected = (lm.compile(cx, backend)(given)["z"] for backend in ("cpu", "reference"))
    assert np.array_equal(found, expected, equal_nan=True)
    numbers = expected == expected
    assert np.array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("name", ALL)
def test_each_is_one_operation(name: str) -> None:
    text = Dump(graph(name, lm.float32).graph(), registry.find("cpu")).text("llvm")
    called = "minimum" if name.startswith("min ") else "fabs"
    assert bool(re.search(rf"call <\d+ x float> @llvm.{called}", text)) == ALL[name][1]
