"""Products in tensor memory on the CPU: bodies for functions that kernels' texts have in assembly.

Tensor memory is an array that knows, column by column, who has allocated it and which product
writes it. A product is made where its phase is awaited or, by one of the orders of threads, at
once; it goes by its descriptors alone, and reads shared memory when it is begun, as its lane's own
reads, and again when it is made, so that memory which is written too early, too late or never is
found.
What the PTX ISA forbids, or leaves undefined, is refused with the rule's words.
"""

from __future__ import annotations

import re

from luminal.base.dots import TENSOR_COLUMNS
from luminal.codegen.c_family import tensor_memory
from luminal.codegen.c_family.tensor_memory import (
    columns_awaiter_of,
    columns_loader_of,
)

COMMON = (
    f"""
namespace simt {{ constexpr unsigned TENSOR_COLUMNS = {TENSOR_COLUMNS}; }}
"""
    + """
namespace simt {
enum Kind { KIND_f16, KIND_tf32, KIND_i8, KIND_f8f6f4, KIND_mxf8f6f4, KIND_mxf4nvf4, SCALES };
// What a lane has asked for, in order: products, and the barriers that they are committed to.
struct Phases { unsigned events; unsigned short ended, begun; };  // in shared memory
struct Work { Kind kind; unsigned to; unsigned long long a, b; unsigned instruction; bool adds;
    unsigned number, line, team; Phases* barrier; unsigned of_a, of_b; };
constexpr int TEAMS = 8;  // of 128 threads, one of which multiplies
// What a lane knows: the last product of which it has heard the end, that at its last fence; when
// it fenced, and whether it has allocated or loaded since.
typedef unsigned __attribute__((may_alias)) Register;
// What it has shown by a fence, others know by theirs if they met in between.
struct Lane { unsigned heard[TEAMS], known[TEAMS], shown[TEAMS], shown_at, after;
    bool allocated, loaded; int pending;
    struct { Register* to; unsigned value; } loads[512]; };
struct Column { unsigned owner, product, team; };
struct Owner { unsigned first, count, number, warp; int line; bool shown, is_free; };
struct Committed { Phases* barrier; unsigned number, team; };
struct Tensor {
    unsigned launch, group, clock, begun, made, products[TEAMS]; bool ended_allocation;
    int owners, barriers, last_line;
    unsigned words[128][TENSOR_COLUMNS]; Column columns[TENSOR_COLUMNS];
    Owner owner[32]; Committed committed[32]; Work work[64]; Lane lanes[1024];
};
SIMT_UNCHECKED inline Tensor& tensor() { return of_group<Tensor>(); }
SIMT_UNCHECKED inline void end_tensor() {
    if (tensor().launch != launch_number()) return;
    for (int team = 0; team < TEAMS; team++) {
        unsigned heard = 0;
        for (unsigned t = 0; t < group_size().x; t++)
            if (tensor().lanes[t].heard[team] > heard) heard = tensor().lanes[t].heard[team];
        if (heard < tensor().products[team])
            refuse("ends while products run that nobody has awaited", tensor().last_line);
    }
    for (int n = 1; n <= tensor().owners; n++)
        if (!tensor().owner[n].is_free)
            refuse("ends with tensor memory that is not freed", tensor().owner[n].line);
    tensor().launch = 0;
}
SIMT_UNCHECKED inline Tensor& own_tensor() {
    unsigned group = group_index().x + group_count().x * group_index().y;
    if (tensor().launch == launch_number() && tensor().group == group) return tensor();
    __builtin_memset(&tensor(), 0, sizeof(Tensor));
    for (auto& lane : tensor().words) for (unsigned& word : lane) word = 0x7fa5a5a5;
    tensor().launch = launch_number(); tensor().group = group;
    at_end(end_tensor);
    return tensor();
}
SIMT_UNCHECKED inline Lane& own_lane() { return own_tensor().lanes[thread_index().x]; }

template <class T> __attribute__((noinline)) void store_word(T* to, T value) { *to = value; }
SIMT_UNCHECKED inline void allocate(int line, unsigned* place, unsigned count) {
    meet(line);
    if (lane() == 0) {
        Tensor& own = own_tensor();
        if (count < 32 || count > TENSOR_COLUMNS || count & (count - 1))
            refuse("allocates columns that are no power of two from 32 on", line);
        if (own.ended_allocation) refuse("allocates after its group has ended allocation", line);
        unsigned first = 0, length = 0;
        for (; length < count && first + length < TENSOR_COLUMNS;)
            if (own.columns[first + length].owner) first += length + 1, length = 0;
            else length++;
        if (length < count) refuse("waits for tensor memory that nobody can free", line);
        own.owner[++own.owners] = {first, count, ++own.clock, own_warp(), line, false, false};
        for (unsigned n = 0; n < count; n++) own.columns[first + n].owner = own.owners;
        store_word(place, first);
    }
    meet(line);
    own_lane().allocated = true;
}
SIMT_UNCHECKED inline void end_allocation(int line) {
    meet(line); own_tensor().ended_allocation = true; meet(line); }
SIMT_UNCHECKED inline void fence_before() {
    Lane& own = own_lane();
    if (own.allocated)
        for (int n = 1; n <= tensor().owners; n++)
            tensor().owner[n].shown |= tensor().owner[n].warp == own_warp();
    own.allocated = own.loaded = false;
    __builtin_memcpy(own.shown, own.heard, sizeof own.shown);
    own.shown_at = group_barrier_clock();
}
SIMT_UNCHECKED inline void fence_after() {
    Lane& own = own_lane();
    own.after = ++tensor().clock;
    for (int team = 0; team < TEAMS; team++) {
        for (unsigned t = 0; t < group_size().x; t++) {
            const Lane& other = tensor().lanes[t];
            if (other.shown_at < group_barrier_clock() && other.shown[team] > own.heard[team])
                own.heard[team] = other.shown[team];
        }
        own.known[team] = own.heard[team];
    }
}
// The columns from an address on, which some warp has allocated and shown to this lane.
SIMT_UNCHECKED inline Column* columns_at(unsigned from, unsigned count, int line) {
    Tensor& own = own_tensor();
    unsigned first = from & 0xffff;
    for (unsigned n = first; n < first + count; n++) {
        if (n >= TENSOR_COLUMNS || !own.columns[n].owner)
            refuse("touches columns of tensor memory that are not allocated", line);
        const Owner& owner = own.owner[own.columns[n].owner];
        bool own_warps = owner.warp == own_warp();
        if (!own_warps && (!owner.shown || own_lane().after < owner.number))
            refuse("touches tensor memory with no fences since another warp allocated it", line);
    }
    return own.columns + first;
}
SIMT_UNCHECKED inline void free_columns(int line, unsigned place, unsigned count) {
    meet(line);
    if (lane() == 0) {
        Tensor& own = own_tensor();
        Column* columns = columns_at(place, count, line);
        Owner& owner = own.owner[columns->owner];
        if (place >> 16 || owner.first != place || owner.count != count)
            refuse("frees columns that were not allocated together", line);
        for (unsigned n = 0; n < count; n++) {
            if (columns[n].product > own_lane().known[columns[n].team])
                refuse("frees tensor memory that a product writes which it has not awaited", line);
            columns[n] = {};
        }
        for (unsigned t = 0; t < group_size().x; t++)
            if (own.lanes[t].loaded && t / warp_size() != own_warp())
                refuse("frees tensor memory with no fence since another warp loaded it", line);
        owner.is_free = true;
    }
    meet(line);
}

// Of a factor's descriptor: lines of `width` bytes, eight of them `eight` bytes from the next, and
// tiles `apart`; the bits of an address change places last.
SIMT_UNCHECKED inline const char* factor_at(unsigned long long factor, unsigned line,
                                            unsigned byte) {
    unsigned code = factor >> 61, width = code == 2 ? 128 : code == 4 ? 64 : 32;
    unsigned start = (factor & 0x3fff) << 4;
    unsigned apart = (factor >> 16 & 0x3fff) << 4, eight = (factor >> 32 & 0x3fff) << 4;
    unsigned at = start + byte / width * apart + byte % width;
    at += line / 8 * eight + line % 8 * width;
    return (const char*)dynamic_shared() + (at ^ (at >> 3 & (width - 16)));
}
SIMT_UNCHECKED inline void check_factor(unsigned long long factor, int line) {
    unsigned code = factor >> 61, width = code == 2 ? 128 : code == 4 ? 64 : 32;
    if (code != 2 && code != 4 && code != 6)
        refuse("describes a factor in a swizzle that is not there", line);
    if ((factor >> 46 & 7) != 1) refuse("describes a factor without the constant of tcgen05", line);
    if (factor >> 14 & 3 || factor >> 30 & 3 || factor >> 49 & 0xfff)
        refuse("describes a factor with bits that must be zero", line);
    unsigned start = (factor & 0x3fff) << 4, eight = (factor >> 32 & 0x3fff) << 4;
    if (start % (8 * width) >= width)
        refuse("describes a factor that does not begin with eight lines of its swizzle", line);
    if (eight % (8 * width)) refuse("describes lines that do not lie in their swizzle", line);
}
struct Shape { unsigned m, n, k, size; bool turned[2]; unsigned format[2]; };
SIMT_UNCHECKED inline Shape shape_of(Kind kind, unsigned instruction, int line) {
    Shape shape{(instruction >> 24 & 31) << 4, (instruction >> 17 & 63) << 3};
    static const unsigned sizes[] = {2, 4, 1, 1}, sums[] = {1, 1, 2, 1};
    shape.size = sizes[kind]; shape.k = 32 / shape.size;
    if (instruction & 0xe080604f)
        refuse("describes an instruction with bits that must be zero", line);
    if ((instruction >> 4 & 3) != sums[kind])
        refuse("describes an instruction with sums that its kind does not have", line);
    for (int side = 0; side < 2; side++) {
        unsigned format = instruction >> (7 + 3 * side) & 7;
        if (kind == KIND_tf32 ? format != 2 : format > 1)
            refuse("describes an instruction with factors that its kind does not have", line);
        shape.format[side] = format; shape.turned[side] = instruction >> (15 + side) & 1;
        if (kind == KIND_tf32 && shape.turned[side])
            refuse("describes turned factors of 32 bits, whose swizzle is not there", line);
    }
    bool is_wide = shape.m == 128 || kind == KIND_i8 && shape.n > 32;
    if (shape.m != 64 && shape.m != 128 || !shape.n || shape.n > 256
            || is_wide && shape.n % 16)
        refuse("describes an instruction of rows and columns that are not there", line);
    return shape;
}
template <class T> __attribute__((noinline)) void read_only(const void* from) {
    *(volatile const T*)from; }
// A factor is read as its lane's own reads, in pieces of 16 bytes.
SIMT_UNCHECKED inline void touch_factor(const Shape& shape, int side, unsigned long long factor) {
    unsigned rows = side ? shape.n : shape.m;
    unsigned lines = shape.turned[side] ? shape.k : rows;
    unsigned bytes = (shape.turned[side] ? rows : shape.k) * shape.size;
    for (unsigned line = 0; line < lines; line++)
        for (unsigned byte = 0; byte < bytes; byte += 16)
            read_only<unsigned __int128>(factor_at(factor, line, byte));
}
SIMT_UNCHECKED inline double decoded(Kind kind, unsigned format, const char* from) {
    unsigned short half; unsigned word; _Float16 f16; float f32;
    switch (kind) {
        case KIND_f16:
            __builtin_memcpy(&half, from, 2); __builtin_memcpy(&f16, from, 2);
            word = (unsigned)half << 16; __builtin_memcpy(&f32, &word, 4);
            return format ? f32 : (float)f16;
        case KIND_tf32:
            __builtin_memcpy(&word, from, 4); word &= 0xFFFFE000u; __builtin_memcpy(&f32, &word, 4);
            return f32;
        case KIND_f8f6f4: return format ? (float)e5m2{(unsigned char)*from}
                                        : (float)e4m3{(unsigned char)*from};
        default: return format ? (signed char)*from : (int)(unsigned char)*from;
    }
}
static double sides[2][256][32];
SIMT_UNCHECKED inline void decode_side(Kind kind, const Shape& shape, int side,
                                       unsigned long long factor) {
    for (unsigned row = 0; row < (side ? shape.n : shape.m); row++)
        for (unsigned k = 0; k < shape.k; k++)
            sides[side][row][k] = decoded(kind, shape.format[side], shape.turned[side]
                ? factor_at(factor, k, row * shape.size) : factor_at(factor, row, k * shape.size));
}
// Sums in f32 are made in the order of the other dots' stand-ins; integers wrap.
SIMT_UNCHECKED inline unsigned added(Kind kind, unsigned word, const double* x, const double* y,
                                     unsigned steps) {
    if (kind == KIND_i8) {
        for (unsigned k = 0; k < steps; k++) word += (int)x[k] * (int)y[k];
        return word;
    }
    float sum; __builtin_memcpy(&sum, &word, 4);
    for (int k = steps - 1; k >= 0; k--) sum += (float)x[k] * (float)y[k];
    __builtin_memcpy(&word, &sum, 4);
    return word;
}
SIMT_UNCHECKED inline void make_product(const Work& work) {
    Shape shape = shape_of(work.kind, work.instruction, work.line);
    decode_side(work.kind, shape, 0, work.a);
    decode_side(work.kind, shape, 1, work.b);
    for (unsigned row = 0; row < shape.m; row++)
        for (unsigned column = 0; column < shape.n; column++) {
            unsigned at = shape.m == 128 ? row : row % 16 + row / 16 * 32;
            unsigned& word = tensor().words[at][(work.to & 0xffff) + column];
            word = added(work.kind, work.adds ? word : 0, sides[0][row], sides[1][column], shape.k);
        }
}
// Products of factors with scales: those of row r stand in lane r of column r / 32, as in all
// quarters.
SIMT_UNCHECKED inline Shape scaled_shape_of(Kind kind, unsigned instruction, int line) {
    Shape shape{(instruction >> 27 & 3) << 7, (instruction >> 17 & 63) << 3, 32, 1, {}, {}};
    bool pairs = kind == KIND_mxf4nvf4;
    if (instruction & (pairs ? 0x8701f04fu : 0x8700604fu) || instruction & 0x00018000u)
        refuse("describes an instruction with bits that must be zero", line);
    if ((instruction >> 23 & 1) == pairs)
        refuse("describes an instruction with scales that its kind does not have", line);
    for (int side = 0; side < 2; side++)
        if ((shape.format[side] = instruction >> (7 + 3 * side) & 7) != pairs)
            refuse("describes an instruction with factors that its kind does not have", line);
    if (pairs && instruction & 0x60000030u)
        refuse("begins with scales in the middle of a word", line);
    if (shape.m != 128 || !shape.n || shape.n > 256)
        refuse("describes an instruction of rows and columns that are not there", line);
    return shape;
}
SIMT_UNCHECKED inline unsigned char scale_at(unsigned columns, unsigned row, unsigned part) {
    return tensor().words[row % 128][(columns & 0xffff) + row / 32] >> 8 * part; }
SIMT_UNCHECKED inline double of_byte(bool pairs, unsigned char x, unsigned char y) {
    if (!pairs) return (double)e4m3{x} * (double)e4m3{y};
    return (double)e2m1{(unsigned char)(x & 15)} * (double)e2m1{(unsigned char)(y & 15)}
        + (double)e2m1{(unsigned char)(x >> 4)} * (double)e2m1{(unsigned char)(y >> 4)};
}
SIMT_UNCHECKED inline void make_scaled(const Work& work) {
    bool pairs = work.kind == KIND_mxf4nvf4;
    Shape shape = scaled_shape_of(work.kind, work.instruction, work.line);
    unsigned block = pairs ? 8 : 32;
    static unsigned char bytes[2][256][32];
    for (unsigned row = 0; row < 256; row++) for (unsigned k = 0; k < 32; k++) {
        if (row < shape.m) bytes[0][row][k] = *factor_at(work.a, row, k);
        if (row < shape.n) bytes[1][row][k] = *factor_at(work.b, row, k);
    }
    for (unsigned row = 0; row < shape.m; row++)
        for (unsigned column = 0; column < shape.n; column++) {
            unsigned& word = tensor().words[row][(work.to & 0xffff) + column];
            float total = 0;
            if (work.adds) __builtin_memcpy(&total, &word, 4);
            for (int n = 32 / block - 1; n >= 0; n--) {
                double sum = 0;
                for (unsigned k = n * block; k < (n + 1) * block; k++)
                    sum += of_byte(pairs, bytes[0][row][k], bytes[1][column][k]);
                unsigned char p = scale_at(work.of_a, row, (work.instruction >> 29 & 3) + n);
                unsigned char q = scale_at(work.of_b, column, (work.instruction >> 4 & 3) + n);
                double scale = pairs ? (double)e4m3{p} * (double)e4m3{q} : e8m0{p} * e8m0{q};
                total = (float)(total + sum * scale);
            }
            __builtin_memcpy(&word, &total, 4);
        }
}
SIMT_UNCHECKED inline const char* square_at(unsigned long long square, unsigned lane) {
    unsigned start = (square & 0x3fff) << 4, eight = (square >> 32 & 0x3fff) << 4;
    return (const char*)dynamic_shared() + start + lane / 8 * eight + lane % 8 * 16;
}
SIMT_UNCHECKED inline void make_scales(const Work& work) {
    for (unsigned lane = 0; lane < 128; lane++)
        __builtin_memcpy(&tensor().words[lane][work.to & 0xffff], square_at(work.a, lane % 32), 16);
}
SIMT_UNCHECKED inline void make_work(const Work& work) {
    if (work.kind == SCALES) make_scales(work);
    else if (work.kind < KIND_mxf8f6f4) make_product(work);
    else make_scaled(work);
}
// The number of the product that ended the barrier's last phase.
SIMT_UNCHECKED inline Committed& committed_to(Phases* barrier) {
    for (int n = 0; n < tensor().barriers; n++)
        if (tensor().committed[n].barrier == barrier) return tensor().committed[n];
    if (tensor().barriers == 32) __builtin_trap();
    tensor().committed[tensor().barriers] = {barrier, 0, 0};
    return tensor().committed[tensor().barriers++];
}
// Makes work up to the first end of a phase of a barrier, if there is one.
SIMT_UNCHECKED inline bool make_until(Phases* barrier) {
    unsigned end = tensor().made;
    while (end < tensor().begun && tensor().work[end % 64].barrier != barrier) end++;
    if (end == tensor().begun) return false;
    while (tensor().made <= end) {
        const Work& work = tensor().work[tensor().made++ % 64];
        if (!work.barrier) { make_work(work); continue; }
        work.barrier->ended++;
        committed_to(work.barrier) = {work.barrier, work.number, work.team};
    }
    return true;
}
SIMT_UNCHECKED inline void ask(const Work& work) {
    if (tensor().begun - tensor().made == 64) __builtin_trap();
    tensor().work[tensor().begun++ % 64] = work;
}
SIMT_UNCHECKED inline void multiply(Kind kind, int line, unsigned to, unsigned long long a,
        unsigned long long b, unsigned instruction, bool adds) {
    Tensor& own = own_tensor();
    Shape shape = shape_of(kind, instruction, line);
    if (to >> 16) refuse("multiplies into lanes from the middle on", line);
    if (!all_published()) refuse("multiplies copies that a lane has not published", line);
    check_factor(a, line); check_factor(b, line);
    touch_factor(shape, 0, a); touch_factor(shape, 1, b);
    Column* columns = columns_at(to, shape.n, line);
    unsigned team = thread_index().x / 128, number = ++own.products[team];
    Work work{kind, to, a, b, instruction, adds, number, (unsigned)line, team, nullptr, 0, 0};
    for (unsigned n = 0; n < shape.n; n++) columns[n].product = number, columns[n].team = team;
    own.last_line = line;
    if (order() == 0) make_product(work); else ask(work);
}
SIMT_UNCHECKED inline void begin_work(Work work, unsigned count) {
    Tensor& own = own_tensor();
    Column* columns = columns_at(work.to, count, work.line);
    work.team = thread_index().x / 128; work.number = ++own.products[work.team];
    // Nothing orders a copy behind products, or copies, that were asked for before.
    for (unsigned n = 0; n < count && work.kind == SCALES; n++)
        if (columns[n].product > own_lane().known[columns[n].team])
            refuse("brings scales to where products read them that it has not awaited", work.line);
    for (unsigned n = 0; n < count; n++)
        columns[n].product = work.number, columns[n].team = work.team;
    own.last_line = work.line;
    if (order() == 0) make_work(work); else ask(work);
}
SIMT_UNCHECKED inline void multiply_scaled(Kind kind, int line, unsigned to, unsigned long long a,
        unsigned long long b, unsigned instruction, bool adds, unsigned of_a, unsigned of_b) {
    Tensor& own = own_tensor();
    Shape shape = scaled_shape_of(kind, instruction, line);
    if (to >> 16 || of_a >> 16 || of_b >> 16)
        refuse("multiplies into lanes from the middle on", line);
    if (!all_published()) refuse("multiplies copies that a lane has not published", line);
    check_factor(a, line); check_factor(b, line);
    touch_factor(shape, 0, a); touch_factor(shape, 1, b);
    unsigned number = own.products[thread_index().x / 128] + 1;
    for (int side = 0; side < 2; side++) {  // which are read until this product has ended
        unsigned count = (side ? shape.n : shape.m) / 32;
        Column* columns = columns_at(side ? of_b : of_a, count, line);
        for (unsigned n = 0; n < count; n++) columns[n].product = number;
    }
    begin_work({kind, to, a, b, instruction, adds, 0, (unsigned)line, 0, nullptr, of_a, of_b},
               shape.n);
}
SIMT_UNCHECKED inline void bring_scales(int line, unsigned to, unsigned long long square) {
    if (to >> 16) refuse("brings scales to lanes from the middle on", line);
    // Lanes store scales, as no copies do of which the one above knows.
    if (!all_published() || !all_have_published())
        refuse("brings scales that a lane has not published", line);
    if (square >> 61 || (square >> 46 & 7) != 1 || square >> 14 & 3 || square >> 30 & 3
            || square >> 49 & 0xfff)
        refuse("describes scales with other bits than those of lines of 16 bytes", line);
    for (unsigned lane = 0; lane < 32; lane++)
        read_only<unsigned __int128>(square_at(square, lane));
    begin_work({SCALES, to, square, 0, 0, false, 0, (unsigned)line, 0, nullptr, 0, 0}, 4);
}
SIMT_UNCHECKED inline Phases* begun(unsigned long long* barrier, int line) {
    touch_atomic(barrier, 8, __builtin_return_address(0));
    if (((Phases*)barrier)->begun != 0x5ba5) refuse("uses a barrier that has not begun", line);
    return (Phases*)barrier;
}
SIMT_UNCHECKED inline void begin_phases(int line, unsigned long long* barrier) {
    store_word(barrier, 0x5ba5ull << 48); }
SIMT_UNCHECKED inline void commit_to(int line, unsigned long long* barrier) {
    Tensor& own = own_tensor();
    Phases* phases = begun(barrier, line);
    unsigned team = thread_index().x / 128;
    ask({KIND_f16, 0, 0, 0, 0, false, own.products[team], (unsigned)line, team, phases, 0, 0});
    if (order() == 0) make_until(phases);
    phases->events++;
}
SIMT_UNCHECKED inline void await_phase(int line, unsigned long long* barrier, unsigned parity) {
    own_tensor();
    Phases* phases = begun(barrier, line);
    while ((phases->ended & 1) == parity)
        if (!make_until(phases)) await(&phases->events, phases->events + 1, line);
    Lane& own = own_lane();
    const Committed& ended = committed_to(phases);
    if (ended.number > own.heard[ended.team]) own.heard[ended.team] = ended.number;
}

SIMT_UNCHECKED inline void load_columns(int line, Register** to, unsigned count, unsigned from) {
    meet(line);
    Lane& own = own_lane();
    if (from >> 16 != own_warp() % 4 * 32) refuse("loads lanes of another warp", line);
    Column* columns = columns_at(from, count, line);
    for (unsigned n = 0; n < count; n++) {
        if (columns[n].product > own.known[columns[n].team])
            refuse("loads results of a product that it has not awaited, or with no fence since",
                   line);
        unsigned value = tensor().words[(from >> 16) + lane()][(from & 0xffff) + n];
        if (order() == 0) { *to[n] = value; continue; }
        *to[n] = 0x7fb6b6b6;
        if (own.pending == 512) __builtin_trap();
        own.loads[own.pending++] = {to[n], value};
    }
    own.loaded = true;
}
SIMT_UNCHECKED inline void await_columns(int line) {
    meet(line);
    Lane& own = own_lane();
    for (int n = 0; n < own.pending; n++) *own.loads[n].to = own.loads[n].value;
    own.pending = 0;
}
}
"""
)
LINE = "int line = __builtin_LINE()"
CALLS = {
    tensor_memory.ALLOCATE: ("unsigned* place, {line}", "allocate(line, place, N)"),
    tensor_memory.FREE: ("unsigned place, {line}", "free_columns(line, place, N)"),
    tensor_memory.END_ALLOCATION: ("{line}", "end_allocation(line)"),
    tensor_memory.BEFORE: ("", "fence_before()"),
    tensor_memory.AFTER: ("", "fence_after()"),
    tensor_memory.BEGIN_PHASES: ("{barrier}, {line}", "begin_phases(line, barrier)"),
    tensor_memory.LIFT: (
        "unsigned to, unsigned long long square, {line}", "bring_scales(line, to, square)"),
    tensor_memory.COMMIT_TO: ("{barrier}, {line}", "commit_to(line, barrier)"),
    tensor_memory.AWAIT_PHASE: (
        "{barrier}, unsigned parity, {line}", "await_phase(line, barrier, parity)"),
}  # fmt: skip
"""What they take, and the function of the stand-in that they call."""
MULTIPLY = """
SIMT_UNCHECKED inline void {name}(unsigned sums, unsigned long long a, unsigned long long b,
                                  unsigned instruction, bool adds, {line}) {{
    simt::multiply(simt::KIND_{kind}, line, sums, a, b, instruction, adds);
}}
"""
SCALED = """
SIMT_UNCHECKED inline void {name}(unsigned sums, unsigned long long a, unsigned long long b,
        unsigned instruction, bool adds, unsigned of_a, unsigned of_b, {line}) {{
    simt::multiply_scaled(simt::KIND_{kind}, line, sums, a, b, instruction, adds, of_a, of_b);
}}
"""
LOAD = """
template <class T>
SIMT_UNCHECKED inline void {name}({parameters}, unsigned from, {line}) {{
    simt::Register* to[] = {{{addresses}}};
    simt::load_columns(line, to, {count}, from);
}}
"""
AWAIT = """
template <class T>
SIMT_UNCHECKED inline void {name}({parameters}, {line}) {{ simt::await_columns(line); }}
"""


def body(name: str) -> str | None:
    """What stands for a function; None for one that is no matter of this."""
    if name in CALLS:
        taken, call = CALLS[name]
        head = "template <int N> " if "N)" in call else ""
        taken = taken.format(line=LINE, barrier="unsigned long long* barrier")
        return f"{head}SIMT_UNCHECKED inline void {name}({taken}) {{ simt::{call}; }}\n"
    if kind := re.fullmatch(r"multiply_(f16|tf32|i8|f8f6f4)", name):
        return MULTIPLY.format(name=name, kind=kind[1], line=LINE)
    if kind := re.fullmatch(r"multiply_(mxf8f6f4|mxf4nvf4)", name):
        return SCALED.format(name=name, kind=kind[1], line=LINE)
    count = int((re.findall(r"_(\d+)$", name) or ["0"])[0])
    texts = {columns_loader_of(count): LOAD, columns_awaiter_of(count): AWAIT}
    if name not in texts:
        return None
    return texts[name].format(
        name=name, count=count, line=LINE,
        parameters=", ".join(f"T &r{n}" for n in range(count)),
        addresses=", ".join(f"(simt::Register*)&r{n}" for n in range(count)),
    )  # fmt: skip
