"""What expanded IR may ask of a machine: facts of the instruction sets."""

from __future__ import annotations

import pytest

from luminal.base.dtypes import float32, float64, int32, int64, uint16
from luminal.codegen.llvm_operations import instructions
from luminal.expand.ir import Type

AVX2, AVX512 = ("avx2", "f16c"), ("avx2", "f16c", "avx512f")


@pytest.mark.parametrize(
    ("operation", "features"),
    [
        (("sin", Type(float64, 4)), [(), AVX2, AVX512]),
        (("max", Type(int32, 8)), [AVX2, AVX512]),  # vpmaxsd
        (("max", Type(int64, 8)), [AVX512]),  # vpmaxsq
        (("scale", Type(float32, 16)), [AVX512]),  # vscalefps
        (("scatter", Type(float32, 16)), [AVX512]),
        (("widen_half", Type(float32, 8)), [AVX2, AVX512]),  # vcvtph2ps
        (("narrow_half", Type(uint16, 8)), [AVX2, AVX512]),
        (("max", Type(float32, 8)), []),  # vmaxps has another meaning for NaN and -0
    ],
)
def test_instructions_of_machines(
    operation: tuple[str, Type], features: list[tuple[str, ...]]
) -> None:
    assert [one for one in ((), AVX2, AVX512) if operation in instructions(one)] == features
