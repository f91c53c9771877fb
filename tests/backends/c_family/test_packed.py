"""Products by packed weights, in the texts of each dialect that the shims run: their values, and
that blocks are decoded where they are multiplied.
"""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.base.dots import MFMA, MMA, SIMDGROUP, UINT8_BY_INT8
from luminal.compiler.compile import lower_to_program
from tests.backends.c_family.checked import checked as multiplying
from tests.backends.c_family.dialects import CHECKED, checked
from tests.backends.c_family.offline import backend
from tests.backends.on_device import check_case, compiled_on
from tests.backends.packed_products import KINDS, product, weight
from tests.long_share import long_but, long_rows, mostly_long
from tests.numerics.byte_products import in_bytes, recorded, some

SHAPE = 16, 512  # of more bytes than the tables of any kind have
CASES = [(name, kind, rows) for name in CHECKED for kind in KINDS for rows in (1, 16)]
SHORT = ("Q4_0", "Q6_K", "IQ2_XXS", "MXFP4", "int4", "float8_e4m3fn")
SAMPLE = [("cuda", kind, 1) for kind in KINDS if kind in SHORT] + [("cuda", "Q4_0", 16)]


@pytest.mark.parametrize(("dialect", "kind", "rows"), long_rows(CASES, SAMPLE))
def test_values_are_those_of_the_reference(dialect: str, kind: str, rows: int) -> None:
    """To the rounding of sums. A device holds the blocks, and no bytes of decoded values."""
    case = product(kind, rows, SHAPE)
    exe = compiled_on(checked(dialect), case.graph)
    check_case(exe, case)
    report = exe.memory_report()
    assert report.derived_bytes == report.weight_bytes
    assert report.arena_bytes < report.input_bytes + report.output_pool_bytes + 1024


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("kind", long_but(KINDS, SHORT))
def test_blocks_are_decoded_in_the_kernel_that_multiplies(kind: str, rows: int) -> None:
    """On every dialect, at sizes of a model: one kernel, which reads nothing but data and x."""
    for dialect in CHECKED:
        graph = product(kind, rows, (1024, 1024)).graph
        assert len(lower_to_program(graph, checked(dialect)).kernels) == 1


MATRICES = {"cuda": MMA, "hip": MFMA, "metal": SIMDGROUP}
BF16 = [(name, kind) for name in MATRICES for kind in KINDS]


@pytest.mark.parametrize(("dialect", "kind"), long_rows(BF16, [("cuda", "Q4_0")]))
def test_matrix_instructions_have_the_values_of_the_reference(dialect: str, kind: str) -> None:
    """Of bfloat16: decoded values are rounded as they are copied, and lie nowhere else."""
    case = product(kind, 16, (16, 512), lm.bfloat16)
    exe = compiled_on(multiplying(dialect, MATRICES[dialect]), case.graph)
    check_case(exe, case)
    report = exe.memory_report()
    assert report.derived_bytes == report.weight_bytes
    assert report.arena_bytes < report.input_bytes + report.output_pool_bytes + 1024


BYTES = [kind for kind in KINDS if not kind.startswith("float8")]
IN_BYTES = [(name, kind, rows) for name in ("cuda", "hip") for kind in BYTES for rows in (1, 3, 16)]


@pytest.mark.parametrize(
    ("dialect", "kind", "rows"),
    long_rows(IN_BYTES, [("cuda", "int8", 3), ("hip", "Q8_0", 1)]),
)
def test_products_of_bytes_are_by_dots_of_words(dialect: str, kind: str, rows: int) -> None:
    """Codes that are bytes of any value, by rows of which some blocks are zeros."""
    packed, x = weight(kind, 24, 512), some(rows, 512)
    made = multiplying(dialect, (*MATRICES[dialect], UINT8_BY_INT8))
    graph = recorded(packed, x.shape).graph()
    texts = map(made.text, lower_to_program(graph, made).kernels)
    assert any(" = u8i8x4(" in text for text in texts)
    found = np.asarray(compiled_on(made, graph)({"x": x})["y"])
    values = packed.numpy().T.astype(np.float64)
    size = in_bytes(np.abs(x)) @ np.abs(values)
    # Sums of integers are exact; those of up to 64 groups round in float32: 6e-8 of all was seen.
    np.testing.assert_array_less(np.abs(found - in_bytes(x) @ values), 2e-7 * size + 1e-30)


@pytest.mark.parametrize("kind", mostly_long(["Q4_K", "Q4_0", "Q8_0", "Q6_K", "int4"], 1))
def test_lanes_multiply_whole_blocks(kind: str) -> None:
    """By 16 bytes where codes are so aligned, and fold their sums once, not for each block."""
    made = backend("cuda")
    program = lower_to_program(recorded(weight(kind, 512, 4096), (1, 4096)).graph(), made)
    (text,) = (t for t in map(made.text, program.kernels) if " = u8i8x4(" in t)
    assert "*(const u32x4 *)(((const unsigned int *)" in text
    after = text.rindex(" = u8i8x4(")
    assert text.index("__shfl_xor_sync(") > after


@pytest.mark.parametrize("kind", mostly_long(["Q4_0", "Q6_K"], 1))
def test_matrix_instructions_take_what_is_decoded(kind: str) -> None:
    """One kernel up to so many rows; beyond, each block of rows would decode anew."""
    made = backend("cuda")
    for rows, kernels in ((16, 1), (256, 1), (2048, 2)):
        graph = product(kind, rows, (1024, 1024), lm.bfloat16).graph
        program = lower_to_program(graph, made)
        assert len(program.kernels) == kernels
        text = made.text(program.kernels[-1])
        assert "mma.sync" in text or "wgmma" in text


@pytest.mark.parametrize("kind", mostly_long(KINDS, 3))
def test_lanes_fold_their_sums_once(kind: str) -> None:
    """Not for each product: exchanges stand outside of the loops that multiply."""
    made = backend("cuda")
    (kernel,) = lower_to_program(product(kind, 1, (4096, 4096)).graph, made).kernels
    depths = {
        word: len(line) - len(line.lstrip())
        for line in made.text(kernel).splitlines()
        for word in ("__shfl_xor_sync(", "= fmaf(")
        if word in line
    }
    assert depths["__shfl_xor_sync("] < depths["= fmaf("]
