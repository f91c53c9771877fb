// As much of CUDA C++ (and of HIP, which spells it the same) as the kernels' texts use.
#pragma once
#include "fibres.h"

#define __global__ __attribute__((noinline))
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)  // launch.py checks it
#define __restrict__ __restrict
#define __shared__ SIMT_SHARED
#define __constant__ static const
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx simt::thread_index()
#define blockIdx simt::group_index()
#define blockDim simt::group_size()
#define gridDim simt::group_count()
#define warpSize simt::warp_size()

#define __syncthreads() simt::barrier(__LINE__)
#define DEPEND simt::depend()
#define FETCH(place) simt::fetch(place)
#define ARRIVE(counter) simt::arrive(counter, __builtin_return_address(0))
#define AWAIT(counter, count) simt::await(counter, count, __LINE__)
#define CLOCK() simt::clock()
#define UNIT() (blockIdx.x % 2)  // the stand-ins have two, which get groups in turns
#define BEGIN_PARTS
#define PART_BARRIER(lanes) simt::part_barrier(lanes, __LINE__)
#define CLEAR(counter) atomicExch(counter, 0u)
#define __syncwarp(...) simt::warp_barrier(__LINE__)
#define __threadfence()
#define __threadfence_block()

// AMD's buffer descriptors: what lies at `bytes` or beyond is 0, and never read. Chips differ in what
// they give across the end, so nothing may lie there.
namespace simt {
struct Range { const char* begin; unsigned bytes; };
inline Range range(const void* pointer, unsigned bytes) {
    if (bytes) fetch(pointer), fetch((const char*)pointer + bytes - 1);
    return {(const char*)pointer, bytes};
}
template <class T> __attribute__((noinline)) T load_inside(Range range, unsigned byte, bool live) {
    unsigned at = live ? byte : 0x80000000u;
    if (at >= range.bytes) return {};
    if (sizeof(T) > range.bytes - at) refuse("reads across the end of a range", __LINE__);
    return *(const T*)(range.begin + at);
}
}
typedef simt::Range Range;
using simt::load_inside;
#define RANGE(pointer, bytes) simt::range(pointer, bytes)

// A lane that would read beyond its warp reads itself.
namespace simt {
inline unsigned within(unsigned from_lane) { return from_lane < warp_size() ? from_lane : lane(); }
}
#define __shfl(v, from) simt::shuffle(v, (from) % simt::warp_size(), __LINE__)
#define __shfl_xor(v, bits) simt::shuffle(v, simt::within(simt::lane() ^ (bits)), __LINE__)
#define __shfl_down(v, by) simt::shuffle(v, simt::within(simt::lane() + (by)), __LINE__)
#define __shfl_up(v, by) simt::shuffle(v, simt::within(simt::lane() - (by)), __LINE__)
#define __shfl_sync(mask, ...) __shfl(__VA_ARGS__)
#define __shfl_xor_sync(mask, ...) __shfl_xor(__VA_ARGS__)
#define __shfl_down_sync(mask, ...) __shfl_down(__VA_ARGS__)
#define __shfl_up_sync(mask, ...) __shfl_up(__VA_ARGS__)
#define __ballot_sync(mask, vote) ((unsigned)simt::ballot(vote, __LINE__))

typedef _Float16 __half;
typedef _Float16 half;
inline float __half2float(__half x) { return (float)x; }
inline __half __float2half(float x) { return (__half)x; }
inline __half __float2half_rn(float x) { return (__half)x; }

struct __nv_bfloat16 { unsigned short bits; };
typedef __nv_bfloat16 __hip_bfloat16;
inline float __bfloat162float(__nv_bfloat16 x) {
    unsigned bits = (unsigned)x.bits << 16;
    return __builtin_bit_cast(float, bits);
}
inline __nv_bfloat16 __float2bfloat16(float x) {  // to nearest, ties to even
    if (x != x) return {0x7FFF};
    unsigned bits = __builtin_bit_cast(unsigned, x);
    return {(unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

#define VECTORS(type, name) \
    struct __align__(2 * sizeof(type)) name##2 { type x, y; }; \
    struct __align__(4 * sizeof(type)) name##4 { type x, y, z, w; }; \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(unsigned, uint)
#undef VECTORS

inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }

#define FUNCTION1(name) \
    inline float name##f(float x) { return __builtin_##name##f(x); } \
    inline float name(float x) { return __builtin_##name##f(x); } \
    inline double name(double x) { return __builtin_##name(x); }
#define FUNCTION2(name) \
    inline float name##f(float x, float y) { return __builtin_##name##f(x, y); } \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
    inline double name(double x, double y) { return __builtin_##name(x, y); }
FUNCTION1(sqrt) FUNCTION1(fabs) FUNCTION1(floor) FUNCTION1(ceil) FUNCTION1(trunc) FUNCTION1(rint)
FUNCTION1(round) FUNCTION1(exp) FUNCTION1(exp2) FUNCTION1(log) FUNCTION1(log2) FUNCTION1(sin)
FUNCTION1(cos) FUNCTION1(tanh) FUNCTION1(erf)
FUNCTION2(fmax) FUNCTION2(fmin) FUNCTION2(pow) FUNCTION2(fmod) FUNCTION2(copysign)
#undef FUNCTION1
#undef FUNCTION2
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float rsqrtf(float x) { return 1 / __builtin_sqrtf(x); }
inline bool isnan(double x) { return x != x; }
inline bool isinf(double x) { return __builtin_isinf(x); }
template <class T> inline T max(T x, T y) { return x > y ? x : y; }
template <class T> inline T min(T x, T y) { return x < y ? x : y; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
template <class T> inline T __ldg(const T* address) { return *address; }

template <class T> inline T atomicAdd(T* at, T value) {
    return simt::atomic(at, [=](T old) { return old + value; });
}
template <class T> inline T atomicMax(T* at, T value) {
    return simt::atomic(at, [=](T old) { return old > value ? old : value; });
}
template <class T> inline T atomicMin(T* at, T value) {
    return simt::atomic(at, [=](T old) { return old < value ? old : value; });
}
template <class T> inline T atomicExch(T* at, T value) {
    return simt::atomic(at, [=](T) { return value; });
}
template <class T> inline T atomicCAS(T* at, T expected, T value) {
    return simt::atomic(at, [=](T old) { return old == expected ? value : old; });
}
