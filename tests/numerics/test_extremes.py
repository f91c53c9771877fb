"""The greatest and least of floats: NaN of either sign, zeros of both, infinities, any length."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm

Array = np.ndarray[Any, Any]
SHAPES = (
    (1,),
    (2,),
    (17,),
    (1003,),
    (70_001,),
    (3, 5),
    (64, 129),
    (129, 64),
    (700, 33),
    (1500, 64),
)
DTYPES = ("float32", "float64", "float16", "bfloat16")


def greatest(x: Array, axis: int | None) -> Array:
    """NaN if there is one, and +0 over -0: by the order of the pairs (value, is not -0)."""
    wide = x.astype(np.float64)
    best = wide.max(axis, keepdims=True)
    positive = ((wide == best) & ~np.signbit(wide)).any(axis, keepdims=True)
    signed = np.where(best == 0, np.where(positive, 0.0, -0.0), best)
    return np.asarray(signed.reshape(wide.max(axis).shape))


def same(found: Array, wanted: Array) -> bool:
    found = np.asarray(found).astype(np.float64)
    is_nan = np.isnan(wanted)
    signs = (np.signbit(found) == np.signbit(wanted)) | is_nan
    return bool(np.array_equal(found, wanted, equal_nan=True) and signs.all())


def samples(shape: tuple[int, ...], dtype: str) -> dict[str, Array]:
    """Arrays by what is special about them."""
    rng = np.random.default_rng([*shape, DTYPES.index(dtype)])
    numpy = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    x = rng.standard_normal(shape).astype(numpy)
    bits = np.dtype(f"u{numpy.itemsize}")
    negative_nan = (
        np.full(shape, np.nan, numpy).view(bits) | bits.type(1 << 8 * numpy.itemsize - 1)
    ).view(numpy)
    rare = rng.random(shape) < 2 / x.shape[0]
    zeros = np.where(rng.random(shape) < 0.5, numpy.type(0), numpy.type(-0.0))
    return {
        "any": x,
        "negative": -abs(x),
        "positive": abs(x),
        "-0": np.full(shape, -0.0, numpy),
        "few +0": np.where(rare, numpy.type(0), numpy.type(-0.0)),
        "zeros": zeros,
        "negative and zeros": np.where(rare, zeros, -abs(x)),
        "-inf": np.full(shape, -np.inf, numpy),
        "inf": np.where(rare, numpy.type(np.inf), x),
        "nan": np.where(rare, numpy.type(np.nan), x),
        "-nan": np.where(rare, negative_nan, x),
        "-nan of negative": np.where(rare, negative_nan, -abs(x)),
        "all -nan": negative_nan,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_greatest_and_least(shape: tuple[int, ...], dtype: str) -> None:
    graph = lm.Graph()
    x = graph.tensor(shape, dtype, "x")
    axes = [None, *range(len(shape))] if len(shape) > 1 else [None]
    for axis in axes:
        graph.output(x.amax(axis), f"most {axis}")
        graph.output(x.amin(axis), f"least {axis}")
    program = lm.compile(graph)
    for name, values in samples(shape, dtype).items():
        found = program({"x": values})
        for axis in axes:
            assert same(found[f"most {axis}"], greatest(values, axis)), (name, axis)
            assert same(found[f"least {axis}"], -greatest(-values, axis)), (name, axis)


@pytest.mark.parametrize("dims", [1, 2, 3, 63, 65, 1000])
def test_any_number_of_rows(dims: int) -> None:
    graph = lm.Graph()
    x = graph.tensor(("n", 48), "float32", "x")
    graph.output(x.exp().sub(2).amax(1), "rows")
    program = lm.compile(graph)
    values = np.random.default_rng(dims).standard_normal((dims, 48), np.float32)
    values[-1, 7] = -np.nan
    found = program({"x": values})["rows"]
    wanted = np.exp(values.astype(np.float64)).max(1) - 2
    # exp is right to an ulp of what is up to 40, and 2 is taken from it
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
