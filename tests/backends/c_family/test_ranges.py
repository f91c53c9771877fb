"""Loads that are told where a buffer ends: on the shims, which check what may lie beyond, and as
AMD's machine code.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import luminal as lm
from luminal.backends.c_backend import CBackend
from luminal.backends.hip.backend import Hip
from luminal.base.dots import MFMA, WMMA, Dot
from luminal.codegen.c_family import walk
from luminal.codegen.c_family.hip import HIP
from luminal.codegen.c_family.persistent import spell_tiles_together
from luminal.codegen.c_family.walk import Walk
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from tests.backends.c_family.checked import checked
from tests.backends.c_family.matrix_products import check_product, product
from tests.backends.c_family.offline import skip_without
from tests.backends.groups.random_matrices import check as random_product
from tests.backends.on_device import compiled_on
from tests.long_share import long_rows, mostly_long
from tests.simt import offline
from tests.simt.launching import DeviceFault

RAGGED = (18, 24, 11)
LAYOUTS = ((False, True), (False, False), (True, False))


def texts(made: CBackend, graph: Graph) -> list[str]:
    return [made.text(each) for each in lower_to_program(graph, made).kernels]


def check(dots: tuple[Dot, ...], dtype: str, turned: tuple[bool, bool]) -> None:
    made, graph = checked("hip", dots), product(dtype, *RAGGED, turned)
    (text,) = texts(made, graph)
    assert "= load_inside<" in text
    assert not re.search(r"\? .*\bb[01]\b", text)
    check_product(compiled_on(made, graph), dtype, *RAGGED, turned)


CASES = [
    (dots, dtype, turned)
    for dots in (MFMA, WMMA)
    for dtype in ("bfloat16", "int8", "float32")
    for turned in LAYOUTS
]


@pytest.mark.parametrize(("dots", "dtype", "turned"), long_rows(CASES, CASES[:1]))
def test_ragged_products(dots: tuple[Dot, ...], dtype: str, turned: tuple[bool, bool]) -> None:
    check(dots, dtype, turned)


@pytest.mark.parametrize("first", mostly_long(range(1, 61, 2), 0))
def test_random_products(first: int) -> None:
    for seed in range(first, first + 2):
        random_product(seed, 70, checked("hip", MFMA if seed % 4 else WMMA))


# --- faults ---------------------------------------------------------------------------------------


def longer_by(bytes_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Walk._ranged
    monkeypatch.setattr(
        Walk, "_ranged", lambda self: {name: n + bytes_ for name, n in own(self).items()}
    )


def test_a_range_that_ends_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one element."""
    longer_by(-2, monkeypatch)
    with pytest.raises((DeviceFault, AssertionError), match=r"across the end|Mismatched"):
        check(MFMA, "bfloat16", (False, True))


def test_a_range_that_ends_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    longer_by(1, monkeypatch)
    with pytest.raises(DeviceFault, match="reads 1 bytes out of bounds"):
        check(MFMA, "bfloat16", (False, True))


@pytest.mark.long
def test_what_is_not_live_and_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Walk._load

    def live(self: Walk, statement: Any) -> None:
        own(self, statement)
        self.lines[-1] = re.sub(r"(load_inside<.*), \w+\)", r"\1, true)", self.lines[-1])

    monkeypatch.setattr(Walk, "_load", live)
    with pytest.raises((DeviceFault, AssertionError)):
        check(MFMA, "bfloat16", (False, True))


def test_large_buffers_have_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of 32 bits do not reach what lies beyond 2 GiB."""
    made, graph = checked("hip", MFMA), product("bfloat16", *RAGGED, (False, True))
    first = 2 * RAGGED[0] * RAGGED[1]
    monkeypatch.setattr(walk, "RANGE_BYTES", first)
    (text,) = texts(made, graph)
    assert "b0_range" not in text
    assert "b1_range" in text


# --- machine code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", mostly_long(("gfx942", "gfx90a", "gfx1100", "gfx1201"), 1))
def test_loads_at_ragged_edges_take_no_branch(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("hip")
    graph = product("bfloat16", 1000, 1000, 1000, (False, True))
    made = Hip.named(chip)
    (text,) = texts(made, graph)
    ranged = offline.hip_instructions(text, chip)
    plain = text.replace("__has_builtin(__builtin_amdgcn_raw_buffer_load_b8)", "0")
    assert plain != text
    branching = offline.hip_instructions(plain, chip)
    loads = sum(n for name, n in ranged.items() if name.startswith("buffer_load"))
    assert loads >= 4
    assert "load_inside<unsigned short>" not in text  # runs end where the rows do
    assert branches(ranged) <= branches(branching) - loads


@pytest.mark.long
def test_kernels_of_several_do_not_loop_over_descriptors() -> None:
    """Their pointers come from memory; lanes whose descriptors differ would take turns."""
    skip_without("hip")
    cx = lm.Graph()
    x, w = (cx.tensor((1000, 1000), name=name, dtype="bfloat16") for name in "xw")
    ((x @ w).relu() @ w).output("y")
    made = Hip.named("gfx942")
    kernels = lower_to_program(cx.graph(), made).kernels
    code = offline.hip_instructions(spell_tiles_together(kernels, HIP).text, "gfx942")
    assert code["buffer_load_dwordx4"] >= 4
    assert not code["v_cmp_eq_u64_e64"]


def branches(code: dict[str, int]) -> int:
    return sum(n for name, n in code.items() if name.startswith("s_cbranch"))
