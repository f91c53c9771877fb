// A CUDA driver (libcuda.so.1) for machines without one, with as much of it as cuda-core asks for.
// Its one device is the CPU, its modules are shared libraries made by compiling.py, and its memory
// is the host's, poisoned when allocated and when freed.
//
// Work on a stream waits until somebody waits for it, so that a missing wait shows. As in a real
// driver a copy from the host's memory takes the bytes at once, one to it runs all that is queued
// before; arguments are taken when a kernel is launched; the first failure of a kernel stays the
// answer to every later call. Several threads may call, each with a device of its own.
//
// Work may not be ready: a collective, until all its ranks have come (stand_in_nccl.cpp). Then its
// stream stands, and who waits for it looks again.
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>
#include "runtime.h"

#define API extern "C" __attribute__((visibility("default"))) CUresult
#define IGNORED(name, ...) \
    API name(__VA_ARGS__) { return CUDA_SUCCESS; }

extern "C" int simt_launch(const simt::Launch*, simt::Fault*);

// `tag` is common to the collectives of all ranks of a communicator.
struct Work { std::function<CUresult()> run; const void* tag = nullptr; };
struct Stream;
// Work in the order in which it was captured, in branches that were streams; branch 0 is the one
// that was captured. An item is work, or it records the event of a number, or waits for it.
struct Item { enum { WORK, RECORD, WAIT } kind; size_t branch; Work work; size_t event; };
struct Graph {
    std::vector<Item> items;
    std::vector<size_t> events;  // the branch in which each was recorded
    std::vector<Stream*> branches;
};
// `last[b]` counts the work of branch b, `seen[b][c]` how much of branch c is before all of b.
struct Capture {
    std::unique_ptr<Graph> graph{new Graph};
    std::vector<Stream*> streams;
    std::vector<size_t> last;
    std::vector<std::vector<size_t>> seen, recorded;
};
struct Stream {
    std::deque<Work> queue;
    std::shared_ptr<Capture> captured;
    size_t branch = 0;
    bool is_running = false, is_side = false;
    CUcontext context = nullptr;
};
struct Event {
    double milliseconds;
    std::shared_ptr<bool> is_reached;
    Stream* stream;
    std::shared_ptr<Capture> captured;
    size_t number;
};
struct Module { void* library; };
struct Function { void (*entry)(void**); std::vector<size_t> sizes; Module* module; };

constexpr size_t MEMORY = size_t(1) << 30;
static std::map<CUdeviceptr, size_t> allocations;
static size_t used;
static std::vector<std::unique_ptr<Stream>> streams;
static Stream default_stream;
static thread_local CUcontext current;
static int handle, contexts[64];  // contexts and pools are but handles
static CUcontext current_or_first() { return current ? current : (CUcontext)&contexts[0]; }
static CUresult failed = CUDA_SUCCESS;
static std::recursive_mutex lock;
static bool is_eager;  // collectives run as early as they may, not as late
static double now() {  // in milliseconds
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec * 1e-6;
}
static int slow[64];   // the milliseconds that a kernel of a device takes, while the host goes on
using Locked = std::lock_guard<std::recursive_mutex>;

static simt::Fault fault;  // of the kernel that failed

static Stream& stream(CUstream s) { return (uintptr_t)s <= 2 ? default_stream : *(Stream*)s; }

// Does the next work of a stream, if it is ready.
static CUresult step(Stream& stream) {
    if (stream.is_running) return CUDA_ERROR_NOT_READY;  // it is why we are asked
    stream.is_running = true;
    Work work = stream.queue.front();
    CUresult result = failed == CUDA_SUCCESS ? work.run() : failed;
    stream.is_running = false;
    if (result == CUDA_ERROR_NOT_READY) return result;
    stream.queue.pop_front();
    return failed = result;
}

// Runs what a stream was given, up to the point that `until` says has been reached, if any.
static CUresult run(Stream& stream, const bool* until = nullptr) {
    Locked locked(lock);
    while (!stream.queue.empty() && !(until && *until))
        if (step(stream) == CUDA_ERROR_NOT_READY) return CUDA_ERROR_NOT_READY;
    return failed;  // what is not reached by now was lost when the stand-in started anew
}

// Runs it however long other ranks take to come.
static CUresult finish(Stream& stream, const bool* until = nullptr) {
    for (;;) {
        CUresult result = run(stream, until);
        if (result != CUDA_ERROR_NOT_READY) return result;
        usleep(50);
    }
}

// Calls that queue something or wait for it, and bytes copied from and to the host, by name.
static std::map<std::string, int> calls;
static void count(const char* name, int more = 1) {
    Locked locked(lock);
    calls[name] += more;
}

static void hurry() {
    for (size_t i = 0; is_eager && i < streams.size(); i++)
        if (streams[i]->is_side) run(*streams[i]);
}

// What a stream that is being captured is given goes into its graph.
static CUresult queue(CUstream s, std::function<CUresult()> work, const void* tag = nullptr) {
    Locked locked(lock);
    Stream& to = stream(s);
    if (failed) return failed;
    if (tag) to.is_side = true;
    if (to.captured) {
        to.captured->last[to.branch]++;
        to.captured->graph->items.push_back({Item::WORK, to.branch, {std::move(work), tag}, 0});
        return CUDA_SUCCESS;
    }
    to.queue.push_back({std::move(work), tag});
    hurry();
    return failed;
}

// Runs all that is ready: of what waits for other ranks a free must not wait, whose thread may hold
// what they need.
static CUresult run_all() {
    Locked locked(lock);
    CUresult result = run(default_stream);
    for (size_t i = 0; i < streams.size(); i++)
        if (CUresult other = run(*streams[i])) result = other;
    return result;
}

// Is it memory of the device, up to its last byte? Host memory is what is no device's.
static bool is_device(CUdeviceptr at, size_t size) {
    Locked locked(lock);
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin()) return false;
    --after;
    return at + size <= after->first + after->second;
}

static std::map<CUdeviceptr, size_t> pinned;  // the host's, which the device copies by itself
static bool is_pinned(CUdeviceptr at, size_t size) {
    Locked locked(lock);
    auto after = pinned.upper_bound(at);
    if (after == pinned.begin()) return false;
    --after;
    return at + size <= after->first + after->second;
}

static CUresult allocate(CUdeviceptr* at, size_t size) {
    Locked locked(lock);
    if (failed) return failed;
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (size > MEMORY - used) return CUDA_ERROR_OUT_OF_MEMORY;
    // Its own pages, with one on each side that nobody may touch.
    size_t page = sysconf(_SC_PAGESIZE), pages = (size + page - 1) / page + 2;
    char* memory = (char*)mmap(nullptr, pages * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    mprotect(memory + page, (pages - 2) * page, PROT_READ | PROT_WRITE);
    *at = (CUdeviceptr)(memory + page);
    memset((void*)*at, 0xCB, size);
    allocations[*at] = size;
    used += size;
    return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr at) {
    auto found = allocations.find(at);
    if (found == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
    mprotect((void*)at, found->second, PROT_NONE);  // the address is never given again
    used -= found->second;
    allocations.erase(found);
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
    if (failed) return failed;
    count("copy");
    bool to_device = is_device(to, 1), from_device = is_device(from, 1);
    if (stream(s).captured && !((to_device || is_pinned(to, size)) &&
                                (from_device || is_pinned(from, size))))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // memory that the device cannot read later
    auto copied = [=] {
        if ((to_device && !is_device(to, size)) || (from_device && !is_device(from, size)))
            return CUDA_ERROR_INVALID_VALUE;
        memcpy((void*)to, (void*)from, size);
        if (!from_device) count("sent", size);
        if (!to_device) count("fetched", size);
        return CUDA_SUCCESS;
    };
    if (!from_device && !is_pinned(from, size)) {
        auto staged = std::make_shared<std::string>((char*)from, size);
        return queue(s, [=] {
            if (!is_device(to, size)) return CUDA_ERROR_INVALID_VALUE;
            memcpy((void*)to, staged->data(), size);
            count("sent", size);
            return CUDA_SUCCESS;
        });
    }
    CUresult result = queue(s, copied);
    return to_device || is_pinned(to, size) ? result : finish(stream(s));
}

static CUresult load(Module** module, const void* image) {
    Locked locked(lock);
    if (failed) return failed;
    // A shared library's length stands at the end of its section headers.
    auto bytes = (const unsigned char*)image;
    uint64_t sections;
    uint16_t size, count;
    if (memcmp(bytes, "\177ELF", 4) || bytes[18] == EM_CUDA) return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&sections, bytes + 0x28, 8);
    memcpy(&size, bytes + 0x3A, 2);
    memcpy(&count, bytes + 0x3C, 2);
    size_t length = sections + size_t(size) * count;
    int file = memfd_create("module", 0);
    if (write(file, image, length) != ssize_t(length)) return CUDA_ERROR_OPERATING_SYSTEM;
    void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW);
    // The file stays open: under the name of a closed one the loader would find this library again.
    if (!library) return CUDA_ERROR_INVALID_IMAGE;
    *module = new Module{library};
    return CUDA_SUCCESS;
}

static CUresult find(Function** function, Module* module, const std::string& name) {
    auto entry = (void (*)(void**))dlsym(module->library, ("call_" + name).c_str());
    auto sizes = (const unsigned*)dlsym(module->library, ("sizes_" + name).c_str());
    if (!entry) return CUDA_ERROR_NOT_FOUND;
    *function = new Function{entry, {}, module};
    for (; *sizes; sizes++) (*function)->sizes.push_back(*sizes);
    return CUDA_SUCCESS;
}

// For tests: how many groups a unit holds at most, and in which order groups that are there at once
// take turns.
static int most_held = 32, turns;
static unsigned lanes_in_step = 32;
extern "C" const simt::Fault* stand_in_fault() { return &fault; }
extern "C" void stand_in_hold(int groups, int order) { most_held = groups, turns = order; }

static int held(unsigned lanes, size_t dynamic) {
    int by_shared = dynamic ? (228 << 10) / dynamic : 32;
    return std::min({int(2048 / lanes), by_shared, most_held});
}

static CUresult launch(const Function& function, const std::vector<std::string>& values,
                       simt::Index grid, simt::Index block, unsigned dynamic, bool cooperative,
                       unsigned cluster) {
    std::vector<void*> arguments;
    for (const std::string& each : values) arguments.push_back((void*)each.data());
    std::vector<simt::Span> buffers;
    for (auto& [at, size] : allocations) buffers.push_back({(char*)at, size});
    auto shared = (char**)dlsym(function.module->library, "simt_shared_bounds");
    simt::Launch launch{function.entry, arguments.data(), grid, block, lanes_in_step,
                        cooperative ? turns : 0,
                        dynamic, {shared[0], size_t(shared[1] - shared[0])}, buffers.data(),
                        buffers.size()};
    launch.cooperative = cooperative;
    launch.cluster = cluster;
    launch.unchecked = !*(const int*)dlsym(function.module->library, "simt_is_checked");
    return simt_launch(&launch, &fault) ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

static CUresult attribute(int* value, int which) {
    static const std::map<int, int> values = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 2},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 512},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    };
    auto found = values.find(which);
    *value = found == values.end() ? 0 : found->second;
    return CUDA_SUCCESS;
}

// For tests: how often something was queued by a call of this name, or waited for.
extern "C" int stand_in_calls(const char* name) {
    Locked locked(lock);
    return calls[name];
}
extern "C" void stand_in_hurry(int is_asked) { is_eager = is_asked; }
extern "C" void stand_in_slow(int device, int milliseconds) { slow[device] = milliseconds; }

// For the library that stands in for NCCL.
extern "C" int stand_in_queue(CUstream s, int (*work)(void*), void* data, const void* tag) {
    return queue(s, [=] { return (CUresult)work(data); }, tag);
}
extern "C" bool stand_in_is_of(CUstream s, CUcontext context) { return stream(s).context == context; }
extern "C" CUcontext stand_in_current() { return current_or_first(); }
extern "C" int stand_in_is_device(const void* at, size_t size) {
    return is_device((CUdeviceptr)at, size);
}
extern "C" void stand_in_enter() { lock.lock(); }
extern "C" void stand_in_leave() { lock.unlock(); }
// Has each stream come to its first work of this tag and do that, where it can.
extern "C" void stand_in_demand(const void* tag) {
    for (size_t i = 0; i < streams.size(); i++) {
        Stream& stream = *streams[i];
        size_t first = 0;
        while (first < stream.queue.size() && stream.queue[first].tag != tag) first++;
        if (first == stream.queue.size() || stream.is_running) continue;
        for (size_t left = first + 1; left && step(stream) != CUDA_ERROR_NOT_READY;) left--;
    }
}

// For tests, which do after a failure what a program cannot: start anew.
extern "C" void stand_in_reset() {
    Locked locked(lock);
    failed = CUDA_SUCCESS;
    default_stream.queue.clear();
    for (auto& each : streams) each->queue.clear();
}

// The device and its context.
IGNORED(cuInit, unsigned)
API cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
API cuGetErrorName(CUresult error, const char** name) {
    switch (error) {
        case CUDA_ERROR_INVALID_VALUE: return *name = "CUDA_ERROR_INVALID_VALUE", CUDA_SUCCESS;
        case CUDA_ERROR_OUT_OF_MEMORY: return *name = "CUDA_ERROR_OUT_OF_MEMORY", CUDA_SUCCESS;
        case CUDA_ERROR_LAUNCH_FAILED: return *name = "CUDA_ERROR_LAUNCH_FAILED", CUDA_SUCCESS;
        case CUDA_ERROR_INVALID_IMAGE: return *name = "CUDA_ERROR_INVALID_IMAGE", CUDA_SUCCESS;
        case CUDA_ERROR_NOT_FOUND: return *name = "CUDA_ERROR_NOT_FOUND", CUDA_SUCCESS;
        default: return *name = "CUDA_ERROR_UNKNOWN", CUDA_SUCCESS;
    }
}
API cuGetErrorString(CUresult, const char** text) {
    return *text = "said by the stand-in driver", CUDA_SUCCESS;
}
static int devices() {
    const char* count = getenv("STAND_IN_DEVICES");
    return count ? atoi(count) : 1;
}
API cuDeviceGetCount(int* count) { return *count = devices(), CUDA_SUCCESS; }
API cuDeviceGet(CUdevice* device, int number) {
    return *device = number, number < devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
API cuDeviceGetName(char* name, int size, CUdevice) {
    return strncpy(name, "stand-in", size), CUDA_SUCCESS;
}
API cuDeviceGetUuid_v2(CUuuid* id, CUdevice device) {
    return memset(id, 7 + device, sizeof *id), CUDA_SUCCESS;
}
API cuDeviceTotalMem_v2(size_t* size, CUdevice) { return *size = MEMORY, CUDA_SUCCESS; }
API cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
    return attribute(value, which);
}
API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    return *context = (CUcontext)&contexts[device], CUDA_SUCCESS;
}
IGNORED(cuDevicePrimaryCtxRelease_v2, CUdevice)
API cuCtxSetCurrent(CUcontext context) { return current = context, CUDA_SUCCESS; }
API cuCtxGetCurrent(CUcontext* context) { return *context = current, CUDA_SUCCESS; }
API cuCtxPushCurrent_v2(CUcontext context) { return current = context, CUDA_SUCCESS; }
API cuCtxPopCurrent_v2(CUcontext* context) {
    if (context) *context = current;
    return CUDA_SUCCESS;
}
API cuCtxGetDevice(CUdevice* device) {
    *device = current ? int((int*)current - contexts) : 0;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
API cuCtxSynchronize() {
    for (;;) {
        CUresult result = run_all();
        if (result != CUDA_ERROR_NOT_READY) return result;
        usleep(50);
    }
}
API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return *least = *greatest = 0, CUDA_SUCCESS;
}

// Memory.
API cuMemAllocFromPoolAsync(CUdeviceptr* at, size_t size, CUmemoryPool, CUstream) {
    return allocate(at, size);
}
API cuMemAllocAsync(CUdeviceptr* at, size_t size, CUstream) { return allocate(at, size); }
API cuMemAlloc_v2(CUdeviceptr* at, size_t size) { return allocate(at, size); }
API cuMemAllocHost_v2(void** at, size_t size) {
    Locked locked(lock);
    *at = malloc(size);
    return pinned[(CUdeviceptr)*at] = size, CUDA_SUCCESS;
}
API cuMemFreeHost(void* at) {
    Locked locked(lock);
    if (run_all() != CUDA_ERROR_NOT_READY) free(at);  // else somebody may come to read it
    return pinned.erase((CUdeviceptr)at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API cuMemFree_v2(CUdeviceptr at) { return run_all(), release(at); }
API cuMemFreeAsync(CUdeviceptr at, CUstream s) { return queue(s, [=] { return release(at); }); }
API cuMemGetInfo_v2(size_t* free, size_t* total) {
    return *total = MEMORY, *free = MEMORY - used, failed;
}
API cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice) {
    return *pool = (CUmemoryPool)&handle, CUDA_SUCCESS;
}
API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
    return cuDeviceGetDefaultMemPool(pool, device);
}
IGNORED(cuMemPoolSetAttribute, CUmemoryPool, CUmemPool_attribute, void*)
API cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute, void* value) {
    return *(cuuint64_t*)value = 0, CUDA_SUCCESS;
}
API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
    return copy(to, from, size, s);
}
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size, CUstream s) {
    return copy(to, (CUdeviceptr)from, size, s);
}
API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size, CUstream s) {
    return copy((CUdeviceptr)to, from, size, s);
}
API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
    return copy(to, from, size, s);
}
API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream s) {
    return queue(s, [=] {
        if (!is_device(to, size)) return CUDA_ERROR_INVALID_VALUE;
        memset((void*)to, value, size);
        return CUDA_SUCCESS;
    });
}
API cuPointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr at) {
    bool is_type = which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    *(int*)value = is_type ? is_device(at, 1) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST : 0;
    return CUDA_SUCCESS;
}
API cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** values, CUdeviceptr at) {
    for (unsigned i = 0; i < count; i++) cuPointerGetAttribute(values[i], which[i], at);
    return CUDA_SUCCESS;
}

// Streams and events.
API cuStreamCreateWithPriority(CUstream* s, unsigned, int) {
    Locked locked(lock);
    streams.push_back(std::make_unique<Stream>());
    streams.back()->context = current_or_first();
    return *s = (CUstream)streams.back().get(), CUDA_SUCCESS;
}
API cuStreamDestroy_v2(CUstream s) { return finish(stream(s)); }
API cuStreamSynchronize(CUstream s) {
    count("wait");
    return stream(s).captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : finish(stream(s));
}
API cuStreamGetCtx(CUstream s, CUcontext* context) {
    return *context = stream(s).context ? stream(s).context : current_or_first(), CUDA_SUCCESS;
}
API cuStreamGetFlags(CUstream, unsigned* flags) { return *flags = 1, CUDA_SUCCESS; }
API cuStreamGetPriority(CUstream, int* priority) { return *priority = 0, CUDA_SUCCESS; }
static CUstreamCaptureStatus capturing(CUstream s) {
    return stream(s).captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
}
API cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* status) {
    return *status = capturing(s), CUDA_SUCCESS;
}
API cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id,
                              CUgraph* graph, const CUgraphNode** nodes,
                              const CUgraphEdgeData** edges, size_t* count) {
    if (status) *status = capturing(s);
    if (id) *id = 1;
    auto& capture = stream(s).captured;
    if (graph) *graph = capture ? (CUgraph)capture->graph.get() : nullptr;
    if (nodes) *nodes = nullptr;
    if (edges) *edges = nullptr;
    if (count) *count = 0;
    return CUDA_SUCCESS;
}

// Graphs, which are what a stream was given while it was captured, and what other streams were that
// came to wait for it.
static size_t enter(const std::shared_ptr<Capture>& capture, Stream& stream) {
    stream.captured = capture;
    stream.branch = capture->streams.size();
    capture->streams.push_back(&stream);
    capture->last.push_back(0);
    for (auto& seen : capture->seen) seen.push_back(0);
    for (auto& seen : capture->recorded) seen.push_back(0);
    capture->seen.emplace_back(capture->streams.size(), 0);
    return stream.branch;
}
API cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode) {
    Locked locked(lock);
    if (stream(s).captured) return CUDA_ERROR_ILLEGAL_STATE;
    enter(std::make_shared<Capture>(), stream(s));
    return CUDA_SUCCESS;
}
API cuStreamEndCapture(CUstream s, CUgraph* graph) {
    Locked locked(lock);
    auto capture = stream(s).captured;
    if (!capture || stream(s).branch) return CUDA_ERROR_ILLEGAL_STATE;
    for (Stream* each : capture->streams) each->captured = nullptr;
    capture->seen[0][0] = capture->last[0];
    if (capture->seen[0] != capture->last) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    return *graph = (CUgraph)capture->graph.release(), CUDA_SUCCESS;
}
API cuGraphCreate(CUgraph* graph, unsigned) { return *graph = (CUgraph) new Graph, CUDA_SUCCESS; }
API cuGraphDestroy(CUgraph graph) { return delete (Graph*)graph, CUDA_SUCCESS; }
API cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
    return *made = (CUgraphExec) new Graph(*(Graph*)graph), CUDA_SUCCESS;
}
API cuGraphInstantiateWithParams(CUgraphExec* made, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    if (parameters) parameters->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return cuGraphInstantiateWithFlags(made, graph, 0);
}
IGNORED(cuUserObjectCreate, CUuserObject*, void*, CUhostFn, unsigned, unsigned)
IGNORED(cuUserObjectRetain, CUuserObject, unsigned)
IGNORED(cuUserObjectRelease, CUuserObject, unsigned)
IGNORED(cuGraphRetainUserObject, CUgraph, CUuserObject, unsigned, unsigned)
IGNORED(cuGraphReleaseUserObject, CUgraph, CUuserObject, unsigned)
API cuGraphExecDestroy(CUgraphExec graph) { return delete (Graph*)graph, CUDA_SUCCESS; }
API cuGraphLaunch(CUgraphExec graph_exec, CUstream s) {
    count("graph");
    Locked locked(lock);
    Graph& graph = *(Graph*)graph_exec;
    std::vector<std::shared_ptr<bool>> reached;
    for (size_t i = 0; i < graph.events.size(); i++) reached.push_back(std::make_shared<bool>());
    auto branch = [&](size_t number) -> Stream& {
        while (graph.branches.size() < number) {
            streams.push_back(std::make_unique<Stream>());
            graph.branches.push_back(streams.back().get());
        }
        return number ? *graph.branches[number - 1] : stream(s);
    };
    for (Item& item : graph.items) {
        Stream& to = branch(item.branch);
        Work work = item.work;
        if (work.tag) to.is_side = true;
        if (item.kind == Item::RECORD)
            work.run = [flag = reached[item.event]] { return *flag = true, CUDA_SUCCESS; };
        if (item.kind == Item::WAIT)
            work.run = [flag = reached[item.event], from = &branch(graph.events[item.event])] {
                return run(*from, flag.get());
            };
        if (failed == CUDA_SUCCESS) to.queue.push_back(std::move(work));
    }
    hurry();
    return failed;
}
API cuEventCreate(CUevent* event, unsigned) {
    return *event = (CUevent) new Event{-1, nullptr, nullptr, nullptr, 0}, CUDA_SUCCESS;
}
API cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }  // work may still hold it
API cuEventRecord(CUevent which, CUstream s) {
    Locked locked(lock);
    Event& event = *(Event*)which;
    Stream& from = stream(s);
    event.captured = from.captured;
    if (from.captured) {
        Capture& capture = *from.captured;
        event.number = capture.graph->events.size();
        capture.graph->events.push_back(from.branch);
        capture.graph->items.push_back({Item::RECORD, from.branch, {}, event.number});
        capture.recorded.push_back(capture.seen[from.branch]);
        capture.recorded.back()[from.branch] = capture.last[from.branch];
        return CUDA_SUCCESS;
    }
    auto is_reached = std::make_shared<bool>(false);
    event.is_reached = is_reached;
    event.stream = &from;
    return queue(s, [is_reached, &event] {
        *is_reached = true;
        event.milliseconds = now();
        return CUDA_SUCCESS;
    });
}
API cuStreamWaitEvent(CUstream s, CUevent which, unsigned) {
    count("order");
    Locked locked(lock);
    Event& event = *(Event*)which;  // as it was recorded last
    Stream& to = stream(s);
    if (event.captured) {
        if (event.captured->streams[0]->captured != event.captured) return CUDA_ERROR_INVALID_VALUE;
        if (!to.captured) enter(event.captured, to);
        if (to.captured != event.captured) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        Capture& capture = *to.captured;
        for (size_t i = 0; i < capture.last.size(); i++) {
            size_t& seen = capture.seen[to.branch][i];
            seen = std::max(seen, capture.recorded[event.number][i]);
        }
        capture.graph->items.push_back({Item::WAIT, to.branch, {}, event.number});
        return CUDA_SUCCESS;
    }
    if (!event.is_reached) return CUDA_SUCCESS;
    if (to.captured) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    return queue(s, [flag = event.is_reached, from = event.stream] {
        return run(*from, flag.get());
    });
}
// What other streams were given waits on: a wait for one event may bring no more than that.
API cuEventSynchronize(CUevent which) {
    Event event = *(Event*)which;
    return event.is_reached ? finish(*event.stream, event.is_reached.get()) : failed;
}
API cuEventQuery(CUevent which) {
    Locked locked(lock);
    Event event = *(Event*)which;
    if (!event.is_reached) return failed;
    CUresult result = run(*event.stream, event.is_reached.get());
    hurry();
    return result;
}
API cuEventElapsedTime_v2(float* milliseconds, CUevent first, CUevent last) {
    for (CUevent each : {first, last})
        if (((Event*)each)->milliseconds < 0) return CUDA_ERROR_NOT_READY;
    *milliseconds = float(((Event*)last)->milliseconds - ((Event*)first)->milliseconds);
    return CUDA_SUCCESS;
}

// Modules and launches.
API cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned,
                      CUlibraryOption*, void**, unsigned) {
    return load((Module**)library, image);
}
IGNORED(cuLibraryUnload, CUlibrary)  // work may still run in it
API cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
    return find((Function**)kernel, (Module*)library, name);
}
API cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    return *function = (CUfunction)kernel, CUDA_SUCCESS;
}
API cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel, CUdevice) {
    bool fits = which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value <= 227 << 10;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, CUfunction, int lanes, size_t dynamic) {
    return *count = held(lanes, dynamic), CUDA_SUCCESS;
}
API cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel, CUdevice) {
    return *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0, CUDA_SUCCESS;
}
static CUresult launch_kernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned dynamic, CUstream s, void** parameters, bool cooperative,
                              unsigned cluster = 1) {
    if (!cluster || grid_x % cluster || cluster > 8) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (cluster > 1) count("clustered");
    // Groups that wait for each other must be there at once.
    if (cooperative && grid_x > 2u * held(block_x * block_y * block_z, dynamic))
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    if (cooperative) count("cooperative");
    count("launch");
    if (getenv("STAND_IN_SKIP")) return CUDA_SUCCESS;  // to time the host alone
    auto& function = *(Function*)f;
    if (!(grid_x && grid_y && grid_z && block_x && block_y && block_z) ||
        block_x * block_y * block_z > 1024 || grid_y > 65535 || grid_z > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::string> values;
    for (size_t i = 0; i < function.sizes.size(); i++)
        values.emplace_back((char*)parameters[i], function.sizes[i]);
    simt::Index grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
    auto end = std::make_shared<double>(0);
    return queue(s, [=, &function, device = (int*)current_or_first() - contexts] {
        if (!*end) *end = now() + slow[device];
        if (now() < *end) return CUDA_ERROR_NOT_READY;
        *end = 0;  // a graph may come by again
        return launch(function, values, grid, block, dynamic, cooperative, cluster);
    });
}
API cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic,
                   CUstream s, void** parameters, void**) {
    return launch_kernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic, s,
                         parameters, false);
}
API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
    bool cooperative = false;
    unsigned cluster = 1;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            count("chained", config->attrs[i].value.programmaticStreamSerializationAllowed);
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            cooperative = config->attrs[i].value.cooperative;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            cluster = config->attrs[i].value.clusterDim.x;
    }
    return launch_kernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                         config->blockDimX, config->blockDimY, config->blockDimZ,
                         config->sharedMemBytes, config->hStream, parameters, cooperative,
                         cluster);
}

// What a map says lies in it as tensor_map.py has it. The rules are those of the driver's manual.
API cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType kind, cuuint32_t rank,
                           void* address, const cuuint64_t* extents, const cuuint64_t* strides,
                           const cuuint32_t* box, const cuuint32_t* element_strides,
                           CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    static const std::map<int, unsigned> sizes = {{CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
        {CU_TENSOR_MAP_DATA_TYPE_UINT16, 2}, {CU_TENSOR_MAP_DATA_TYPE_UINT32, 4}};
    static const std::map<int, unsigned> widths = {{CU_TENSOR_MAP_SWIZZLE_32B, 32},
        {CU_TENSOR_MAP_SWIZZLE_64B, 64}, {CU_TENSOR_MAP_SWIZZLE_128B, 128}};
    auto size = sizes.find(kind);
    auto width = widths.find(swizzle);
    bool is_right = size != sizes.end() && width != widths.end() && rank >= 1 && rank <= 5 &&
        (uintptr_t)address % 16 == 0 && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
    if (!is_right || box[0] * size->second > width->second || box[0] * size->second % 16)
        return CUDA_ERROR_INVALID_VALUE;
    auto words = (cuuint64_t*)map->opaque;
    memset(words, 0, 128);
    words[0] = (cuuint64_t)address;
    words[1] = 0x7e5071ull << 32 | width->second << 16 | size->second << 8 | rank;
    for (unsigned d = 0; d < rank; d++) {
        if (!extents[d] || extents[d] > 1ull << 32 || !box[d] || box[d] > 256 ||
            element_strides[d] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        words[2 + d] = extents[d], words[11 + d] = box[d];
        if (d && (strides[d - 1] % 16 || strides[d - 1] >= 1ull << 40))
            return CUDA_ERROR_INVALID_VALUE;
        if (d) words[6 + d] = strides[d - 1];
    }
    count("map");
    return CUDA_SUCCESS;
}

// How cuda-core finds all of the above.
API cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                        CUdriverProcAddressQueryResult* status) {
    static void* self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *function = nullptr;
    for (const char* version : {"_v2", "_v3", ""})
        if (!*function) *function = dlsym(self, (std::string(name) + version).c_str());
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
