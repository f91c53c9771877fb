"""Products in tensor memory (tcgen05, sm_100a) as functions in the text of a kernel that uses them.

One lane multiplies factors that lie in shared memory, each said by a descriptor; what is multiplied
is said by another one, of the instruction. The sums stand in a memory of their own, 128 lanes by
512 columns of 32 bits, of which a warp allocates columns for its group and frees them again. A
product runs on while the lanes do other things: the lane commits it to a barrier in shared memory
(an mbarrier), whose phase ends when it has been made, and whoever has awaited that phase may load
sums. A warp loads the 32 lanes of its own place among four. Products of two groups (cta_group::2)
are left out: nothing here runs clusters.
"""

from __future__ import annotations

from luminal.base.dots import Dot
from luminal.base.dtypes import (
    DType,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float16,
    float32,
    int8,
    int32,
)
from luminal.base.swizzles import Swizzle
from luminal.codegen.c_family.matrices import CONSTRAINTS, CPP
from luminal.codegen.c_family.warpgroups import descriptor

ALLOCATE, END_ALLOCATION, FREE = "allocate_columns", "end_allocation", "free_columns"
BEFORE, AFTER = "before_meeting", "after_meeting"
BEGIN_PHASES, COMMIT_TO, AWAIT_PHASE = "begin_phases", "commit_to", "await_phase"
# Sources: the PTX ISA's tables of instruction descriptors and of shared memory descriptors, in its
# chapter on tcgen05.
KINDS = {bfloat16: ("f16", 1), float16: ("f16", 0), float32: ("tf32", 2), int8: ("i8", 1),
         float8_e4m3fn: ("f8f6f4", 0), float8_e5m2: ("f8f6f4", 1)}  # fmt: skip
"""The kind of instruction that multiplies factors of a dtype, and what it calls the dtype."""
SUMS = {float32: 1, int32: 2}
"""What descriptors of instructions call the dtypes of sums."""


SCALED = {float8_e8m0fnu: ("mxf8f6f4", "1X", 0, 1), float8_e4m3fn: ("mxf4nvf4", "4X", 1, 0)}
"""By the dtype of scales: the kind of instruction, how many scales a row has, and what it calls the
dtypes of factors and of scales.
"""


def multiplier_of(dot: Dot) -> str:
    """The function of all dots of this one's kind."""
    return f"multiply_{KINDS[dot.a][0] if dot.scale is None else SCALED[dot.scale][0]}"


def multiplier(dot: Dot) -> str:
    """The function of all dots of this one's kind: it takes the address of the sums, the factors'
    descriptors and the instruction's, and whether it adds to what stands there; then the addresses
    of scales, if there are some.
    """
    if dot.scale is not None:
        return _scaled_multiplier(dot, *SCALED[dot.scale][:2])
    code = (
        f"{{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::{KINDS[dot.a][0]} "
        "[%0], %1, %2, %3, p; }"
    )
    return (
        f"__device__ inline void {multiplier_of(dot)}(unsigned sums, unsigned long long a, "
        "unsigned long long b, unsigned instruction, bool adds) "
        f'{{ asm volatile("{code}" :: "r"(sums), "l"(a), "l"(b), "r"(instruction), '
        f'"r"((unsigned)adds) : "memory"); }}'
    )


def _scaled_multiplier(dot: Dot, kind: str, count: str) -> str:
    code = (
        "{ .reg .pred p; setp.ne.b32 p, %4, 0; "
        f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.scale_vec::{count} "
        "[%0], %1, %2, %3, [%5], [%6], p; }"
    )
    return (
        f"__device__ inline void {multiplier_of(dot)}(unsigned sums, unsigned long long a, "
        "unsigned long long b, unsigned instruction, bool adds, unsigned of_a, unsigned of_b) "
        f'{{ asm volatile("{code}" :: "r"(sums), "l"(a), "l"(b), "r"(instruction), '
        f'"r"((unsigned)adds), "r"(of_a), "r"(of_b) : "memory"); }}'
    )


def instruction_of(dot: Dot, turned: str = "") -> int:
    """The descriptor of a dot's instruction; `turned` names the factors, of "a" and "b", whose
    neighbours in memory are rows or columns and not steps of the sum. Raises ValueError for turned
    factors of 32 bits, which would have to lie in another swizzle than `swizzles.py` has.
    """
    if turned and dot.a.size == 4:
        raise ValueError(
            f"{dot}: turned factors of 32 bits lie in a swizzle of 32 bytes, which is not there; "
            "copy them so that steps of the sum are neighbours"
        )
    shape = dot.n >> 3 << 17 | dot.m >> 4 << 24
    if dot.scale is not None:
        _, _, codes, scales = SCALED[dot.scale]
        return codes << 7 | codes << 10 | scales << 23 | shape
    kind = KINDS[dot.a][1]
    sides = sum(1 << 15 + n for n, side in enumerate("ab") if side in turned)
    return SUMS[dot.accumulator] << 4 | kind << 7 | kind << 10 | sides | shape


LIFT, SQUARE_AT, SCALES_AT, PART = "bring_scales", "square_at", "scales_at", "scales_part"


def lifting() -> list[str]:
    """The functions that bring a square of scales to four columns of tensor memory, for all its
    quarters; and say where the scales at a byte of the squares stand: the address, and which of a
    word's the first one is, in the words of an instruction's descriptor.
    """
    code = "tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;"
    return [
        descriptor(SQUARE_AT, Swizzle(16, 0, 0), "1ull << 46"),
        f"__device__ inline void {LIFT}(unsigned to, unsigned long long square) "
        f'{{ asm volatile("{code}" :: "r"(to), "l"(square) : "memory"); }}',
        f"__device__ inline unsigned {SCALES_AT}(unsigned first, unsigned byte) "
        "{ return first + byte / 512 * 4 + byte / 4 % 4; }",
        f"__device__ inline unsigned {PART}(unsigned a, unsigned b) "
        "{ return a % 4 << 29 | b % 4 << 4; }",
    ]


def factor_of(swizzle: Swizzle) -> str:
    """The function that describes a factor which lies in this swizzle."""
    return f"factor_{swizzle.width}"


def factor(swizzle: Swizzle) -> str:
    """The function from the place of a factor in shared memory, and how many bytes its tiles lie
    apart, to its descriptor.
    """
    code = f"1ull << 46 | {swizzle.tensor_code}ull << 61"
    return descriptor(factor_of(swizzle), swizzle, code)


def columns_loader_of(count: int) -> str:
    """The function that loads so many columns of a lane."""
    return f"load_columns_{count}"


def columns_loader(dtype: DType, count: int) -> str:
    """The function that loads so many columns of a lane, 1 to 128 and a power of two, of a dtype of
    sums. They are there when they have been awaited.
    """
    parameters, outs = _registers(dtype, count, "=")
    places = "{" + ", ".join(f"%{n}" for n in range(count)) + "}"
    code = f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {places}, [%{count}];"
    return (
        f"__device__ inline void {columns_loader_of(count)}({parameters}, unsigned from) "
        f'{{ asm volatile("{code}" : {outs} : "r"(from)); }}'
    )


def columns_awaiter_of(count: int) -> str:
    """The function that awaits so many columns."""
    return f"await_columns_{count}"


def columns_awaiter(dtype: DType, count: int) -> str:
    """The function that awaits so many columns of a lane, and all that it has loaded before. It
    takes them, so that the compiler reads none of them earlier.
    """
    parameters, outs = _registers(dtype, count, "+")
    return (
        f"__device__ inline void {columns_awaiter_of(count)}({parameters}) "
        f'{{ asm volatile("tcgen05.wait::ld.sync.aligned;" : {outs}); }}'
    )


def _registers(dtype: DType, count: int, use: str) -> tuple[str, str]:
    """So many registers as a function's parameters, and as what its assembly writes."""
    names = [f"r{n}" for n in range(count)]
    parameters = ", ".join(f"{CPP[dtype]} &{name}" for name in names)
    return parameters, ", ".join(f'"{use}{CONSTRAINTS[dtype]}"({name})' for name in names)


def functions() -> list[str]:
    """The other functions: of allocation, of the order among lanes, and of barriers in memory."""
    to = '"r"((unsigned)__cvta_generic_to_shared({}))'.format
    group = "cta_group::1"
    calls = {
        END_ALLOCATION: ("", f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned;", ""),
        BEFORE: ("", "tcgen05.fence::before_thread_sync;", ""),
        AFTER: ("", "tcgen05.fence::after_thread_sync;", ""),
        # One arrival ends a phase: the one of a commit.
        BEGIN_PHASES: (
            "unsigned long long *barrier",
            "mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;",
            to("barrier"),
        ),
        COMMIT_TO: (
            "unsigned long long *barrier",
            f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster.b64 [%0];",
            to("barrier"),
        ),
    }
    lines = [
        f"__device__ inline void {name}({taken}) "
        f'{{ asm volatile("{code}" :: {inputs} : "memory"); }}'
        for name, (taken, code, inputs) in calls.items()
    ]
    allocate = f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%0], %1;"
    free = f"tcgen05.dealloc.{group}.sync.aligned.b32 %0, %1;"
    waiting = (
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
    )
    return [
        *lines,
        f"template <int N> __device__ inline void {ALLOCATE}(unsigned *place) "
        f'{{ asm volatile("{allocate}" :: {to("place")}, "n"(N) : "memory"); }}',
        f"template <int N> __device__ inline void {FREE}(unsigned place) "
        f'{{ asm volatile("{free}" :: "r"(place), "n"(N) : "memory"); }}',
        f"__device__ inline void {AWAIT_PHASE}(unsigned long long *barrier, unsigned parity) "
        f'{{ unsigned ended; do {{ asm volatile("{waiting}" : "=r"(ended) : {to("barrier")}, '
        '"r"(parity) : "memory"); } while (!ended); }',
    ]


# --- the lines of a kernel: each 128 lanes are a team, whose first lane multiplies for all

FIRST, LEADS = "first_column", "threadIdx.x % 128 == 0"
OWN_LANES = "(threadIdx.x / 32 % 4 << 21)"
"""What the address of a warp's lanes has more than that of the first ones."""
RING = 2
"""Barriers of a team, which its batches of products take in turns: all but this many have ended
when one is committed.
"""
COMMITTED = f"if ({LEADS}) {COMMIT_TO}(&ended[batches % {RING}]); ++batches;"
BARRIERS = 64  # bytes of those of all teams, before the place of the columns


def meeting(barrier: str) -> str:
    """A barrier behind which lanes see what others have done to tensor memory."""
    return f"{BEFORE}(); {barrier} {AFTER}();"


def opened(place: str, columns: int, barrier: str) -> list[str]:
    """Allocates so many columns, and begins the phases of barriers, which lie at a `place` in
    shared memory.
    """
    lines = (
        f"unsigned long long *const ended = (unsigned long long *)({place}) "
        f"+ threadIdx.x / 128 * {RING};",
        f"unsigned *const allocated = (unsigned *)({place} + {BARRIERS});",
        f"if (threadIdx.x < 32) {{ {ALLOCATE}<{columns}>(allocated); {END_ALLOCATION}(); }}",
        f"if ({LEADS}) for (int n = 0; n < {RING}; ++n) {BEGIN_PHASES}(&ended[n]);",
        barrier,
        f"const unsigned {FIRST} = *allocated;",
        "unsigned batches = 0;",
    )
    return [f"    {line}" for line in lines]


def closed(columns: int, barrier: str) -> list[str]:
    """Frees them, when all lanes have loaded what they load."""
    return [f"    {barrier}", f"    if (threadIdx.x < 32) {FREE}<{columns}>({FIRST});"]


def awaited(younger: int) -> str:
    """Awaits all batches of the lane's team but so many, fewer than it has barriers."""
    assert younger < RING, f"{younger} batches run on, of which a team has {RING} at most"
    batch = f"batches - {1 + younger}"
    ends = f"{AWAIT_PHASE}(&ended[({batch}) % {RING}], ({batch}) / {RING} & 1)"
    return f"if (batches > {younger}) {ends}; {AFTER}();"
