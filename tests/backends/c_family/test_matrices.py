"""Products by matrix instructions: their texts on the shims, where every access and barrier is
checked, and as machine code of chips that are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import luminal as lm
from luminal.backends.c_backend import CBackend, machine
from luminal.backends.cuda import nvrtc, sass
from luminal.backends.cuda.backend import Cuda
from luminal.base.dots import MMA
from luminal.base.dtypes import dtype_of
from luminal.codegen.c_family.cuda import CUDA
from luminal.codegen.c_family.kernel import Spelled
from luminal.compiler.compile import lower_to_program
from luminal.expand.expand import expand
from luminal.hlir.graph import Graph
from luminal.kernel import tile_ir
from luminal.kernel.product_blocks import Products
from luminal.runtime.driver import Driver
from luminal.schedule.groups.bounds import bounds
from luminal.schedule.groups.facts import Groups
from luminal.schedule.groups.work import work
from tests.backends.c_family.offline import skip_without
from tests.backends.groups.ring_faults import FAULTS, Fault
from tests.backends.on_device import compiled_on
from tests.long_share import long_but, mostly_long
from tests.simt import compiling
from tests.simt.driver import CheckedDriver
from tests.simt.launching import DeviceFault

DTYPES = ("bfloat16", "float16", "int8", "float64", "float32")
LAYOUTS = {
    "straight": (False, False), "turned": (True, False), "along sums": (False, True),
    "whole": (False, False), "whole along sums": (False, True),
}  # fmt: skip
"""Of whole words lanes copy 16 bytes at once, in a ring."""


class Checked(CBackend):
    """NVIDIA's chips with matrix instructions, on the shims."""

    base = "cuda"
    dialect = CUDA

    @staticmethod
    def driver(spell: Callable[[tile_ir.Kernel], Spelled], number: int) -> Driver:
        return CheckedDriver("cuda", CUDA, spell)


@cache
def checked() -> CBackend:
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    groups = Groups(
        lanes=64, most=128, shared_bytes=32 << 10, is_rule=True, subgroup=32, copies=True
    )
    return Checked(machine("cuda", 2, 32 << 10, 1 << 20, dots=MMA), groups=groups)


def product(dtype: str, m: int, k: int, n: int, turned: tuple[bool, bool]) -> Graph:
    cx = lm.Graph()
    a = cx.tensor((k, m) if turned[0] else (m, k), name="a", dtype=dtype)
    b = cx.tensor((n, k) if turned[1] else (k, n), name="b", dtype=dtype)
    a, b = (x.transpose(0, 1) if t else x for x, t in zip((a, b), turned, strict=True))
    if dtype == "int8":
        a, b = a.cast("i32"), b.cast("i32")
    (a @ b).output("y")
    return cx.graph()


def check(dtype: str, layout: str) -> None:
    """Small numbers, so that sums are exact whatever their order."""
    turned = LAYOUTS[layout]
    m, k, n = (18, 80, 32) if layout.startswith("whole") else (18, 20, 11)
    exe = compiled_on(checked(), product(dtype, m, k, n, turned))
    rng, storage = np.random.default_rng(0), dtype_of(dtype).numpy
    a, b = (
        rng.integers(-3, 4, shape[::-1] if t else shape).astype(storage)
        for shape, t in zip(((m, k), (k, n)), turned, strict=True)
    )
    wide = [x.astype(np.float64) for x in (a.T if turned[0] else a, b.T if turned[1] else b)]
    found = exe({"a": a, "b": b})["y"]
    np.testing.assert_array_equal(found, (wide[0] @ wide[1]).astype(found.dtype))


CASES = [f"{dtype} {layout}" for dtype in DTYPES for layout in LAYOUTS]


@pytest.mark.parametrize(
    "case", long_but(CASES, ("bfloat16 straight", "bfloat16 whole", "int8 whole along sums"))
)
def test_products_on_the_shims(case: str) -> None:
    check(*case.split(" ", 1))


def test_a_missing_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Products, "barrier", lambda self: None)
    with pytest.raises(DeviceFault, match=r"reads byte \d+ of shared memory, which"):
        check("bfloat16", "straight")


@pytest.mark.parametrize("fault", mostly_long(FAULTS, 1))
def test_faults_of_rings_are_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some order of threads: copies come at once, or where they are waited for."""
    fault(monkeypatch)
    with pytest.raises((DeviceFault, AssertionError)):
        check("bfloat16", "whole")


INSTRUCTIONS = {
    "bfloat16": "HMMA.16816.F32.BF16",
    "float16": "HMMA.16816.F32",
    "int8": "IMMA.16832.S8.S8",
    "float64": "DMMA",
}


@pytest.mark.parametrize("dtype", long_but([*INSTRUCTIONS], ("bfloat16", "int8")))
@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_100a"])
def test_machine_code_multiplies_matrices(chip: str, dtype: str) -> None:
    skip_without("cuda")
    made = Cuda.named(chip)
    (kernel,) = lower_to_program(product(dtype, 1024, 1024, 1024, (False, True)), made).kernels
    code = nvrtc.compile(made.text(kernel), chip)
    assert code.spilled == code.stack == 0
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    counts = sass.counts(sass.of(code.code))
    named = {name: n for name, n in counts.items() if name.startswith(INSTRUCTIONS[dtype])}
    assert sum(named.values()) >= 4, counts


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_100a"])
def test_the_matrix_units_are_busy(chip: str) -> None:
    """By the static model, of which instructions and shared memory are the sure parts: at least
    0.55 of their rate for a large product.
    """
    made, n = Cuda.named(chip), 4096
    assert made.chip is not None
    (kernel,) = lower_to_program(product("bfloat16", n, n, n, (False, False)), made).kernels
    expanded = expand(kernel, instructions=made.dialect.instructions)
    chunks = int(expanded.chunks.evaluate({}))
    found = bounds(work(expanded, {}), made.chip, chunks, 6 * n * n, made.walkers)
    least = n**3 / (made.chip.pipes.matrix * made.chip.units * made.chip.hertz)
    assert least / max(found.issue, found.shared) >= 0.55
