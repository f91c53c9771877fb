// What the two halves of the runtime know of each other: fibres.cpp (who runs) and shadow.cpp
// (what they touch).
#pragma once
#include <vector>
#include "fibres.h"

namespace simt {

enum class FaultKind : int {
    none, out_of_bounds, misaligned, race, uninitialised, index, divergent_barrier,
    barrier_after_return, deadlock, divergent_warp, returned_lane, early, starved, refused,
};

// The first thing that went wrong in a launch; Python words it (launch.py).
struct Fault {
    FaultKind kind;
    int is_write, other_is_write;   // of the accesses
    unsigned thread, other_thread;  // numbered over the whole grid
    int line, other_line;           // where a barrier or an array's type says it
    void *caller, *other_caller;    // where an access stands in the module's code; of refused: the rule
    long long region, offset;       // region: of the launch's buffers, -1 shared, -2 none at all
    unsigned long long size;
};

struct Span { char* begin; size_t size; };

struct Launch {
    void (*kernel)(void**);
    void** arguments;
    Index groups, threads;
    unsigned warp_size;
    int order;            // 0 ascending, 1 descending, 2 rotated
    size_t dynamic;       // bytes of dynamic shared memory
    Span shared;          // static shared memory
    const Span* buffers;  // all that the kernel may touch besides
    size_t buffer_count;
    int chained;  // it may begin before launches ahead of it have ended, and waits for them itself
    long long early;  // the one buffer that it may touch before that; -1: none
    int cooperative;  // all groups are there at once, and may wait for each other
    int unchecked;    // its module reports no accesses
    unsigned cluster;  // so many groups are there at once, and use each other's memory; 0 as 1
};

// The moments that order accesses. A clock counts the barriers that were passed; what a group or
// a warp did before its last one has happened before whatever it does now.
struct Clocks { unsigned now, group_start, group_barrier; };

extern Clocks clocks;
extern const Launch* running;  // null outside of a launch

unsigned thread_number();                  // of the running thread, over the whole grid
unsigned warp_barrier_clock();             // when its warp passed its last barrier
bool in_warp_of_thread(unsigned number);   // is that thread of its group in its warp?
bool in_group_of_thread(unsigned number);
bool is_known(unsigned thread, unsigned clock);  // has what it did then happened for this group?
Span own_stack();
bool has_depended();                       // has the running thread waited for earlier launches?
[[noreturn]] void stop(const Fault& fault);

void start_shadow(const Launch& launch, const std::vector<Span>& dynamic);
void end_shadow();

}  // namespace simt
