// As much of the Metal Shading Language as the kernels' texts use. It knows no address spaces: that
// every pointer has one is checked apart (offline checks), here they are comments.
#pragma once
#include "fibres.h"

#define kernel extern "C" __attribute__((noinline))
#define device
#define constant const
#define thread
#define threadgroup

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned uint;
typedef unsigned long ulong;
typedef _Float16 half;

namespace metal {

template <class T, int N> struct vec;
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    T x, y;
    vec() = default;
    vec(T all) : x(all), y(all) {}
    vec(T x, T y) : x(x), y(y) {}
    T& operator[](int i) { return i ? y : x; }
    T operator[](int i) const { return i ? y : x; }
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    T x, y, z;
    vec() = default;
    vec(T all) : x(all), y(all), z(all) {}
    vec(T x, T y, T z) : x(x), y(y), z(z) {}
    T& operator[](int i) { return (&x)[i]; }
    T operator[](int i) const { return (&x)[i]; }
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    T x, y, z, w;
    vec() = default;
    vec(T all) : x(all), y(all), z(all), w(all) {}
    vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
    template <class U> explicit vec(const vec<U, 4>& v) : x(v.x), y(v.y), z(v.z), w(v.w) {}
    T& operator[](int i) { return (&x)[i]; }
    T operator[](int i) const { return (&x)[i]; }
};
#define OPERATOR(op) \
    template <class T, int N> inline vec<T, N> operator op(vec<T, N> a, vec<T, N> b) { \
        for (int i = 0; i < N; i++) a[i] = a[i] op b[i]; \
        return a; \
    } \
    template <class T, int N> inline vec<T, N> operator op(vec<T, N> a, T b) { \
        return a op vec<T, N>(b); \
    } \
    template <class T, int N> inline vec<T, N>& operator op##=(vec<T, N>& a, vec<T, N> b) { \
        return a = a op b; \
    }
OPERATOR(+) OPERATOR(-) OPERATOR(*) OPERATOR(/)
#undef OPERATOR
#define VECTORS(type, name) \
    typedef vec<type, 2> name##2; typedef vec<type, 3> name##3; typedef vec<type, 4> name##4;
VECTORS(float, float) VECTORS(half, half) VECTORS(int, int) VECTORS(uint, uint)
VECTORS(signed char, char) VECTORS(uchar, uchar) VECTORS(short, short) VECTORS(ushort, ushort)
VECTORS(long, long) VECTORS(ulong, ulong)
#undef VECTORS

struct bfloat {
    unsigned short bits;
    bfloat() = default;
    bfloat(float x) {  // to nearest, ties to even
        unsigned word = __builtin_bit_cast(unsigned, x);
        bits = x != x ? 0x7FFF : (word + 0x7FFF + (word >> 16 & 1)) >> 16;
    }
    operator float() const { return __builtin_bit_cast(float, (unsigned)bits << 16); }
};

template <class To, class From> inline To as_type(From x) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps sizes");
    return __builtin_bit_cast(To, x);
}
template <class T> inline T max(T x, T y) { return x > y ? x : y; }
template <class T> inline T min(T x, T y) { return x < y ? x : y; }
template <class T> inline T select(T no, T yes, bool which) { return which ? yes : no; }
template <class T, int N> inline T dot(vec<T, N> a, vec<T, N> b) {
    T sum = 0;
    for (int i = 0; i < N; i++) sum += a[i] * b[i];
    return sum;
}
#define FUNCTION(name) inline float name(float x) { return __builtin_##name##f(x); }
FUNCTION(sqrt) FUNCTION(fabs) FUNCTION(floor) FUNCTION(ceil) FUNCTION(trunc) FUNCTION(rint)
FUNCTION(round) FUNCTION(exp) FUNCTION(exp2) FUNCTION(log) FUNCTION(log2) FUNCTION(sin)
FUNCTION(cos) FUNCTION(tanh)
#undef FUNCTION
inline float rsqrt(float x) { return 1 / __builtin_sqrtf(x); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float pow(float x, float y) { return __builtin_powf(x, y); }
inline float fmod(float x, float y) { return __builtin_fmodf(x, y); }
inline float fmax(float x, float y) { return __builtin_fmaxf(x, y); }
inline float fmin(float x, float y) { return __builtin_fminf(x, y); }
inline float copysign(float x, float y) { return __builtin_copysignf(x, y); }
inline bool isnan(float x) { return x != x; }
inline bool isinf(float x) { return __builtin_isinf(x); }
namespace precise {
using metal::cos; using metal::exp; using metal::exp2; using metal::log; using metal::log2;
using metal::pow; using metal::sin; using metal::sqrt; using metal::tanh;
}

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
inline mem_flags operator|(mem_flags a, mem_flags) { return a; }

enum memory_order { memory_order_relaxed };
template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
#define FETCH(name, update) \
    template <class T> inline T atomic_fetch_##name##_explicit(atomic<T>* at, T x, memory_order) { \
        return simt::atomic(&at->value, [=](T old) { return update; }); \
    }
FETCH(add, old + x) FETCH(max, old > x ? old : x) FETCH(min, old < x ? old : x)
#undef FETCH

}  // namespace metal

#define threadgroup_barrier(flags) simt::barrier(__LINE__)
#define simdgroup_barrier(flags) simt::warp_barrier(__LINE__)
#define simd_shuffle(v, from) simt::shuffle(v, from, __LINE__)
#define simd_broadcast(v, from) simt::shuffle(v, from, __LINE__)
#define simd_shuffle_xor(v, bits) simt::shuffle(v, simt::lane() ^ (bits), __LINE__)
#define simd_shuffle_down(v, by) \
    simt::shuffle(v, simt::lane() + (by) < simt::warp_size() ? simt::lane() + (by) : simt::lane(), __LINE__)
#define simd_sum(v) simt::butterfly(v, [](auto a, auto b) { return a + b; }, __LINE__)
#define simd_max(v) simt::butterfly(v, [](auto a, auto b) { return a > b ? a : b; }, __LINE__)
#define simd_min(v) simt::butterfly(v, [](auto a, auto b) { return a < b ? a : b; }, __LINE__)

namespace simt {

// A position as whichever type its parameter has.
struct At {
    Index index;
    operator uint() const { return index.x; }
    operator metal::uint2() const { return {index.x, index.y}; }
    operator metal::uint3() const { return {index.x, index.y, index.z}; }
};

inline At thread_in_grid() {
    Index group = group_index(), size = group_size(), within = thread_index();
    return {{group.x * size.x + within.x, group.y * size.y + within.y, group.z * size.z + within.z}};
}

inline At threads_in_grid() {
    Index groups = group_count(), size = group_size();
    return {{groups.x * size.x, groups.y * size.y, groups.z * size.z}};
}

inline unsigned thread_in_group() {
    Index size = group_size(), within = thread_index();
    return (within.z * size.y + within.y) * size.x + within.x;
}

template <class T, class Combine> inline T butterfly(T value, Combine combine, int line) {
    for (unsigned distance = warp_size() / 2; distance; distance /= 2)
        value = combine(value, shuffle(value, lane() ^ distance, line));
    return value;
}

}  // namespace simt

#define SIMT_METAL_KERNEL(name, values, ...) \
    extern "C" SIMT_UNCHECKED void call_##name(void** arguments) { name values; } \
    extern "C" { extern const unsigned sizes_##name[] = {__VA_ARGS__}; }
