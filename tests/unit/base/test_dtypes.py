"""The ways to name a dtype."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from luminal.base import dtypes
from luminal.base.errors import DTypeError
from luminal.expand.ir import Type


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_name_of_a_dtype_is_taken(dtype: dtypes.DType) -> None:
    for name in (dtype, dtype.name, dtype.short, dtype.numpy, dtype.numpy.type, dtype.numpy.name):
        assert dtypes.dtype_of(name) is dtype
    assert dtypes.dtype_of(np.zeros(2, dtype.numpy)) is dtype
    assert dtypes.dtype_of(np.zeros((), dtype.numpy)[()]) is dtype


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_there_is_one_object_of_each(dtype: dtypes.DType) -> None:
    for again in (pickle.loads(pickle.dumps(dtype)), copy.copy(dtype), copy.deepcopy([dtype])[0]):
        assert again is dtype
    of_vectors = None if dtype.is_storage else Type(dtype, 8)
    for same in (copy.deepcopy(of_vectors), pickle.loads(pickle.dumps(of_vectors))):
        assert same is of_vectors


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
