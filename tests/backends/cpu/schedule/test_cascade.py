"""Cascaded reductions: softmax between two products is one pass that never holds the scores."""

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from tests.close import close, close_each
from tests.machines import needs_wide

RNG = np.random.default_rng(7)
HEADS, QUERIES, KEYS, WIDTH = 3, 70, 90, 24


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def operands(queries: int = QUERIES, keys: int = KEYS) -> dict[str, np.ndarray]:
    shapes = {"q": (HEADS, queries, WIDTH), "k": (HEADS, keys, WIDTH), "v": (HEADS, keys, WIDTH)}
    return {name: array(*shape) for name, shape in shapes.items()}


def qkv(cx: lm.Graph, inputs: dict[str, np.ndarray]) -> tuple[lm.Tensor, ...]:
    return tuple(cx.tensor(inputs[name].shape, name=name) for name in "qkv")


def check(
    build: Callable[[lm.Graph], None],
    inputs: dict[str, np.ndarray],
    kernels: int,
    dims: dict[str, int] | None = None,
    **options: str,
) -> None:
    cx = lm.Graph()
    build(cx)
    expected = lm.compile(cx, backend="reference")(inputs, dims=dims)
    exe = lm.compile(cx, **options)
    got = exe(inputs, dims=dims)
    assert len(exe.report().kernels) == kernels
    for name in expected:
        # weights of softmax, whose exponents hold the products' error: 2,000 ulp
        np.testing.assert_allclose(got[name], expected[name], rtol=2e-4, atol=2e-5)


def masked(condition: str) -> Callable[[lm.Graph], None]:
    def build(cx: lm.Graph) -> None:
        q, k, v = qkv(cx, operands())
        i = cx.arange(QUERIES).reshape(QUERIES, 1)
        j = cx.arange(KEYS).reshape(1, KEYS)
        scores = q @ k.transpose(-1, -2) * 0.2
        if condition == "causal":
            scores = lm.where(j <= i, scores, -np.inf)
        if condition == "window":
            scores = lm.where((j <= i) & (j > i - 20), scores, -np.inf)
        if condition == "capped":
            scores = (scores / 5).tanh() * 5
        (scores.softmax(-1) @ v).output("y")

    return build


@pytest.mark.parametrize("condition", ["none", "causal", "window", "capped"])
def test_one_kernel_that_never_holds_the_scores(condition: str) -> None:
    check(masked(condition), operands(), kernels=1)


def test_rows_masked_infinite_and_nan_are_as_in_two_passes() -> None:
    bias = array(QUERIES, KEYS)
    bias[1] = -np.inf  # nothing to see
    bias[2, :80], bias[2, 80:] = -np.inf, -200  # the first blocks masked, all scores low
    bias[3] -= 300  # below what exp2 of the raw score can hold
    bias[4, 5] = np.inf
    bias[5, 70] = np.nan

    def build(cx: lm.Graph) -> None:
        q, k, v = qkv(cx, operands())
        scores = q @ k.transpose(-1, -2) + cx.tensor(bias.shape, name="bias")
        (scores.softmax(-1) @ v).output("y")

    check(build, {**operands(), "bias": bias}, kernels=1)


@pytest.mark.parametrize(("new", "past"), [(1, 20), (7, 0), (64, 64), (100, 37)])
def test_grouped_heads_over_a_cache_of_dynamic_length(new: int, past: int) -> None:
    def build(cx: lm.Graph) -> None:
        s, p = cx.dim("s", 1, 300), cx.dim("past", 0, 200)
        cx.require(p + s <= 300)
        q = cx.tensor((s, 8, 16), name="q").transpose(0, 1).reshape(2, 4, s, 16)
        t = p + s
        k, v = (
            cx.tensor((300, 2, 16), name=name)[:t].transpose(0, 1).reshape(2, 1, t, 16)
            for name in "kv"
        )
        scores = q @ k.expand(2, 4, t, 16).transpose(-1, -2) * 0.25
        seen = cx.arange(s).reshape(s, 1) + p >= cx.arange(t).reshape(1, t)
        y = lm.where(seen, scores, -np.inf).softmax(-1) @ v.expand(2, 4, t, 16)
        y.reshape(8, s, 16).transpose(0, 1).reshape(s, 128).output("y")

    inputs = {"q": array(new, 8, 16), "k": array(300, 2, 16), "v": array(300, 2, 16)}
    check(build, inputs, kernels=1, dims={"past": past})


def test_log_sum_exp_of_scores() -> None:
    def build(cx: lm.Graph) -> None:
        q, k, _ = qkv(cx, operands())
        (q @ k.transpose(-1, -2)).logsumexp(-1).output("y")

    inputs = operands()
    del inputs["v"]
    check(build, inputs, kernels=1)


def test_log_sum_exp_is_a_second_root_of_the_same_kernel() -> None:
    bias = array(QUERIES, KEYS)
    bias[1] = -np.inf

    def build(cx: lm.Graph) -> None:
        q, k, v = qkv(cx, operands())
        scores = q @ k.transpose(-1, -2) + cx.tensor(bias.shape, name="bias")
        scores.logsumexp(-1).output("log_sum_exp")
        (scores.softmax(-1) @ v).output("y")

    check(build, {**operands(), "bias": bias}, kernels=1)


@pytest.mark.parametrize("keys", [90, 64, 300])
@pytest.mark.parametrize("name", ["softmax", "causal", "relu"])
def test_values_that_lie_along_the_keys(name: str, keys: int) -> None:
    """A block of them is turned in scratch."""
    inputs = operands(QUERIES, keys)
    inputs["v"] = np.ascontiguousarray(inputs["v"].swapaxes(1, 2))

    def build(cx: lm.Graph) -> None:
        q, k, v = qkv(cx, inputs)
        scores = q @ k.transpose(-1, -2) * 0.2
        if name == "causal":
            i, j = cx.arange(QUERIES).reshape(QUERIES, 1), cx.arange(keys).reshape(1, keys)
            scores = lm.where(j <= i, scores, -np.inf)
        weights = scores.relu() if name == "relu" else scores.softmax(-1)
        (weights @ v.transpose(-1, -2)).output("y")

    check(build, inputs, kernels=1)


def test_scores_that_something_else_needs_are_stored() -> None:
    def build(cx: lm.Graph) -> None:
        q, k, v = qkv(cx, operands())
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        weights.output("weights")
        (weights @ v).output("y")

    check(build, operands(), kernels=3)


def test_exact_numerics_keep_the_two_passes() -> None:
    check(masked("none"), operands(), kernels=3, numerics="exact")


def test_memory_does_not_grow_with_the_scores() -> None:
    length = 1024

    def build(cx: lm.Graph) -> None:
        q, k, v = qkv(cx, operands(length, length))
        (((q * 0.2) @ k.transpose(-1, -2)).softmax(-1) @ v).output("y")

    cx = lm.Graph()
    build(cx)
    exe = lm.compile(cx)
    exe(operands(length, length))
    memory = exe.memory_report()
    assert memory.arena_bytes <= HEADS * length * WIDTH * 4
    assert memory.scratch_bytes < 1 << 20


@needs_wide
@pytest.mark.parametrize("length", [1024, 16384])
def test_statistics_of_long_rows_do_not_store_them(length: int) -> None:
    """Contractions that are done in each sweep anew, where they are too many to keep."""
    cx = lm.Graph()
    q, k = (cx.tensor((8, length, 64), name=name) for name in "qk")
    (q @ k.mT).argmax(-1).output("y")
    exe = lm.compile(cx)
    assert len(exe.report().kernels) == 1
    assert exe.memory_report().scratch_bytes < 1 << 22


SECOND_SWEEPS: dict[str, Callable[[lm.Tensor], lm.Tensor]] = {
    "where greatest": lambda s: s.argmax(-1),
    "how often greatest": lambda s: s.eq(s.amax(-1, keepdim=True)).sum(-1),
    "distance": lambda s: (s.amax(-1, keepdim=True) - s).square().sum(-1),
}


@pytest.mark.parametrize("queries", [(), (3,)])
@pytest.mark.parametrize("name", SECOND_SWEEPS)
def test_stored_scores_are_walked_once_in_a_pass(name: str, queries: tuple[int, ...]) -> None:
    """What waits for the greatest is computed by others, whatever is recorded before it."""
    inputs = {"s": array(*queries, 40), "v": array(40, 16)}
    cx = lm.Graph()
    s, v = (cx.tensor(x.shape, name=n) for n, x in inputs.items())
    SECOND_SWEEPS[name](s).output("second")
    (s.softmax(-1) @ v).output("y")
    got, expected = (lm.compile(cx, device)(inputs) for device in ("cpu", "reference"))
    close_each(got["second"], expected["second"])
    close(got["y"], expected["y"], ulp=8)
