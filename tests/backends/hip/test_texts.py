"""What AMD's compiler makes of the walk's texts for chips that are not here."""

from __future__ import annotations

import pytest

import luminal as lm
from luminal.backends.c_backend import machine
from luminal.backends.hip.backend import Hip
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.codegen.c_family.hip import HIP
from luminal.codegen.c_family.kernel import spell
from luminal.compiler.compile import lower_by_stages
from tests.backends.c_family.kernels import OF_THE_LIBRARY, kernel_of, rows_of
from tests.long_share import mostly_long
from tests.simt import offline

ARCHITECTURES = ("gfx90a", "gfx942", "gfx1100")

pytestmark = pytest.mark.skipif(
    offline.clang() is None, reason="neither clang 19 to 22 nor the wheel ziglang is installed"
)


@pytest.mark.parametrize("architecture", mostly_long(ARCHITECTURES, 1))
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int8, dtypes.int64], ids=str)
def test_every_operation_compiles(dtype: DType, architecture: str) -> None:
    rows = [row for row in rows_of(dtype) if row.op not in OF_THE_LIBRARY]
    kernel, _, _ = kernel_of(rows)
    resources = offline.hip_resources(spell(kernel, HIP).text, architecture)
    assert resources.spilled == resources.stack == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_few_blocks_of_a_product_are_not_written_out(architecture: str) -> None:
    """An embedding of patches: 12 blocks, which clang would load together."""
    cx = lm.Graph()
    x, w = cx.tensor((36, 192), name="x"), cx.tensor((192, 32), name="w")
    (x @ w).output("y")
    chip = Hip(machine("hip", 108, 64 << 10, 8 << 20))
    (kernel,) = lower_by_stages(cx.graph(), chip).program.kernels
    assert kernel.lanes >= 64
    resources = offline.hip_resources(chip.text(kernel), architecture)
    assert resources.spilled == resources.stack == 0
    assert resources.registers < 128
