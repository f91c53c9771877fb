// Runs a grid on one core: groups one after the other, each thread of a group as a fibre that runs
// until it waits. So a run is deterministic, and a different order of threads is a different run.
// The groups of a cooperative launch, which wait for each other, are all there at once and take
// turns, in an order that a generator draws; likewise those of a cluster, one cluster after the other.
#include "runtime.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <ucontext.h>

namespace simt {

// Holds a register tile of 16k floats; untouched pages are free. What exceeds the power of two lets
// the stacks' upper ends, which take turns, lie in different sets of the caches.
constexpr size_t STACK = (256 << 10) + 4096 + 5 * 64;
constexpr unsigned MOST_LANES = 64;

// Where a fibre waits, or the scheduler: the compiler's own, as it is a tenth of the C library's work
// to go there.
typedef void* Place[5];

// Others run while such a function is called, so its callers may count on no register that it leaves
// alone by itself (GCC's -fipa-ra).
#define JUMPS __attribute__((noinline, noipa))

enum class State { ready, at_warp_barrier, at_barrier, at_part_barrier, at_counter, returned };

struct Fibre {
    State state;
    int line;  // of the barrier or counter where it waits
    const unsigned* counter;
    unsigned count;  // that the counter has to reach
    bool started, depended;
    Place place;
    ucontext_t entry;
};

// What a lane shows the others at a meeting, and at which.
struct Slot { uint64_t value; unsigned meeting; };

struct Warp {
    unsigned first, size, waiting, returned, barrier_clock, meetings;
    Slot slots[2][MOST_LANES];  // by turns: a lane may be at the next meeting while others read
};

// What a group knows of another: all that it did before this clock has happened. A counter knows
// what groups knew that added to it.
typedef std::vector<unsigned> Known;

struct Group {
    std::vector<Fibre> fibres;
    std::vector<Warp> warps;
    unsigned waiting, part, part_waiting, returned, number;
    Index at;
    char *stacks, *dynamic;
    std::map<const void*, Span> memory;
    unsigned start, barrier;  // clocks
    Known known, heard;       // heard by some thread since the last barrier
    unsigned met;             // barriers of its cluster
};

Clocks clocks;
const Launch* running;

static std::vector<Group> groups;
static Group* own;
static unsigned current;
static std::map<const void*, Known> told;  // by counter
static unsigned known_groups;              // of which a group may know something
static unsigned meeting;                   // groups that came to barriers of their cluster
static Place scheduler;
static ucontext_t scheduler_entry;
static Fault fault;
static unsigned launches;
static void (*ending)();

static Warp& warp() { return own->warps[current / running->warp_size]; }

Index thread_index() {
    const Index& size = running->threads;
    return {current % size.x, current / size.x % size.y, current / size.x / size.y};
}
Index group_index() { return own->at; }
Index group_size() { return running->threads; }
Index group_count() { return running->groups; }
unsigned lane() { return current % running->warp_size; }
unsigned warp_size() { return running->warp_size; }
void* dynamic_shared() { return own->dynamic; }
int order() { return running->order; }
unsigned launch_number() { return launches; }
unsigned group_barrier_clock() { return clocks.group_barrier; }

unsigned thread_number() { return own->number * own->fibres.size() + current; }
unsigned warp_barrier_clock() { return warp().barrier_clock; }
bool in_warp_of_thread(unsigned number) {
    return number % own->fibres.size() / running->warp_size == current / running->warp_size;
}
bool in_group_of_thread(unsigned number) { return number / own->fibres.size() == own->number; }
bool is_known(unsigned thread, unsigned clock) {
    size_t group = thread / own->fibres.size();
    return group < own->known.size() && clock < own->known[group];
}
Span own_stack() { return {own->stacks + STACK * current, STACK}; }

[[noreturn]] JUMPS static void leave() { __builtin_longjmp(scheduler, 1); }

[[noreturn]] void stop(const Fault& found) {
    fault = found;
    fault.thread = thread_number();
    leave();  // the fibres are left where they are: kernels own nothing
}

[[noreturn]] static void stop(FaultKind kind, unsigned thread, unsigned other) {
    current = thread;
    Fault found{kind};
    found.line = own->fibres[thread].line;
    found.other_line = own->fibres[other].line;
    found.other_thread = own->number * own->fibres.size() + other;
    stop(found);
}

void refuse(const char* rule, int line) {
    Fault found{FaultKind::refused};
    found.line = line;
    found.caller = (void*)rule;
    stop(found);
}

static char* map(size_t size) {
    return (char*)mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

void* group_memory(const void* key, size_t size) {
    Span& span = own->memory[key];
    if (!span.begin) span = {map(size), size};
    return span.begin;
}

void at_end(void (*check)()) { ending = check; }

JUMPS static void wait(State state, int line) {
    Fibre& fibre = own->fibres[current];
    fibre.state = state;
    fibre.line = line;
    if (!__builtin_setjmp(fibre.place)) leave();
}

void depend() { own->fibres[current].depended = true; }
bool has_depended() { return own->fibres[current].depended; }

static void join(Known& known, const Known& other) {
    known.resize(known_groups);
    for (size_t i = 0; i < other.size(); i++) known[i] = std::max(known[i], other[i]);
}

void tell(const void* at, bool now) {
    Known known = own->known;
    known[own->number] = now ? ++clocks.now : own->barrier;
    join(told[at], known);
}

void hear(const void* at) { join(own->known, told[at]); }

// What the group did before its last barrier has happened for who finds the counter there.
unsigned arrive(unsigned* counter, void* caller) {
    touch_atomic(counter, sizeof *counter, caller);
    tell(counter, false);
    return (*counter)++;
}

// What is heard holds for the group from its next barrier on.
void await(const unsigned* counter, unsigned count, int line) {
    touch_atomic((void*)counter, sizeof *counter, __builtin_return_address(0));
    Fibre& fibre = own->fibres[current];
    fibre.counter = counter;
    fibre.count = count;
    while (*counter < count) wait(State::at_counter, line);
    join(own->heard, told[counter]);
}

void barrier(int line) {
    own->waiting++;
    wait(State::at_barrier, line);
}

unsigned cluster_size() { return std::max(1u, running->cluster); }
unsigned cluster_rank() { return own->number % cluster_size(); }
static Group& peer(unsigned rank) { return cluster_size() > 1 ? groups[rank] : *own; }
void* peer_memory(unsigned rank, const void* key, size_t size) {
    Span& span = peer(rank).memory[key];
    if (!span.begin) span = {map(size), size};
    return span.begin;
}
char* peer_shared(unsigned rank) { return peer(rank).dynamic; }
unsigned peer_number(unsigned rank) { return peer(rank).number; }

// A barrier of each group, between which its first thread waits for those of the others.
void cluster_barrier(int line) {
    barrier(line);
    if (current == 0) {
        Fibre& fibre = own->fibres[current];
        fibre.counter = &meeting;
        fibre.count = ++own->met * cluster_size();
        tell(&meeting, false);
        meeting++;
        while (meeting < fibre.count) wait(State::at_counter, line);
        join(own->heard, told[&meeting]);
    }
    barrier(line);
}

void part_barrier(unsigned threads, int line) {
    own->part = threads;
    own->part_waiting++;
    wait(State::at_part_barrier, line);
}

void warp_barrier(int line) {
    warp().waiting++;
    wait(State::at_warp_barrier, line);
}

unsigned meetings() { return warp().meetings; }

// Within its callers: each frame of a stack that was left is a line that the cache has lost.
[[gnu::always_inline]] static inline void meet(Warp& mine, int line) {
    unsigned clock = mine.barrier_clock;
    mine.waiting++;
    wait(State::at_warp_barrier, line);
    mine.barrier_clock = clock;  // memory is not ordered by it
}

void meet(int line) { meet(warp(), line); }

// What all lanes of the warp show, once they do.
[[gnu::always_inline]] static inline const Slot* shown(Warp& mine, uint64_t value, int line) {
    Slot* slots = mine.slots[mine.meetings % 2];
    slots[current - mine.first] = {value, mine.meetings + 1};
    meet(mine, line);
    return slots;
}

uint64_t exchange(uint64_t value, unsigned from_lane, int line) {
    Warp& mine = warp();
    const Slot* slots = shown(mine, value, line);
    if (from_lane >= mine.size || slots[from_lane].meeting != mine.meetings) {
        own->fibres[current].line = line;
        stop(FaultKind::returned_lane, current,
             from_lane < mine.size ? mine.first + from_lane : current);
    }
    return slots[from_lane].value;
}

uint64_t ballot(bool vote, int line) {
    Warp& mine = warp();
    const Slot* slots = shown(mine, vote, line);
    uint64_t votes = 0;
    for (unsigned i = 0; i < mine.size; i++)
        if (slots[i].meeting == mine.meetings) votes |= slots[i].value << i;
    return votes;
}

static void enter() {
    running->kernel(running->arguments);
    // What comes after it goes by its end, and so by the ends of those before it.
    if (running->chained && !has_depended()) stop(FaultKind::early, current, current);
    own->returned++;
    warp().returned++;
    own->fibres[current].state = State::returned;
    if (ending && own->returned == own->fibres.size()) ending();
    leave();
}

[[noreturn]] JUMPS static void go_on(Fibre& fibre) { __builtin_longjmp(fibre.place, 1); }

// Runs a thread until it waits, returns or stops the launch.
JUMPS static void resume(unsigned thread) {
    current = thread;
    Fibre& fibre = own->fibres[thread];
    if (__builtin_setjmp(scheduler)) return;
    if (fibre.started) go_on(fibre);
    fibre.started = true;
    getcontext(&fibre.entry);
    fibre.entry.uc_stack = {own->stacks + STACK * thread, 0, STACK};
    makecontext(&fibre.entry, enter, 0);
    swapcontext(&scheduler_entry, &fibre.entry);
}

// Lets a set of threads that all wait go on; all must wait in one place.
static void release(unsigned first, unsigned size, State state, FaultKind divergent) {
    std::vector<Fibre>& fibres = own->fibres;
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
    for (Warp& each : own->warps) {
        if (!each.waiting || each.waiting + each.returned < each.size) continue;
        release(each.first, each.size, State::at_warp_barrier, FaultKind::divergent_warp);
        each.waiting = 0;
        each.meetings++;
        each.barrier_clock = ++clocks.now;
        any = true;
    }
    return any;
}

static void pass_barrier() {
    own->barrier = clocks.group_barrier = ++clocks.now;
    join(own->known, own->heard);
}

static bool release_part() {
    if (!own->part_waiting || own->part_waiting < own->part) return false;
    release(0, own->part, State::at_part_barrier, FaultKind::divergent_barrier);
    own->part_waiting = 0;
    pass_barrier();
    return true;
}

static bool release_group() {
    unsigned count = own->fibres.size();
    if (!own->waiting || own->waiting + own->returned < count) return false;
    if (own->returned) {
        unsigned thread = 0, gone = 0;
        while (own->fibres[thread].state != State::at_barrier) thread++;
        while (own->fibres[gone].state != State::returned) gone++;
        stop(FaultKind::barrier_after_return, thread, gone);
    }
    release(0, count, State::at_barrier, FaultKind::divergent_barrier);
    own->waiting = 0;
    pass_barrier();
    return true;
}

// Who waits for a counter, if anybody does, else for the lanes of a warp.
[[noreturn]] static void stop_deadlock() {
    for (Group& each : groups)
        for (unsigned i = 0; i < each.fibres.size(); i++)
            if (each.fibres[i].state == State::at_counter) {
                own = &each;
                current = i;
                Fault found{FaultKind::starved};
                found.line = each.fibres[i].line;
                found.offset = *each.fibres[i].counter;
                found.size = each.fibres[i].count;
                stop(found);
            }
    unsigned thread = 0, other = 0;
    while (own->fibres[thread].state != State::at_warp_barrier) thread++;
    while (own->fibres[other].state != State::at_barrier && other + 1 < own->fibres.size()) other++;
    stop(FaultKind::deadlock, thread, other);
}

// Lets those of the group go on who may.
JUMPS static bool release_all() {
    static bool any;
    any = false;
    if (__builtin_setjmp(scheduler)) return any;
    for (Fibre& each : own->fibres)
        if (each.state == State::at_counter && *each.counter >= each.count) {
            each.state = State::ready;
            any = true;
        }
    any |= release_warps();
    any |= release_part();
    any |= release_group();
    return any;
}

// Nobody can go on, and nobody ran: they wait for each other.
JUMPS static void report_deadlock() {
    if (!__builtin_setjmp(scheduler)) stop_deadlock();
}

static unsigned in_order(unsigned i, unsigned count, unsigned turn) {
    switch (running->order) {
        case 0: return i;
        case 1: return count - 1 - i;
        default: return (i + turn) % count;
    }
}

// Makes a group ready to run, with memory that says nothing.
static void begin(Group& group, unsigned number) {
    const Index& size = running->groups;
    group.number = number;
    group.at = {number % size.x, number / size.x % size.y, number / size.x / size.y};
    group.waiting = group.part_waiting = group.returned = 0;
    group.start = group.barrier = ++clocks.now;
    group.known.assign(known_groups, 0);
    group.heard.assign(known_groups, 0);
    group.met = meeting = 0;
    for (Warp& each : group.warps) {
        each.waiting = each.returned = each.meetings = 0;
        each.barrier_clock = clocks.now;
        memset(each.slots, 0, sizeof each.slots);  // of no meeting
    }
    for (Fibre& each : group.fibres) {
        each.state = State::ready;
        each.started = each.depended = false;
    }
    memset(group.dynamic, 0xCB, running->dynamic);
}

// Every thread of a group that is ready runs until it waits; did anybody, or may somebody now?
static bool run_round(Group& group, unsigned turn) {
    own = &group;
    clocks.group_start = group.start;
    clocks.group_barrier = group.barrier;
    unsigned count = group.fibres.size();
    bool ran = false;
    for (unsigned i = 0; i < count; i++) {
        unsigned thread = in_order(i, count, turn % count);
        if (group.fibres[thread].state != State::ready) continue;
        resume(thread);
        if (fault.kind != FaultKind::none) return true;
        ran = true;
    }
    return release_all() || ran;
}

// Runs groups that are there together until all have returned. In each round one of them may be
// slow: the others run ahead of it. Of a cluster it is always the same, by most orders, so that the
// others run as far ahead as they may.
static void run_together(Group* first, unsigned count) {
    unsigned turn = first->number;
    for (bool left = true, is_fair = true; left;) {
        bool ran = left = false;
        turn = turn * 1664525 + 1013904223;  // Numerical Recipes' generator
        unsigned from = turn >> 8, slow = is_fair ? count : (turn >> 16) % (2 * count);
        if (!is_fair && running->cluster > 1 && running->order) slow = running->order - 1;
        for (unsigned i = 0; i < count; i++) {
            Group& group = first[count == 1 ? 0 : in_order(i, count, from % count)];
            if (group.returned == group.fibres.size()) continue;
            left = true;
            if (i == slow) continue;
            ran |= run_round(group, count == 1 ? turn : turn + i);
            if (fault.kind != FaultKind::none) return;
        }
        if (left && !ran && is_fair) return report_deadlock();
        is_fair = count == 1 || !ran;
    }
}

static void run_grid(unsigned count) {
    if (running->cooperative) {
        for (unsigned i = 0; i < count; i++) begin(groups[i], i);
        return run_together(groups.data(), count);
    }
    unsigned size = std::max(1u, running->cluster);
    for (unsigned i = 0; i < count / size && fault.kind == FaultKind::none; i++) {
        memset(running->shared.begin, 0xCB, running->shared.size);
        for (unsigned rank = 0; rank < size; rank++)
            begin(groups[rank], in_order(i, count / size, 0) * size + rank);
        run_together(groups.data(), size);
    }
}

// 0, or 1 with what went wrong in `found`.
extern "C" int simt_launch(const Launch* launch, Fault* found) {
    unsigned count = launch->threads.x * launch->threads.y * launch->threads.z;
    unsigned grid = launch->groups.x * launch->groups.y * launch->groups.z;
    running = launch;
    launches++;
    ending = nullptr;
    fault = {};
    told.clear();
    groups.resize(launch->cooperative ? grid : std::max(1u, launch->cluster));
    known_groups = groups.size() > 1 ? grid : 1;
    std::vector<Span> dynamic;
    for (Group& each : groups) {
        each.fibres.resize(count);
        each.warps.clear();
        for (unsigned first = 0; first < count; first += launch->warp_size) {
            unsigned rest = count - first;
            each.warps.push_back({first, rest < launch->warp_size ? rest : launch->warp_size});
        }
        each.stacks = map(STACK * count);
        each.dynamic = map(launch->dynamic + 1);
        dynamic.push_back({each.dynamic, launch->dynamic});
    }
    start_shadow(*launch, dynamic);
    run_grid(grid);
    end_shadow();
    for (Group& each : groups) {
        munmap(each.stacks, STACK * count);
        munmap(each.dynamic, launch->dynamic + 1);
        for (auto& [key, span] : each.memory) munmap(span.begin, span.size);
        each.memory.clear();
    }
    running = nullptr;
    *found = fault;
    return fault.kind != FaultKind::none;
}

}  // namespace simt
