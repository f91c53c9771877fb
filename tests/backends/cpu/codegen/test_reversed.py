"""Reversed reads are vector loads turned round: whole, masked, in reductions, of every width."""

import numpy as np
import pytest

import luminal as lm
from luminal.base import dtypes
from tests.long_share import long_but

DTYPES = (lm.float32, lm.float64, lm.int8, lm.int64, lm.bool_, lm.float16)


@pytest.mark.parametrize("extent", long_but([1, 15, 16, 17, 101], (16, 101)))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reversed_reads_equal_the_reference(dtype: dtypes.DType, extent: int) -> None:
    cx = lm.Graph()
    x = cx.tensor((5, extent), dtype=dtype, name="x")
    x.flip(1).output("whole")
    x.flip(1)[:, extent // 3 :].output("part")
    x.flip([0, 1]).transpose(0, 1).output("turned")
    if dtype.is_float or dtype.is_int:
        x.flip(1).pad([(0, 0), (2, 3)]).output("padded")
        (x.flip(1) + x).sum(1).output("reduced")
    value = (np.random.default_rng(extent).standard_normal((5, extent)) * 50).astype(dtype.numpy)
    expected = lm.compile(cx, backend="reference")({"x": value})
    got = lm.compile(cx)({"x": value})
    for name in expected:
        if name == "reduced" and dtype.is_float:
            # sums of up to 64 values of 50 in every float dtype: float16's last digit
            np.testing.assert_allclose(got[name], expected[name], rtol=1e-3, atol=1e-3)
        else:
            np.testing.assert_array_equal(got[name], expected[name])
