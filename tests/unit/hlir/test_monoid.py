"""Monoids: what each record says against the meaning of the operations it names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal.base.dtypes import DType, float32
from luminal.hlir.attributes import AxisAttrs, ScanAttrs
from luminal.hlir.monoid import MAXIMUM, MONOIDS, PRODUCT, SUM, Monoid
from luminal.hlir.ops import NUMBERS, OPS
from luminal.hlir.semantics import REDUCED

Array = np.ndarray[Any, Any]
CASES = [
    pytest.param(monoid, dtype, id=f"{monoid.combine}-{dtype}")
    for monoid in MONOIDS
    for dtype in sorted(NUMBERS, key=lambda dtype: dtype.name)
]


def run(op: str, *args: Array, attrs: Any = None) -> Array:
    meaning = REDUCED.get(op) or OPS[op].evaluate
    assert meaning is not None
    return meaning(attrs, {}, args)[0]


def samples(dtype: DType) -> Array:
    """Ends, zeros of both signs, infinities and NaN, and numbers that round when combined."""
    drawn = np.random.default_rng(0).normal(size=40) * 50
    if dtype.is_float:
        special = (0.0, -0.0, np.inf, -np.inf, np.nan, dtype.largest, -dtype.largest, 0.1, 1e-30)
        return np.array((*special, *drawn), dtype.numpy)
    ends = np.iinfo(dtype.numpy)
    return np.array((ends.min, ends.max, 0, 1, *np.abs(drawn).astype(np.int64)), dtype.numpy)


@pytest.mark.parametrize(("monoid", "dtype"), CASES)
def test_a_value_combined_with_the_identity_is_itself(monoid: Monoid, dtype: DType) -> None:
    x = samples(dtype)
    identity = monoid.identity(dtype)
    assert identity.dtype == dtype.numpy
    assert monoid.identity_bytes(dtype) == identity.tobytes()
    for y in (run(monoid.combine, x, np.full_like(x, identity)),
              run(monoid.combine, np.full_like(x, identity), x)):  # fmt: skip
        np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize(("monoid", "dtype"), CASES)
def test_a_reduction_of_nothing_is_the_identity(monoid: Monoid, dtype: DType) -> None:
    nothing = np.zeros((0,), dtype.numpy)
    result = run(monoid.reduction, nothing, attrs=AxisAttrs(0))
    assert result.tobytes() == monoid.identity_bytes(dtype)


@pytest.mark.parametrize(("monoid", "dtype"), CASES)
def test_reductions_and_scans_fold_by_the_operation_that_the_record_names(
    monoid: Monoid, dtype: DType
) -> None:
    x = np.array([3, 1, 7, 2], dtype.numpy)
    folded = [x[0]]
    for value in x[1:]:
        folded.append(run(monoid.combine, folded[-1], value)[()])
    scanned = run("Scan", x, attrs=ScanAttrs(monoid.scan, 0))
    np.testing.assert_array_equal(scanned, folded)
    np.testing.assert_array_equal(run(monoid.reduction, x, attrs=AxisAttrs(0)), folded[-1])


def folds(monoid: Monoid, x: Array, rng: np.random.Generator) -> bytes:
    """Values combined in a drawn order and grouping."""
    left = [x[k] for k in rng.permutation(len(x))]
    while len(left) > 1:
        k = int(rng.integers(len(left) - 1))
        left[k : k + 2] = [run(monoid.combine, left[k], left[k + 1])[()]]
    return bytes(left[0].tobytes())


@pytest.mark.parametrize(("monoid", "dtype"), CASES)
def test_exact_ones_give_the_same_bits_in_any_order(monoid: Monoid, dtype: DType) -> None:
    x = samples(dtype)
    x = x[~np.isnan(x)] if dtype.is_float else x
    finite = x[np.isfinite(x) & (np.abs(x) < 1e20) & (x != 0)] if dtype.is_float else x
    given = x if monoid.is_idempotent else finite
    found = {folds(monoid, given, np.random.default_rng(seed)) for seed in range(12)}
    assert (len(found) == 1) is monoid.is_exact(dtype)


def test_only_maxima_take_a_value_twice() -> None:
    x = np.array([3.0], np.float32)
    twice = [run(monoid.combine, x, x)[0] == 3 for monoid in (SUM, PRODUCT, MAXIMUM)]
    assert twice == [monoid.is_idempotent for monoid in (SUM, PRODUCT, MAXIMUM)]
    assert MAXIMUM.is_exact(float32)
