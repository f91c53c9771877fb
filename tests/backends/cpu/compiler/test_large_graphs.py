"""Graphs of thousands of nodes or hundreds of outputs: no recursion, no kernel without bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import CompileError
from luminal.selection.limits import KERNEL_TERMS
from tests.close import close_each
from tests.machines import COSTS

X = np.linspace(-1, 1, 64, dtype=np.float32)


def test_a_chain_of_5000_adds() -> None:
    cx = lm.Graph()
    x = y = cx.tensor((64,), name="x")
    for _ in range(5000):
        y = y + x
    y.output("y")
    exe = lm.compile(cx, backend="cpu")
    # 5,000 roundings in a row: some 1,000 ulp
    np.testing.assert_allclose(exe({"x": X})["y"], X * 5001, rtol=1e-4)
    assert len(exe.report().kernels) <= 5000 // KERNEL_TERMS + 2


def test_a_chain_of_views() -> None:
    cx = lm.Graph()
    y = cx.tensor((4, 4), name="x")
    for _ in range(300):
        y = (y.transpose(0, 1) + 1.0).flip(0)
    y.output("y")
    expected = X[:16].reshape(4, 4)
    for _ in range(300):
        expected = (expected.T + 1)[::-1]
    exe = lm.compile(cx, backend="cpu")
    np.testing.assert_array_equal(exe({"x": X[:16].reshape(4, 4)})["y"], expected)


def test_300_outputs() -> None:
    cx = lm.Graph()
    x = y = cx.tensor((64,), name="x")
    for k in range(300):
        y = y + x
        y.output(f"y{k}")
    exe = lm.compile(cx, backend="cpu")
    results = exe({"x": X})
    # 300 roundings in a row: some 80 ulp
    np.testing.assert_allclose(results["y299"], X * 301, rtol=1e-5)
    close_each(results["y7"], X * 9, ulp=8)
    assert 300 / COSTS.streams <= len(exe.report().kernels) <= 300 / COSTS.streams + 2


def test_40_reductions_one_below_the_other() -> None:
    cx = lm.Graph()
    y = cx.tensor((16, 64), name="x")
    for k in range(40):
        y = (y - y.mean(-1, keepdim=True)) * (1.0 + k % 2)
    y.output("y")
    exe = lm.compile(cx, backend="cpu")
    reference = lm.compile(cx, backend="reference")
    given = {"x": np.outer(np.arange(16), X).astype(np.float32) + 3}
    scale = 2.0**20
    # each step doubles what the mean before lost: of the factors' product
    np.testing.assert_allclose(exe(given)["y"], reference(given)["y"], atol=scale * 1e-5)


def nested(depth: int) -> lm.Graph:
    """x doubled and incremented in Loops of two trips, `depth` of them in each other."""

    def body(level: int) -> Any:
        def step(carry: Any, _: Any) -> Any:
            if level == 0:
                return carry * 0.5 + 1.0, carry
            return lm.scan(body(level - 1), carry, None, length=2)[0], carry

        return step

    cx = lm.Graph()
    lm.scan(body(depth - 1), cx.tensor((3,), name="x"), None, length=2)[0].output("y")
    return cx


def test_loops_nest_16_deep() -> None:
    x = np.float32([1, 2, 3])
    expected = x
    for _ in range(2**8):
        expected = expected * np.float32(0.5) + np.float32(1)
    exe = lm.compile(nested(8), backend="cpu")
    close_each(exe({"x": x})["y"], expected)
    lm.compile(nested(16), backend="cpu")
    with pytest.raises(CompileError, match="nest deeper than 16"):
        lm.compile(nested(17), backend="cpu")


def test_a_chain_of_shifted_products_is_not_multiplied_out() -> None:
    """Each step reads the one before at two places: inlined, the work doubles with every step."""
    cx = lm.Graph()
    x = cx.tensor((64,), name="x")
    product = x
    for step in range(24):
        product = product * product.roll(1 << step % 6, 0)
    product.output("y")
    exe = lm.compile(cx)
    value = {"x": np.full(64, 0.9999999, np.float32)}
    assert 6 <= len(exe.report().kernels) <= 24
    expected = lm.compile(cx, backend="reference")(value)["y"]
    close_each(exe(value)["y"], expected)
