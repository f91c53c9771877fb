// NCCL (libnccl.so.2) or RCCL (librccl.so) for machines without a GPU: as much as the engines ask
// for, over the memory and the streams of the stand-in driver. Its ranks are threads of one process.
//
// A collective is work of its stream: it reads and writes when its turn comes and all ranks have
// come to theirs, not when it is called. Ranks that ask for different ones get what a real library
// may give them, nothing of use: poison, and an error that only who asks for it sees.
#include <dlfcn.h>
#include <unistd.h>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int

enum { SUCCESS, UNHANDLED, SYSTEM, INTERNAL, INVALID_ARGUMENT, INVALID_USAGE, REMOTE };
enum { NOT_READY = 600, ILLEGAL_ADDRESS = 700 };  // of the driver
enum { SUM, PROD, MAX, MIN };
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, DTYPES };
constexpr size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr int POISON = 0xA5;

template <class F>
static F* driver(const char* name) {
    static void* library = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
    return (F*)dlsym(library, name);
}
struct Locked {
    Locked() { driver<void()>("stand_in_enter")(); }
    ~Locked() { driver<void()>("stand_in_leave")(); }
};
static bool is_device(const void* at, size_t size) {
    return driver<int(const void*, size_t)>("stand_in_is_device")(at, size);
}

struct Request {
    enum { REDUCE, SCATTER, GATHER } kind;
    const void* source;
    void* target;
    size_t count;
    int dtype, operation;
    bool is_like(const Request& o) const {
        return kind == o.kind && count == o.count && dtype == o.dtype && operation == o.operation;
    }
};
struct Group {
    int size, ranks = 0;
    std::map<size_t, std::vector<const Request*>> meetings;  // by number, a place for each rank
    std::map<std::pair<int, int>, std::deque<std::string>> mail;
};
struct Comm {
    std::shared_ptr<Group> group;
    int rank;
    const void* device;
    int trouble = 0;
    size_t executed = 0;
    bool is_aborted = false;
};
static std::map<std::string, std::shared_ptr<Group>> groups;  // by unique id
static std::vector<Comm*> comms;
static std::mutex joining;
static std::condition_variable& joined = *new std::condition_variable;  // never destroyed: that waits
                                                                        // for whoever still waits
static std::map<std::string, int> calls;

template <class T> static double get(const void* at, size_t i) { return ((const T*)at)[i]; }
static float widened(uint16_t bits) {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    return memcpy(&value, &wide, 4), value;
}
static uint16_t narrowed(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value != value) return uint16_t(bits >> 16 | 64);
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

template <class T> static T combined(T a, T b, int operation) {
    switch (operation) {
        case SUM: return T(a + b);
        case PROD: return T(a * b);
        case MAX: return a < b ? b : a;
        default: return b < a ? b : a;
    }
}
template <class T>
static void combine(void* total, const void* more, size_t count, int operation) {
    for (size_t i = 0; i < count; i++)
        ((T*)total)[i] = combined(((T*)total)[i], ((const T*)more)[i], operation);
}
static void combine(void* total, const void* more, size_t count, int dtype, int operation) {
    switch (dtype) {
        case INT8: return combine<int8_t>(total, more, count, operation);
        case UINT8: return combine<uint8_t>(total, more, count, operation);
        case INT32: return combine<int32_t>(total, more, count, operation);
        case UINT32: return combine<uint32_t>(total, more, count, operation);
        case INT64: return combine<int64_t>(total, more, count, operation);
        case UINT64: return combine<uint64_t>(total, more, count, operation);
        case FLOAT16: return combine<_Float16>(total, more, count, operation);
        case FLOAT32: return combine<float>(total, more, count, operation);
        case FLOAT64: return combine<double>(total, more, count, operation);
    }
    auto one = (uint16_t*)total, other = (uint16_t*)more;
    for (size_t i = 0; i < count; i++)
        one[i] = narrowed(combined(widened(one[i]), widened(other[i]), operation));
}

// What is taken and given of one rank, in bytes.
static size_t taken(const Request& r, size_t ranks) {
    return r.count * SIZES[r.dtype] * (r.kind == Request::SCATTER ? ranks : 1);
}
static size_t given(const Request& r, size_t ranks) {
    return r.count * SIZES[r.dtype] * (r.kind == Request::GATHER ? ranks : 1);
}

static int transfer(const std::vector<const Request*>& ranks) {
    size_t size = ranks.size();
    bool are_alike = true;
    for (const Request* each : ranks) {
        are_alike &= each->is_like(*ranks[0]);
        if (!is_device(each->source, taken(*each, size)) || !is_device(each->target, given(*each, size)))
            return ILLEGAL_ADDRESS;
    }
    std::string all;
    for (const Request* each : ranks) {
        std::string own((const char*)each->source, taken(*each, size));
        if (each->kind == Request::GATHER || all.empty())
            all += own;
        else if (are_alike)
            combine(all.data(), own.data(), own.size() / SIZES[each->dtype], each->dtype,
                    each->operation);
    }
    for (size_t rank = 0; rank < size; rank++) {
        const Request& each = *ranks[rank];
        size_t bytes = given(each, size);
        if (!are_alike)
            memset(each.target, POISON, bytes);
        else
            memcpy(each.target, all.data() + (each.kind == Request::SCATTER ? rank * bytes : 0), bytes);
    }
    if (are_alike) return SUCCESS;
    for (Comm* comm : comms) comm->trouble = INVALID_USAGE;
    return SUCCESS;
}

// A collective of one rank, as often as its stream comes to it.
struct Op {
    Comm* comm;
    Request request;
    bool has_come = false;
    size_t number = 0;
    int run() {
        Group& group = *comm->group;
        if (comm->is_aborted) return SUCCESS;
        if (!has_come) {
            has_come = true;
            number = comm->executed++;
            auto& ranks = group.meetings[number];
            ranks.resize(group.size);
            ranks[comm->rank] = &request;
        }
        for (bool again : {true, false}) {
            auto meeting = group.meetings.find(number);
            bool is_done = meeting == group.meetings.end() || !meeting->second[comm->rank];
            if (is_done) {
                has_come = false;  // a graph may come by again
                return SUCCESS;
            }
            bool are_here = true;
            for (const Request* each : meeting->second) are_here &= each != nullptr;
            if (are_here) {
                int status = transfer(meeting->second);
                group.meetings.erase(meeting);
                has_come = false;
                return status;
            }
            if (again) driver<void(const void*)>("stand_in_demand")(&group);
        }
        return NOT_READY;
    }
};

// Sends and receives between ncclGroupStart and its end.
struct Letter { bool is_sent; char* at; size_t size; int peer; };
struct Letters {
    Comm* comm;
    std::vector<Letter> letters;
    bool has_sent = false;
    size_t received = 0;
    int run() {
        Group& group = *comm->group;
        if (comm->is_aborted) return SUCCESS;
        for (const Letter& each : letters) {
            if (!is_device(each.at, each.size)) return ILLEGAL_ADDRESS;
            if (each.is_sent && !has_sent)
                group.mail[{comm->rank, each.peer}].emplace_back(each.at, each.size);
        }
        has_sent = true;
        for (size_t i = received; i < letters.size(); i++) {
            const Letter& each = letters[i];
            if (!each.is_sent) {
                auto& mail = group.mail[{each.peer, comm->rank}];
                if (mail.empty()) driver<void(const void*)>("stand_in_demand")(&group);
                if (mail.empty()) return NOT_READY;
                bool fits = mail.front().size() == each.size;
                fits ? (void)memcpy(each.at, mail.front().data(), each.size)
                     : (void)memset(each.at, POISON, each.size);
                if (!fits) comm->trouble = INVALID_USAGE;
                mail.pop_front();
            }
            received = i + 1;
        }
        has_sent = false, received = 0;
        return SUCCESS;
    }
};

static thread_local bool is_grouped;
static thread_local std::vector<std::pair<Comm*, Letter>> letters;
static thread_local void* stream_of_letters;

// A communicator is its device's, and so has to be a stream that it is given.
template <class T> static int queue(T* op, void* stream, Comm* comm) {
    if (!driver<bool(void*, const void*)>("stand_in_is_of")(stream, comm->device)) return INVALID_USAGE;
    using Queue = int(void*, int (*)(void*), void*, const void*);
    auto work = [](void* data) { return ((T*)data)->run(); };
    return driver<Queue>("stand_in_queue")(stream, work, op, comm->group.get()) ? UNHANDLED : SUCCESS;
}
static int start(const char* name, Comm* comm, const Request& request, void* stream) {
    Locked locked;
    calls[name]++;
    if (!comm || comm->is_aborted || request.dtype < 0 || request.dtype >= DTYPES)
        return INVALID_ARGUMENT;
    return queue(new Op{comm, request}, stream, comm);
}

// For tests.
extern "C" __attribute__((visibility("default"))) int stand_in_nccl_calls(const char* name) {
    Locked locked;
    return calls[name];
}
extern "C" __attribute__((visibility("default"))) void stand_in_nccl_fail(int rank) {
    Locked locked;
    for (Comm* comm : comms)
        if (comm->rank == rank) comm->trouble = REMOTE;
}

API ncclGetVersion(int* version) {
    const char* said = getenv("STAND_IN_NCCL");
    return *version = said ? atoi(said) : 23005, SUCCESS;
}
API ncclGetUniqueId(char* id) {
    static int count;
    std::lock_guard<std::mutex> locked(joining);
    memset(id, 0, 128);
    snprintf(id, 128, "stand-in %d", ++count);
    return SUCCESS;
}
struct UniqueId { char bytes[128]; };
API ncclCommInitRank(Comm** comm, int size, UniqueId id, int rank) {
    std::unique_lock<std::mutex> locked(joining);
    auto& group = groups[id.bytes];
    if (!group) group = std::make_shared<Group>(Group{size});
    if (group->size != size || rank < 0 || rank >= size) return INVALID_ARGUMENT;
    auto own = group;
    own->ranks++;
    joined.notify_all();
    joined.wait(locked, [&] { return own->ranks >= size; });
    comms.push_back(*comm = new Comm{own, rank, driver<const void*()>("stand_in_current")()});
    return SUCCESS;
}
API ncclAllReduce(const void* source, void* target, size_t count, int dtype, int operation,
                  Comm* comm, void* stream) {
    return start("all_reduce", comm, {Request::REDUCE, source, target, count, dtype, operation}, stream);
}
API ncclReduceScatter(const void* source, void* target, size_t count, int dtype, int operation,
                      Comm* comm, void* stream) {
    return start("reduce_scatter", comm,
                 {Request::SCATTER, source, target, count, dtype, operation}, stream);
}
API ncclAllGather(const void* source, void* target, size_t count, int dtype, Comm* comm,
                  void* stream) {
    return start("all_gather", comm, {Request::GATHER, source, target, count, dtype, SUM}, stream);
}
static int letter(bool is_sent, void* at, size_t count, int dtype, int peer, Comm* comm, void* stream) {
    if (!is_grouped || dtype < 0 || dtype >= DTYPES || peer < 0 || peer >= comm->group->size)
        return INVALID_ARGUMENT;
    letters.push_back({comm, {is_sent, (char*)at, count * SIZES[dtype], peer}});
    stream_of_letters = stream;
    return SUCCESS;
}
API ncclSend(void* at, size_t count, int dtype, int peer, Comm* comm, void* stream) {
    return letter(true, at, count, dtype, peer, comm, stream);
}
API ncclRecv(void* at, size_t count, int dtype, int peer, Comm* comm, void* stream) {
    return letter(false, at, count, dtype, peer, comm, stream);
}
API ncclGroupStart() { return is_grouped = true, SUCCESS; }
API ncclGroupEnd() {
    is_grouped = false;
    if (letters.empty()) return SUCCESS;
    Locked locked;
    calls["letters"]++;
    auto op = new Letters{letters[0].first, {}};
    for (auto& [comm, each] : letters) op->letters.push_back(each);
    letters.clear();
    return queue(op, stream_of_letters, op->comm);
}
API ncclCommGetAsyncError(Comm* comm, int* error) {
    Locked locked;
    return *error = comm->trouble, SUCCESS;
}
API ncclCommAbort(Comm* comm) {
    Locked locked;
    calls["abort"]++;
    return comm->is_aborted = true, SUCCESS;
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(int error) {
    switch (error) {
        case INVALID_ARGUMENT: return "invalid argument";
        case INVALID_USAGE: return "invalid usage";
        case REMOTE: return "remote process exited or there was a network error";
        default: return "said by the stand-in library";
    }
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(Comm*) {
    return "said by the stand-in library";
}
