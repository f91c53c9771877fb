"""The ways to name a dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from luminal import dtypes
from luminal.errors import DTypeError


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_name_of_a_dtype_is_taken(dtype: dtypes.DType) -> None:
    for name in (dtype, dtype.name, dtype.short, dtype.numpy, dtype.numpy.type, dtype.numpy.name):
        assert dtypes.dtype_of(name) is dtype
    assert dtypes.dtype_of(np.zeros(2, dtype.numpy)) is dtype
    assert dtypes.dtype_of(np.zeros((), dtype.numpy)[()]) is dtype


def test_python_types_and_strangers() -> None:
    assert [dtypes.dtype_of(t) for t in (float, int, bool)] == [
        dtypes.float32,
        dtypes.int64,
        dtypes.bool_,
    ]
    assert dtypes.dtype_of(ml_dtypes.bfloat16) is dtypes.bfloat16
    for stranger in (complex, np.complex64, "float31", object(), str, None):
        with pytest.raises(DTypeError, match="is not an element type of Luminal"):
            dtypes.dtype_of(stranger)
