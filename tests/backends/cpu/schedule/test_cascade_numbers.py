"""One pass over keys against two: NaN, infinities and masks come out alike."""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal.algebra.evaluate import evaluate
from luminal.algebra.lower import lower
from tests.close import close
from tests.term_inputs import inputs_of

Array = np.ndarray[Any, Any]
FEW = np.asarray([np.nan, np.inf, -np.inf, 0, 0, 0], np.float32)


def attention(slope: float, length: Any = 64, low: int = 1) -> lm.Graph:
    """`Sum(t, e/l * v)` with `e = exp(slope * s - max(s))`, s masked by an input."""
    cx = lm.Graph()
    t = cx.dim("t", low, 64) if length is None else length
    q, mask = cx.tensor((8, 16), name="q"), cx.tensor((8, t), name="mask")
    k, v = cx.tensor((t, 16), name="k"), cx.tensor((t, 16), name="v")
    s = q @ k.mT + mask
    e = (s * slope - s.amax(-1, keepdim=True)).exp()
    ((e / e.sum(-1, keepdim=True)) @ v).output("y")
    return cx


def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    x = rng.normal(size=shape) * 0.5
    share = rng.choice((0, 0, 0.01, 0.1))
    return np.where(rng.random(shape) < share, rng.choice(FEW, shape), x).astype(np.float32)


def compare(cx: lm.Graph, exe: lm.Executable, arrays: dict[str, Array]) -> None:
    """A number stays this number, and NaN never becomes one."""
    lowered = lower(cx.graph())
    dims = {"t": arrays["k"].shape[0]}
    (wanted,) = evaluate(lowered, inputs_of(lowered, arrays), dims, wide=True)
    found = np.asarray(exe(arrays)["y"])
    numbers = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(found), numbers)
    close(found[numbers], wanted[numbers], ulp=16)


def test_what_is_no_number_comes_out_as_in_two_passes() -> None:
    cx = attention(1.0, None)
    exe = lm.compile(cx)
    assert len(exe.report().kernels) == 1
    rng = np.random.default_rng(0)
    for _ in range(60):
        t = int(rng.choice((1, 5, 33, 64)))
        arrays = {n: drawn(rng, (m, 16)) for n, m in (("q", 8), ("k", t), ("v", t))}
        masked = rng.random((8, t)) < rng.choice((0, 0.3, 0.9))
        masked[rng.integers(8)] = True
        arrays["mask"] = np.where(masked, -np.inf, 0).astype(np.float32)
        compare(cx, exe, arrays)


def test_no_keys_give_zeros() -> None:
    cx = attention(1.0, None, low=0)
    shapes = {"q": (8, 16), "k": (0, 16), "v": (0, 16), "mask": (8, 0)}
    compare(cx, lm.compile(cx), {n: np.ones(s, np.float32) for n, s in shapes.items()})


def test_exponents_that_an_early_maximum_does_not_bound() -> None:
    """Scores of -400, then 0: at the first maximum, e is exp(200)."""
    cx = attention(0.5, 2048)
    arrays = {n: np.ones(s, np.float32) for n, s in (("q", (8, 16)), ("v", (2048, 16)))}
    arrays["k"] = np.repeat(np.asarray([-25, 0], np.float32), 1024)[:, None] * np.ones(16, "f4")
    arrays["mask"] = np.zeros((8, 2048), np.float32)
    compare(cx, lm.compile(cx), arrays)
