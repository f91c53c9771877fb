// Runs a grid on one core: groups one after the other, each thread of a group as a fibre that runs
// until it waits. So a run is deterministic, and a different order of threads is a different run.
#include "runtime.h"
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>

namespace simt {

constexpr size_t STACK = 256 << 10;  // holds a register tile of 16k floats; untouched pages are free
constexpr unsigned MOST_LANES = 64;

enum class State { ready, at_warp_barrier, at_barrier, returned };

struct Fibre {
    State state;
    int line;  // of the barrier where it waits
    bool started, depended;
    jmp_buf context;
    ucontext_t entry;
};

struct Warp {
    unsigned first, size, waiting, returned, barrier_clock;
    uint64_t slots[MOST_LANES];
};

Clocks clocks;
const Launch* running;

static std::vector<Fibre> fibres;
static std::vector<Warp> warps;
static unsigned current, waiting, returned, group_number;
static Index group_at;
static char *stacks, *dynamic;
static jmp_buf scheduler;
static ucontext_t scheduler_entry;
static Fault fault;
static unsigned launches;

static Warp& warp() { return warps[current / running->warp_size]; }

Index thread_index() {
    const Index& size = running->threads;
    return {current % size.x, current / size.x % size.y, current / size.x / size.y};
}
Index group_index() { return group_at; }
Index group_size() { return running->threads; }
Index group_count() { return running->groups; }
unsigned lane() { return current % running->warp_size; }
unsigned warp_size() { return running->warp_size; }
void* dynamic_shared() { return dynamic; }
int order() { return running->order; }
unsigned launch_number() { return launches; }

unsigned thread_number() { return group_number * fibres.size() + current; }
unsigned warp_barrier_clock() { return warp().barrier_clock; }
bool in_warp_of_thread(unsigned number) {
    return number % fibres.size() / running->warp_size == current / running->warp_size;
}
Span own_stack() { return {stacks + STACK * current, STACK}; }

[[noreturn]] void stop(const Fault& found) {
    fault = found;
    fault.thread = thread_number();
    _longjmp(scheduler, 1);  // the fibres are left where they are: kernels own nothing
}

[[noreturn]] static void stop(FaultKind kind, unsigned thread, unsigned other) {
    current = thread;
    Fault found{kind};
    found.line = fibres[thread].line;
    found.other_line = fibres[other].line;
    found.other_thread = group_number * fibres.size() + other;
    stop(found);
}

static void wait(State state, int line) {
    Fibre& fibre = fibres[current];
    fibre.state = state;
    fibre.line = line;
    if (!_setjmp(fibre.context)) _longjmp(scheduler, 1);
}

void depend() { fibres[current].depended = true; }
bool has_depended() { return fibres[current].depended; }

void barrier(int line) {
    waiting++;
    wait(State::at_barrier, line);
}

void warp_barrier(int line) {
    warp().waiting++;
    wait(State::at_warp_barrier, line);
}

void meet(int line) {
    Warp& own = warp();
    unsigned clock = own.barrier_clock;
    warp_barrier(line);
    own.barrier_clock = clock;
}

uint64_t exchange(uint64_t value, unsigned from_lane, int line) {
    Warp& own = warp();
    unsigned clock = own.barrier_clock;
    own.slots[lane()] = value;
    warp_barrier(line);
    unsigned source = own.first + from_lane;
    if (from_lane >= own.size || fibres[source].state == State::returned) {
        fibres[current].line = line;
        stop(FaultKind::returned_lane, current, from_lane < own.size ? source : current);
    }
    uint64_t result = own.slots[from_lane];
    warp_barrier(line);
    own.barrier_clock = clock;  // values move between the lanes; memory is not ordered by it
    return result;
}

uint64_t ballot(bool vote, int line) {
    Warp& own = warp();
    unsigned clock = own.barrier_clock;
    own.slots[lane()] = vote;
    warp_barrier(line);
    uint64_t votes = 0;
    for (unsigned i = 0; i < own.size; i++)
        if (fibres[own.first + i].state != State::returned) votes |= own.slots[i] << i;
    warp_barrier(line);
    own.barrier_clock = clock;
    return votes;
}

static void enter() {
    running->kernel(running->arguments);
    // What comes after it goes by its end, and so by the ends of those before it.
    if (running->chained && !has_depended()) stop(FaultKind::early, current, current);
    returned++;
    warp().returned++;
    fibres[current].state = State::returned;
    _longjmp(scheduler, 1);
}

// Runs a thread until it waits, returns or stops the launch.
__attribute__((noinline)) static void resume(unsigned thread) {
    current = thread;
    Fibre& fibre = fibres[thread];
    if (_setjmp(scheduler)) return;
    if (fibre.started) _longjmp(fibre.context, 1);
    fibre.started = true;
    getcontext(&fibre.entry);
    fibre.entry.uc_stack = {stacks + STACK * thread, 0, STACK};
    makecontext(&fibre.entry, enter, 0);
    swapcontext(&scheduler_entry, &fibre.entry);
}

// Lets a set of threads that all wait go on; all must wait in one place.
static void release(unsigned first, unsigned size, State state, FaultKind divergent) {
    unsigned leader = first;
    while (fibres[leader].state != state) leader++;
    for (unsigned i = leader; i < first + size; i++) {
        if (fibres[i].state != state) continue;
        if (fibres[i].line != fibres[leader].line) stop(divergent, i, leader);
        fibres[i].state = State::ready;
    }
}

static bool release_warps() {
    bool any = false;
    for (Warp& each : warps) {
        if (!each.waiting || each.waiting + each.returned < each.size) continue;
        release(each.first, each.size, State::at_warp_barrier, FaultKind::divergent_warp);
        each.waiting = 0;
        each.barrier_clock = ++clocks.now;
        any = true;
    }
    return any;
}

static bool release_group() {
    if (!waiting || waiting + returned < fibres.size()) return false;
    if (returned) {
        unsigned thread = 0, gone = 0;
        while (fibres[thread].state != State::at_barrier) thread++;
        while (fibres[gone].state != State::returned) gone++;
        stop(FaultKind::barrier_after_return, thread, gone);
    }
    release(0, fibres.size(), State::at_barrier, FaultKind::divergent_barrier);
    waiting = 0;
    clocks.group_barrier = ++clocks.now;
    return true;
}

[[noreturn]] static void stop_deadlock() {
    unsigned thread = 0, other = 0;
    while (fibres[thread].state != State::at_warp_barrier) thread++;
    while (fibres[other].state != State::at_barrier && other + 1 < fibres.size()) other++;
    stop(FaultKind::deadlock, thread, other);
}

// Lets those go on who may. Nobody can and nobody ran: they wait for each other.
__attribute__((noinline)) static void release_all(bool ran) {
    if (_setjmp(scheduler)) return;
    bool warps_go = release_warps(), group_goes = release_group();
    if (!ran && !warps_go && !group_goes) stop_deadlock();
}

static unsigned in_order(unsigned i, unsigned count, unsigned turn) {
    switch (running->order) {
        case 0: return i;
        case 1: return count - 1 - i;
        default: return (i + turn) % count;
    }
}

static void run_group() {
    unsigned count = fibres.size(), turn = group_number;
    waiting = returned = 0;
    clocks.group_start = clocks.group_barrier = ++clocks.now;
    for (Warp& each : warps) {
        each.waiting = each.returned = 0;
        each.barrier_clock = clocks.now;
    }
    for (Fibre& each : fibres) {
        each.state = State::ready;
        each.started = each.depended = false;
    }
    memset(running->shared.begin, 0xCB, running->shared.size);
    memset(dynamic, 0xCB, running->dynamic);
    while (returned < count) {
        turn = turn * 1664525 + 1013904223;  // Numerical Recipes' generator
        bool ran = false;
        for (unsigned i = 0; i < count; i++) {
            unsigned thread = in_order(i, count, turn % count);
            if (fibres[thread].state != State::ready) continue;
            resume(thread);
            if (fault.kind != FaultKind::none) return;
            ran = true;
        }
        release_all(ran);
        if (fault.kind != FaultKind::none) return;
    }
}

static void run_grid(unsigned count) {
    const Index& size = running->groups;
    for (unsigned i = 0; i < count && fault.kind == FaultKind::none; i++) {
        group_number = in_order(i, count, 0);
        group_at = {group_number % size.x, group_number / size.x % size.y,
                    group_number / size.x / size.y};
        run_group();
    }
}

// 0, or 1 with what went wrong in `found`.
extern "C" int simt_launch(const Launch* launch, Fault* found) {
    unsigned count = launch->threads.x * launch->threads.y * launch->threads.z;
    running = launch;
    launches++;
    fault = {};
    fibres.resize(count);
    warps.clear();
    for (unsigned first = 0; first < count; first += launch->warp_size) {
        unsigned rest = count - first;
        warps.push_back({first, rest < launch->warp_size ? rest : launch->warp_size});
    }
    auto map = [](size_t size) {
        return (char*)mmap(nullptr, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    };
    stacks = map(STACK * count);
    dynamic = map(launch->dynamic + 1);
    start_shadow(*launch, {dynamic, launch->dynamic});
    run_grid(launch->groups.x * launch->groups.y * launch->groups.z);
    end_shadow();
    munmap(stacks, STACK * count);
    munmap(dynamic, launch->dynamic + 1);
    running = nullptr;
    *found = fault;
    return fault.kind != FaultKind::none;
}

}  // namespace simt
