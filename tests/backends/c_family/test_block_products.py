"""Products of blocks with scales by mma.sync (sm_120a): in the interpreters, on the shims, where
every access and barrier is checked, and as machine code.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import nvrtc, sass
from luminal.backends.cuda.backend import Cuda
from luminal.base import dots
from luminal.base.dots import MMA, MMA_SCALED
from luminal.codegen.c_family.walk import Walk
from luminal.kernel.product_blocks import Products
from tests.backends.c_family.block_products import (
    KINDS,
    check,
    compare,
    drawn,
    linear,
    program,
)
from tests.backends.c_family.checked import checked
from tests.backends.c_family.offline import skip_without
from tests.backends.groups.matrix_backend import backend, dots_of
from tests.long_share import long_but
from tests.simt.launching import DeviceFault

DOTS = *MMA_SCALED, *MMA
ROWS = {"mxfp8": "mma.mxf8", "mxfp4": "mma.mxf8", "nvfp4": "mma.nvf4"}


def small(made: CBackend, kind: str) -> None:
    rng = np.random.default_rng(0)
    layer = linear(kind, 24, 96, rng.normal(size=(24, 96)).astype(np.float32))
    lowered = program(made, layer, 40)
    assert {dot.name for kernel in lowered.kernels for dot in dots_of(kernel)} == {ROWS[kind]}
    check(made, layer, rng.normal(size=(40, 96)).astype(np.float32))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_interpreters(kind: str) -> None:
    small(backend(DOTS), kind)


@pytest.mark.parametrize("kind", long_but(KINDS, ("mxfp8",)))
def test_on_the_shims(kind: str) -> None:
    small(checked(dots=DOTS), kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(0, 12, 4))
def test_drawn_products(kind: str, first: int) -> None:
    """Whatever the shape: edges on all sides, scales at both ends, NaN among them, zero blocks."""
    for seed in range(first, first + 4):
        check(checked(dots=DOTS), *drawn(seed, kind))


@pytest.mark.parametrize("kind", long_but(KINDS, ("nvfp4",)))
def test_elsewhere_both_factors_are_widened(kind: str) -> None:
    for seed in range(3):
        layer, x = drawn(seed, kind)
        cx = lm.Graph()
        layer(cx.tensor(x.shape, name="x")).output("y")
        compare(layer, x, lm.compile(cx, "reference"))


FAULTS = {
    "the scale of the neighbouring block": (
        "mxfp8", r"= s2\[(v\d+)\];", r"= s2[\1 + 1];", "Mismatched"),
    "scales of the other factor": (
        "mxfp8", r", (v\d+), (v\d+)\);(?=\n)", r", \2, \1);", "Mismatched"),
    "no barriers": ("mxfp8", r"__syncthreads\(\);", "", "no barrier between|nothing has written"),
}  # fmt: skip


def wrong_text(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    """Every kernel that multiplies has another text."""
    own = Walk.text

    def wrong(self: Walk) -> str:
        text = own(self)
        if "mma_" not in text:
            return text
        changed, count = re.subn(before, after, text)
        assert count, f"{before} is not there"
        return changed

    monkeypatch.setattr(Walk, "text", wrong)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, before, after, words = FAULTS[fault]
    wrong_text(monkeypatch, before, after)
    with pytest.raises((DeviceFault, AssertionError), match=words):
        check(checked(dots=DOTS), *drawn(2, kind))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_other_lanes_are_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in has its own table of the lanes whose scales are read."""
    wrong = "m0 m1 m2 m3 - |", dots.SCALES[1]
    monkeypatch.setattr("luminal.expand.fragments.SCALES", wrong)
    with pytest.raises(AssertionError, match="Mismatched"):
        check(checked(dots=DOTS), *drawn(2, kind))


@pytest.mark.long
def test_pairs_of_other_halves_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one factor alone: its pairs are those of neighbours."""
    own = Products.point

    def wrong(self: Products, side: int, step: Any, here: Any, number: int = 0) -> Any:
        return own(self, side, step, here, 1 - number if side and number else number)

    monkeypatch.setattr(Products, "point", wrong)
    with pytest.raises(AssertionError, match="Mismatched"):
        check(checked(dots=DOTS), *drawn(2, "nvfp4"))


MACHINE = {
    "mxfp8": "QMMA.SF.16832.F32.E4M3.E4M3.E8",
    "mxfp4": "QMMA.SF.16832.F32.E4M3.E4M3.E8",
    "nvfp4": "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X",
}


@pytest.mark.parametrize("kind", long_but(MACHINE, ()))
def test_machine_code(kind: str) -> None:
    """For RTX Blackwell all that is multiplied is so as it lies, without spills; for the data
    centre's, which has no such instructions for lanes, by none of these.
    """
    skip_without("cuda")
    layer = linear(kind, 1024, 1024, np.zeros((1024, 1024), np.float32))
    made = Cuda.named("sm_120a")
    for kernel in program(made, layer, 1024).kernels:
        code = nvrtc.compile(made.text(kernel), "sm_120a")
        assert code.spilled == code.stack == 0
        if not dots_of(kernel):
            continue
        assert {dot.name for dot in dots_of(kernel)} == {ROWS[kind]}
        if sass.tool() is not None:
            counts = sass.counts(sass.of(code.code))
            assert counts[MACHINE[kind]] >= 4
            assert not any(name.startswith(("HMMA", "FFMA")) for name in counts)
