// Checks every access of a kernel. The compiler is asked to report accesses as it would to its
// thread sanitizer (-fsanitize=thread), and the reports come here instead: to know which accesses
// are in bounds, and which of them no barrier orders.
//
// Each byte has a cell: its last write, and the last reads by two different threads. An access
// races with an earlier one of another thread if one of the two is a write, not both are atomic,
// and neither happened before the other: they are of one group with no barrier in between, or of
// two groups where no counter was added to behind the first one's next barrier, and waited for
// ahead of the second one's last. (The method is FastTrack's, Flanagan and Freund 2009.)
#include "runtime.h"
#include <algorithm>
#include <sys/mman.h>

namespace simt {

struct Stamp {
    unsigned thread;
    unsigned clock : 31, atomic : 1;  // clock 0: never
    int caller;                       // from the kernel's entry
};

struct Cell { Stamp write, read, other_read; };

struct Region {
    char* begin;
    size_t size;
    long long number;  // of the launch's buffers; -1: shared memory
    Cell* cells;
    bool is_shared() const { return number < 0; }
};

static std::vector<Region> regions;  // by address

void start_shadow(const Launch& launch, const std::vector<Span>& dynamic) {
    regions.clear();
    clocks = {};
    if (launch.unchecked) return;
    auto add = [](Span span, long long number) {
        if (!span.size) return;
        void* cells = mmap(nullptr, span.size * sizeof(Cell), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        regions.push_back({span.begin, span.size, number, (Cell*)cells});
    };
    for (size_t i = 0; i < launch.buffer_count; i++) add(launch.buffers[i], i);
    add(launch.shared, -1);
    for (Span each : dynamic) add(each, -1);
    std::sort(regions.begin(), regions.end(),
              [](const Region& a, const Region& b) { return a.begin < b.begin; });
}

void end_shadow() {
    for (Region& each : regions) munmap(each.cells, each.size * sizeof(Cell));
}

static bool races(const Stamp& earlier, const Stamp& now) {
    if (!earlier.clock || earlier.thread == now.thread) return false;
    if (earlier.atomic && now.atomic) return false;
    if (!in_group_of_thread(earlier.thread)) return !is_known(earlier.thread, earlier.clock);
    if (earlier.clock < clocks.group_barrier) return false;
    return !in_warp_of_thread(earlier.thread) || earlier.clock >= warp_barrier_clock();
}

static char* entry() { return (char*)running->kernel; }

[[noreturn]] static void stop_race(Fault found, const Stamp& earlier, bool earlier_is_write) {
    found.kind = FaultKind::race;
    found.other_thread = earlier.thread;
    found.other_is_write = earlier_is_write;
    found.other_caller = entry() + earlier.caller;
    stop(found);
}

// A shared cell holds what earlier groups did too; each group starts with fresh memory.
static bool is_stale(const Region& region, const Stamp& stamp) {
    return region.is_shared() && stamp.clock < clocks.group_start;
}

static void note(const Region& region, Cell& cell, const Stamp& now, bool is_write, Fault found) {
    bool written = cell.write.clock && !is_stale(region, cell.write);
    if (region.is_shared() && !written && (!is_write || now.atomic)) {
        found.kind = FaultKind::uninitialised;
        stop(found);
    }
    if (written && races(cell.write, now)) stop_race(found, cell.write, true);
    if (!is_write) {
        if (is_stale(region, cell.read) || !races(cell.read, now)) {
            cell.read = now;
            if (is_stale(region, cell.other_read)) cell.other_read = {};
        } else {
            cell.other_read = now;
        }
        return;
    }
    for (const Stamp* read : {&cell.read, &cell.other_read})
        if (!is_stale(region, *read) && races(*read, now)) stop_race(found, *read, false);
    cell.write = now;
}

static long long ticks;

long long clock() { return ++ticks; }

static void access(char* address, size_t size, bool is_write, bool is_atomic, void* caller) {
    if (!running || running->unchecked) return;
    Span stack = own_stack();
    if (address >= stack.begin && address + size <= stack.begin + stack.size) return;
    ticks++;
    Fault found{};
    found.is_write = is_write;
    found.caller = caller;
    found.size = size;
    auto after = std::upper_bound(regions.begin(), regions.end(), address,
                                  [](char* a, const Region& r) { return a < r.begin; });
    if (after == regions.begin()) {
        found.kind = FaultKind::out_of_bounds;
        found.region = regions.empty() ? -2 : regions[0].number;
        found.offset = regions.empty() ? 0 : address - regions[0].begin;
        stop(found);
    }
    Region& region = after[-1];
    found.region = region.number;
    found.offset = address - region.begin;
    if (found.offset + size > region.size) {
        found.kind = FaultKind::out_of_bounds;
        stop(found);
    }
    bool is_values = region.number + 1 == (long long)running->buffer_count;
    if (running->chained && !has_depended() && region.number >= 0 && !is_values &&
        region.number != running->early) {
        found.kind = FaultKind::early;
        stop(found);
    }
    Stamp now{thread_number(), clocks.now, is_atomic, int((char*)caller - entry())};
    for (size_t i = 0; i < size; i++)
        note(region, region.cells[found.offset + i], now, is_write, found);
}

static void aligned(char* address, size_t size, bool is_write, void* caller) {
    if (running && (uintptr_t)address % size) {
        Fault found{FaultKind::misaligned};
        found.is_write = is_write;
        found.caller = caller;
        found.size = size;
        found.offset = (uintptr_t)address % size;
        stop(found);
    }
    access(address, size, is_write, false, caller);
}

void touch_atomic(void* address, size_t size, void* caller) {
    access((char*)address, size, true, true, caller);
}

void fetch(const void* address) {
    if (running->unchecked) return;
    char* place = (char*)address;
    for (const Region& each : regions)
        if (!each.is_shared() && place >= each.begin && place < each.begin + each.size) return;
    Fault found{FaultKind::out_of_bounds};
    found.caller = __builtin_return_address(0);
    found.size = 1;
    found.region = regions.empty() ? -2 : regions[0].number;
    found.offset = regions.empty() ? 0 : place - regions[0].begin;
    stop(found);
}

// The sanitizers' own interface.
#define CALLER __builtin_return_address(0)
extern "C" {
#define ACCESSES(n) \
    void __tsan_read##n(void* a) { aligned((char*)a, n, false, CALLER); } \
    void __tsan_write##n(void* a) { aligned((char*)a, n, true, CALLER); } \
    void __tsan_unaligned_read##n(void* a) { access((char*)a, n, false, false, CALLER); } \
    void __tsan_unaligned_write##n(void* a) { access((char*)a, n, true, false, CALLER); }
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)
void __tsan_read_range(void* a, size_t n) { access((char*)a, n, false, false, CALLER); }
void __tsan_write_range(void* a, size_t n) { access((char*)a, n, true, false, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// An index beyond an array's declared type. The record starts with where it stands.
struct SourceLocation { const char* file; unsigned line, column; };
void __ubsan_handle_out_of_bounds(const SourceLocation* where, uintptr_t index) {
    Fault found{FaultKind::index};
    found.line = where->line;
    found.offset = (long long)index;
    if (running) stop(found);
}
}

}  // namespace simt
