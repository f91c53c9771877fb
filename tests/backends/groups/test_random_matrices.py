"""Random products by matrix dots: sizes, layouts, batches, epilogues, dtypes and choices, by both
meanings of their kernels against NumPy in float64. Numbers are small, so sums are exact.
"""

from __future__ import annotations

import pytest

from tests.backends.groups.matrix_backend import from_memory, in_tensor
from tests.backends.groups.random_matrices import check
from tests.long_share import long_but, mostly_long


@pytest.mark.parametrize("first", mostly_long([0, 4, 8], 1))
def test_some_random_products(first: int) -> None:
    assert sum(check(seed, 24) for seed in range(first, first + 4)) >= 1


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 1100, 50))
def test_more_random_products(first: int) -> None:
    assert sum(check(seed, 48) for seed in range(first, first + 50)) >= 25


LEFT = (3, 16, 32, 38, 41, 46)


@pytest.mark.parametrize("seed", long_but([*LEFT], (3, 38)))
def test_a_random_product_of_factors_in_memory(seed: int) -> None:
    assert check(seed, 40, from_memory())


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 500, 20))
def test_random_products_of_factors_in_memory(first: int) -> None:
    assert sum(check(seed, 40, from_memory()) for seed in range(first, first + 20)) >= 5


@pytest.mark.parametrize("seed", long_but([*LEFT], (16,)))
def test_a_random_product_in_tensor_memory(seed: int) -> None:
    assert check(seed, 40, in_tensor())


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 500, 20))
def test_random_products_in_tensor_memory(first: int) -> None:
    assert sum(check(seed, 40, in_tensor()) for seed in range(first, first + 20)) >= 5
