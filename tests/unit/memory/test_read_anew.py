"""What is in memory only while it is used."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.base.dtypes import bfloat16, float32
from luminal.memory.arrays import Array
from luminal.memory.read_anew import ReadAnew


def test_it_lives_as_long_as_somebody_has_it() -> None:
    """All have the same array; when the last one lets go, it is read again."""
    count = 0

    def read(into: Array) -> None:
        nonlocal count
        count += 1
        into[...] = np.arange(6).reshape(2, 3)

    buffer = ReadAnew(read, (2, 3), float32)
    assert (buffer.nbytes, count) == (24, 0)
    first, second = buffer.array, buffer.array
    assert first is second
    assert first.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1
    held = buffer.held()
    del first, second
    assert buffer.array is held.array
    assert held.address == held.array.ctypes.data
    assert count == 1
    del held
    assert buffer.array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert count == 2
    assert ReadAnew(lambda into: None, (0, 3), bfloat16).array.shape == (0, 3)
