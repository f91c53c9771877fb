"""Random data from the default generator: kinds, shapes, seeds; and seeds that are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn


@pytest.fixture(autouse=True)
def _seeds_of_a_new_process(new_default_graph: None) -> Iterator[None]:
    lm.manual_seed(0)
    yield
    lm.manual_seed(0)


KINDS: dict[str, tuple[Callable[[], lm.Tensor], str, Callable[[np.ndarray], bool]]] = {
    # how it is drawn, its dtype, and what holds of the 3000 numbers
    "rand": (lambda: lm.rand(30, 100), "float32", lambda x: _uniform(x, 0, 1, 1)),
    "rand f64": (
        lambda: lm.rand((30, 100), dtype="f64"),
        "float64",
        lambda x: _uniform(x, 0, 1, 1),
    ),
    "randn": (lambda: lm.randn(30, 100), "float32", lambda x: _normal(x)),
    "randn bf16": (lambda: lm.randn([30, 100], dtype="bf16"), "bfloat16", lambda x: _normal(x)),
    "randint": (lambda: lm.randint(-5, 15, (30, 100)), "int64", lambda x: _uniform(x, -5, 15, 20)),
    "randint of high": (lambda: lm.randint(9, (30, 100)), "int64", lambda x: _uniform(x, 0, 9, 9)),
    "randint u8": (
        lambda: lm.randint(0, 256, (30, 100), dtype="u8"),
        "uint8",
        lambda x: _uniform(x, 0, 256, 256),
    ),
    "randperm": (
        lambda: lm.randperm(3000).reshape(30, 100),
        "int64",
        lambda x: sorted(x.ravel()) == [*range(3000)] and _uniform(x, 0, 3000, 3000),
    ),
    "rand_like": (
        lambda: lm.rand_like(lm.zeros(30, 100)),
        "float32",
        lambda x: _uniform(x, 0, 1, 1),
    ),
    "randn_like": (lambda: lm.randn_like(lm.zeros(30, 100)), "float32", lambda x: _normal(x)),
    "randint_like": (
        lambda: lm.randint_like(lm.zeros(30, 100, dtype=lm.int8), -3, 3),
        "int8",
        lambda x: _uniform(x, -3, 3, 6),
    ),
}


def _uniform(x: np.ndarray, low: float, high: float, values: int) -> bool:
    """Mean and variance within five standard errors, no value outside."""
    wide, span = x.astype(np.float64), high - low
    step = span / values if values > 1 else 0
    mean, variance = (low + high - step) / 2, (span**2 - step**2) / 12
    error = 5 * np.sqrt(variance / x.size)
    inside = low <= wide.min() and wide.max() < high
    return bool(inside and abs(wide.mean() - mean) < error and abs(wide.var() / variance - 1) < 0.1)


def _normal(x: np.ndarray) -> bool:
    wide = x.astype(np.float64)
    return bool(abs(wide.mean()) < 0.1 and abs(wide.std() - 1) < 0.1 and 3 < abs(wide).max() < 6)


@pytest.mark.parametrize("name", KINDS)
def test_numbers_follow_the_seed_and_their_distribution(name: str) -> None:
    make, dtype, holds = KINDS[name]
    first, second = make(), make()
    assert first.dtype.name == dtype
    assert first.shape == (30, 100)
    assert holds(first.numpy())
    assert not np.array_equal(first.numpy(), second.numpy())
    lm.manual_seed(0)
    assert np.array_equal(make().numpy(), first.numpy())
    lm.manual_seed(1)
    assert not np.array_equal(make().numpy(), first.numpy())
    assert lm.initial_seed() == 1


def test_drawn_numbers_are_data() -> None:
    before = lm.compile_count()
    x = lm.randn(2, 3)
    x.numpy()
    assert lm.compile_count() == before
    y = x * 1
    assert np.array_equal(y.numpy(), y.numpy())
    cx = lm.Graph()
    with lm.recording(cx):
        lm.rand(4).output("r")
    exe = lm.compile(cx, backend="reference")
    assert np.array_equal(exe()["r"], exe()["r"])
    assert lm.rand().shape == lm.randn(()).shape == ()
    assert lm.rand(0, 3).shape == (0, 3)


def test_one_seed_decides_layers_and_data() -> None:
    def made() -> list[Any]:
        lm.manual_seed(3)
        layer = nn.Linear(2, 2)
        return [layer.weight.numpy(), lm.rand(2).numpy(), nn.Linear(2, 2).weight.numpy()]

    for a, b in zip(made(), made(), strict=True):
        np.testing.assert_array_equal(a, b)
    lm.manual_seed(3)
    lm.rand(100)
    np.testing.assert_array_equal(nn.Linear(2, 2).weight.numpy(), made()[0])


def test_jit_refuses_numbers_that_would_stay_the_same() -> None:
    for make in (lm.rand, lm.randn, lambda n: lm.randint(5, (n,)), lm.randperm):
        f = lm.jit(lambda x, make: x + make(2), static="make")
        with pytest.raises(lm.GraphError, match="while jit records <lambda>, numbers that are dr"):
            f(np.ones(2, np.float32), make)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: lm.rand("s"), lm.ShapeError, "rand: 's' is no extent; .* there is lm.random"),
        (lambda: lm.randn(-1), lm.ShapeError, "randn: -1 is no extent"),
        (lambda: lm.randn(2.0), lm.ShapeError, r"randn: 2\.0 is no extent"),
        (lambda: lm.randperm(-1), lm.ShapeError, "randperm: -1 is no extent"),
        (lambda: lm.randn(2, dtype=int), lm.DTypeError, "randn: int64 is no float; use randint"),
        (lambda: lm.randint(5, 5, (2,)), lm.DTypeError, r"randint: 5\.\.5 \(high excl.*int64"),
        (lambda: lm.randint(0, 300, (2,), dtype="u8"), lm.DTypeError, "no interval of uint8"),
        (lambda: lm.randint(0, 3, (2,), dtype=bool), lm.DTypeError, "no interval of bool"),
        (lambda: lm.randint(3), lm.ShapeError, r"randint: takes \(high, size\) or"),
    ],
)
def test_what_cannot_be_drawn(make: Callable[[], Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize("seed", [None, -1, 1.5, "0", True])
def test_what_is_no_seed_is_refused_by_name(seed: Any) -> None:
    for take in (lm.manual_seed, nn.init.manual_seed, nn.Linear(2, 2).initialize):
        with pytest.raises(lm.InputError, match=f"seed={seed!r} is (no int|negative); give an"):
            take(seed)
    with pytest.raises(lm.LuminalError, match="seed"):
        lm.SearchOptions(seed=seed)
    if seed != -1:  # keys take any 64 bits
        with pytest.raises(lm.DTypeError, match=r"key: .* is no seed"):
            lm.random.key(seed)


def test_shapes_of_creation_are_written_as_in_pytorch() -> None:
    cx = lm.Graph()
    for make in (cx.zeros, cx.ones, cx.empty, lm.zeros, lm.ones, lm.empty):
        assert make(2, 3).shape == make((2, 3)).shape == make([2, 3]).shape == (2, 3)
        assert make(()).shape == make().shape == ()
        assert make(4).shape == (4,)
        assert make((2,), "int8").dtype is make(2, dtype="int8").dtype is lm.int8
        assert make(2).dtype is lm.float32
    assert cx.zeros("s", 3).shape == (cx.dims["s"], 3)
    with pytest.raises(lm.DTypeError, match="full: two dtypes"):
        cx.zeros((2,), "int8", dtype="int8")
