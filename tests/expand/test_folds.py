"""Vectors folded together: what meets is what meets where each is folded alone, to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from luminal.base.dtypes import dtype_of
from luminal.base.records import dataclass
from luminal.expand.builder import Builder
from luminal.expand.folds import fold_together
from luminal.expand.ir import Type

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Lanes:
    """A vector that is known."""

    values: Array

    @property
    def type(self) -> Type:
        return Type(dtype_of(self.values.dtype), len(self.values))


class _Known:
    """What `folded` asks of a Builder, and how many shuffles it took."""

    def __init__(self) -> None:
        self.shuffles = 0

    def shuffle(self, x: _Lanes, y: _Lanes, lanes: Sequence[int]) -> _Lanes:
        self.shuffles += 1
        return _Lanes(np.concatenate((x.values, y.values))[list(lanes)])

    def lane(self, x: _Lanes, lane: int) -> _Lanes:
        return _Lanes(x.values[lane : lane + 1])


def alone(vector: Array) -> Array:
    while len(vector) > 1:
        half = len(vector) // 2
        vector = vector[:half] - 2 * vector[half:]  # which is not the same the other way round
    return vector


def of_all(vectors: Array, b: _Known) -> Array:
    builder, rows = cast(Builder, b), cast(Any, [_Lanes(row) for row in vectors])
    found = fold_together(builder, rows, lambda x, y: cast(Any, _Lanes(_of(x) - 2 * _of(y))))
    return np.concatenate([_of(each) for each in found])


def _of(x: Any) -> Array:
    return cast(_Lanes, x).values


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("count", [2, 3, 4, 6, 8, 16, 21])
def test_as_each_alone(count: int, lanes: int, dtype: str) -> None:
    rng = np.random.default_rng(count * lanes)
    vectors = (rng.standard_normal((count, lanes)) * 9).astype(dtype)
    found = of_all(vectors, _Known())
    assert found.tobytes() == np.concatenate([*map(alone, vectors)]).tobytes()


def test_eight_of_eight_take_seven_steps() -> None:
    b = _Known()
    of_all(np.ones((8, 8), np.float32), b)
    assert b.shuffles == 2 * 7
