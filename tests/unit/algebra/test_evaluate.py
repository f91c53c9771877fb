"""Terms evaluated in NumPy: against the reference, restricted to positions, and in float64."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.evaluate import Evaluator, evaluate
from luminal.algebra.lower import lower
from luminal.algebra.terms import Terms, factors
from luminal.backends.reference import evaluate_with_bounds
from luminal.base.dtypes import bool_, float32, int32
from luminal.hlir.graph import Output
from luminal.shape.expression import axis, symbol
from tests.close import close_each
from tests.fuzz.graphs import random_case
from tests.long_share import mostly_long
from tests.numerics.tolerance import compare
from tests.term_inputs import inputs_of

CHUNK = 20


@pytest.mark.parametrize("chunk", mostly_long(range(5), 1))
def test_random_graphs_mean_what_the_reference_says(chunk: int) -> None:
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        case = random_case(seed)
        case.reset()
        bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims)
        case.reset()
        lowered = lower(case.graph)
        found = evaluate(lowered, inputs_of(lowered, case.inputs), case.dims)
        for root, array in zip(lowered.roots, found, strict=True):
            if isinstance(root.sink, Output):
                try:
                    compare(array, *bounds.outputs[root.sink.name], name=root.sink.name)
                except BaseException as error:
                    error.add_note(f"seed {seed}")
                    raise
        evaluate(lowered, inputs_of(lowered, case.inputs), case.dims, wide=True)


def attention(length: int) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
    cx = lm.Graph()
    q, k, v = (cx.tensor((2, length, 16), name=n) for n in "qkv")
    rows, columns = cx.arange(length).reshape(length, 1), cx.arange(length).reshape(1, length)
    scores = lm.where((columns <= rows).expand(2, length, length), q @ k.mT * 0.25, -np.inf)
    (scores.softmax(-1) @ v).output("y")
    rng = np.random.default_rng(0)
    return cx.graph(), {n: rng.normal(size=(2, length, 16)).astype(np.float32) for n in "qkv"}


def test_restricted_positions_are_those_of_the_whole() -> None:
    graph, arrays = attention(24)
    lowered = lower(graph)
    leaves = inputs_of(lowered, arrays)
    (whole,) = evaluate(lowered, leaves, wide=True)
    (heads,), (rows,), (columns,) = lowered.roots[0].frame
    ranges = {rows: [23, 0, 7], columns: [3], heads: [1]}
    (part,) = evaluate(lowered, leaves, ranges=ranges, wide=True)
    close_each(part, whole[1:, [23, 0, 7], 3:4], ulp=32)


def test_a_few_rows_of_a_long_sequence_are_cheap() -> None:
    graph, arrays = attention(8192)
    lowered = lower(graph)
    (_, (rows,), _) = lowered.roots[0].frame
    start = time.thread_time()
    (part,) = evaluate(
        lowered, inputs_of(lowered, arrays), ranges={rows: [0, 100, 8191]}, wide=True
    )
    assert time.thread_time() - start < 2.0
    q, k, v = (arrays[n].astype(np.float64) for n in "qkv")
    scores = q[:, 100] @ k[0].T * 0.25
    weights = np.exp(scores[0, :101] - scores[0, :101].max())
    close_each(part[0, 1], weights @ v[0, :101] / weights.sum(), ulp=64)
    close_each(part[1, 0], v[1, 0])


def test_wide_contractions_of_many_factors_and_lone_axes() -> None:
    cx = lm.Graph()
    shapes = {"a": (3, 4), "b": (4, 5), "c": (5, 6), "d": (4,), "e": (2, 7)}
    t = {n: cx.tensor(shape, name=n) for n, shape in shapes.items()}
    lm.einsum("ij,jk,kl,j->il", t["a"], t["b"], t["c"], t["d"]).output("p")
    lm.einsum("ij,jk,mn->ik", t["a"], t["b"], t["e"]).output("q")
    rng = np.random.default_rng(1)
    arrays = {n: rng.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}
    lowered = lower(cx.graph())
    p, q = evaluate(lowered, inputs_of(lowered, arrays), wide=True)
    w = {n: array.astype(np.float64) for n, array in arrays.items()}
    close_each(p, (w["a"] * w["d"]) @ w["b"] @ w["c"])
    close_each(q, w["a"] @ w["b"] * w["e"].sum())


def test_each_value_is_computed_once_and_a_bound_axis_is_whole() -> None:
    cx = lm.Graph()
    x = cx.tensor((4, 6), name="x")
    (x / x.sum(1, keepdim=True)).output("y")
    lowered = lower(cx.graph())
    array = np.arange(24, dtype=np.float32).reshape(4, 6) + 1
    leaves = inputs_of(lowered, {"x": array})
    rows, columns = (d[0] for d in lowered.roots[0].frame)
    evaluator = Evaluator(leaves, {}, wide=False)
    value = evaluator.tensor(lowered.roots[0].term, ((rows,), (columns,)), {columns: [5]})
    expected = array[:, 5:] / array.sum(1, keepdims=True)
    assert value.tobytes() == expected.astype(np.float32).tobytes()
    before = dict(evaluator.known)
    evaluator.tensor(lowered.roots[0].term, ((rows,), (columns,)), {columns: [5]})
    assert evaluator.known.keys() == before.keys()


def test_a_condition_that_the_dims_decide_has_a_value_everywhere() -> None:
    """With s = 3 `i < 2 * s` is true for all i < 4; it is read at other positions all the same."""
    s, terms = symbol("s", 1, 6), Terms()
    i, j = axis("i", 4), axis("j", 4)
    condition = terms.index(i < 2 * s, bool_)
    flipped = terms.at(condition, {i: 3 - j})
    assert Evaluator({}, {"s": 3}, wide=False).value(condition).tolist() == [True] * 4
    assert Evaluator({}, {"s": 3}, wide=False).value(flipped).tolist() == [True] * 4
    assert Evaluator({}, {"s": 1}, wide=False).value(flipped).tolist() == [False] * 2 + [True] * 2


def test_a_bitcast_of_a_scalar_is_a_scalar() -> None:
    terms = Terms()
    one = terms.literal(np.float32(1).tobytes(), float32)
    bits = terms.pointwise("Bitcast", (one,), int32)
    for wide in (False, True):
        value = Evaluator({}, {}, wide=wide).value(bits)
        assert value.shape == ()
        assert int(value) == 0x3F800000


def test_a_square_of_squares_has_few_factors() -> None:
    terms = Terms()
    square = terms.literal(np.float32(2).tobytes(), float32)
    for _ in range(70):
        square = terms.pointwise("Mul", (square, square), float32)
    assert len(factors(square)) == 71
    a, b = (terms.literal(np.float32(n).tobytes(), float32) for n in (3, 5))
    product = terms.pointwise("Mul", (a, b), float32)
    assert factors(terms.pointwise("Mul", (product, b), float32)) == [a, b, b]
