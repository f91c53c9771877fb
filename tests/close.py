"""How near two arrays of results have to be: the comparisons that tests share.

Both count in ulps, so that one number holds for every dtype: rounding once is half an ulp. Four are
enough for single functions and short sums. More are said where they are needed: a sum of n terms in
another order is off by some sqrt(n) ulp of its largest term.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def close(actual: Any, expected: Any, ulp: float = 4, err_msg: str = "") -> None:
    """Asserts equal dtype and shape, and values within `ulp` ulp of the largest.

    Integers and bools agree exactly; NaN and infinities by position. For sums, where terms cancel:
    what is left of them has the error of the greatest.
    """
    wanted = np.asarray(expected)
    scale = np.abs(np.asarray(wanted, np.float64))
    largest = float(np.max(scale[np.isfinite(scale)], initial=0.0))
    _within(np.asarray(actual), wanted, ulp, largest, err_msg)


def close_each(actual: Any, expected: Any, ulp: float = 4, err_msg: str = "") -> None:
    """Asserts equal dtype and shape, and every value within `ulp` ulp of its own.

    Integers and bools agree exactly; NaN and infinities by position. For functions of single
    elements and for sums of one sign, where nothing cancels.
    """
    _within(np.asarray(actual), np.asarray(expected), ulp, 0.0, err_msg)


def _within(
    actual: np.ndarray[Any, Any],
    wanted: np.ndarray[Any, Any],
    ulp: float,
    largest: float,
    err_msg: str,
) -> None:
    assert actual.shape == wanted.shape, (actual.shape, wanted.shape, err_msg)
    if actual.dtype.kind in "iub":
        assert actual.dtype == wanted.dtype, (actual.dtype, wanted.dtype, err_msg)
        np.testing.assert_array_equal(actual, wanted, err_msg)
        return
    eps = float(np.finfo(actual.dtype).eps) if actual.dtype.kind == "f" else 2.0**-7
    wide = np.asarray(actual, np.float64), np.asarray(wanted, np.float64)
    rtol, atol = ulp * eps, ulp * eps * largest  # the table: ulps of the result's dtype
    np.testing.assert_allclose(*wide, rtol=rtol, atol=atol, err_msg=err_msg)


def close_to_greatest(
    found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], share: float = 1e-4
) -> None:
    """Asserts that values differ by at most a share of the greatest one, NaN by position.

    The default is for outputs of networks in float32, whose rounding is relative to the sums that
    a layer makes: over two layers ten times less was seen.
    """
    assert found.shape == expected.shape, (found.shape, expected.shape)
    greatest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=share * greatest)
