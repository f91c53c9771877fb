"""Right kernels of several kinds, and faults to plant in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.simt.launching import Argument, Array

PRODUCT = r"""
extern "C" __global__ void __launch_bounds__(64)
product(const float* a, const float* b, float* c, int n) {
    __shared__ float as[8][8], bs[8][8];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, column = blockIdx.x * 8 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 8) {
        as[y][x] = a[row * n + k + x];
        bs[y][x] = b[(k + y) * n + column];
        __syncthreads();  // the tiles are there
        for (int j = 0; j < 8; j++) sum += as[y][j] * bs[j][x];
        __syncthreads();  // they were read
    }
    c[row * n + column] = sum;
}
"""

REDUCTION = r"""
extern "C" __global__ void row_sums(const float* rows, float* sums, int n) {
    __shared__ float of_warps[4];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += rows[blockIdx.x * n + i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();  // the warps' sums are there
    if (threadIdx.x == 0) {
        sum = 0;
        for (int i = 0; i < 4; i++) sum += of_warps[i];
        sums[blockIdx.x] = sum;
    }
}
"""

SCAN = r"""
extern "C" __global__ void scan(const int* from, int* to) {
    extern __shared__ int sums[];
    int t = threadIdx.x;
    sums[t] = from[blockIdx.x * blockDim.x + t];
    __syncthreads();  // the values are there
    for (int d = 1; d < blockDim.x; d *= 2) {
        int left = t >= d ? sums[t - d] : 0;
        __syncthreads();  // they were read
        sums[t] += left;
        __syncthreads();  // the next are there
    }
    to[blockIdx.x * blockDim.x + t] = sums[t];
}
"""

SORT = r"""
extern "C" __global__ void sort(float* rows) {
    __shared__ float row[64];
    int t = threadIdx.x;
    row[t] = rows[blockIdx.x * 64 + t];
    for (int run = 2; run <= 64; run *= 2)
        for (int d = run / 2; d > 0; d /= 2) {
            __syncthreads();  // the exchanges before are done
            int partner = t ^ d;
            if (partner > t) {
                float low = fminf(row[t], row[partner]), high = fmaxf(row[t], row[partner]);
                row[t] = t & run ? high : low;
                row[partner] = t & run ? low : high;
            }
        }
    __syncthreads();  // sorted
    rows[blockIdx.x * 64 + (t + 1) % 64] = row[(t + 1) % 64];
}
"""

HISTOGRAM = r"""
extern "C" __global__ void histogram(const int* bins, int* counts, int n) {
    __shared__ int here[16];
    if (threadIdx.x < 16) here[threadIdx.x] = 0;
    __syncthreads();  // all are zero
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&here[bins[i]], 1);
    __syncthreads();  // all are counted
    if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], here[threadIdx.x]);
}
"""

METAL_SUMS = r"""
#include <metal_stdlib>
using namespace metal;
kernel void row_sums(device const float4* rows [[buffer(0)]], device float* sums [[buffer(1)]],
                     constant uint& n [[buffer(2)]], threadgroup float* of_simds [[threadgroup(0)]],
                     uint row [[threadgroup_position_in_grid]],
                     uint t [[thread_position_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]]) {
    float sum = 0;
    for (uint i = t; i < n; i += threads) sum += dot(rows[row * n + i], float4(1.0f));
    sum = simd_sum(sum);
    if (t % 32 == 0) of_simds[t / 32] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the simds' sums are there
    if (t == 0) {
        sum = 0;
        for (uint i = 0; i < threads / 32; i++) sum += of_simds[i];
        sums[row] = sum;
    }
}
"""


@dataclass(frozen=True)
class Fault:
    """A change of a kernel's text, and the words of the complaint it must bring about."""

    before: str
    after: str
    complaint: str


@dataclass(frozen=True)
class Sample:
    """A kernel, arguments of which some are written, and what they must be then."""

    text: str
    name: str
    grid: Sequence[int]
    group: Sequence[int]
    arguments: Callable[[], list[Argument]]
    expected: Callable[[Sequence[Argument]], Mapping[int, Array]]
    faults: Mapping[str, Fault]
    dialect: str = "cuda"
    dynamic: int = 0
    tolerance: float = field(default=0.0)  # relative; of sums in another order


def _normal(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _integers(count: int, below: int) -> Array:
    return np.random.default_rng(1).integers(0, below, count).astype(np.int32)


def _no_barrier(comment: str, complaint: str = "with no barrier between them") -> Fault:
    return Fault(f"__syncthreads();  // {comment}", "", complaint)


def _divergent_barrier(comment: str) -> Fault:
    return Fault(
        f"__syncthreads();  // {comment}",
        "if (threadIdx.x < 7) __syncthreads();\nelse __syncthreads();",
        "waits at a barrier while thread .* waits at that of line",
    )


SAMPLES = {
    "product": Sample(
        PRODUCT,
        "product",
        (3, 3),
        (8, 8),
        lambda: [_normal(24, 24), _normal(24, 24), np.zeros((24, 24), np.float32), np.int32(24)],
        lambda given: {2: given[0] @ given[1]},
        {
            "no-first-barrier": _no_barrier(
                "the tiles are there", "nothing has written|no barrier"
            ),
            "no-second-barrier": _no_barrier("they were read"),
            "divergent": _divergent_barrier("the tiles are there"),
            "one-too-far": Fault("b[(k + y)", "b[(k + y + 1)", "reads 4 bytes out of bounds"),
            "one-too-far-in-shared": Fault("j < 8; j++", "j <= 8; j++", "indexes an array at 8"),
        },
        tolerance=1e-5,
    ),
    "reduction": Sample(
        REDUCTION,
        "row_sums",
        (5,),
        (128,),
        lambda: [_normal(5, 300), np.zeros(5, np.float32), np.int32(300)],
        lambda given: {1: given[0].sum(1)},
        {
            "no-barrier": _no_barrier("the warps' sums are there", "nothing has written"),
            "divergent": _divergent_barrier("the warps' sums are there"),
            "divergent-shuffle": Fault(
                "for (int d = 16",
                "if (threadIdx.x % 32 < 5) for (int d = 16",
                "waits for its warp while thread .* waits at line 8",
            ),
            "one-too-far": Fault("i < n;", "i <= n;", "reads 4 bytes out of bounds"),
            "all-write": Fault("if (threadIdx.x == 0) {", "{", "writes byte 0 of buffer 1"),
            "groups-write-one": Fault("sums[blockIdx.x] =", "sums[0] =", "thread .* of group"),
        },
        tolerance=1e-4,
    ),
    "scan": Sample(
        SCAN,
        "scan",
        (2,),
        (64,),
        lambda: [_integers(128, 9), np.zeros(128, np.int32)],
        lambda given: {1: given[0].reshape(2, 64).cumsum(1).reshape(-1)},
        {
            "no-first-barrier": _no_barrier("the values are there"),
            "no-middle-barrier": _no_barrier("they were read"),
            "no-last-barrier": _no_barrier("the next are there"),
            "divergent": _divergent_barrier("they were read"),
            "one-too-far": Fault("to[blockIdx.x", "to[1 + blockIdx.x", "writes 4 bytes out of"),
            "one-too-far-in-shared": Fault("= sums[t];", "= sums[t + 1];", "out of bounds"),
        },
        dynamic=256,
    ),
    "sort": Sample(
        SORT,
        "sort",
        (3,),
        (64,),
        lambda: [_normal(3, 64)],
        lambda given: {0: np.sort(given[0], 1)},
        {
            "no-inner-barrier": _no_barrier("the exchanges before are done", "no barrier|nothing"),
            "no-last-barrier": _no_barrier("sorted"),
            "divergent": _divergent_barrier("the exchanges before are done"),
            "one-too-far": Fault("t ^ d;", "(t ^ d) + 1;", "indexes an array at 64|no barrier"),
        },
    ),
    "histogram": Sample(
        HISTOGRAM,
        "histogram",
        (4,),
        (64,),
        lambda: [_integers(250, 16), np.zeros(16, np.int32), np.int32(250)],
        lambda given: {1: np.bincount(given[0], minlength=16)},
        {
            "no-first-barrier": _no_barrier("all are zero", "nothing has written|no barrier"),
            "no-second-barrier": _no_barrier("all are counted"),
            "divergent": _divergent_barrier("all are counted"),
            "no-atomic": Fault(
                "atomicAdd(&counts[threadIdx.x], here[threadIdx.x])",
                "counts[threadIdx.x] += here[threadIdx.x]",
                "buffer 1 .*, which thread .* wrote",
            ),
            "no-atomic-in-shared": Fault(
                "atomicAdd(&here[bins[i]], 1)", "here[bins[i]]++", "no barrier"
            ),
            "one-too-far": Fault("i < n", "i <= n", "reads 4 bytes out of bounds"),
            "misaligned": Fault(
                "int i = ", "*(double*)(counts + 1) = 0; int i = ", "4 beyond a multiple"
            ),
        },
    ),
    "metal-reduction": Sample(
        METAL_SUMS,
        "row_sums",
        (5,),
        (64,),
        lambda: [_normal(5, 100), np.zeros(5, np.float32), np.uint32(25)],
        lambda given: {1: given[0].sum(1)},
        {
            "no-barrier": Fault(
                "threadgroup_barrier(mem_flags::mem_threadgroup);  //", "//", "nothing has written"
            ),
            "divergent": Fault(
                "threadgroup_barrier(", "if (t < 7) threadgroup_barrier(", "has returned"
            ),
            "one-too-far": Fault("i < n;", "i <= n;", r"reads \d+ bytes out of bounds"),
            "threadgroup-memory": Fault(
                "of_simds[t / 32]", "of_simds[t / 32 + 1]", "out of bounds"
            ),
        },
        dialect="metal",
        dynamic=8,
        tolerance=1e-4,
    ),
}
