"""HIP and Metal texts for machines that are not here."""

from __future__ import annotations

import pytest

from tests.long_share import mostly_long
from tests.simt import offline
from tests.simt.compiling import TextError
from tests.simt.samples import HISTOGRAM, METAL_SUMS, PRODUCT, REDUCTION, SORT

pytestmark = pytest.mark.skipif(
    offline.clang() is None, reason="neither clang 19 to 22 nor the wheel ziglang is installed"
)

ARCHITECTURES = ("gfx90a", "gfx942", "gfx1100")
TEXTS = {
    "product": PRODUCT,
    "reduction": REDUCTION.replace("_xor_sync(0xffffffff, ", "_xor("),
    "sort": SORT,
    "histogram": HISTOGRAM,
}
SPILLING = r"""
extern "C" __global__ void __launch_bounds__(1024) spilling(const float* from, float* to) {
    float held[384];
    #pragma unroll
    for (int i = 0; i < 384; i++) held[i] = from[i * 1024 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 384; i++) to[threadIdx.x * 384 + i] = held[i] * held[(i * 5 + 7) % 384];
}
"""


@pytest.mark.parametrize("architecture", mostly_long(ARCHITECTURES, 1))
@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_the_texts_of_the_shims_are_hip(text: str, architecture: str) -> None:
    resources = offline.hip_resources(text, architecture)
    assert 1 <= resources.registers <= 64
    assert resources.spilled == resources.stack == 0


@pytest.mark.long
def test_spills_of_hip_are_told() -> None:
    assert offline.hip_resources(SPILLING, "gfx90a").stack > 0


def test_a_text_that_is_no_hip_is_refused_with_its_line() -> None:
    with pytest.raises(TextError, match=r"kernel:2:.*undefined"):
        offline.hip_resources(
            'extern "C" __global__ void k(int* a) {\n    a[0] = undefined;\n}', "gfx942"
        )


def test_a_right_metal_text_keeps_its_address_spaces() -> None:
    offline.check_metal(METAL_SUMS)


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        pytest.param("float sum = 0;\n    for (uint i = t", "float* p = sums; float sum = *p;\n"
                     "    for (uint i = t", "cannot initialize", id="device-to-thread"),
        pytest.param("float sum = 0;\n    for (uint i = t", "threadgroup float* p = sums;\n"
                     "    float sum = *p; for (uint i = t", "cannot initialize",
                     id="another-space"),
        pytest.param("device float* sums", "float* sums", "without an address space: float",
                     id="no-space"),
        pytest.param("sums[row] = sum", "n = 1", "const|read-only", id="constant-written"),
    ],
)  # fmt: skip
def test_a_metal_text_that_mixes_spaces_is_refused(before: str, after: str, complaint: str) -> None:
    assert before in METAL_SUMS
    with pytest.raises(TextError, match=complaint):
        offline.check_metal(METAL_SUMS.replace(before, after))
