"""Types and address spaces of the walk's Metal texts, as clang sees them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from luminal.base import dtypes
from luminal.base.errors import CompileError
from luminal.codegen.c_family.kernel import spell
from luminal.codegen.c_family.metal import METAL
from tests.backends.c_family.kernels import OF_THE_LIBRARY, kernel_of, rows_of
from tests.simt import offline


@pytest.mark.skipif(
    offline.clang() is None, reason="neither clang 19 to 22 nor the wheel ziglang is installed"
)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int8, dtypes.int64], ids=str)
def test_every_operation_keeps_its_spaces(dtype: dtypes.DType) -> None:
    rows = [row for row in rows_of(dtype) if row.to.short in METAL.types]
    kernel, _, _ = kernel_of([row for row in rows if row.op not in OF_THE_LIBRARY])
    offline.check_metal(spell(kernel, METAL).text)


def test_f64_is_refused_by_name() -> None:
    kernel, _, _ = kernel_of(rows_of(dtypes.float64)[:1])
    with pytest.raises(CompileError, match="Metal computes no f64; cast to f32, or use backend"):
        spell(kernel, METAL)


def test_f64_that_nobody_reads_is_refused_too() -> None:
    kernel, _, _ = kernel_of(rows_of(dtypes.float64)[:1])
    with pytest.raises(CompileError, match="Metal computes no f64"):
        spell(replace(kernel, body=()), METAL)
