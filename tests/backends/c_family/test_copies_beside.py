"""Copies to shared memory that lanes which step together make beside each other: on the shims,
which check where they come and when they are waited for, and as AMD's machine code.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from luminal.backends.c_backend import CBackend
from luminal.backends.hip.backend import Hip
from luminal.base.dots import MFMA, MFMA_3, Dot
from luminal.codegen.c_family import walk
from luminal.compiler import compile
from luminal.compiler.assemble import text_key
from luminal.compiler.compile import lower_by_stages
from luminal.kernel.knobs import Knobs
from luminal.kernel.product_blocks import Products
from luminal.kernel.staged import Staged
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import Program
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.backends.c_family.checked import checked
from tests.backends.c_family.matrix_products import check_product, product
from tests.backends.c_family.offline import skip_without
from tests.backends.groups import ring_faults
from tests.backends.groups.random_matrices import check as random_product
from tests.long_share import long_rows, mostly_long
from tests.simt import offline
from tests.simt.launching import DeviceFault

SHAPE = 18, 80, 32
BY_LANES: Knobs = (("copies", "lanes"), ("deep", 32), ("stages", 3))
LAYOUTS = ((False, True), (False, False), (True, False))


def program(made: CBackend, *of: Any) -> Program:
    """A product's program whose blocks lanes copy."""
    stages = lower_by_stages(product(*of), made)
    (step,) = stages.partition.steps
    key = text_key(to_text(made.schedules.place(step).kernel))
    return compile.reschedule(stages, made, {key: BY_LANES}).program


def check(copied: int, dtype: str, turned: tuple[bool, bool], dots: tuple[Dot, ...] = MFMA) -> None:
    made, of = checked("hip", dots, copied), (dtype, *SHAPE, turned)
    placed = program(made, *of)
    (text,) = map(made.text, placed.kernels)
    if f"copy_beside_{copied}(&" not in text:
        pytest.fail("nothing is copied by lanes")
    check_product(Executable(product(*of), (Variant({}, made.runner(placed)),)), *of)


CASES = [
    (copied, dtype, turned)
    for copied in (4, 16)
    for dtype in ("bfloat16", "float16", "int8", "float32", "float64")
    for turned in LAYOUTS
    if (copied, dtype) != (4, "float64") and (dtype, turned) != ("int8", (True, False))
]
SHORT = [(4, "bfloat16", (False, True))]


@pytest.mark.parametrize(("copied", "dtype", "turned"), long_rows(CASES, SHORT))
def test_products(copied: int, dtype: str, turned: tuple[bool, bool]) -> None:
    check(copied, dtype, turned)


@pytest.mark.long
def test_deep_products_of_bytes() -> None:
    check(4, "int8", (False, True), MFMA_3)


@pytest.mark.parametrize("first", mostly_long(range(1, 81, 2), 0))
def test_random_products(first: int) -> None:
    """Sizes, layouts, batches, epilogues, dtypes, dims and choices."""
    for seed in range(first, first + 2):
        random_product(seed, 70, checked("hip", MFMA, 4 if seed % 4 < 2 else 16))


# --- faults ---------------------------------------------------------------------------------------


def one_copy_too_many_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    own = walk.fewest_copies
    monkeypatch.setattr(walk, "fewest_copies", lambda expanded: own(expanded) + 1)


def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "AWAIT_BESIDE", "if (0) await_copies_beside")


def wrong_stride_of_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes copy to where pieces have moved."""
    own = Staged.offset
    monkeypatch.setattr(
        Staged, "offset", lambda self, env, turn, straight=False: own(self, env, turn)
    )


def pieces_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Products, "moved_back", lambda self, copy, here: here)


FAULTS = (
    one_copy_too_many_is_left, wrong_stride_of_lanes, no_wait, pieces_not_moved,
    ring_faults.wait_too_short, ring_faults.no_barrier, ring_faults.freed_early,
    ring_faults.never_freed,
)  # fmt: skip


@pytest.mark.parametrize("fault", mostly_long(FAULTS, 2))
def test_faults_are_found(fault: ring_faults.Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((DeviceFault, AssertionError)):
        check(4, "bfloat16", (False, True))


# --- machine code ---------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("chip", "copied", "instruction"), [("gfx942", 4, "dword"), ("gfx950", 16, "dwordx4")]
)
def test_copies_wait_for_no_younger_ones(chip: str, copied: int, instruction: str) -> None:
    """The compiler adds no waits of its own, and nothing of a copy passes by vector registers."""
    skip_without("hip")
    made = Hip.named("gfx942")
    made = replace(made, groups=replace(made.groups, copies=copied))
    (placed,) = program(made, "bfloat16", 512, 512, 512, (False, True)).kernels
    text = made.text(placed)
    resources = offline.hip_resources(text, chip)
    assert resources.spilled == resources.stack == 0
    code = offline.hip_instructions(text, chip)
    copies = re.findall(rf"copy_beside_{copied}\(&", text)
    assert code[f"global_load_lds_{instruction}"] == 0  # it stands in assembler's text alone
    assert text.count(f"global_load_lds_{instruction} ") == 1
    assert len(copies) >= 2
    assert not sum(n for name, n in code.items() if name.startswith("ds_write"))
    assert not sum(n for name, n in code.items() if re.match(r"(global|buffer)_load", name))
