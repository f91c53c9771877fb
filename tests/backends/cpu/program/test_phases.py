"""Values of Weights and literals only, used by runs, outputs and each other: who makes them, where
they live. Checked against the reference; memory holds NaN before each run (see conftest).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from tests.close import close_each
from tests.long_share import mostly_long

Draw = Callable[..., lm.Tensor]
Case = Callable[[lm.Graph, Draw, Draw], list[lm.Tensor]]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_of_weight_twice(cx: lm.Graph, w: Draw, x: Draw) -> list[lm.Tensor]:
    z, y = w(3, 4).softmax(-1) @ w(4, 4), x(3, 4)
    return [y - z, lm.cat([z, y])]


def attention_of_weights_as_output(cx: lm.Graph, w: Draw, x: Draw) -> list[lm.Tensor]:
    y = (w(3, 4) @ w(4, 2)).softmax(-1) @ w(2, 5)
    return [y, x(3, 5) + y]


def softmax_of_weights_times_input(cx: lm.Graph, w: Draw, x: Draw) -> list[lm.Tensor]:
    return [(w(15, 2) @ w(2, 2)).softmax(-1) @ x(2, 3)]


def scores_with_a_mask_of_weights(cx: lm.Graph, w: Draw, x: Draw) -> list[lm.Tensor]:
    scores = x(6, 4) @ x(4, 6) + w(6, 3) @ w(3, 6)
    return [scores.softmax(-1) @ w(6, 4)]


def weights_in_one_pass_with_inputs(cx: lm.Graph, w: Draw, x: Draw) -> list[lm.Tensor]:
    p = (w(4, 3) @ w(3, 5)).softmax(-1)
    return [p @ w(5, 2), p @ x(5, 2), p, p.amax(-1) + x(4)]


def many_uses_of_one_sum(cx: lm.Graph, w: Draw, x: Draw) -> list[lm.Tensor]:
    s, y = w(5, 6).sum(-1, keepdim=True).exp(), x(5, 6)
    return [s, s + y, (s * y).sum(0), lm.cat([s, y], 1), s.T]


def early_and_late_reductions_of_one_operand(cx: lm.Graph, w: Draw, x: Draw) -> list[lm.Tensor]:
    a, y = w(4, 8), x(4, 8)
    return [(a.sum(-1), (a * y).sum(-1))[k] + a.amax(-1) for k in range(2)]


def sorted_and_scattered_weights(cx: lm.Graph, w: Draw, x: Draw) -> list[lm.Tensor]:
    a = (w(4, 4) @ w(4, 4)).exp()
    values, _ = a.sort(-1)
    return [values, values + x(4, 4), a.cumsum(0), a.cumsum(0) * x(4, 4), a]


CASES: tuple[Case, ...] = (
    softmax_of_weight_twice,
    attention_of_weights_as_output,
    softmax_of_weights_times_input,
    scores_with_a_mask_of_weights,
    weights_in_one_pass_with_inputs,
    many_uses_of_one_sum,
    early_and_late_reductions_of_one_operand,
    sorted_and_scattered_weights,
)


@pytest.mark.parametrize("numerics", mostly_long(["standard", "exact"], 1))
@pytest.mark.parametrize("leaf", ["weight", "constant", "input"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_values_agree_with_those_of_inputs_only(case: Case, leaf: str, numerics: str) -> None:
    draw = np.random.default_rng(7)
    cx, given = lm.Graph(), {}

    def late(*shape: int) -> lm.Tensor:
        name = f"x{len(given)}"
        given[name] = draw.standard_normal(shape, np.float32)
        return cx.tensor(shape, name=name)

    def early(*shape: int) -> lm.Tensor:
        if leaf == "input":
            return late(*shape)
        array = draw.standard_normal(shape, np.float32)
        return cx.weight(shape).set(array) if leaf == "weight" else cx.constant(array)

    for k, tensor in enumerate(case(cx, early, late)):
        tensor.output(f"y{k}")
    exe = lm.compile(cx, numerics=numerics)
    reference = lm.compile(cx, backend="reference")(given)
    for _ in range(2):  # the second run finds what the prologue left
        found = exe(given)
        for name, array in reference.items():
            # softmax and products of 16 terms: up to 21 ulp of a value are seen
            np.testing.assert_allclose(found[name], array, rtol=2e-5, atol=1e-6, err_msg=name)


def test_what_weights_decide_is_made_once_and_again_when_they_are_set() -> None:
    cx = lm.Graph()
    w = cx.weight((3, 4), name="w")
    z = w.softmax(-1)
    z.output("z")
    (cx.tensor((3, 4), name="x") + z).output("y")
    exe = lm.compile(cx)
    x = np.ones((3, 4), np.float32)
    for seed in range(2):
        weight = np.random.default_rng(seed).standard_normal((3, 4), np.float32)
        exe.set({"w": weight})
        found = exe({"x": x})
        close_each(found["z"], softmax(weight))
        close_each(found["y"], x + softmax(weight))
    assert sum(row.flops > 0 for row in exe.report().prologue) == 1
