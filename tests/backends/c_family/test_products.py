"""Products in blocks, in the texts of each dialect that the shims run: every access and barrier
is checked.
"""

from __future__ import annotations

from itertools import product

import pytest

from luminal.kernel.product_blocks import Products
from tests.backends.c_family.dialects import CHECKED, checked
from tests.backends.groups.product_graphs import GRAPHS, case
from tests.backends.on_device import check_case, compiled_on
from tests.long_share import long_but, long_rows
from tests.simt.launching import DeviceFault

SAMPLE = ("product", "linear", "convolution", "dims")
MISSING = {"metal": ("f64",)}


def check(dialect: str, name: str) -> None:
    run = case(name)
    check_case(compiled_on(checked(dialect), run.graph), run, 1.0)


@pytest.mark.parametrize(
    ("dialect", "name"),
    long_rows(product(CHECKED, SAMPLE), [("cuda", "dims"), ("metal", "convolution")]),
)
def test_a_sample_of_products(dialect: str, name: str) -> None:
    check(dialect, name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in SAMPLE])
@pytest.mark.parametrize("dialect", CHECKED)
def test_every_product(dialect: str, name: str) -> None:
    if name in MISSING.get(dialect, ()):
        pytest.skip(f"{dialect} has no {name}")
    check(dialect, name)


@pytest.mark.parametrize("dialect", long_but(CHECKED, ("hip",)))
def test_a_missing_barrier_is_found(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Products, "barrier", lambda self, *running: None)
    with pytest.raises(DeviceFault, match=r"reads byte \d+ of shared memory, which nothing has"):
        check(dialect, "product")
