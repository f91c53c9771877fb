"""Scans and sorts of few long rows, many short ones and rows side by side, by groups."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

import luminal as lm
from tests.backends.groups.both_meanings import backend
from tests.backends.groups.predictions import beside_a_copy
from tests.backends.groups.random_rows import check_scan, check_sort, small_blocks
from tests.backends.on_device import compiled_on
from tests.long_share import mostly_long


@pytest.mark.parametrize("seed", mostly_long(range(60), 4))
def test_random_scans(seed: int) -> None:
    check_scan(partial(compiled_on, backend(16)), seed)


@pytest.mark.parametrize("seed", mostly_long(range(2, 60), 2))
def test_random_sorts(seed: int) -> None:
    check_sort(partial(compiled_on, replace(backend(8), costs_of=small_blocks)), seed)


# A lane waits some 300 ns for each position of a row that is its own: of 16,384 that is 5 ms.
@pytest.mark.parametrize(
    "shape", [(1, 16383, 1), (1, 16384, 256), (32768, 64, 1), (1, 1 << 21, 2), (1, 1 << 24, 1)]
)
def test_no_rows_leave_a_gpu_idle(shape: tuple[int, ...]) -> None:
    cx = lm.Graph()
    cx.tensor(shape, name="x").cumsum(1).output("y")
    seconds, copied, launches = beside_a_copy(cx.graph())
    assert seconds <= 2 * copied + launches * 30e-6


def test_a_sort_of_a_long_row_is_merged_by_all_units() -> None:
    cx = lm.Graph()
    for name, result in zip(("values", "order"), cx.tensor((1 << 20,), "i32").sort(), strict=True):
        result.output(name)
    seconds, _, launches = beside_a_copy(cx.graph())
    assert launches == 11
    assert seconds <= 300e-6
