"""Graphs without a pattern: wide, deep, with shared values and many outputs. They compile to
kernels that never wait for each other, in time that grows with their size.
"""

from __future__ import annotations

import cProfile
import random
from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.lower import lower
from luminal.backends.cpu import backend
from luminal.base.numerics import Numerics
from luminal.compiler.compile import Stages, lower_by_stages
from luminal.program.partition import partition
from luminal.selection.fast import select
from tests.long_share import long_but, mostly_long
from tests.machines import COSTS


def lowered(cx: lm.Graph) -> Stages:
    return lower_by_stages(cx.graph(), backend.current())


def elementwise(draw: random.Random, tensors: list[lm.Tensor]) -> lm.Tensor:
    a, b = draw.sample(tensors, 2)
    return draw.choice((a + b, a * b, a - b, lm.maximum(a, b), a.exp()))


def mixed(draw: random.Random, tensors: list[lm.Tensor]) -> lm.Tensor:
    a, b = draw.sample(tensors, 2)
    kind = draw.random()
    if kind < 0.1:
        return a @ b
    if kind < 0.2:
        return a.softmax(draw.choice((0, 1)))
    if kind < 0.3:
        return b + a.sum(-1, keepdim=True)
    return elementwise(draw, tensors)


def dag(
    seed: int,
    ops: int,
    outputs: int | None,
    step: Callable[[random.Random, list[lm.Tensor]], lm.Tensor],
) -> lm.Graph:
    """Every op takes any two of the values so far; all that nobody reads is an output, or some."""
    draw, cx = random.Random(seed), lm.Graph()
    shape = (16, 16)
    tensors = [cx.tensor(shape, name=f"x{k}") for k in range(4)]
    tensors += [cx.weight(shape, name=f"w{k}") for k in range(2)]
    for _ in range(ops):
        tensors.append(step(draw, tensors))
    ends = tensors[6:] if outputs is None else draw.sample(tensors[6:], outputs)
    for k, tensor in enumerate(ends):
        tensor.output(f"y{k}")
    return cx


def test_values_that_wait_for_each_other_are_not_merged() -> None:
    cx = lm.Graph()
    a, b, c, d, e = (cx.tensor((3, 4), name=name) for name in "abcde")
    s = a + b
    p = a.softmax(-1) + s
    q = e * c
    (p + d).output("1")
    (e + q * s).output("2")
    (p + q).output("3")
    lowered(cx)


@pytest.mark.parametrize("seed", range(12))
def test_many_outputs_of_an_elementwise_graph(seed: int) -> None:
    graph = dag(seed, 100, 20, elementwise).graph()
    partition(graph, select(lower(graph), COSTS))


@pytest.mark.parametrize("seed", range(6))
def test_many_outputs_of_a_mixed_graph(seed: int) -> None:
    lowered(dag(seed, 150, 30, mixed))


def test_states_that_update_each_other_do_not_wait_in_a_circle() -> None:
    cx = lm.Graph()
    states = [lm.State((8, 4), lm.float32, name=f"s{k}") for k in range(3)]
    olds = [cx.read(state) for state in states]
    row = cx.tensor((1,), lm.int64, name="row")
    for k, state in enumerate(states):  # each one scatters what another one held
        cx.assign(state, olds[k].index_copy(0, row, olds[(k + 1) % 3][:1] * 2.0))
    exe = lm.compile(cx)
    held = [np.random.default_rng(k).standard_normal((8, 4), np.float32) for k in range(3)]
    for state, array in zip(states, held, strict=True):
        state.set(array)
    exe({"row": np.array([5])})
    for k, state in enumerate(states):
        held_now = held[k].copy()
        held_now[5] = held[(k + 1) % 3][0] * 2
        np.testing.assert_array_equal(state.numpy(), held_now)


@pytest.mark.parametrize("is_first", [True, False], ids=["output first", "state first"])
def test_a_state_is_updated_once_though_a_wider_output_is_made_with_it(is_first: bool) -> None:
    cx = lm.Graph()
    state = lm.State((2, 3), lm.float32, np.arange(6, dtype=np.float32).reshape(2, 3))
    new = cx.read(state) + 1
    if not is_first:
        cx.assign(state, new)
    new.cast(lm.float64).expand(2, 2, 3).output("y")
    if is_first:
        cx.assign(state, new)
    y = lm.compile(cx)({})["y"]
    wanted = np.arange(1, 7).reshape(2, 3)
    np.testing.assert_array_equal(y, np.stack([wanted, wanted]))
    np.testing.assert_array_equal(state.numpy(), wanted)


def calls(run: Callable[[], object]) -> int:
    """Python calls: the same on every machine, busy or not."""
    profile = cProfile.Profile(builtins=True)
    profile.runcall(run)
    return sum(row.callcount for row in profile.getstats())


def test_work_grows_with_the_size_of_a_graph() -> None:
    counts = [calls(lambda n=n: lowered(dag(1, n, n // 50, mixed))) for n in (200, 600)]
    assert counts[1] < 4 * counts[0], counts


Deep = Callable[[int, lm.Tensor, lm.Tensor], lm.Tensor]
DEPTH = 1300  # beyond Python's limit of 1,000 frames
DEEP: dict[str, Deep] = {
    "sum in an exponent": lambda k, y, x: y + x[k % 8],
    "product under a sum": lambda k, y, x: y * x[k % 8],
    "comparisons": lambda k, y, x: lm.where(y > x[k % 8], y, x[k % 7]),
    "maxima": lambda k, y, x: lm.maximum(y, x[k % 8]),
    "moved": lambda k, y, x: y.flip(0) + x[k % 8],
    "parts": lambda k, y, x: lm.cat([y[:4], x[k % 8, 4:]]),
    "rounded": lambda k, y, x: (y + x[k % 8]).to(lm.bfloat16).to(lm.float32),
    "sums": lambda k, y, x: y + (y * x[k % 8]).sum(),
    "weights": lambda k, y, x: y * (x[k % 8] + 0.25 * k),
}


@pytest.mark.parametrize("numerics", mostly_long(["standard", "exact"], 1))
@pytest.mark.parametrize(
    "name", long_but(DEEP, ("comparisons", "weights", "sums", "product under a sum"))
)
def test_depth_is_no_limit(name: str, numerics: str) -> None:
    cx = lm.Graph()
    x = cx.weight((8, 8), name="x") if name == "weights" else cx.tensor((8, 8), name="x")
    y = cx.tensor((8,), name="y")
    draw = random.Random(0)
    for _ in range(DEPTH):  # no period: layers that repeat would become one Loop
        y = DEEP[name](draw.randrange(56), y, x)
    y.output("y")
    (y * cx.tensor((8, 8), name="v")).sum(0).output("sum")
    lower_by_stages(cx.graph(), backend.current(), Numerics(numerics))


@pytest.mark.parametrize("numerics", mostly_long(["standard", "exact"], 1))
def test_depth_is_no_limit_of_an_exponent(numerics: str) -> None:
    cx = lm.Graph()
    v = cx.tensor((8, 8), name="v")
    scores = v @ v
    exponent = scores - scores.amax(-1, keepdim=True)
    for k in range(DEPTH):
        exponent = exponent + v[k % 8] * (1 + k % 7)
    (exponent.exp() @ v).output("in one pass")
    lower_by_stages(cx.graph(), backend.current(), Numerics(numerics))


def test_a_square_of_squares_is_not_written_out() -> None:
    cx = lm.Graph()
    y = cx.tensor((8, 8), name="x")
    for _ in range(70):
        y = y * y
    ((y - y.amax(-1, keepdim=True)).exp() @ y).output("y")
    (y.sum() + (y / y.sum(-1, keepdim=True)).sum(-1)).output("z")
    lowered(cx)


def test_scores_that_are_alike_along_an_axis() -> None:
    cx = lm.Graph()
    y = cx.tensor((1, 6), name="x").repeat_interleave(2, -2)
    ((y @ y.mT).softmax(-1) @ y).output("y")
    lowered(cx)
