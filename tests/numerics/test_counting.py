"""Counts of values, common divisors, and what is drawn by weights: against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import DTypeError, InputError, LuminalError, ShapeError
from luminal.frontend.graph import Recorder
from tests.numerics.batch import BACKENDS, Case, check
from tests.numerics.recording import run

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)
NAN, INF = np.nan, np.inf
BF16 = np.dtype(ml_dtypes.bfloat16)


def normal(*shape: int) -> Array:
    return rng.normal(0, 1, shape).astype(np.float32)


def same(name: str, *arrays: Array, **options: Any) -> Case:
    """A function that torch has too, with the same arguments."""
    ours, theirs = getattr(lm, name), getattr(torch, name)
    label = f"{name}{[a.shape for a in arrays]}{arrays[0].dtype}{options}"
    return Case(label, lambda *x: ours(*x, **options), lambda *x: theirs(*x, **options), arrays)


# --- divisors -------------------------------------------------------------------------------------


def pairs(dtype: str) -> tuple[Array, Array]:
    """Integers of every size, zeros, ends, and Fibonacci's, which take the most steps."""
    limits = np.iinfo(dtype)
    fibonacci = [1, 1]
    while fibonacci[-1] + fibonacci[-2] <= limits.max:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    some = rng.integers(limits.min + 1, limits.max, 40, endpoint=True, dtype=dtype)
    small = rng.integers(0, 100, 40).astype(dtype)
    ends = np.array([0, 0, limits.max, limits.max, 12], dtype)
    others = np.array([0, limits.max, limits.max, 1, limits.max], dtype)
    first = np.concatenate([some, small, ends, np.array(fibonacci[1:], dtype)])
    second = np.concatenate([small, some[::-1], others, np.array(fibonacci[:-1], dtype)])
    return first, second


DIVISORS = [
    same(name, *pairs(dtype))
    for name in ("gcd", "lcm")
    for dtype in ("int8", "int16", "int32", "int64", "uint8")
]
DIVISORS += [
    same("gcd", np.arange(-6, 6).reshape(3, 4), np.array([4, -6, 0, 9])),
    same("lcm", np.arange(-6, 6).reshape(3, 4), np.array(6)),
    same("gcd", np.zeros((0, 3), np.int64), np.array(6)),
    Case("gcd of dtypes", lambda x, y: x.gcd(y), torch.gcd, [np.arange(9, dtype=np.int8)] * 2),
    Case("gcd by a number", lambda x: [x.gcd(6), x.lcm(4), lm.gcd(6, x)],
         lambda x: [x.gcd(torch.tensor(6)), x.lcm(torch.tensor(4)), torch.gcd(torch.tensor(6), x)],
         [np.arange(-9, 9)]),
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_divisors_like_torch(backend: str) -> None:
    check(DIVISORS, backend)


def test_divisors_of_the_least_and_of_unsigned_integers() -> None:
    least = np.array([-(2**63), -(2**63), 6], np.int64)
    others = np.array([6, -(2**63), -(2**63)], np.int64)
    assert run(lambda x, y: x.gcd(y), least, others).tolist() == [2, -(2**63), 2]  # 2**63 wraps
    wide = np.array([2**63, 2**64 - 2, 5], np.uint64)
    found = run(lambda x, y: [x.gcd(y), x.lcm(y)], wide, np.array([6, 4, 7], np.uint64))
    assert found[0].tolist() == [2, 2, 1]
    assert found[1].tolist() == [3 * 2**63 % 2**64, (2**64 - 2) * 2 % 2**64, 35]


# --- counts ---------------------------------------------------------------------------------------

SEEN = np.array([3, 1, 1, 0, 7, 3, 1], np.int64)
MANY = np.concatenate([normal(200) * 3, [NAN, INF, -INF, 3, -3, 0, 1.5]]).astype(np.float32)
FINITE = normal(4, 50)
EDGES = np.array([-2, -0.5, 0, 0.25, 3], np.float32)


def histogram(*options: Any, **named: Any) -> Case:
    return Case(f"histogram{options}{sorted(named)}", lambda x: lm.histogram(x, *options, **named),
                lambda x: torch.histogram(x, *options, **named), [FINITE])  # fmt: skip


COUNTS = [
    same("histc", MANY, bins=7, min=-3, max=3),
    same("histc", MANY, bins=1, min=-3, max=1.5),
    same("histc", FINITE, bins=10),
    same("histc", FINITE.astype(np.float64), bins=100),
    same("histc", np.full(5, 2, np.float32), bins=4),
    same("histc", np.arange(5, dtype=np.float32), bins=4, min=2, max=2),
    same("histc", np.zeros((0,), np.float32), bins=4),
    same("histc", np.float32(1.5), bins=3),
    histogram(5),
    histogram(8, range=(-1.0, 2.0)),
    histogram(8, range=(1.0, 1.0)),
    histogram(6, density=True),
    Case("histogram edges", lm.histogram, torch.histogram, [FINITE, EDGES]),
    Case("histogram weights", lambda x, e, w: lm.histogram(x, e, weight=w, density=True),
         lambda x, e, w: torch.histogram(x, e, weight=w, density=True), [FINITE, EDGES, FINITE**2]),
    Case("histogram of nothing", lambda x: lm.histogram(x, 4), lambda x: torch.histogram(x, 4),
         [np.zeros((0,), np.float32)]),
    Case("histogram of nan", lambda x, e: lm.histogram(x, e), torch.histogram, [MANY, EDGES]),
    Case("bincount", lambda x: x.bincount(size=8), torch.bincount, [SEEN]),
    Case("bincount int8", lambda x: x.bincount(size=8), torch.bincount, [SEEN.astype(np.int8)]),
    Case("bincount minlength", lambda x: x.bincount(minlength=12, size=8),
         lambda x: x.bincount(minlength=12), [SEEN]),
    Case("bincount weights", lambda x, w: x.bincount(w, size=8), torch.bincount, [SEEN, normal(7)]),
    Case("bincount int weights", lambda x, w: x.bincount(w, size=8), torch.bincount, [SEEN, SEEN]),
    Case("bincount of a constant", lambda x: x.graph.constant(SEEN).bincount(), torch.bincount,
         [SEEN]),
    Case("bincount of nothing", lambda x: x.graph.constant(SEEN[:0]).bincount(minlength=3),
         lambda x: x[:0].bincount(minlength=3), [SEEN]),
    Case("isin", lm.isin, torch.isin, [SEEN.reshape(7, 1), np.array([1, 7])]),
    Case("isin inverted", lambda x: lm.isin(x, [[1.0, 7.0]], invert=True),
         lambda x: torch.isin(x, torch.tensor([1.0, 7.0]), invert=True), [SEEN]),
    Case("combinations", lambda x: lm.combinations(x, 3), lambda x: torch.combinations(x, 3),
         [SEEN[:5]]),
    same("combinations", SEEN[:4], r=2, with_replacement=True),
    same("combinations", SEEN[:4], r=0), same("combinations", SEEN[:2], r=3),
    Case("pdist", lm.nn.functional.pdist, torch.nn.functional.pdist, [normal(5, 3)]),
    Case("sum_to_size", lambda x: x.sum_to_size(4, 1), lambda x: x.sum_to_size(4, 1), [FINITE]),
    Case("sum_to_size of int8", lambda x: [x.sum_to_size(3), x.sum_to_size(2, 3)],
         lambda x: [x.sum_to_size(3), x.sum_to_size(2, 3)],
         [np.arange(6, dtype=np.int8).reshape(2, 3)]),
    Case("as_strided_scatter", lambda x, y: x.as_strided_scatter(y, (2, 3), (4, 1), 1),
         lambda x, y: x.as_strided_scatter(y, (2, 3), (4, 1), 1), [normal(3, 4), normal(2, 3)]),
    Case("renorm", lambda x: x.renorm(2, 0, 3), lambda x: x.renorm(2, 0, 3), [FINITE]),
    Case("angle", lambda x: x.angle(), torch.angle,
         [np.array([-1, 0, -0.0, 2, NAN, INF, -INF], np.float32)]),
    Case("split_with_sizes", lambda x: x.split_with_sizes([1, 3], 0),
         lambda x: x.split_with_sizes([1, 3], 0), [FINITE]),
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_counts_like_torch(backend: str) -> None:
    check(COUNTS, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_counts_over_dims(backend: str) -> None:
    cx = lm.Graph()
    n, m = cx.dim("n", 0), cx.dim("m", 0)
    x, k = cx.tensor((n,), name="x"), cx.tensor((m,), "int32", name="k")
    x.histc(5).output("histc")
    k.bincount(size="size").output("bincount")  # the count itself is a dim
    cx.tensor(("size",), name="sized").sum().output("sum")
    exe = lm.compile(cx, backend=backend)
    for size in (0, 1, 50):
        values, keys = normal(size), rng.integers(0, 6, size).astype(np.int32)
        found = exe({"x": values, "k": keys, "sized": np.zeros(4, np.float32)})
        np.testing.assert_array_equal(found["histc"], torch.histc(torch.from_numpy(values), 5))
        wanted = np.bincount(keys[keys < 4], minlength=4)  # what lies beyond is not counted
        np.testing.assert_array_equal(found["bincount"], wanted)


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (lambda x, k: x.gcd(2.5), DTypeError, "gcd: float32 operands; it takes integers"),
        (lambda x, k: x.bincount(size=3), DTypeError, r"bincount: x0: f32\[3\]; it takes integers"),
        (lambda x, k: k.bincount(), ShapeError, "would decide the shape, .* with size="),
        (lambda x, k: k.bincount(x[:2], size=3), ShapeError, "not one weight for each of x1"),
        (
            lambda x, k: k.graph.constant([1, -2]).bincount(),
            InputError,
            "the element -2 is below 0",
        ),
        (lambda x, k: x.histc(0), ShapeError, "histc: 0 bins; give at least 1"),
        (lambda x, k: x.histc(3, 2, 1), InputError, "histc: 2..1 is no range"),
        (lambda x, k: x.histogram(3, range=(0, INF)), InputError, "histogram: 0..inf is no range"),
        (lambda x, k: x.histogram(x.unsqueeze(0)), ShapeError, "the edges .* are not of one dim"),
        (lambda x, k: lm.combinations(x.unsqueeze(0)), ShapeError, "it takes one dim"),
        (lambda x, k: x.sum_to_size(2), ShapeError, r"sum_to_size: \(2\) does not broadcast"),
        (lambda x, k: lm.pdist(x), ShapeError, r"pdist: x0: f32\[3\]; it takes"),
        (lambda x, k: lm.multinomial(x.reshape(1, 1, 3), 2), ShapeError, "one or two dims"),
    ],
)
def test_errors(fn: Callable[..., object], error: type[LuminalError], text: str) -> None:
    with pytest.raises(error, match=text):
        run(fn, normal(3), np.array([1, 2, 3]))


# --- what is known without a run ------------------------------------------------------------------


def test_questions_about_tensors() -> None:
    cx = Recorder()
    n = cx.dim("n")
    x, k = cx.tensor((2, 3, 4)), cx.tensor((n, 5), "int16")
    t = torch.zeros(2, 3, 4)
    assert x.stride() == t.stride() == (12, 4, 1)
    assert [x.stride(d) for d in (0, -1)] == [t.stride(0), t.stride(-1)]
    assert k.stride() == (5, 1)
    assert k.mT.stride() == (n, 1)
    assert cx.tensor(()).stride() == ()
    assert (x.is_floating_point(), k.is_floating_point()) == (True, False)
    assert [lm.is_floating_point(cx.tensor((1,), d)) for d in ("bfloat16", "bool")] == [True, False]
    assert (x.is_signed(), k.is_signed(), cx.tensor((1,), "uint8").is_signed()) == (1, 1, 0)
    assert (x.is_complex(), x.is_same_size(x + 1), x.is_same_size(k)) == (False, True, False)
    assert (x.nelement(), x.ndimension(), x.element_size(), x.itemsize, x.nbytes) == (
        24,
        3,
        4,
        4,
        96,
    )
    assert lm.is_tensor(x)
    assert not lm.is_tensor(t)
    with pytest.raises(ShapeError, match="stride: dim 3 is out of range"):
        x.stride(3)


def test_equal_compares_whole_tensors() -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    found = run(
        lambda a: [lm.equal(a, a), a.equal(a + 1), a.equal(a[:1]), a.equal(x), lm.eq(a, 2.0)], x
    )
    assert [bool(f.all()) for f in found] == [True, False, False, True, False]
    assert [f.shape for f in found] == [(), (), (), (), (2, 3)]
    cx = Recorder()
    with pytest.raises(ShapeError, match=r"equal: .* may have the same shape or not"):
        cx.tensor(("n",)).equal(cx.tensor(("m",)))
