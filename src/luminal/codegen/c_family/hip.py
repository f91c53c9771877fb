"""HIP: CUDA C++ as AMD's compilers take it, with -ffp-contract=off."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.dots import UINT8_BY_INT8, Dot
from luminal.base.dtypes import int32
from luminal.codegen.c_family import matrices
from luminal.codegen.c_family.cuda import CudaCpp
from luminal.expand.ir import Type

# No barrier of AMD's is one of some of a group's waves. They meet in the group's memory: the last
# one to come lets the others go on, which look for another turn. Waves of a group are on one unit
# together, and each of them goes on, so none waits for ever.
COUNTERS = """#ifndef ARRIVE
#define ARRIVE(counter) \\
    __hip_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT)
#define AWAIT(counter, count) \\
    while (__hip_atomic_load(counter, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < (count)) \\
        __builtin_amdgcn_s_sleep(1)
#define CLEAR(counter) \\
    __hip_atomic_store(counter, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
__device__ inline unsigned *part_words()
{
    __shared__ unsigned words[2];  // waves that wait, turns that are over
    return words;
}
__device__ inline void part_barrier(unsigned waves)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    if (threadIdx.x % warpSize == 0) {
        unsigned *const words = part_words();
        const int scope = __HIP_MEMORY_SCOPE_WORKGROUP;
        const unsigned turn = __hip_atomic_load(&words[1], __ATOMIC_RELAXED, scope);
        if (__hip_atomic_fetch_add(&words[0], 1u, __ATOMIC_ACQ_REL, scope) == waves - 1) {
            __hip_atomic_store(&words[0], 0u, __ATOMIC_RELAXED, scope);
            __hip_atomic_store(&words[1], turn + 1, __ATOMIC_RELEASE, scope);
        } else {
            while (__hip_atomic_load(&words[1], __ATOMIC_ACQUIRE, scope) == turn)
                __builtin_amdgcn_s_sleep(1);
        }
    }
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define BEGIN_PARTS \\
    if (threadIdx.x == 0) part_words()[0] = part_words()[1] = 0; \\
    __syncthreads()
#define PART_BARRIER(lanes) part_barrier((lanes) / warpSize)
#if __GFX11__ || __GFX12__
#define CLOCK() (long long)__builtin_amdgcn_s_sendmsg_rtnl(0x83)
#define UNIT() __builtin_amdgcn_s_getreg(10 << 11 | 10 << 6 | 23)
#else
#define CLOCK() (long long)__builtin_amdgcn_s_memrealtime()
#define UNIT() __builtin_amdgcn_s_getreg(7 << 11 | 8 << 6 | 4)
#endif
#endif"""
"""The clock counts a reference of constant frequency, the same on all units. A unit's number is
made of bits of its place: HW_ID's of the unit, its array and its engine, or HW_ID1's (AMD's manuals
of CDNA 3 and RDNA 3); dies have units of equal numbers.
"""


# A descriptor's last word: of words of 32 bits, of which a load checks the offset alone, and on
# chips from RDNA on the bits that say so (AMD's manuals of CDNA 3 and RDNA 3, buffer resources).
# It stands in scalar registers. That all lanes have the same pointer is told the compiler, which
# loops over those that lanes have where pointers come from memory: kernels of several do that.
RANGES = """#ifndef RANGE
#if __has_builtin(__builtin_amdgcn_raw_buffer_load_b8)
typedef __amdgpu_buffer_rsrc_t Range;
#if __GFX9__
#define RANGE_WORD 0x00027000
#else
#define RANGE_WORD 0x31027000
#endif
__device__ inline Range range_of(const void *pointer, int bytes)
{
    const unsigned long long at = (unsigned long long)pointer;
    const unsigned long long high = (unsigned)__builtin_amdgcn_readfirstlane(at >> 32);
    const unsigned low = __builtin_amdgcn_readfirstlane((unsigned)at);
    void *const same = (void *)(high << 32 | low);
    return __builtin_amdgcn_make_buffer_rsrc(same, 0, bytes, RANGE_WORD);
}
#define RANGE(pointer, bytes) range_of(pointer, bytes)
template <class T> __device__ inline T load_inside(Range range, unsigned byte, bool live)
{
    const unsigned at = live ? byte : 0x80000000u;
    if constexpr (sizeof(T) == 1)
        return same_bytes<T>(__builtin_amdgcn_raw_buffer_load_b8(range, at, 0, 0));
    else if constexpr (sizeof(T) == 2)
        return same_bytes<T>(__builtin_amdgcn_raw_buffer_load_b16(range, at, 0, 0));
    else if constexpr (sizeof(T) == 4)
        return same_bytes<T>(__builtin_amdgcn_raw_buffer_load_b32(range, at, 0, 0));
    else if constexpr (sizeof(T) == 8)
        return same_bytes<T>(__builtin_amdgcn_raw_buffer_load_b64(range, at, 0, 0));
    else
        return same_bytes<T>(__builtin_amdgcn_raw_buffer_load_b128(range, at, 0, 0));
}
#else
typedef const char *Range;
#define RANGE(pointer, bytes) (const char *)(pointer)
template <class T> __device__ inline T load_inside(Range range, unsigned byte, bool live)
{
    return live ? *(const T *)(range + byte) : T{};
}
#endif
#endif"""
"""Loads that read 0 beyond the bytes of a range, without a branch: what is not `live` lies there.
Before clang 20 there are none, and a branch it is.
"""


# CDNA multiplies bytes of which all have signs, or none: a*b = (a - 128)*b + 128*b.
DOT_OF_BYTES = """#if __AMDGCN__
#define SIGNED_DOT(a, b, acc) __builtin_amdgcn_sdot4(a, b, acc, false)
#else
__device__ inline int SIGNED_DOT(unsigned a, unsigned b, int acc)
{
    for (int n = 0; n < 32; n += 8) acc += (signed char)(a >> n) * (signed char)(b >> n);
    return acc;
}
#endif
__device__ inline int u8i8x4(int acc, unsigned a, unsigned b)
{
#if __GFX11__ || __GFX12__
    return __builtin_amdgcn_sudot4(false, a, true, b, acc, false);
#else
    const unsigned of_b = SIGNED_DOT(0x01010101u, b, 0);
    return SIGNED_DOT(a ^ 0x80808080u, b, (int)((unsigned)acc + 128u * of_b));
#endif
}"""


class Hip(CudaCpp):
    """The dialect of HIP, in which AMD's names are NVIDIA's."""

    name = "HIP"
    depend = ""
    counters = COUNTERS
    ranges = RANGES
    static_bytes = None
    exchanged = "__shfl_xor({value}, {distance})"
    copies_beside = True
    instructions = frozenset({(UINT8_BY_INT8.name, Type(int32))})
    not_unrolled = "#pragma unroll 1"
    """Else clang writes out all blocks of a product and loads them together: 256 registers where 61
    do, and 149 more in memory (gfx1100).
    """

    def multiply(self, dot: Dot) -> str:
        return matrices.amdgcn(dot) if dot.name in matrices.AMD_BUILT_IN else super().multiply(dot)

    def copies(self, sizes: Sequence[int]) -> Sequence[str]:
        return matrices.load_lds(sizes)

    def instruction(self, operation: str) -> str:
        return DOT_OF_BYTES

    def bound(self, lanes: int) -> str:
        """The bound on a group's lanes; AMD's second number would mean something else."""
        return f"__launch_bounds__({lanes})"


HIP = Hip()
