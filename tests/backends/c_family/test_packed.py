"""Products by packed weights, in the texts of each dialect that the shims run: their values, and
that blocks are decoded where they are multiplied.
"""

from __future__ import annotations

import pytest

from luminal.compiler.compile import lower_to_program
from tests.backends.c_family.dialects import CHECKED, checked
from tests.backends.c_family.offline import backend
from tests.backends.on_device import check_case, compiled_on
from tests.backends.packed_products import KINDS, product
from tests.long_share import long_rows

SHAPE = 8, 512
CASES = [(name, kind, rows) for name in CHECKED for kind in KINDS for rows in (1, 16)]
SAMPLE = [("cuda", kind, 1) for kind in KINDS] + [("cuda", "Q4_0", 16)]


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
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_decoded_in_the_kernel_that_multiplies(kind: str, rows: int) -> None:
    """On every dialect, at sizes of a model: one kernel, which reads nothing but data and x."""
    for dialect in CHECKED:
        graph = product(kind, rows, (1024, 1024)).graph
        assert len(lower_to_program(graph, checked(dialect)).kernels) == 1


@pytest.mark.parametrize("kind", KINDS)
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
