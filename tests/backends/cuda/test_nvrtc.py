"""What NVRTC makes of kernels for chips that are not here."""

from __future__ import annotations

import ctypes

import pytest

from luminal.backends.cuda import nvrtc, wheels
from luminal.base.errors import CompileError
from tests.backends.cuda.present import _is_installed, needs_nvrtc
from tests.long_share import mostly_long
from tests.simt.samples import HISTOGRAM, PRODUCT, REDUCTION, SCAN, SORT

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")
TEXTS = {
    "product": PRODUCT,
    "reduction": REDUCTION,
    "scan": SCAN,
    "sort": SORT,
    "histogram": HISTOGRAM,
}
SPILLING = r"""
extern "C" __global__ void __launch_bounds__(1024) spilling(const float* from, float* to) {
    float held[96];
    #pragma unroll
    for (int i = 0; i < 96; i++) held[i] = from[i * 1024 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 96; i++) to[threadIdx.x * 96 + i] = held[i] * held[(i * 5 + 7) % 96];
}
"""


@needs_nvrtc
@pytest.mark.parametrize("architecture", mostly_long(ARCHITECTURES, 1))
@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_the_texts_of_the_shims_are_cuda(text: str, architecture: str) -> None:
    cubin = nvrtc.compile(text, architecture)
    assert cubin.code[:4] == b"\x7fELF"
    assert 8 <= cubin.registers <= 64
    assert cubin.spilled == 0


@needs_nvrtc
def test_spills_are_told() -> None:
    cubin = nvrtc.compile(SPILLING, "sm_90a")
    assert cubin.registers == 64
    assert cubin.spilled > 0


@needs_nvrtc
def test_a_refused_text_comes_with_the_compilers_words() -> None:
    with pytest.raises(CompileError, match=r"for sm_80:\n.*kernel\(2\): error.*undefined"):
        nvrtc.compile('extern "C" __global__ void k(int* a) {\n    a[0] = undefined;\n}', "sm_80")


@needs_nvrtc
def test_products_and_sums_are_contracted_where_the_text_says_so_alone() -> None:
    text = 'extern "C" __global__ void k(float* a) { a[0] = %s; }'
    plain = nvrtc.compile(text % "a[0] * a[1] + a[2]", "sm_80").code
    same = nvrtc.compile(text % "__fadd_rn(__fmul_rn(a[0], a[1]), a[2])", "sm_80").code
    fused = nvrtc.compile(text % "fmaf(a[0], a[1], a[2])", "sm_80").code
    assert plain == same
    assert plain != fused


@pytest.mark.skipif(_is_installed(), reason="NVRTC is installed")
def test_without_nvrtc_the_extra_is_named() -> None:
    with pytest.raises(CompileError, match=r"pip install .*\[cuda\]"):
        nvrtc.compile(PRODUCT, "sm_80")


@needs_nvrtc
def test_a_wheel_that_lies_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a file of paths names another environment's packages."""
    from cuda.bindings import nvrtc as bindings

    if not wheels.files(nvrtc.WHEEL, "libnvrtc"):
        pytest.skip("NVRTC is no wheel here")
    found = bindings.nvrtcVersion()
    answers = [RuntimeError("not found"), found, RuntimeError("not found"), RuntimeError("again")]
    loaded: list[str] = []

    def answer() -> object:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    monkeypatch.setattr(bindings, "nvrtcVersion", answer)
    monkeypatch.setattr(ctypes, "CDLL", lambda path, mode: loaded.append(path))
    assert nvrtc._bindings() is bindings
    assert any("libnvrtc.so" in path for path in loaded)
    assert any("libnvrtc-builtins" in path for path in loaded)
    with pytest.raises(CompileError, match="NVRTC is not installed; install it by"):
        nvrtc._bindings()
    assert not answers
