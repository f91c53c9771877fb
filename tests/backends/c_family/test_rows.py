"""Scans and sorts as texts: on the shims, where every access and barrier is checked, and through
the compilers of chips that are not here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

import luminal as lm
from tests.backends.c_family import offline
from tests.backends.c_family.checked import checked
from tests.backends.c_family.dialects import CHECKED
from tests.backends.c_family.offline import TARGETS, skip_without
from tests.backends.groups.random_rows import check_scan, check_sort, small_blocks
from tests.backends.on_device import compiled_on
from tests.long_share import long_but, long_rows, mostly_long

MOST = 4000  # elements, some steps of a group's lanes


@pytest.mark.parametrize("seed", mostly_long(range(100, 120), 1))
@pytest.mark.parametrize("name", long_but(CHECKED, ("cuda",)))
def test_random_scans(name: str, seed: int) -> None:
    check_scan(partial(compiled_on, checked(name)), seed, MOST)


@pytest.mark.parametrize("seed", mostly_long(range(200, 240), 1))
@pytest.mark.parametrize("name", long_but(CHECKED, ("metal",)))
def test_random_sorts(name: str, seed: int) -> None:
    backend = replace(checked(name), costs_of=small_blocks)
    check_sort(partial(compiled_on, backend), seed, MOST)


SCANS = {
    "one long row": ((1 << 20,), 0),
    "short rows": ((8192, 60), 1),
    "columns": ((4096, 3), 0),
    "blocks of columns": ((2, 1 << 16, 16), 1),
}


@pytest.mark.parametrize("scan", mostly_long(SCANS, 1))
@pytest.mark.parametrize(("name", "architecture"), long_rows(TARGETS, TARGETS[:1]))
def test_scans_spill_nothing(name: str, architecture: str, scan: str) -> None:
    skip_without(name)
    shape, axis = SCANS[scan]
    cx = lm.Graph()
    x = cx.tensor(shape, name="x")
    x.cumsum(axis).output("sums")
    x.cast("bfloat16").cummax(axis)[0].output("greatest")
    x.cast("int32").cumprod(axis).output("products")
    offline.check(cx.graph(), name, architecture)


@pytest.mark.long
@pytest.mark.parametrize(("name", "architecture"), long_rows(TARGETS, TARGETS[:1]))
def test_sorts_of_long_rows_spill_nothing(name: str, architecture: str) -> None:
    skip_without(name)
    cx = lm.Graph()
    for dtype in ("i32", "f32", "i64"):
        values, order = cx.tensor((8000,), dtype).sort()
        values.output(f"{dtype} values")
        order.output(f"{dtype} order")
    assert offline.check(cx.graph(), name, architecture) > 3
