"""Products by matrix instructions: their texts on the shims, where every access and barrier is
checked, and as machine code of chips that are not here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from luminal.backends.cuda import nvrtc, sass
from luminal.backends.cuda.backend import Cuda
from luminal.backends.hip.backend import Hip
from luminal.backends.metal.backend import Metal
from luminal.base.dots import MFMA, MFMA_3, SIMDGROUP, WMMA, WMMA_4, Dot
from luminal.base.dtypes import dtype_of
from luminal.compiler.compile import lower_to_program
from luminal.expand.expand import expand
from luminal.kernel.product_blocks import Products
from luminal.runtime.driver import DevicePointer
from luminal.schedule.groups.bounds import bounds
from luminal.schedule.groups.work import work
from tests.backends.c_family.checked import checked
from tests.backends.c_family.matrix_products import check_product, product
from tests.backends.c_family.offline import skip_without
from tests.backends.groups.random_matrices import check as random_product
from tests.backends.groups.ring_faults import FAULTS, Fault
from tests.backends.on_device import compiled_on
from tests.long_share import long_but, mostly_long
from tests.simt import offline
from tests.simt.driver import CheckedDriver
from tests.simt.launching import DeviceFault

DTYPES = ("bfloat16", "float16", "int8", "float64", "float32")
LAYOUTS = {
    "straight": (False, False), "turned": (True, False), "along sums": (False, True),
    "whole": (False, False), "whole along sums": (False, True),
}  # fmt: skip
"""Of whole words lanes copy 16 bytes at once, in a ring."""


def check(dtype: str, layout: str, *device: Any) -> None:
    turned = LAYOUTS[layout]
    m, k, n = (18, 80, 32) if layout.startswith("whole") else (18, 20, 11)
    exe = compiled_on(checked(*device), product(dtype, m, k, n, turned))
    check_product(exe, dtype, m, k, n, turned)


CASES = [f"{dtype} {layout}" for dtype in DTYPES for layout in LAYOUTS]


@pytest.mark.parametrize(
    "case", long_but(CASES, ("bfloat16 straight", "bfloat16 whole", "int8 whole along sums"))
)
def test_products_on_the_shims(case: str) -> None:
    check(*case.split(" ", 1))


@pytest.mark.parametrize("first", mostly_long(range(2, 82, 2), 1))
def test_random_products_on_the_shims(first: int) -> None:
    """Sizes, layouts, batches, epilogues, dtypes and choices; each text takes a compiler's time."""
    for seed in range(first, first + 2):
        random_product(seed, 70, checked())


OTHERS: dict[str, tuple[str, str, tuple[Dot, ...]]] = {
    "mfma": ("bfloat16", "hip", MFMA), "mfma of f16": ("float16", "hip", MFMA),
    "wmma": ("bfloat16", "hip", WMMA), "wmma of f16": ("float16", "hip", WMMA),
    "mfma of s8": ("int8", "hip", MFMA), "mfma of s8, deep": ("int8", "hip", MFMA_3),
    "mfma of f32": ("float32", "hip", MFMA), "mfma of f64": ("float64", "hip", MFMA_3),
    "wmma of s8": ("int8", "hip", WMMA), "wmma of RDNA4": ("bfloat16", "hip", WMMA_4),
    "wmma of s8, RDNA4": ("int8", "hip", WMMA_4),
    "simdgroup": ("float32", "metal", SIMDGROUP),
    "simdgroup of f16": ("float16", "metal", SIMDGROUP),
    "simdgroup of bf16": ("bfloat16", "metal", SIMDGROUP),
}  # fmt: skip


@pytest.mark.parametrize("layout", ["turned", "along sums"])
@pytest.mark.parametrize("name", long_but(OTHERS, ("mfma", "simdgroup")))
def test_dots_of_others_on_the_shims(name: str, layout: str) -> None:
    dtype, *device = OTHERS[name]
    check(dtype, layout, *device)


def test_a_missing_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Products, "barrier", lambda self, *running: None)
    with pytest.raises(DeviceFault, match=r"reads byte \d+ of shared memory, which"):
        check("bfloat16", "straight")


@pytest.mark.parametrize("fault", mostly_long(FAULTS, 1))
def test_faults_of_rings_are_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some order of threads: copies come at once, or where they are waited for."""
    fault(monkeypatch)
    with pytest.raises((DeviceFault, AssertionError)):
        check("bfloat16", "whole")


def test_copies_that_begin_anywhere_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue = CheckedDriver.enqueue

    def moved(
        self: CheckedDriver, code: Any, workers: int, operands: Sequence[DevicePointer], *rest: Any
    ) -> None:
        first, *others = operands
        enqueue(self, code, workers, (first._replace(offset=first.offset + 8), *others), *rest)

    monkeypatch.setattr(CheckedDriver, "enqueue", moved)
    with pytest.raises(DeviceFault, match=r"reads 16 bytes at an address that is 8 beyond"):
        check("bfloat16", "whole", "cuda")


INSTRUCTIONS = {
    "bfloat16": r"HMMA\.16816\.F32\.BF16|HGMMA|UTCHMMA",
    "float16": r"HMMA\.16816\.F32|HGMMA|UTCHMMA",
    "int8": r"IMMA\.16832\.S8\.S8|IGMMA|UTCIMMA",
    "float64": "DMMA",
}
"""By lanes together (mma.sync), by groups of warps, of tensor memory."""


@pytest.mark.parametrize("dtype", long_but([*INSTRUCTIONS], ("bfloat16",)))
@pytest.mark.parametrize("chip", long_but(["sm_80", "sm_90a", "sm_100a"], ("sm_90a",)))
def test_machine_code_multiplies_matrices(chip: str, dtype: str) -> None:
    skip_without("cuda")
    made = Cuda.named(chip)
    (kernel,) = lower_to_program(product(dtype, 1024, 1024, 1024, (False, True)), made).kernels
    code = nvrtc.compile(made.text(kernel), chip)
    assert code.spilled == code.stack == 0
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    counts = sass.counts(sass.of(code.code))
    named = {name: n for name, n in counts.items() if re.match(INSTRUCTIONS[dtype], name)}
    assert sum(named.values()) >= 4, counts


@pytest.mark.parametrize(
    ("chip", "dtype"),
    [("sm_80", "bfloat16"), ("sm_90a", "bfloat16"), ("sm_100a", "bfloat16"), ("sm_90a", "int8")],
)
def test_the_matrix_units_are_busy(chip: str, dtype: str) -> None:
    """By the static model, of which instructions and shared memory are the sure parts: at least
    0.55 of their rate for a large product.
    """
    made, n = Cuda.named(chip), 4096
    assert made.chip is not None
    (kernel,) = lower_to_program(product(dtype, n, n, n, (False, False)), made).kernels
    expanded = expand(kernel, instructions=made.dialect.instructions)
    chunks = int(expanded.chunks.evaluate({}))
    found = bounds(work(expanded, {}), made.chip, chunks, 6 * n * n, made.walkers)
    share = dtype_of(dtype).size / 2
    least = share * n**3 / (made.chip.pipes.matrix * made.chip.units * made.chip.hertz)
    assert least / max(found.issue, found.shared) >= 0.55


OF_CHIPS = (
    ("gfx90a", "bfloat16", "mfma_f32_16x16x16bf16_1k"), ("gfx90a", "int8", "mfma_i32_16x16x16i8"),
    ("gfx942", "float16", "mfma_f32_16x16x16f16"), ("gfx942", "int8", "mfma_i32_16x16x32_i8"),
    ("gfx90a", "float32", "mfma_f32_16x16x4f32"), ("gfx942", "float32", "mfma_f32_16x16x4f32"),
    ("gfx90a", "float64", "mfma_f64_16x16x4f64"), ("gfx942", "float64", "mfma_f64_16x16x4f64"),
    ("gfx1100", "bfloat16", "wmma_f32_16x16x16_bf16_w32"),
    ("gfx1201", "float16", "wmma_f32_16x16x16_f16_w32_gfx12"),
    ("gfx1201", "int8", "wmma_i32_16x16x16_iu8_w32_gfx12"),
)  # fmt: skip
OF_FAMILIES = (
    ("apple7", "float32", "float"), ("apple7", "float16", "half"),
    ("apple7", "bfloat16", "float"), ("apple8", "bfloat16", "bfloat"),
)  # fmt: skip


@pytest.mark.long
def test_products_of_other_chips_compile() -> None:
    """Without registers that go to memory."""
    skip_without("hip")
    for chip, dtype, name in OF_CHIPS:
        (kernel,) = lower_to_program(
            product(dtype, 512, 512, 512, (False, True)), Hip.named(chip)
        ).kernels
        text = Hip.named(chip).text(kernel)
        assert f"__builtin_amdgcn_{name}(" in text
        assert offline.hip_resources(text, chip).spilled == 0
    for chip, dtype, name in OF_FAMILIES:
        (kernel,) = lower_to_program(
            product(dtype, 512, 512, 512, (False, True)), Metal.named(chip)
        ).kernels
        text = Metal.named(chip).text(kernel)
        assert f"simdgroup_{name}8x8 a, b;" in text
        offline.check_metal(text)
