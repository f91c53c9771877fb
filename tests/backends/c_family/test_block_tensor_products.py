"""Products of blocks with scales in tensor memory (tcgen05, sm_100a): on the shims, where scales
are checked on their way to tensor memory, and as machine code.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from luminal.backends.c_backend import CBackend, machine
from luminal.backends.cuda import nvrtc, sass
from luminal.backends.cuda.backend import Cuda
from luminal.base.dots import MMA, TCGEN05, TCGEN05_SCALED
from luminal.codegen.c_family.walk import Walk
from luminal.kernel import product_tiling
from luminal.kernel.product_tiling import ProductTiling
from luminal.shape.expression import Expression
from tests.backends.c_family.block_products import KINDS, check, drawn, linear, program
from tests.backends.c_family.checked import preferring
from tests.backends.c_family.offline import skip_without
from tests.backends.groups.both_meanings import SMALL, Both
from tests.backends.groups.matrix_backend import dots_of
from tests.long_share import long_but
from tests.simt.launching import DeviceFault

ROWS = {"mxfp8": "tcgen05.mxf8.m128", "mxfp4": "tcgen05.mxf8.m128", "nvfp4": "tcgen05.nvf4.m128"}


@cache
def device() -> CBackend:
    """A device on the shims that multiplies blocks with scales by tcgen05."""
    rows = tuple(dot for dot in TCGEN05_SCALED if dot.n == 128)
    return preferring((*TCGEN05, *TCGEN05_SCALED), (*rows, *MMA), boxes=True)


def small(kind: str) -> None:
    """Edges on all sides, and several blocks of the sum, whose scales come in turns."""
    rng = np.random.default_rng(0)
    layer = linear(kind, 136, 544, rng.normal(size=(136, 544)).astype(np.float32))
    lowered = program(device(), layer, 140)
    assert {dot.family for kernel in lowered.kernels for dot in dots_of(kernel)} == {ROWS[kind]}
    check(device(), layer, rng.normal(size=(140, 544)).astype(np.float32))


@pytest.mark.parametrize("kind", long_but(KINDS, ()))
def test_on_the_shims(kind: str) -> None:
    small(kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(0, 12, 4))
def test_drawn_products(kind: str, first: int) -> None:
    for seed in range(first, first + 4):
        check(device(), *drawn(seed, kind))


WRONG = "Mismatched|differs between"
FAULTS = {
    "scales of the block before": (
        "mxfp8", r"scales_part\(\(unsigned\)\((\w+)\),", r"scales_part((unsigned)(\1 ^ 1),", WRONG),
    "scales of other rows": (
        "mxfp8", r"(, v\d+, scales_at\(first_column \+ \d+), \(unsigned\)\((\w+)\)\)",
        r"\1, (unsigned)(\2 ^ 4))", WRONG),
    "the other factor's scales": (
        "nvfp4", r", (scales_at\([^;]*?\)\)), (scales_at\([^;]*?\)\))\);", r", \2, \1);", WRONG),
    "scales that are not brought": (
        "mxfp8", r"if \(threadIdx.x % 128 == 0\) bring_scales[^;]*;", "", WRONG),
    "scales brought for both blocks to one place": (
        "nvfp4", r"(bring_scales\(scales_at\(first_column \+ \d+, \(unsigned\)\()\w+", r"\g<1>0",
        "which it has not awaited|has not awaited|" + WRONG),
    "scales that are not published": (
        "nvfp4", r"\n *publish_copies\(\);", "", "has not published"),
    "the step of another word": (
        "nvfp4", r"square_at\(&(\w+)\[(\w+) \+ 0\]", r"square_at(&\1[\2 + 16]", WRONG),
    "scales of the other kind": ("mxfp8", r"0x(9|8)[0-9a-f]*( \| scales_part)", r"0x8400000\2",
                                 "scales that its kind does not have"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, before, after, words = FAULTS[fault]
    own = Walk.text

    def wrong(self: Walk) -> str:
        text = own(self)
        if not self.kernel.tensor:
            return text
        changed, count = re.subn(before, after, text)
        assert count, f"{before} is not there"
        return changed

    monkeypatch.setattr(Walk, "text", wrong)
    with pytest.raises((DeviceFault, AssertionError), match=words):
        small(kind)


INTERPRETED = "mxfp8", "nvfp4"


@cache
def interpreted() -> CBackend:
    """A device of groups that multiplies so, by both meanings of its kernels."""
    rows = tuple(dot for dot in TCGEN05_SCALED if dot.n == 128)
    groups = replace(
        SMALL, lanes=128, most=128, subgroup=32, copies=True, boxes=True, shared_bytes=96 << 10,
        left=TCGEN05_SCALED,
    )  # fmt: skip
    return Both(machine("groups", 2, 96 << 10, 1 << 20, dots=(*rows, *MMA)), groups=groups)


def interpret(kind: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    layer = linear(kind, 20, 160, rng.normal(size=(20, 160)).astype(np.float32))
    lowered = program(interpreted(), layer, rows)
    assert {dot.family for kernel in lowered.kernels for dot in dots_of(kernel)} == {ROWS[kind]}
    check(interpreted(), layer, rng.normal(size=(rows, 160)).astype(np.float32))


@pytest.mark.long
@pytest.mark.parametrize("kind", INTERPRETED)
def test_interpreters(kind: str) -> None:
    interpret(kind, 20)


@pytest.mark.long
def test_another_layout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows one after the other, and not those that are 32 apart side by side."""
    own = product_tiling.scale_digits

    def wrong(tiling: ProductTiling, side: int) -> list[tuple[Expression, Expression]]:
        steps, squares, rows, words, inner = own(tiling, side)
        place = product_tiling.PLACE
        return [steps, squares, (place % 128 // 4, rows[1]), (place % 4, words[1]), inner]

    monkeypatch.setattr("luminal.kernel.product_blocks.scale_digits", wrong)
    with pytest.raises((DeviceFault, AssertionError), match=WRONG):
        small("mxfp8")


MACHINE = {"mxfp8": "UTCQMMA", "mxfp4": "UTCQMMA", "nvfp4": "UTCOMMA.4X"}


@pytest.mark.long
@pytest.mark.parametrize("kind", MACHINE)
def test_machine_code(kind: str) -> None:
    """Scales are copied to tensor memory (UTCCP), and nothing else multiplies."""
    skip_without("cuda")
    layer = linear(kind, 1024, 1024, np.zeros((1024, 1024), np.float32))
    made = Cuda.named("sm_100a")
    for kernel in program(made, layer, 1024).kernels:
        code = nvrtc.compile(made.text(kernel), "sm_100a")
        assert code.spilled == code.stack == 0
        if not dots_of(kernel):
            continue
        assert {dot.family for dot in dots_of(kernel)} == {ROWS[kind]}
        if sass.tool() is not None:
            counts = sass.counts(sass.of(code.code))
            assert counts[MACHINE[kind]] >= 2
            assert counts["UTCBAR"] == 1
            assert sum(n for name, n in counts.items() if name.startswith("UTCCP")) >= 2
            assert not any(name.startswith(("HMMA", "QMMA", "OMMA", "FFMA")) for name in counts)
