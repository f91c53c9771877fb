"""Boxes on the CPU: bodies for functions that kernels' texts have in assembly.

A box comes where its barrier is awaited or, by one of the orders of threads, at once; until then
nothing that anyone may read stands where it goes. It is cut out by its tensor map alone
(tensor_map.py), and comes as the swizzle of the map says, at the address where it goes. Bytes are
counted as barriers count them: a phase that expects too many or too few never ends, and who waits
for it is found.
"""

from __future__ import annotations

import re

from luminal.codegen.c_family import phases
from luminal.expand.ir import Phase

COMMON = """
namespace simt {
// As tensor_map.py has it.
struct Map { unsigned long long address, form, extents[5], strides[4], box[5];
    unsigned rank() const { return form & 0xff; }
    unsigned size() const { return form >> 8 & 0xff; }
    unsigned width() const { return form >> 16 & 0xffff; }
};
struct Asked { char *to, *shared; const Map* map; unsigned long long* barrier; int at[5];
    unsigned by; };
struct Counter { unsigned long long* at; long long bytes; unsigned pending, count, ended; };
struct Boxes { unsigned launch, group; int asked, barriers, last_line; const void* acquired[8];
    unsigned acquirers[8]; Asked all[512]; Counter barrier[64]; };
SIMT_UNCHECKED inline void end_boxes() {
    Boxes& boxes = of_group<Boxes>();
    if (boxes.launch == launch_number() && boxes.asked)
        refuse("ends while boxes are on their way that nobody has awaited", boxes.last_line);
    if (boxes.launch == launch_number() && boxes.barriers)
        refuse("ends with barriers that have not ended", boxes.last_line);
}
SIMT_UNCHECKED inline Boxes& own_boxes() {
    unsigned group = group_index().x + group_count().x * group_index().y;
    Boxes& boxes = of_group<Boxes>();
    if (boxes.launch == launch_number() && boxes.group == group) return boxes;
    __builtin_memset(&boxes, 0, sizeof boxes);
    boxes.launch = launch_number(); boxes.group = group;
    at_end(end_boxes);
    return boxes;
}
template <class T> __attribute__((noinline)) void put_word(T* to, T value) { *to = value; }
template <class T> __attribute__((noinline)) T got_word(const T* from) { return *from; }
SIMT_UNCHECKED inline Counter& counter_in(Boxes& boxes, unsigned long long* barrier, int line) {
    touch_atomic(barrier, 8, __builtin_return_address(0));
    for (int n = 0; n < boxes.barriers; n++)
        if (boxes.barrier[n].at == barrier) return boxes.barrier[n];
    refuse("uses a barrier that has not begun", line);
}
SIMT_UNCHECKED inline Counter& counter_of(unsigned long long* barrier, int line) {
    return counter_in(own_boxes(), barrier, line);
}
// Where another group of the cluster has what stands here in this one's shared memory.
template <class T> SIMT_UNCHECKED inline T* at_peer(T* here, unsigned rank) {
    return (T*)(peer_shared(rank) + ((char*)here - (char*)dynamic_shared()));
}
SIMT_UNCHECKED inline Boxes& boxes_of(unsigned rank, int line) {
    Boxes& boxes = of_peer<Boxes>(rank);
    if (boxes.launch != launch_number() || boxes.group != peer_number(rank))
        refuse("uses a barrier of a group that has begun none", line);
    return boxes;
}
SIMT_UNCHECKED inline void begin_barrier(int line, unsigned long long* barrier, unsigned count) {
    Boxes& own = own_boxes();
    for (int n = 0; n < own.barriers; n++)
        if (own.barrier[n].at == barrier) refuse("begins a barrier that has not ended", line);
    put_word(barrier, 0ull);
    if (own.barriers == 64) __builtin_trap();
    own.barrier[own.barriers++] = {barrier, 0, count, count, 0};
    own_copies().hidden = true;
}
SIMT_UNCHECKED inline void end_barrier(int line, unsigned long long* barrier) {
    Counter& counter = counter_of(barrier, line);
    Boxes& own = own_boxes();
    for (int n = 0; n < own.asked; n++)
        if (own.all[n].barrier == barrier) refuse("ends a barrier whose boxes are coming", line);
    for (unsigned rank = 0; rank < cluster_size(); rank++) {
        Boxes& boxes = of_peer<Boxes>(rank);
        for (int n = 0; n < boxes.asked; n++)
            if (boxes.group == peer_number(rank) && boxes.all[n].by == own.group)
                refuse("ends a barrier while boxes that it shares are on their way", line);
    }
    if (counter.bytes || counter.pending != counter.count)
        refuse("ends a barrier whose phase has not ended", line);
    put_word(barrier, ~0ull);
    counter = own.barrier[--own.barriers];
}
SIMT_UNCHECKED inline void settle(Counter& counter) {
    if (!counter.pending && !counter.bytes) counter.ended++, counter.pending = counter.count;
    ++*(unsigned*)counter.at;
}
SIMT_UNCHECKED inline void arrive_with(int line, unsigned long long* barrier, unsigned bytes) {
    Counter& counter = counter_of(barrier, line);
    if (!counter.pending) refuse("arrives where nobody else is to", line);
    counter.bytes += bytes; counter.pending--;
    settle(counter);
}
SIMT_UNCHECKED inline void free_room(int line, unsigned long long* barrier, unsigned groups) {
    for (unsigned rank = 0; rank < groups; rank++) {
        unsigned long long* there = at_peer(barrier, rank);
        Counter& counter = counter_in(boxes_of(rank, line), there, line);
        if (!counter.pending) refuse("arrives where nobody else is to", line);
        counter.pending--;
        tell(there, false);
        settle(counter);
    }
}
SIMT_UNCHECKED inline char* in_lines(char* shared, char* to, unsigned width) {
    size_t at = to - shared;
    return shared + (at ^ (at >> 3 & (width - 16)));
}
// Its lines one after the other; 0 beyond the extents. Elements are read as the lane's own reads.
SIMT_UNCHECKED inline unsigned bring(const Asked& asked) {
    const Map& map = *asked.map;
    unsigned sides[5] = {1, 1, 1, 1, 1}, count = 1, size = map.size();
    for (unsigned d = 0; d < map.rank(); d++) count *= sides[d] = map.box[d];
    for (unsigned n = 0; n < count; n++) {
        unsigned rest = n; bool inside = true; const char* from = (const char*)map.address;
        for (unsigned d = 0; d < map.rank(); d++) {
            long long at = asked.at[d] + (long long)(rest % sides[d]); rest /= sides[d];
            inside &= at >= 0 && at < (long long)map.extents[d];
            from += at * (d ? map.strides[d - 1] : size);
        }
        unsigned value = 0;
        if (inside) value = size == 4 ? got_word((const unsigned*)from)
            : size == 2 ? got_word((const unsigned short*)from)
            : got_word((const unsigned char*)from);
        __builtin_memcpy(in_lines(asked.shared, asked.to + n * size, map.width()), &value, size);
    }
    return count * size;
}
// One of the groups that a mask has bits for gets it where this one's `to` stands in its memory.
SIMT_UNCHECKED inline void send_box(int line, Asked asked, unsigned rank) {
    Boxes& boxes = boxes_of(rank, line);
    asked.to = at_peer(asked.to, rank); asked.shared = peer_shared(rank);
    asked.barrier = at_peer(asked.barrier, rank);
    Counter& counter = counter_in(boxes, asked.barrier, line);
    unsigned size = asked.map->size();
    for (unsigned d = 0; d < asked.map->rank(); d++) size *= asked.map->box[d];
    for (unsigned n = 0; n < size; n += 16)
        put_word((unsigned __int128*)(asked.to + n), ~(unsigned __int128)0);
    tell(asked.barrier, true);
    boxes.last_line = line;
    if (order() == 0) {
        counter.bytes -= bring(asked);
        return settle(counter);
    }
    if (boxes.asked == 512) __builtin_trap();
    boxes.all[boxes.asked++] = asked;
    ++*(unsigned*)asked.barrier;
}
SIMT_UNCHECKED inline void copy_box(int line, void* to, const void* map,
                                    unsigned long long* barrier, const int* at, unsigned rank,
                                    unsigned mask) {
    Boxes& own = own_boxes();
    Asked asked{(char*)to, nullptr, (const Map*)map, barrier};
    asked.by = own.group;
    counter_of(barrier, line);
    got_word((const unsigned __int128*)map);
    if (asked.map->form >> 32 != 0x7e5071ull || asked.map->rank() != rank)
        refuse("cuts a box out of what is no tensor map of its dimensions", line);
    bool acquired = false;
    for (int n = 0; n < 8; n++)
        acquired |= own.acquired[n] == map && own.acquirers[n] == thread_index().x + 1;
    if (!acquired) refuse("uses a tensor map that it has not acquired", line);
    if (own_copies().hidden) refuse("asks for a box with a barrier that is not published", line);
    for (unsigned d = 0; d < rank; d++) asked.at[d] = at[d];
    if (((char*)to - (char*)dynamic_shared()) % (8 * asked.map->width()))
        refuse("puts a box where its swizzle does not begin", line);
    if (mask >> cluster_size()) refuse("shares a box with groups that are not there", line);
    for (unsigned n = 0; n < cluster_size(); n++)
        if (mask >> n & 1) send_box(line, asked, n);
}
SIMT_UNCHECKED inline void await_barrier(int line, unsigned long long* barrier, unsigned parity) {
    for (;;) {
        Counter& counter = counter_of(barrier, line);
        if ((counter.ended & 1) != parity) return hear(barrier);
        Boxes& own = own_boxes();
        int left = 0, came = 0;
        for (int n = 0; n < own.asked; n++)
            if (own.all[n].barrier == barrier) counter.bytes -= bring(own.all[n]), came++;
            else own.all[left++] = own.all[n];
        own.asked = left;
        if (came) { settle(counter); continue; }
        unsigned* events = (unsigned*)barrier;
        await(events, *events + 1, line);
    }
}
SIMT_UNCHECKED inline void enter_room(int line, unsigned long long* barrier, unsigned parity) {
    for (;;) {
        Counter& counter = counter_of(barrier, line);
        if ((counter.ended & 1) != parity) return hear(barrier);
        unsigned* events = (unsigned*)barrier;
        await(events, *events + 1, line);
    }
}
SIMT_UNCHECKED inline void acquire_map(const void* map) {
    Boxes& own = own_boxes();
    int n = 0;
    while (own.acquired[n] && own.acquired[n] != map) n++;
    if (n == 8) __builtin_trap();
    own.acquired[n] = map; own.acquirers[n] = thread_index().x + 1;
}
}
"""
LINE = "int line = __builtin_LINE()"
CALLS = {
    phases.FUNCTIONS[Phase.BEGIN]: (
        "unsigned arrivals, ",
        "begin_barrier(line, barrier, arrivals)",
    ),
    phases.FUNCTIONS[Phase.END]: ("", "end_barrier(line, barrier)"),
    phases.FUNCTIONS[Phase.EXPECT]: ("unsigned bytes, ", "arrive_with(line, barrier, bytes)"),
    phases.FUNCTIONS[Phase.AWAIT]: ("unsigned parity, ", "await_barrier(line, barrier, parity)"),
    phases.FUNCTIONS[Phase.FREE]: ("unsigned groups, ", "free_room(line, barrier, groups)"),
    phases.FUNCTIONS[Phase.ENTER]: ("unsigned parity, ", "enter_room(line, barrier, parity)"),
}
"""What they take beside the barrier, and the function of the stand-in that they call."""


def body(name: str) -> str | None:
    """What stands for a function; None for one that is no matter of this."""
    if name == phases.ACQUIRE:
        return f"inline void {name}(const void* map) {{ simt::acquire_map(map); }}\n"
    if name in CALLS:
        taken, call = CALLS[name]
        return (
            f"inline void {name}(unsigned long long* barrier, {taken}{LINE}) {{ simt::{call}; }}\n"
        )
    if name == phases.MEET:
        return f"inline void {name}({LINE}) {{ simt::cluster_barrier(line); }}\n"
    kinds = "|".join(name_of(0).rstrip("0") for name_of in (phases.copier_of, phases.sharer_of))
    found = re.fullmatch(rf"({kinds})(\d)", name)
    if found is None:
        return None
    places = [f"x{n}" for n in range(int(found[2]))]
    is_shared = name == phases.sharer_of(len(places))
    taken = [*(f"int {x}" for x in places), *(["unsigned short mask"] if is_shared else [])]
    mask = "mask" if is_shared else "1u << simt::cluster_rank()"
    return (
        f"inline void {name}(void* to, const void* map, unsigned long long* barrier, "
        f"{', '.join(taken)}, {LINE}) {{ int at[] = {{{', '.join(places)}}}; "
        f"simt::copy_box(line, to, map, barrier, at, {len(places)}, {mask}); }}\n"
    )
