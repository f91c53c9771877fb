"""Products in blocks as NVRTC compiles them for chips that are not here: their tiles stay in
registers.
"""

from __future__ import annotations

import pytest

import luminal as lm
from luminal.backends.c_backend import machine
from luminal.backends.cuda import nvrtc
from luminal.backends.cuda.backend import Cuda
from luminal.compiler.compile import lower_by_stages
from tests.backends.cuda.present import needs_nvrtc
from tests.long_share import mostly_long

CHIP = Cuda(machine("cuda", 108, 48 << 10, 40 << 20))
SHAPES = {"f32": (4096, 4096, 4096), "f64": (512, 1024, 2048), "bf16": (1000, 777, 1333)}


@needs_nvrtc
@pytest.mark.parametrize("architecture", mostly_long(["sm_90a", "sm_80", "sm_100a"], 1))
@pytest.mark.parametrize("dtype", SHAPES)
def test_the_default_blocks_of_products_do_not_spill(dtype: str, architecture: str) -> None:
    m, k, n = SHAPES[dtype]
    cx = lm.Graph()
    (cx.tensor((m, k), name="a", dtype=dtype) @ cx.tensor((k, n), name="b", dtype=dtype)).output(
        "y"
    )
    (kernel,) = lower_by_stages(cx.graph(), CHIP).program.kernels
    assert kernel.lanes >= 64
    assert nvrtc.compile(CHIP.text(kernel), architecture).spilled == 0


@needs_nvrtc
@pytest.mark.parametrize("rows", mostly_long([8, 2, 3, 4, 5, 12, 16], 1))
def test_sums_of_few_rows_do_not_spill(rows: int) -> None:
    """Two products of a row, each by weights in bfloat16, beside the norm of few rows."""
    cx = lm.Graph()
    x = cx.tensor((rows, 2048), name="x")
    x = x * ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt()
    a, b = (cx.tensor((1024, 2048), lm.bfloat16, name) for name in "ab")
    ((x @ a.cast(lm.float32).mT).sigmoid() * (x @ b.cast(lm.float32).mT)).output("y")
    (kernel,) = lower_by_stages(cx.graph(), CHIP).program.kernels
    assert kernel.lanes >= 64
    assert nvrtc.compile(CHIP.text(kernel), "sm_90a").spilled == 0
