"""Random products by matrix dots: sizes, layouts, batches, epilogues, dtypes and choices, by both
meanings of their kernels against NumPy in float64. Numbers are small, so sums are exact.
"""

from __future__ import annotations

import pytest

from tests.backends.groups.random_matrices import (
    check,
)


def test_some_random_products() -> None:
    assert sum(check(seed, 24) for seed in range(12)) >= 4


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 1100, 50))
def test_more_random_products(first: int) -> None:
    assert sum(check(seed, 48) for seed in range(first, first + 50)) >= 25
