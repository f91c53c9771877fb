"""Stores of fewer elements than a vector holds write these and no others, in every dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.base import dtypes
from luminal.base.dtypes import DType

KINDS = ("float32", "float64", "bfloat16", "float16", "int8", "uint8", "int16", "int32", "int64")
KINDS += ("bool_",)
PAIRS = [  # the short tests take one diagonal: each dtype once on both sides
    pytest.param(narrow, wide, marks=[] if (i - k) % len(KINDS) == 3 else pytest.mark.long)
    for i, narrow in enumerate(KINDS)
    for k, wide in enumerate(KINDS)
]
LENGTHS = (*range(1, 18), 31, 33, 63, 65)
GUARD = 64


def numpy_dtype(dtype: DType) -> np.dtype[np.generic]:
    return np.dtype(ml_dtypes.bfloat16) if dtype is dtypes.bfloat16 else dtype.numpy


@pytest.mark.parametrize(("narrow", "wide"), PAIRS)
def test_what_lies_behind_a_result_stays(narrow: str, wide: str) -> None:
    """Also where each value is computed in another dtype: then the store narrows it or not."""
    source, result = getattr(dtypes, wide), getattr(dtypes, narrow)
    cx = lm.Graph()
    for n in LENGTHS:
        x = cx.tensor((n,), dtype=source, name=f"x{n}")
        (x + x).cast(result).output(f"y{n}")
    exe = lm.compile(cx)
    values = np.arange(1, 66) % 20
    given = {f"x{n}": values[:n].astype(numpy_dtype(source)) for n in LENGTHS}
    whole = {n: np.full(n + GUARD, 77).astype(numpy_dtype(result)) for n in LENGTHS}
    exe(given, out={f"y{n}": array[:n] for n, array in whole.items()})
    for n, array in whole.items():
        x = given[f"x{n}"]
        expected = np.full(n + GUARD, 77).astype(array.dtype)
        expected[:n] = (x + x).astype(array.dtype)
        assert array.tobytes() == expected.tobytes(), n
