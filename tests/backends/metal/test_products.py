"""Products by what stands in for Metal Performance Shaders, over the stand-in of Metal."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from luminal.backends.c_backend import machine
from luminal.backends.metal import presence, shaders
from luminal.backends.metal.backend import Metal
from luminal.backends.metal.driver import MetalDriver
from luminal.codegen.c_family.kernel import spell_tiles
from luminal.codegen.c_family.metal import METAL
from luminal.runtime.device import Device
from tests.backends.c_family.library_products import (
    F32,
    PRODUCTS,
    Product,
    check,
    count_of_calls,
    executable,
    random_product,
)
from tests.backends.metal import stand_in, stand_in_shaders
from tests.long_share import long_but

PLAIN = {
    product.name: product
    for product in PRODUCTS
    if product.dtype == F32 and "bias" not in product.name and product.name != "linear"
    and product.name != "dynamic columns"
}  # fmt: skip


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Metal:
    monkeypatch.setattr(presence, "bindings", lambda: stand_in)
    monkeypatch.setitem(sys.modules, "MetalPerformanceShaders", stand_in_shaders)
    device = Device(MetalDriver(lambda kernel: spell_tiles(kernel, METAL)))
    monkeypatch.setattr(Metal, "memory", property(lambda self: device))
    facts = machine("metal", 2, 32 << 10, 1 << 20)
    return Metal(replace(facts, libraries=shaders.installed()))


def run(backend: Metal, product: Product) -> None:
    space, candidate = product.called(backend, "mps")
    assert count_of_calls(candidate) == 1, product.name
    exe, rng = executable(space, candidate, backend), np.random.default_rng(1)
    for _ in range(2):
        given = product.given(5, rng)
        check(np.asarray(exe(given)["y"]), product, given)


@pytest.mark.parametrize("name", long_but(PLAIN, ("nt", "heads", "parts of both")))
def test_products(name: str, backend: Metal) -> None:
    run(backend, PLAIN[name])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_random_products(seed: int, backend: Metal) -> None:
    product = random_product(random.Random(seed))
    if product.dtype == F32 and len(product.shapes) == 2:
        run(backend, product)


@pytest.mark.parametrize("fault", ["transposition", "row", "batch"])
def test_a_planted_fault_is_found(
    fault: str, backend: Metal, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_turned, matrix = shaders._is_turned, shaders._matrix

    def wrong(*told: Any) -> Any:
        module, place, steps, number, *rest = told
        off = steps._replace(row=steps.row + 1) if fault == "row" else steps
        return matrix(module, place, off, number + (fault == "batch"), *rest)

    if fault == "transposition":
        monkeypatch.setattr(shaders, "_is_turned", lambda steps, n: not is_turned(steps, n))
    else:
        monkeypatch.setattr(shaders, "_matrix", wrong)
    with pytest.raises((AssertionError, ValueError, IndexError)):
        run(backend, PLAIN["batched"])


def test_without_the_module_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MetalPerformanceShaders", None)
    assert shaders.installed() == ()
