// cuBLASLt (libcublasLt.so.13) or hipBLASLt (libhipblaslt.so) for machines without a GPU: as much as
// products ask for, over the memory and the streams of the stand-in driver.
//
// What a program hands over is taken as the library takes it: by columns, op(A) op(B), with the
// layouts' own rows, columns, leading dimensions and batches. Refused is what the vendor's
// documentation of cublasLtMatmul refuses: shapes that do not meet, leading dimensions below the
// rows, orders other than by columns, dtypes and epilogues that are not listed together, products of
// bytes that are not "TN" or no multiples of 4, pointers and workspaces that are not aligned or not
// large enough for the algorithm, an algorithm of another product. A call is work of its stream: the
// bytes are read when its turn comes.
#include <dlfcn.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define JOINED(prefix, name) prefix##name
#define NAMED(prefix, name) JOINED(prefix, name)
#define API(name) EXPORT int NAMED(PREFIX, name)

#ifdef OF_HIP  // hipblaslt.h, hipblas-common.h and library_types.h of ROCm 6 and 7
enum { SUCCESS, NOT_INITIALIZED, ALLOC_FAILED, INVALID_VALUE, INTERNAL = 6, NOT_SUPPORTED = 7 };
enum { COMPUTE_F32 = 2, COMPUTE_TF32 = 6, COMPUTE_F64 = 7, COMPUTE_I32 = 9 };
enum { OP_N = 111, OP_T = 112 };
enum { TRANS_A = 0, TRANS_B = 1, EPILOGUE = 2, BIAS_POINTER = 3, BIAS_TYPE = 4 };
enum { BATCH_COUNT = 0, BATCH_OFFSET = 1, ORDER = 3 };
enum { WORKSPACE = 1, REDUCTIONS = 99, ALIGN_A, ALIGN_B, ALIGN_C, ALIGN_D };
struct Algorithm { uint8_t data[16]; size_t most; };
#else  // cublasLt.h, cublas_api.h and library_types.h of CUDA 11 to 13
enum { SUCCESS, NOT_INITIALIZED, ALLOC_FAILED = 3, INVALID_VALUE = 7, INTERNAL = 14, NOT_SUPPORTED = 15 };
enum { COMPUTE_F32 = 68, COMPUTE_TF32 = 77, COMPUTE_F64 = 70, COMPUTE_I32 = 72 };
enum { OP_N = 0, OP_T = 1 };
enum { TRANS_A = 3, TRANS_B = 4, EPILOGUE = 7, BIAS_POINTER = 8, BIAS_TYPE = 26 };
enum { BATCH_COUNT = 5, BATCH_OFFSET = 6, ORDER = 1 };
enum { WORKSPACE = 1, REDUCTIONS = 3, ALIGN_A = 5, ALIGN_B, ALIGN_C, ALIGN_D };
struct Algorithm { uint64_t data[8]; };
#endif
enum { F32 = 0, F64 = 1, F16 = 2, I8 = 3, I32 = 10, BF16 = 14, E4M3 = 28, E5M2 = 29 };
enum { ORDER_COLUMNS = 0, PLAIN = 1, WITH_BIAS = 4 };
enum { NOT_READY = 600, ILLEGAL_ADDRESS = 700 };  // of the driver

struct Result { Algorithm algorithm; size_t workspace; int state; float waves; int reserved[4]; };
struct Operation { int compute, scale, trans_a = OP_N, trans_b = OP_N, epilogue = PLAIN, bias_type = -1;
                   uint64_t bias = 0; };
struct Layout { int dtype; uint64_t rows, columns; int64_t leading; int order = ORDER_COLUMNS,
                batch = 1; int64_t offset = 0; };
#ifdef OF_HIP  // where elements begin is enough
constexpr uint32_t ALIGNED = 1;
#else
constexpr uint32_t ALIGNED = 256;
#endif
struct Preference { uint64_t workspace = 0; uint32_t reductions = 7,
                    alignment[4] = {ALIGNED, ALIGNED, ALIGNED, ALIGNED}; };
struct Handle { const void* context; };

template <class F>
static F* driver(const char* name) {
    static void* library = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
    return (F*)dlsym(library, name);
}
static bool is_device(const void* at, size_t size) {
    return driver<int(const void*, size_t)>("stand_in_is_device")(at, size);
}
static double now() {  // in milliseconds
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec * 1e-6;
}

static std::mutex lock;
static std::map<std::string, int> calls;
static int slow[8], offered = 8;
static size_t per_algorithm = 1 << 20;
// For tests: the milliseconds that the algorithm of a number takes; how many there are, and the
// workspace that each asks for beyond the one before it; how often something was done.
EXPORT void stand_in_lt_slow(int algorithm, int milliseconds) { slow[algorithm] = milliseconds; }
EXPORT void stand_in_lt_offers(int count, size_t bytes) { offered = count, per_algorithm = bytes; }
EXPORT int stand_in_lt_calls(const char* name) {
    std::lock_guard<std::mutex> locked(lock);
    return calls[name];
}
static void count(const std::string& name) {
    std::lock_guard<std::mutex> locked(lock);
    calls[name]++;
}
struct Flight { const void* stream; const char* begin; const char* end; };
static std::vector<Flight> flights;  // workspaces of calls that have not run

static size_t size_of(int dtype) {
    switch (dtype) {
        case F64: return 8;
        case F32: case I32: return 4;
        case F16: case BF16: return 2;
        default: return 1;
    }
}

// A float of 8 bits: so many of the significand, and the exponent's bias. No NaN or infinity.
static double of_byte(uint8_t bits, int significand, int bias) {
    int exponent = bits >> significand & ((1 << (7 - significand)) - 1);
    int digits = bits & ((1 << significand) - 1);
    double value = exponent ? std::ldexp((1 << significand) + digits, exponent - bias - significand)
                            : std::ldexp(digits, 1 - bias - significand);
    return bits >> 7 ? -value : value;
}
static double get(const char* at, int dtype, int64_t i) {
    switch (dtype) {
        case F32: return ((const float*)at)[i];
        case F64: return ((const double*)at)[i];
        case F16: return double(((const _Float16*)at)[i]);
        case I8: return ((const int8_t*)at)[i];
        case E4M3: return of_byte(((const uint8_t*)at)[i], 3, 7);
        case E5M2: return of_byte(((const uint8_t*)at)[i], 2, 15);
        case I32: return ((const int32_t*)at)[i];
        default: {
            uint32_t wide = uint32_t(((const uint16_t*)at)[i]) << 16;
            float value;
            return memcpy(&value, &wide, 4), value;
        }
    }
}
static void put(char* at, int dtype, int64_t i, double value) {
    switch (dtype) {
        case F32: ((float*)at)[i] = float(value); return;
        case F64: ((double*)at)[i] = value; return;
        case F16: ((_Float16*)at)[i] = _Float16(float(value)); return;
        case I32: ((int32_t*)at)[i] = int32_t(value); return;
    }
    float narrow = float(value);
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    bits = narrow != narrow ? bits | 0x400000 : bits + 0x7FFF + (bits >> 16 & 1);
    ((uint16_t*)at)[i] = uint16_t(bits >> 16);
}
static float of_ten_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    bits &= ~uint32_t(0x1FFF);
    return memcpy(&value, &bits, 4), value;
}

// The last element of a matrix's memory, of all its batches.
static size_t extent(const Layout& x) {
    return (x.batch - 1) * x.offset + (x.columns - 1) * x.leading + x.rows;
}

struct Problem {
    Operation operation;
    Layout a, b, d;
    bool operator==(const Problem& o) const {
        auto same = [](const Layout& x, const Layout& y) {
            return x.dtype == y.dtype && x.rows == y.rows && x.columns == y.columns &&
                   x.leading == y.leading && x.batch == y.batch && x.offset == y.offset;
        };
        const Operation &p = operation, &q = o.operation;
        return p.compute == q.compute && p.scale == q.scale && p.trans_a == q.trans_a &&
               p.trans_b == q.trans_b && p.epilogue == q.epilogue && p.bias_type == q.bias_type &&
               same(a, o.a) && same(b, o.b) && same(d, o.d);
    }
};
struct Known { Problem problem; int number; size_t workspace; uint32_t alignment[4]; };
static std::vector<Known> algorithms;

// The vendor's table: compute type, scale type, dtypes of A and B, that of C, and whether a bias.
static bool is_listed(const Problem& p) {
    if (p.a.dtype >= E4M3 && p.b.dtype >= E4M3) {
        int d = p.d.dtype, bias = d == F32 ? BF16 : d;
        bool listed = p.a.dtype + p.b.dtype < 2 * E5M2 && (d == BF16 || d == F16 || d == F32);
        return listed && p.operation.compute == COMPUTE_F32 && p.operation.scale == F32 &&
               (p.operation.epilogue == PLAIN || p.operation.bias_type == bias);
    }
    static const int rows[][5] = {
        {COMPUTE_F32, F32, F32, F32, 1},  {COMPUTE_TF32, F32, F32, F32, 1},
        {COMPUTE_F32, F32, F16, F16, 1},  {COMPUTE_F32, F32, F16, F32, 1},
        {COMPUTE_F32, F32, BF16, BF16, 1}, {COMPUTE_F32, F32, BF16, F32, 1},
        {COMPUTE_F64, F64, F64, F64, 0},  {COMPUTE_I32, I32, I8, I32, 0},
    };
    for (auto& row : rows)
        if (p.operation.compute == row[0] && p.operation.scale == row[1] && p.a.dtype == row[2] &&
            p.b.dtype == row[2] && p.d.dtype == row[3])
            return p.operation.epilogue == PLAIN ||
                   (p.operation.epilogue == WITH_BIAS && row[4] && p.operation.bias_type == row[3]);
    return false;
}
static int refused(const Problem& p) {
    bool turned_a = p.operation.trans_a == OP_T, turned_b = p.operation.trans_b == OP_T;
    uint64_t m = turned_a ? p.a.columns : p.a.rows, k = turned_a ? p.a.rows : p.a.columns;
    uint64_t n = turned_b ? p.b.rows : p.b.columns, other = turned_b ? p.b.columns : p.b.rows;
    for (const Layout* x : {&p.a, &p.b, &p.d}) {
        if (!x->rows || !x->columns || x->leading < int64_t(x->rows)) return INVALID_VALUE;
        if (x->order != ORDER_COLUMNS || x->batch != p.d.batch) return INVALID_VALUE;
    }
    if (k != other || m != p.d.rows || n != p.d.columns) return INVALID_VALUE;
    if (p.operation.epilogue == WITH_BIAS && !p.operation.bias) return INVALID_VALUE;
    if (!is_listed(p)) return NOT_SUPPORTED;
    if (p.a.dtype == I8) {
        bool fits = turned_a && !turned_b && m % 4 == 0 && k % 4 == 0;
        for (const Layout* x : {&p.a, &p.b, &p.d}) fits = fits && x->leading % 4 == 0;
        if (!fits) return NOT_SUPPORTED;
    }
    if (p.a.dtype >= E4M3) {
        bool fits = turned_a && !turned_b && m % 16 == 0 && n % 16 == 0 && k % 16 == 0;
        for (const Layout* x : {&p.a, &p.b, &p.d}) fits = fits && x->leading % 16 == 0;
        if (!fits) return NOT_SUPPORTED;
    }
    return SUCCESS;
}

API(Create)(Handle** handle) {
    *handle = new Handle{driver<const void*()>("stand_in_current")()};
    return SUCCESS;
}
API(Destroy)(Handle* handle) { return delete handle, SUCCESS; }
#ifndef OF_HIP
EXPORT size_t cublasLtGetVersion() { return 130000; }
EXPORT const char* cublasLtGetStatusName(int status) {
    switch (status) {
        case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}
#endif

template <class T>
static int given(T& into, const void* value, size_t size) {
    if (size != sizeof(T) || !value) return INVALID_VALUE;
    return memcpy(&into, value, size), SUCCESS;
}
API(MatmulDescCreate)(Operation** made, int compute, int scale) {
    count("records");
    return *made = new Operation{compute, scale}, SUCCESS;
}
API(MatmulDescDestroy)(Operation* made) { return count("destroyed"), delete made, SUCCESS; }
API(MatmulDescSetAttribute)(Operation* of, int attribute, const void* value, size_t size) {
    switch (attribute) {
        case TRANS_A: return given(of->trans_a, value, size);
        case TRANS_B: return given(of->trans_b, value, size);
        case EPILOGUE: return given(of->epilogue, value, size);
        case BIAS_POINTER: return given(of->bias, value, size);
        case BIAS_TYPE: return given(of->bias_type, value, size);
        default: return INVALID_VALUE;
    }
}
API(MatrixLayoutCreate)(Layout** made, int dtype, uint64_t rows, uint64_t columns, int64_t leading) {
    count("records");
    return *made = new Layout{dtype, rows, columns, leading}, SUCCESS;
}
API(MatrixLayoutDestroy)(Layout* made) { return count("destroyed"), delete made, SUCCESS; }
API(MatrixLayoutSetAttribute)(Layout* of, int attribute, const void* value, size_t size) {
    switch (attribute) {
        case BATCH_COUNT: return given(of->batch, value, size);
        case BATCH_OFFSET: return given(of->offset, value, size);
        case ORDER: return given(of->order, value, size);
        default: return INVALID_VALUE;
    }
}
API(MatmulPreferenceCreate)(Preference** made) {
    count("records");
    return *made = new Preference, SUCCESS;
}
API(MatmulPreferenceDestroy)(Preference* made) { return count("destroyed"), delete made, SUCCESS; }
API(MatmulPreferenceSetAttribute)(Preference* of, int attribute, const void* value, size_t size) {
    switch (attribute) {
        case WORKSPACE: return given(of->workspace, value, size);
        case REDUCTIONS: return given(of->reductions, value, size);
        case ALIGN_A: case ALIGN_B: case ALIGN_C: case ALIGN_D:
            return given(of->alignment[attribute - ALIGN_A], value, size);
        default: return INVALID_VALUE;
    }
}

API(MatmulAlgoGetHeuristic)(Handle* handle, Operation* operation, Layout* a, Layout* b, Layout* c,
                            Layout* d, Preference* preference, int wanted, Result* results, int* found) {
    if (!handle) return NOT_INITIALIZED;
    count("heuristic");
    Problem problem{*operation, *a, *b, *d};
    *found = 0;
    if (int status = refused(problem)) return status;
    if (c->rows != d->rows || c->columns != d->columns || c->leading < int64_t(c->rows))
        return INVALID_VALUE;
    std::lock_guard<std::mutex> locked(lock);
    for (int number = 0; number < std::min(wanted, offered); number++) {
        // The first needs the widest loads, if operands are said to allow them; the last needs none.
        Known known{problem, number, number * per_algorithm, {}};
        if (known.workspace > preference->workspace) break;
        for (int i = 0; i < 4; i++) known.alignment[i] = std::min(preference->alignment[i], 16u);
        Result& result = results[(*found)++] = {};
        uint64_t place = algorithms.size() + 1;
        memcpy(&result.algorithm, &place, sizeof place);
        result.workspace = known.workspace;
        algorithms.push_back(known);
    }
    return *found ? SUCCESS : NOT_SUPPORTED;
}

struct Job {
    Problem problem;
    const char *a, *b, *bias;
    char *d, *workspace;
    size_t size;
    double alpha, end;
    int number, milliseconds;
    const void* stream;
};
template <class T>
static T total(const Job& job, int batch, uint64_t i, uint64_t j, uint64_t k) {
    const Problem& p = job.problem;
    auto at = [&](const Layout& x, bool is_turned, uint64_t row, uint64_t column) {
        if (is_turned) std::swap(row, column);
        return batch * x.offset + int64_t(column) * x.leading + int64_t(row);
    };
    bool is_narrowed = p.operation.compute == COMPUTE_TF32;
    T sum = 0;
    for (uint64_t step = 0; step < k; step++) {
        T x = T(get(job.a, p.a.dtype, at(p.a, p.operation.trans_a == OP_T, i, step)));
        T y = T(get(job.b, p.b.dtype, at(p.b, p.operation.trans_b == OP_T, step, j)));
        if (is_narrowed) x = T(of_ten_bits(float(x))), y = T(of_ten_bits(float(y)));
        sum += x * y;
    }
    return sum;
}
static int work(void* data) {
    Job& job = *(Job*)data;
    if (!job.end) job.end = now() + job.milliseconds;
    if (now() < job.end) return NOT_READY;
    job.end = 0;  // a graph may come by again
    const Problem& p = job.problem;
    struct { const char* at; size_t size; } memory[] = {
        {job.a, extent(p.a) * size_of(p.a.dtype)}, {job.b, extent(p.b) * size_of(p.b.dtype)},
        {job.d, extent(p.d) * size_of(p.d.dtype)}, {job.workspace, job.size},
        {job.bias, job.bias ? p.d.rows * size_of(p.operation.bias_type) : 0},
    };
    for (auto& each : memory)
        if (each.size && !is_device(each.at, each.size)) return ILLEGAL_ADDRESS;
    {
        std::lock_guard<std::mutex> locked(lock);
        for (size_t i = 0; i < flights.size(); i++)
            if (flights[i].stream == job.stream && flights[i].begin == job.workspace) {
                flights.erase(flights.begin() + i);
                break;
            }
    }
    memset(job.workspace, 0x5A, job.size);
    uint64_t k = p.operation.trans_a == OP_T ? p.a.rows : p.a.columns;
    for (int batch = 0; batch < p.d.batch; batch++)
        for (uint64_t j = 0; j < p.d.columns; j++)
            for (uint64_t i = 0; i < p.d.rows; i++) {
                double value;
                switch (p.operation.scale) {
                    case F64: value = total<double>(job, batch, i, j, k); break;
                    case I32: value = total<int32_t>(job, batch, i, j, k); break;
                    default: value = total<float>(job, batch, i, j, k);
                }
                value *= job.alpha;
                if (job.bias) {
                    double bias = get(job.bias, p.operation.bias_type, i);
                    value = p.operation.scale == F32 ? double(float(value) + float(bias)) : value + bias;
                }
                put(job.d, p.d.dtype, batch * p.d.offset + int64_t(j) * p.d.leading + int64_t(i), value);
            }
    count("done");
    return 0;
}

API(Matmul)(Handle* handle, Operation* operation, const void* alpha, const void* a, Layout* a_layout,
            const void* b, Layout* b_layout, const void* beta, const void* c, Layout* c_layout, void* d,
            Layout* d_layout, const Algorithm* algorithm, void* workspace, size_t size, void* stream) {
    if (!handle) return NOT_INITIALIZED;
    if (!a || !b || !d || !alpha || !beta || !algorithm) return INVALID_VALUE;
    if (driver<const void*()>("stand_in_current")() != handle->context) return INVALID_VALUE;
    Problem problem{*operation, *a_layout, *b_layout, *d_layout};
    if (int status = refused(problem)) return status;
    uint64_t place;
    memcpy(&place, algorithm, sizeof place);
    std::unique_lock<std::mutex> locked(lock);
    if (!place || place > algorithms.size()) return INVALID_VALUE;
    Known known = algorithms[place - 1];
    if (!(known.problem == problem)) return INVALID_VALUE;
    if (size < known.workspace || (known.workspace && !workspace)) return INVALID_VALUE;
    if (uintptr_t(workspace) % 256) return INVALID_VALUE;
    const void* pointers[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (uintptr_t(pointers[i]) % known.alignment[i]) return INVALID_VALUE;
    for (const void* each : pointers)
        if ((problem.a.dtype == I8 && uintptr_t(each) % 4) ||
            (problem.a.dtype >= E4M3 && uintptr_t(each) % 16))
            return INVALID_VALUE;
    if (c != d) return INVALID_VALUE;
    double scales[2];
    for (int i = 0; i < 2; i++) scales[i] = get((const char*)(i ? beta : alpha), operation->scale, 0);
    if (scales[1] != 0) return INVALID_VALUE;  // of this stand-in: nobody adds to c
    auto begin = (const char*)workspace, end = begin + known.workspace;
    int is_captured = 0;  // then it is not under way yet
    driver<int(void*, int*)>("cuStreamIsCapturing")(stream, &is_captured);
    for (const Flight& other : flights)
        if (known.workspace && other.stream != stream && begin < other.end && other.begin < end)
            calls["shared workspace"]++;
    if (!is_captured) flights.push_back({stream, begin, end});
    locked.unlock();
    if (!driver<bool(void*, const void*)>("stand_in_is_of")(stream, handle->context))
        count("other stream");
    auto job = new Job{problem, (const char*)a, (const char*)b,
                       operation->epilogue == WITH_BIAS ? (const char*)operation->bias : nullptr,
                       (char*)d, (char*)workspace, known.workspace, scales[0], 0, known.number,
                       slow[known.number], stream};
    count("product");
    count("algorithm " + std::to_string(known.number));
    return driver<int(void*, int (*)(void*), void*, const void*)>("stand_in_queue")(stream, work, job,
                                                                                  nullptr);
}
