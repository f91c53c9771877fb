"""The checks of device code on the CPU: right kernels pass, planted faults are caught."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from tests.simt import compiling
from tests.simt.compiling import TextError, compile
from tests.simt.launching import DeviceFault, launch
from tests.simt.samples import PRODUCT, SAMPLES, Fault, Sample

pytestmark = pytest.mark.skipif(compiling.compiler() is None, reason="no C++ compiler is installed")


def _planted() -> Iterator[object]:
    for name, sample in SAMPLES.items():
        for fault_name, fault in sample.faults.items():
            yield pytest.param(sample, fault, id=f"{name}-{fault_name}")


def _run(sample: Sample, text: str) -> list[object]:
    arguments = sample.arguments()
    module = compile(text, sample.dialect)
    launch(module, sample.name, sample.grid, sample.group, arguments, dynamic=sample.dynamic)
    return arguments


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=list(SAMPLES))
def test_a_right_kernel_passes(sample: Sample) -> None:
    written = _run(sample, sample.text)
    for number, expected in sample.expected(sample.arguments()).items():
        np.testing.assert_allclose(
            written[number], expected, rtol=sample.tolerance, atol=sample.tolerance
        )


@pytest.mark.parametrize(("sample", "fault"), list(_planted()))
def test_a_planted_fault_is_caught(sample: Sample, fault: Fault) -> None:
    assert sample.text.count(fault.before) == 1
    with pytest.raises(DeviceFault, match=fault.complaint) as raised:
        _run(sample, sample.text.replace(fault.before, fault.after))
    assert re.match(rf"{sample.name}: line \d+, thread \(", str(raised.value))


def test_hip_is_cuda_without_masks() -> None:
    text = SAMPLES["reduction"].text.replace("_xor_sync(0xffffffff, ", "_xor(")
    rows, sums = np.ones((2, 64), np.float32), np.zeros(2, np.float32)
    launch(compile(text, "hip"), "row_sums", (2,), (128,), [rows, sums, np.int32(64)])
    np.testing.assert_array_equal(sums, [64, 64])


def test_a_fault_names_both_lines() -> None:
    text = PRODUCT.replace("__syncthreads();  // they were read", "")
    a = np.ones((16, 16), np.float32)
    complaint = (
        r"product: line 11, thread \(1, 0, 0\) of group \(0, 0, 0\) reads byte \d+ of shared "
        r"memory, which thread \(0, 0, 0\) of group \(0, 0, 0\) wrote at line [89] with no barrier "
        r"between them \(ascending\)"
    )
    with pytest.raises(DeviceFault, match=complaint):
        launch(compile(text, "cuda"), "product", (1, 1), (8, 8), [a, a, a.copy(), np.int32(16)])


def test_orders_that_differ_are_a_fault() -> None:
    text = 'extern "C" __global__ void last(int* to) { atomicExch(to, (int)threadIdx.x); }'
    with pytest.raises(DeviceFault, match="last: buffer 0 differs between threads run ascending"):
        launch(compile(text, "cuda"), "last", (1,), (4,), [np.zeros(1, np.int32)])


def test_lanes_are_ordered_by_their_warps_barrier_alone() -> None:
    text = """extern "C" __global__ void rotate(int* to) {
        __shared__ int all[32];
        int lane = threadIdx.x;
        all[lane] = lane;
        __syncwarp();
        to[lane] = all[(lane + 1) % 32];
    }"""
    to = np.zeros(32, np.int32)
    launch(compile(text, "cuda"), "rotate", (1,), (32,), [to])
    np.testing.assert_array_equal(to, (np.arange(32) + 1) % 32)
    shuffled = text.replace("__syncwarp();", "lane = __shfl_sync(~0u, lane, lane);")
    with pytest.raises(DeviceFault, match=r"nothing has written|no barrier"):
        launch(compile(shuffled, "cuda"), "rotate", (1,), (32,), [to])
    with pytest.raises(DeviceFault, match=r"nothing has written|no barrier"):
        launch(compile(text, "cuda"), "rotate", (1,), (32,), [to], warp_size=16)


def test_more_threads_than_the_launch_bounds_are_a_fault() -> None:
    a = np.ones((32, 32), np.float32)
    with pytest.raises(DeviceFault, match="product: launched with 256 threads, its bound is 64"):
        launch(compile(PRODUCT, "cuda"), "product", (2, 2), (16, 16), [a, a, a, np.int32(32)])


def test_arguments_must_have_their_parameters_sizes() -> None:
    a = np.ones((8, 8), np.float32)
    with pytest.raises(TypeError, match=r"arguments of \[8, 8, 8, 8\] bytes"):
        launch(compile(PRODUCT, "cuda"), "product", (1, 1), (8, 8), [a, a, a, np.int64(8)])


def test_a_text_that_is_no_kernel_is_refused_with_the_compilers_words() -> None:
    with pytest.raises(TextError, match=r"kernel:2:.*'undefined'|kernel:2:.*‘undefined’"):
        compile('extern "C" __global__ void k(int* a) {\n    a[0] = undefined;\n}', "cuda")
