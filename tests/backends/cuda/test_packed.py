"""Products by packed weights as NVRTC compiles them for chips that are not here: they decode in
registers, and spill none.
"""

from __future__ import annotations

import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import nvrtc, sass
from luminal.compiler.compile import lower_to_program
from tests.backends.cuda.present import needs_nvrtc
from tests.backends.packed_products import IN_TABLES, KINDS, product, weight
from tests.long_share import long_rows, mostly_long
from tests.numerics.byte_products import recorded

CHIPS = "sm_90a", "sm_80"
CASES = [(chip, kind, rows) for chip in CHIPS for kind in KINDS for rows in (1, 16)]
SHORT = ("Q8_0", "Q5_0", "MXFP4", "Q3_K", "Q6_K", "float8_e4m3fn")
SAMPLE = [("sm_90a", kind, 1) for kind in SHORT[:2]] + [("sm_80", "Q5_K", 16)]
BYTEWISE = *IN_TABLES, "MXFP4", "TQ1_0", "Q1_0"
"""Looked up in tables; blocks of 17 bytes, which lie at odd addresses; a byte for several codes."""
REGISTERS = {1: 128, 16: 255}  # at most: of 65,536, for 4 and for 2 groups of 128 lanes at least


@needs_nvrtc
@pytest.mark.parametrize(("chip", "kind", "rows"), long_rows(CASES, SAMPLE))
def test_registers_hold_what_is_decoded(chip: str, kind: str, rows: int) -> None:
    made = registry.compiling(f"cuda:{chip}")
    assert isinstance(made, CBackend)
    (kernel,) = lower_to_program(product(kind, rows, (4096, 4096)).graph, made).kernels
    code = nvrtc.compile(made.text(kernel), chip)
    assert (code.spilled, code.stack) == (0, 0)
    assert code.registers <= REGISTERS[rows]


@needs_nvrtc
@pytest.mark.skipif(sass.tool() is None, reason="nvdisasm is not installed (extra cuda)")
@pytest.mark.parametrize("kind", mostly_long([k for k in KINDS if k not in BYTEWISE], 1))
def test_codes_of_one_row_are_loaded_by_words(kind: str) -> None:
    """Of two bytes, or of four where blocks are so aligned; a scale of one byte is loaded alone."""
    made = registry.compiling("cuda:sm_90a")
    assert isinstance(made, CBackend)
    (kernel,) = lower_to_program(product(kind, 1, (4096, 4096)).graph, made).kernels
    counts = sass.counts(made.renderers["sass"](kernel))
    scales = 1 if kind in ("mxfp4", "nvfp4") else 0
    assert counts["LDG.E.U8"] + counts["LDG.E.S8"] <= scales, dict(counts)


@needs_nvrtc
@pytest.mark.skipif(sass.tool() is None, reason="nvdisasm is not installed (extra cuda)")
@pytest.mark.parametrize("kind", mostly_long(["Q4_0", "Q8_0", "Q4_K", "Q6_K", "int8"], 1))
def test_bytes_are_multiplied_by_fours(kind: str) -> None:
    """Four products an instruction, of what is loaded by 16 bytes, and no spills."""
    made = registry.compiling("cuda:sm_90a")
    assert isinstance(made, CBackend)
    graph = recorded(weight(kind, 512, 4096), (1, 4096)).graph()
    kernels = lower_to_program(graph, made).kernels
    (kernel,) = (kernel for kernel in kernels if " = u8i8x4(" in made.text(kernel))
    code = nvrtc.compile(made.text(kernel), "sm_90a")
    assert (code.spilled, code.stack) == (0, 0)
    counts = sass.counts(made.renderers["sass"](kernel))
    assert counts["IDP.4A.U8.S8"] >= 8, dict(counts)
    wide = sum(count for name, count in counts.items() if name.startswith("LDG.E.128"))
    assert wide >= 2, dict(counts)


@needs_nvrtc
@pytest.mark.skipif(sass.tool() is None, reason="nvdisasm is not installed (extra cuda)")
@pytest.mark.parametrize(("chip", "kind"), long_rows([(c, k) for c in CHIPS for k in KINDS], []))
def test_matrix_instructions_take_decoded_values_from_registers(chip: str, kind: str) -> None:
    """The weight is decoded into registers, from there into the ring, and written nowhere else."""
    made = registry.compiling(f"cuda:{chip}")
    assert isinstance(made, CBackend)
    (kernel,) = lower_to_program(product(kind, 16, (4096, 4096), lm.bfloat16).graph, made).kernels
    code = nvrtc.compile(made.text(kernel), chip)
    assert (code.spilled, code.stack) == (0, 0)
    counts = sass.counts(made.renderers["sass"](kernel))
    assert counts["HMMA.16816.F32.BF16"] > 0
    assert counts["STS.128"] > 0, dict(counts)
    stored = sum(count for name, count in counts.items() if name.startswith("STG"))
    assert stored <= 4, dict(counts)  # of results alone
