// The address spaces of the Metal Shading Language as types, for a check of texts by clang: a
// pointer into one never becomes one into another. Nothing here is run (metal_kernels.h is).
#pragma once

#define SPACE(n) __attribute__((address_space(n)))
#define kernel extern "C"
#define device SPACE(1)
#define constant const SPACE(2)
#define threadgroup SPACE(3)
#define thread
#define SIMT_SHARED static threadgroup

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;

namespace metal {

#define VECTORS(type) \
    typedef type type##2 __attribute__((ext_vector_type(2))); \
    typedef type type##3 __attribute__((ext_vector_type(3))); \
    typedef type type##4 __attribute__((ext_vector_type(4)));
VECTORS(float) VECTORS(half) VECTORS(bfloat) VECTORS(int) VECTORS(uint) VECTORS(char) VECTORS(uchar)
VECTORS(short) VECTORS(ushort) VECTORS(long) VECTORS(ulong)
#undef VECTORS
float dot(float4, float4);

template <class To, class From> To as_type(From x) { return __builtin_bit_cast(To, x); }
template <class T> T max(T, T);
template <class T> T min(T, T);
template <class T> T clamp(T, T, T);
template <class T> T abs(T);
template <class T> T select(T, T, bool);
float sqrt(float), fabs(float), floor(float), ceil(float), trunc(float), rint(float), round(float);
float exp(float), exp2(float), log(float), log2(float), sin(float), cos(float), tanh(float);
float rsqrt(float), fma(float, float, float), pow(float, float), fmod(float, float);
float fmax(float, float), fmin(float, float), copysign(float, float);
bool isnan(float), isinf(float);
namespace precise { float sqrt(float), exp(float), log(float), sin(float), cos(float); }

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
template <class T> T simd_shuffle(T, ushort);
template <class T> T simd_shuffle_xor(T, ushort);
template <class T> T simd_shuffle_down(T, ushort);
template <class T> T simd_sum(T);
template <class T> struct simdgroup_matrix { T& thread_elements(); };
typedef simdgroup_matrix<float2> simdgroup_float8x8;
typedef simdgroup_matrix<half2> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat2> simdgroup_bfloat8x8;
template <class T> void simdgroup_multiply_accumulate(
    simdgroup_float8x8&, simdgroup_matrix<T>, simdgroup_matrix<T>, simdgroup_float8x8);
template <class T> T simd_max(T);
template <class T> T simd_min(T);

enum memory_order { memory_order_relaxed };
template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
template <class T> T atomic_fetch_add_explicit(device atomic<T>*, T, memory_order);
template <class T> T atomic_fetch_add_explicit(threadgroup atomic<T>*, T, memory_order);

}  // namespace metal
