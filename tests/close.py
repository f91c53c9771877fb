"""How near two arrays of results have to be: the comparisons that tests share."""

from __future__ import annotations

from typing import Any

import numpy as np


def close(actual: np.ndarray[Any, Any], expected: Any, ulp: float = 4) -> None:
    """Asserts equal dtype and shape, and values within `ulp` ulp of the largest.

    Integers and bools agree exactly; NaN and infinities by position.
    """
    wanted = np.asarray(expected)
    assert actual.shape == wanted.shape, (actual.shape, wanted.shape)
    if actual.dtype.kind in "iub":
        assert actual.dtype == wanted.dtype, (actual.dtype, wanted.dtype)
        np.testing.assert_array_equal(actual, wanted)
        return
    eps = float(np.finfo(actual.dtype).eps) if actual.dtype.kind == "f" else 2.0**-7
    scale = np.abs(np.asarray(wanted, np.float64))
    largest = float(np.max(scale[np.isfinite(scale)], initial=0.0))
    wide = np.asarray(actual, np.float64), np.asarray(wanted, np.float64)
    np.testing.assert_allclose(*wide, rtol=ulp * eps, atol=ulp * eps * largest)


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
