// As much of HIP as the kernels' texts use, over the compiler's built-in functions: HIP's own header
// comes with ROCm alone.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

struct HipIndex { unsigned x, y, z; };
#define HIP_INDEX(name) \
    (HipIndex{__builtin_amdgcn_##name##_x(), __builtin_amdgcn_##name##_y(), \
              __builtin_amdgcn_##name##_z()})
#define threadIdx HIP_INDEX(workitem_id)
#define blockIdx HIP_INDEX(workgroup_id)
#define blockDim HIP_INDEX(workgroup_size)
#define HIP_GROUPS(a) (__builtin_amdgcn_grid_size_##a() / __builtin_amdgcn_workgroup_size_##a())
#define gridDim (HipIndex{HIP_GROUPS(x), HIP_GROUPS(y), HIP_GROUPS(z)})
#define warpSize __builtin_amdgcn_wavefrontsize()

static __device__ inline void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

template <class T> static __device__ inline T __shfl_xor(T value, int bits) {
    int lane = __builtin_amdgcn_mbcnt_hi(-1, __builtin_amdgcn_mbcnt_lo(-1, 0));
    int words[(sizeof(T) + 3) / 4] = {};
    __builtin_memcpy(words, &value, sizeof(T));
    for (int& word : words) word = __builtin_amdgcn_ds_bpermute((lane ^ bits) * 4, word);
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
}

static __device__ inline int atomicAdd(int* at, int value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

#define HIP_FUNCTION1(name) \
    static __device__ inline float name##f(float x) { return __builtin_##name##f(x); } \
    static __device__ inline double name(double x) { return __builtin_##name(x); }
#define HIP_FUNCTION2(name) \
    static __device__ inline float name##f(float x, float y) { return __builtin_##name##f(x, y); } \
    static __device__ inline double name(double x, double y) { return __builtin_##name(x, y); }
HIP_FUNCTION1(sqrt) HIP_FUNCTION1(fabs) HIP_FUNCTION1(floor) HIP_FUNCTION1(rint)
HIP_FUNCTION2(fmin) HIP_FUNCTION2(fmax) HIP_FUNCTION2(copysign) HIP_FUNCTION2(fmod)
static __device__ inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static __device__ inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }

// Bodies of these come with ROCm; here each is a value that the compiler knows nothing of.
#define HIP_DOUBLE(name) \
    static __device__ inline double name(double x) { asm("" : "+v"(x)); return x; }
HIP_DOUBLE(exp) HIP_DOUBLE(exp2) HIP_DOUBLE(log) HIP_DOUBLE(log2) HIP_DOUBLE(sin) HIP_DOUBLE(cos)
