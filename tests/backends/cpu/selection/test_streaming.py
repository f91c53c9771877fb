"""What is made of a product of matrices row by row runs as one kernel that never holds the product:
maps, reductions and statistics of any kind, against NumPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.compiler.compile import lower_to_program
from tests.long_share import long_but
from tests.machines import vectors

Array = np.ndarray[Any, Any]
WIDTH, ERROR = 16, 1e-5  # relative, of norms
SIZES = ((2, 65, 129), (1, 70, 7001), (3, 200, 333))  # heads, rows, columns: above blocks of either


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def log_softmax(s: Array) -> Array:
    s = s - s.max(-1, keepdims=True)
    return np.asarray(s - np.log(np.exp(s).sum(-1, keepdims=True)))


def causal(s: Any, fill: float) -> Any:
    rows, columns = s.shape[-2:]
    if isinstance(s, lm.Tensor):
        i, j = (s.graph.arange(n) for n in (rows, columns))
        return lm.where(j <= i.unsqueeze(-1), s, fill)
    return np.where(np.tri(rows, columns, dtype=bool), s, fill)


def quotient(e: Any) -> Any:
    return e / (e.sum(-1, keepdim=True) if isinstance(e, lm.Tensor) else e.sum(-1, keepdims=True))


Of = Callable[[Any], Any]
MAPS: dict[str, tuple[Of, Of]] = {  # of scores, which are then multiplied with values
    "relu": (lambda s: s.relu(), lambda s: np.maximum(s, 0)),
    "sigmoid": (lambda s: s.sigmoid(), lambda s: 1 / (1 + np.exp(-s))),
    "silu": (lambda s: s * s.sigmoid(), lambda s: s / (1 + np.exp(-s))),
    "squared relu": (lambda s: s.relu() * s.relu(), lambda s: np.maximum(s, 0) ** 2),
    "exponentials over their sum": (lambda s: quotient(s.exp()), lambda s: quotient(np.exp(s))),
    "softmax": (lambda s: s.softmax(-1), softmax),
    "log-softmax": (lambda s: s.log_softmax(-1), log_softmax),
    "centred": (lambda s: s - s.mean(-1, keepdim=True), lambda s: s - s.mean(-1, keepdims=True)),
    "causal relu": (lambda s: causal(s, -np.inf).relu(), lambda s: np.maximum(causal(s, 0), 0)),
    "causal quotient": (
        lambda s: quotient(causal(s.exp(), 0.0)),
        lambda s: quotient(causal(np.exp(s), 0)),
    ),
}
REDUCTIONS: dict[str, tuple[Of, Of]] = {  # of scores alone
    "greatest": (lambda s: s.amax(-1), lambda s: s.max(-1)),
    "least": (lambda s: s.amin(-1), lambda s: s.min(-1)),
    "where greatest": (lambda s: s.argmax(-1), lambda s: s.argmax(-1)),
    "sum of squares": (lambda s: (s * s).sum(-1), lambda s: (s * s).sum(-1)),
    "variance": (lambda s: s.var(-1), lambda s: s.var(-1, ddof=1)),
    "entropy": (
        lambda s: -(s.softmax(-1) * s.log_softmax(-1)).sum(-1),
        lambda s: -(softmax(s) * log_softmax(s)).sum(-1),
    ),
    "log-sum-exp": (lambda s: s.logsumexp(-1), lambda s: np.log(np.exp(s).sum(-1))),
}


def operands(heads: int, rows: int, columns: int) -> dict[str, Array]:
    rng = np.random.default_rng(rows)
    shapes = {"q": (heads, rows, WIDTH), "k": (heads, columns, WIDTH), "v": (heads, columns, WIDTH)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def one_kernel(cx: lm.Graph, inputs: dict[str, Array], scores: int) -> dict[str, Array]:
    """The outputs of one kernel, whose memory is less than so many scores take."""
    exe = lm.compile(cx)
    found = exe(inputs)
    assert len(exe.report().kernels) == 1
    memory = exe.memory_report()
    assert memory.arena_bytes == 0
    assert memory.scratch_bytes < scores * 4
    return {name: np.asarray(value) for name, value in found.items()}


def near(found: Array, wanted: Array) -> None:
    assert np.linalg.norm(found - wanted) <= ERROR * np.linalg.norm(wanted)


def scores_of(inputs: dict[str, Array]) -> Array:
    q, k = (inputs[name].astype(np.float64) for name in "qk")
    return np.asarray(q @ np.swapaxes(k, -1, -2) * 0.25)


@pytest.mark.parametrize("sizes", long_but(SIZES, SIZES[2:]))
@pytest.mark.parametrize("name", MAPS)
def test_a_map_between_two_products(name: str, sizes: tuple[int, int, int]) -> None:
    ours, theirs = MAPS[name]
    inputs = operands(*sizes)
    cx = lm.Graph()
    q, k, v = (cx.tensor(array.shape, name=n) for n, array in inputs.items())
    (ours(q @ k.mT * 0.25) @ v).output("y")
    wanted = theirs(scores_of(inputs)) @ inputs["v"].astype(np.float64)
    near(one_kernel(cx, inputs, 10 * sizes[1] * sizes[2])["y"], wanted)


@pytest.mark.parametrize("sizes", long_but(SIZES, SIZES[2:]))
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_of_a_product(name: str, sizes: tuple[int, int, int]) -> None:
    ours, theirs = REDUCTIONS[name]
    inputs = operands(*sizes)
    del inputs["v"]
    cx = lm.Graph()
    q, k = (cx.tensor(array.shape, name=n) for n, array in inputs.items())
    ours(q @ k.mT * 0.25).output("y")
    near(one_kernel(cx, inputs, 10 * sizes[1] * sizes[2])["y"], theirs(scores_of(inputs)))


def test_a_sink_and_two_consumers_share_the_scores() -> None:
    inputs = operands(2, 200, 300)
    cx = lm.Graph()
    q, k, v = (cx.tensor(array.shape, name=n) for n, array in inputs.items())
    scores = q @ k.mT * 0.25
    e = (scores - scores.amax(-1, keepdim=True).maximum(1.5)).exp()
    sink = (1.5 - scores.amax(-1, keepdim=True).maximum(1.5)).exp()
    ((e @ v) / (e.sum(-1, keepdim=True) + sink)).output("sunk")
    ((scores * 2).softmax(-1) @ v).output("sharp")
    found = one_kernel(cx, inputs, 2 * 200 * 300)
    s, values = scores_of(inputs), inputs["v"].astype(np.float64)
    sunk = np.exp(s) @ values / (np.exp(s).sum(-1, keepdims=True) + np.exp(1.5))
    near(found["sunk"], sunk)
    near(found["sharp"], softmax(s * 2) @ values)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_operands_of_16_bits(dtype: str) -> None:
    """Blocks are float32: only what the program rounds is rounded."""
    inputs = operands(2, 130, 260)
    cx = lm.Graph()
    q, k, v = (
        cx.tensor(array.shape, name=n).cast(dtype).cast("float32") for n, array in inputs.items()
    )
    ((q @ k.mT * 0.25).relu() @ v).output("y")
    wanted = lm.compile(cx, backend="reference")(inputs)["y"]
    near(one_kernel(cx, inputs, 2 * 130 * 260)["y"], wanted.astype(np.float64))
    cx = lm.Graph()
    halves = [cx.tensor(array.shape, name=n, dtype=dtype) for n, array in inputs.items()]
    ((halves[0] @ halves[1].mT).relu() @ halves[2]).output("y")
    assert len(lm.compile(cx).report().kernels) == 1


def test_a_layer_whose_inner_block_stays_in_a_cache() -> None:
    """Its factors are given; weights have products of their own (tests/unit/selection)."""
    rng = np.random.default_rng(5)
    shapes = {"x": (257, 96), "up": (96, 300), "down": (300, 80)}
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    cx = lm.Graph()
    x, up, down = (cx.tensor(shape, name=name) for name, shape in shapes.items())
    ((x @ up).relu() @ down).output("y")
    exe = lm.compile(cx)
    found = np.asarray(exe(arrays)["y"])
    assert len(exe.report().kernels) == 1
    assert exe.memory_report().arena_bytes == 0
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    near(found, np.maximum(exact["x"] @ exact["up"], 0) @ exact["down"])


@pytest.mark.parametrize("name", ["relu", "silu", "log-softmax"])
def test_what_is_no_number_stays_none(name: str) -> None:
    inputs = operands(2, 70, 150)
    inputs["q"][0, 3, 2] = np.nan
    inputs["k"][0, 5, 1] = np.inf
    inputs["v"][1, 7, 3] = -np.inf
    cx = lm.Graph()
    q, k, v = (cx.tensor(array.shape, name=n) for n, array in inputs.items())
    (MAPS[name][0](q @ k.mT * 0.25) @ v).output("y")
    wanted = lm.compile(cx, backend="reference")(inputs)["y"]
    found = one_kernel(cx, inputs, 10 * 70 * 150)["y"]
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    numbers = np.isfinite(wanted)
    near(found[numbers], wanted[numbers])


@pytest.mark.parametrize("first", [0, 4])
def test_blocks_that_a_mask_rules_out_are_not_visited(first: int) -> None:
    """Nor those between a window and the first few."""
    inputs = operands(1, 900, 900)
    for name in "kv":
        inputs[name][:, 300:600] = np.nan
    cx = lm.Graph()
    q, k, v = (cx.tensor(array.shape, name=n) for n, array in inputs.items())
    i, j = cx.arange(900).reshape(900, 1), cx.arange(900).reshape(1, 900)
    seen = (j <= i) & ((j > i - 30) | (j < first))
    (lm.where(seen, q @ k.mT, -np.inf).softmax(-1) @ v).output("y")
    found = one_kernel(cx, inputs, 900 * 900)["y"][0]
    clear = [*range(200), *range(890, 900)]  # no block of 256 from 0, nor their windows', has NaN
    assert np.isfinite(found[clear]).all()


def test_where_greatest_takes_the_first_of_equals_and_the_first_that_is_no_number() -> None:
    inputs = operands(1, 40, 700)
    del inputs["v"]
    inputs["k"][0, 300:] = inputs["k"][0, :400]
    inputs["k"][0, 123, 0] = inputs["k"][0, 650, 0] = np.nan
    inputs["q"][0, :20] = 0
    inputs["q"][0, 20:, 0] = 0
    cx = lm.Graph()
    q, k = (cx.tensor(array.shape, name=n) for n, array in inputs.items())
    (q @ k.mT).argmax(-1).output("y")
    scores = inputs["q"] @ np.swapaxes(inputs["k"], -1, -2)
    np.testing.assert_array_equal(one_kernel(cx, inputs, 40 * 7000)["y"], scores.argmax(-1))


def test_what_something_else_needs_or_what_does_not_pay_is_stored() -> None:
    inputs = operands(2, 200, 300)
    cx = lm.Graph()
    q, k, v = (cx.tensor(array.shape, name=n) for n, array in inputs.items())
    weights = (q @ k.mT).relu()
    weights.output("weights")
    (weights @ v).output("y")
    assert len(lm.compile(cx).report().kernels) == 2
    cx = lm.Graph()
    x, w, u = (
        cx.tensor(shape, name=n)
        for n, shape in zip("xwu", ((64, 256), (256, 8), (8, 256)), strict=True)
    )
    ((x @ w).relu() @ u).output("y")
    assert len(lm.compile(cx).report().kernels) == 2


@pytest.mark.parametrize(("rows", "kernels"), [(256, 2), (8192, 1)])
def test_what_caches_hold_is_stored_where_weights_are_read_for_each_block(
    rows: int, kernels: int
) -> None:
    """3 MiB of weights are more than a core's own cache: blocks of 32 rows read them from the last
    one, which would rather hold 1 MiB that is made once. 32 MiB it would not.
    """
    cx = lm.Graph()
    shapes = ((rows, 256), (256, 1024), (1024, 512))
    x, w, u = (cx.tensor(shape, name=n) for n, shape in zip("xwu", shapes, strict=True))
    ((x @ w).relu() @ u).output("y")
    assert len(lower_to_program(cx.graph(), vectors(512, registers=32)).kernels) == kernels
