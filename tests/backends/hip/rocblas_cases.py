"""Products by what stands in for rocBLAS, over the stand-in of HIP: run by test_libraries.py in a
process of its own.
"""

from __future__ import annotations

import ctypes
import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luminal.backends import lt, registry
from luminal.backends.hip import hipblaslt, rocblas
from luminal.base.errors import DeviceError
from luminal.search.genome import Genome
from luminal.search.space import Space
from tests.backends.c_family.library_products import (
    PRODUCTS,
    Product,
    check,
    count_of_calls,
    executable,
    random_product,
)
from tests.simt import stand_in

LIBRARY = ctypes.CDLL(stand_in.ROCBLAS)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with stand_in.hiprtc_stands_in(monkeypatch, tmp_path, LUMINAL_POISON=True):
        for module in (lt, rocblas):
            monkeypatch.setattr(module, "WORKSPACE", 1 << 20)
        backend().memory.driver._products = None
        yield
        gc.collect()


def done() -> int:
    return int(LIBRARY.stand_in_lt_calls(b"done"))


def able(product: Product) -> bool:
    """Does the library compute it? It has no bias and no bytes."""
    (origin,) = (
        Space(product.graph.graph(), backend(), product.numerics).decode(Genome()).stages.origins
    )
    return "rocblas" in backend().library_calls(origin.steps[0], product.numerics)


def backend() -> Any:
    return registry.find(registry.ROCM)


def run(product: Product, s: int = 5) -> None:
    made, before = backend(), done()
    space, candidate = product.called(made, "rocblas")
    assert count_of_calls(candidate) == 1, product.name
    exe, rng = executable(space, candidate, made), np.random.default_rng(1)
    for _ in range(3):
        given = product.given(s, rng)
        check(np.asarray(exe(given)["y"]), product, given)
    assert done() - before == 3


def test_it_is_there_where_hipblaslt_is_not() -> None:
    assert hipblaslt.path() is None
    assert backend().target.libraries == rocblas.LIBRARIES
    assert hipblaslt.version() == "rocblas.so.4"


def test_products() -> None:
    products = [product for product in PRODUCTS if able(product)]
    assert len(products) > 25
    for product in products:
        run(product)


def test_random_products() -> None:
    drawn = [random_product(random.Random(seed)) for seed in range(60)]
    for product in filter(able, drawn):
        run(product)


def test_there_is_one_algorithm() -> None:
    space, candidate = PRODUCTS[0].called(backend(), "rocblas")
    calls = [knobs for knobs in space.knobs(candidate, 0) if "call" in dict(knobs)]
    assert calls == [(("call", "rocblas"),)]


@pytest.mark.parametrize("fault", ["transposition", "leading", "batch", "stream"])
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, queue = rocblas._matrix, rocblas.RocBlas.queue

    def wrong(address: int, dtype: str, turn: Any, step: int) -> Any:
        if fault == "leading":
            turn = turn._replace(leading=turn.leading + 1)
        return matrix(address, dtype, turn, step + (fault == "batch"))

    def queued(self: Any, product: Any, numbers: Any, at: Any, workspace: int, stream: int) -> None:
        queue(self, product, numbers, at, workspace, 0)

    match fault:
        case "transposition":
            monkeypatch.setattr(rocblas, "OPERATIONS", (112, 111))
        case "stream":
            monkeypatch.setattr(rocblas.RocBlas, "queue", queued)
        case _:
            monkeypatch.setattr(rocblas, "_matrix", wrong)
    product = next(product for product in PRODUCTS if product.name == "batched")
    with pytest.raises((AssertionError, DeviceError)):
        run(product)
