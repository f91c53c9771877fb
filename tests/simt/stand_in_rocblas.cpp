// rocBLAS (librocblas.so.4) for machines without a GPU: its one product, by the arithmetic of the
// library that stands in for hipBLASLt. Refused is what rocblas_gemm_strided_batched_ex refuses:
// sizes below 1, leading dimensions below the rows, dtypes that are not listed together.
#define OF_HIP
#define PREFIX hipblasLt
#include "stand_in_lt.cpp"

enum { ROC_F16 = 150, ROC_F32 = 151, ROC_F64 = 152, ROC_BF16 = 168 };
enum { ROC_INVALID_HANDLE = 1, ROC_NOT_IMPLEMENTED = 2, ROC_INVALID_SIZE = 4, ROC_INVALID_VALUE = 11 };
struct Rocblas { const void* context; void* stream = nullptr; char* workspace = nullptr; size_t size = 0; };

#define ROC(name) EXPORT int rocblas_##name
ROC(create_handle)(Rocblas** handle) {
    return *handle = new Rocblas{driver<const void*()>("stand_in_current")()}, 0;
}
ROC(destroy_handle)(Rocblas* handle) { return delete handle, 0; }
ROC(set_stream)(Rocblas* handle, void* stream) { return handle->stream = stream, 0; }
ROC(set_workspace)(Rocblas* handle, void* at, size_t size) {
    return handle->workspace = (char*)at, handle->size = size, 0;
}
static int dtype_of(int dtype) {
    switch (dtype) {
        case ROC_F16: return F16;
        case ROC_F32: return F32;
        case ROC_F64: return F64;
        case ROC_BF16: return BF16;
        default: return -1;
    }
}
ROC(gemm_strided_batched_ex)(Rocblas* handle, int trans_a, int trans_b, int m, int n, int k,
                             const void* alpha, const void* a, int a_type, int lda, int64_t stride_a,
                             const void* b, int b_type, int ldb, int64_t stride_b, const void* beta,
                             const void* c, int c_type, int ldc, int64_t stride_c, void* d, int d_type,
                             int ldd, int64_t stride_d, int batch, int compute, int algo, int, unsigned) {
    if (!handle) return ROC_INVALID_HANDLE;
    if (m < 1 || n < 1 || k < 1 || batch < 1) return ROC_INVALID_SIZE;
    bool turned_a = trans_a == OP_T, turned_b = trans_b == OP_T;
    if ((!turned_a && trans_a != OP_N) || (!turned_b && trans_b != OP_N) || algo) return ROC_INVALID_VALUE;
    int compute_type = compute == ROC_F64 ? COMPUTE_F64 : COMPUTE_F32;
    Operation operation{compute_type, dtype_of(compute), trans_a, trans_b};
    auto layout = [&](int dtype, int rows, int columns, int leading, int64_t stride) {
        return Layout{dtype_of(dtype), uint64_t(rows), uint64_t(columns), leading, ORDER_COLUMNS, batch, stride};
    };
    Problem problem{operation, layout(a_type, turned_a ? k : m, turned_a ? m : k, lda, stride_a),
                    layout(b_type, turned_b ? n : k, turned_b ? k : n, ldb, stride_b),
                    layout(d_type, m, n, ldd, stride_d)};
    if (c != d || c_type != d_type || ldc != ldd || stride_c != stride_d) return ROC_INVALID_VALUE;
    if (int status = refused(problem)) return status == NOT_SUPPORTED ? ROC_NOT_IMPLEMENTED : ROC_INVALID_SIZE;
    double scale = get((const char*)alpha, operation.scale, 0);
    if (get((const char*)beta, operation.scale, 0) != 0) return ROC_INVALID_VALUE;
    size_t used = std::min(handle->size, per_algorithm);
    auto job = new Job{problem, (const char*)a, (const char*)b, nullptr, (char*)d, handle->workspace, used,
                       scale, 0, 0, slow[0], handle->stream};
    count("product");
    return driver<int(void*, int (*)(void*), void*, const void*)>("stand_in_queue")(handle->stream, work,
                                                                                  job, nullptr);
}
