// What the text of a kernel needs of the runtime. It includes nothing of the C++ library, so that a
// kernel compiles in a tenth of a second. All state is behind functions: what a kernel reads and
// writes itself is a device's memory, and is checked (shadow.cpp).
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace simt {

struct Index { unsigned x, y, z; };

Index thread_index();   // within its group
Index group_index();
Index group_size();     // in threads
Index group_count();
unsigned lane();        // within its warp
unsigned warp_size();
void* dynamic_shared();
int order();               // in which threads run: 0 ascending
unsigned launch_number();  // of this process
unsigned group_barrier_clock();  // when its group passed its last barrier

void barrier(int line);       // of the threads of a group
void part_barrier(unsigned threads, int line);  // of the first threads of a group
void warp_barrier(int line);  // of the lanes of a warp
void meet(int line);          // the same, by which nothing of memory is ordered
unsigned meetings();          // of the warp: what is shown by turns needs no second one
uint64_t exchange(uint64_t value, unsigned from_lane, int line);
uint64_t ballot(bool vote, int line);
unsigned arrive(unsigned* counter, void* caller);               // adds 1, and gives what it was
void await(const unsigned* counter, unsigned count, int line);  // until it is at least that
void depend();                // the launches before this one have ended, as far as it can tell
long long clock();            // counts accesses, and who asks
void fetch(const void* address);  // asks for memory, which must be there
void touch_atomic(void* address, size_t size, void* caller);
void* group_memory(const void* key, size_t size);  // zeros, as the launch begins
// Of the groups of a cluster, which are there at once, by their ranks.
unsigned cluster_size();
unsigned cluster_rank();
void* peer_memory(unsigned rank, const void* key, size_t size);
char* peer_shared(unsigned rank);
unsigned peer_number(unsigned rank);
void cluster_barrier(int line);   // of the threads of all of them
void tell(const void* at, bool now);  // what happened up to its group's last barrier, or till now
void hear(const void* at);            // what was told there has happened
[[noreturn]] void refuse(const char* rule, int line);  // says what a thread may not do
void at_end(void (*check)());  // of each group of this launch, by the last of its threads

#define SIMT_UNCHECKED __attribute__((noinline, no_sanitize("thread"), no_sanitize("bounds")))

template <class T> inline T shuffle(T value, unsigned from_lane, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = exchange(bits, from_lane, line);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// A read, a function of the old value, a write; no other fibre runs in between.
template <class T, class Update> SIMT_UNCHECKED T atomic(T* address, Update update) {
    touch_atomic(address, sizeof(T), __builtin_return_address(0));
    T old = *address;
    *address = update(old);
    return old;
}

// What a stand-in remembers of each group that is there at once.
template <class T> SIMT_UNCHECKED inline char* key_of() {
    static char key;
    return &key;
}
template <class T> SIMT_UNCHECKED inline T& of_group() {
    return *(T*)group_memory(key_of<T>(), sizeof(T));
}
template <class T> SIMT_UNCHECKED inline T& of_peer(unsigned rank) {
    return *(T*)peer_memory(rank, key_of<T>(), sizeof(T));
}

template <class T> SIMT_UNCHECKED T& take(void**& arguments) { return *(T*)*arguments++; }

// Calls a kernel on arguments given by address. Braces fix the order in which they are taken.
template <class... Parameters>
SIMT_UNCHECKED void call(void (*kernel)(Parameters...), void** arguments) {
    struct Call {
        Call(void (*kernel)(Parameters...), Parameters... values) { kernel(values...); }
    };
    Call{kernel, take<Parameters>(arguments)...};
}

template <class... Parameters> constexpr unsigned count(void (*)(Parameters...)) {
    return sizeof...(Parameters);
}

template <unsigned N> struct Sizes { unsigned bytes[N + 1]; };

template <class... Parameters>
constexpr Sizes<sizeof...(Parameters)> sizes(void (*)(Parameters...)) {
    return {{sizeof(Parameters)..., 0}};
}

}  // namespace simt

// Shared memory stands in a section of its own, whose bounds the linker knows.
#define SIMT_SHARED static __attribute__((section("simt_shared"), used))
extern "C" __attribute__((weak, visibility("hidden"))) char __start_simt_shared[];
extern "C" __attribute__((weak, visibility("hidden"))) char __stop_simt_shared[];
#define SIMT_MODULE(checked) \
    extern "C" { \
    char* simt_shared_bounds[2] = {__start_simt_shared, __stop_simt_shared}; \
    extern const int simt_is_checked = checked; \
    }

// What a launch looks up: the entry and its arguments' sizes, up to a 0.
#define SIMT_KERNEL(name) \
    extern "C" SIMT_UNCHECKED void call_##name(void** arguments) { simt::call(name, arguments); } \
    extern "C" { extern constexpr auto sizes_##name = simt::sizes(name); }
