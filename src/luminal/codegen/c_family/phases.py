"""Boxes and the barriers that count their bytes (mbarriers), as functions in the text of a kernel
that uses them.

A barrier is 64 bits in shared memory. One arrival ends its present phase, once all bytes have come
that were expected; of a room one from each group of a cluster. What a box is cut out of, a tensor
map says, 128 bytes in global memory that the driver has written: a group acquires it before it asks
for the first box.
A shared box goes to one place in each group of the cluster, and counts at one barrier in each.

Sources: the PTX ISA on mbarrier, cp.async.bulk.tensor, fence.proxy.tensormap,
mapa and barrier.cluster; the CUDA C++
Programming Guide on tensor maps in global memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.expand.ir import Phase

FUNCTIONS = {
    Phase.BEGIN: "begin_barrier",
    Phase.END: "end_barrier",
    Phase.EXPECT: "expect_bytes",
    Phase.AWAIT: "await_barrier",
    Phase.FREE: "free_room",
    Phase.ENTER: "enter_room",
}
"""The function for each step: it takes the barrier, then what the step says, if anything."""
MEET = "meet_cluster"
RANK = "rank"
"""The number of a group in its cluster."""
ACQUIRE = "acquire_map"
MAP = 128  # bytes of a tensor map, and of which its address is a multiple


def map_of(number: int) -> str:
    """The name of a kernel's tensor map."""
    return f"map_{number}"


def copier_of(dimensions: int) -> str:
    """The function that asks for a box of so many dimensions."""
    return f"bring_box_{dimensions}"


def sharer_of(dimensions: int) -> str:
    """The function that asks for a box of so many dimensions for all groups of a cluster."""
    return f"share_box_{dimensions}"


def functions(dimensions: Sequence[int]) -> list[str]:
    """All functions, for boxes of so many dimensions."""
    plain = {
        Phase.BEGIN: (
            ", unsigned arrivals",
            "mbarrier.init.shared::cta.b64 [%0], %1;",
            f'{_BARRIER}, "r"(arrivals)',
        ),
        Phase.END: ("", "mbarrier.inval.shared::cta.b64 [%0];", _BARRIER),
        Phase.EXPECT: (
            ", unsigned bytes",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
            f'{_BARRIER}, "r"(bytes)',
        ),
    }
    lines = [
        f"__device__ inline void {FUNCTIONS[step]}(unsigned long long *barrier{taken}) "
        f'{{ asm volatile("{code}" :: {inputs} : "memory"); }}'
        for step, (taken, code, inputs) in plain.items()
    ]
    fence = f"fence.proxy.tensormap::generic.acquire.sys [%0], {MAP};"
    return [
        *lines,
        _waiting(Phase.AWAIT, ""),
        f"__device__ inline void {ACQUIRE}(const void *map) "
        f'{{ asm volatile("{fence}" :: "l"(map) : "memory"); }}',
        *map(copier, dimensions),
    ]


def of_clusters(dimensions: Sequence[int]) -> list[str]:
    """The functions of kernels whose groups share boxes of so many dimensions."""
    free = (
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }"
    )
    meet = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
    return [
        f"__device__ inline void {FUNCTIONS[Phase.FREE]}(unsigned long long *barrier, unsigned "
        f'groups) {{ for (unsigned n = 0; n < groups; ++n) asm volatile("{free}" :: {_BARRIER}, '
        '"r"(n) : "memory"); }',
        _waiting(Phase.ENTER, ".acquire.cluster"),
        f'__device__ inline void {MEET}() {{ asm volatile("{meet}" ::: "memory"); }}',
        *(copier(count, is_shared=True) for count in dimensions),
    ]


_BARRIER = '"r"((unsigned)__cvta_generic_to_shared(barrier))'


def _waiting(step: Phase, order: str) -> str:
    """The function that waits for the end of a barrier's phase."""
    waiting = (
        f"{{ .reg .pred p; mbarrier.try_wait.parity{order}.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
    )
    return (
        f"__device__ inline void {FUNCTIONS[step]}(unsigned long long *barrier, "
        f'unsigned parity) {{ unsigned ended; do {{ asm volatile("{waiting}" : "=r"(ended) : '
        f'{_BARRIER}, "r"(parity) : "memory"); }} while (!ended); }}'
    )


def copier(dimensions: int, *, is_shared: bool = False) -> str:
    """The function that asks for a box of so many dimensions: it takes the place in shared memory,
    the tensor map, the barrier, and a position in each dimension, the innermost first. One that is
    shared goes there in each group of a cluster that a mask, which comes last, has a bit for.
    """
    names = [f"x{n}" for n in range(dimensions)]
    places = ", ".join(f"%{3 + n}" for n in range(dimensions))
    to_all, mask = (".multicast::cluster", f", %{3 + dimensions}") if is_shared else ("", "")
    code = (
        f"cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        f"{to_all} [%0], [%1, {{{places}}}], [%2]{mask};"
    )
    address = '"r"((unsigned)__cvta_generic_to_shared({}))'.format
    inputs = [address("to"), '"l"(map)', address("barrier"), *(f'"r"({x})' for x in names)]
    taken = [f"int {x}" for x in names]
    if is_shared:
        inputs, taken = [*inputs, '"h"(mask)'], [*taken, "unsigned short mask"]
    name = sharer_of(dimensions) if is_shared else copier_of(dimensions)
    return (
        f"__device__ inline void {name}(void *to, const void *map, "
        f"unsigned long long *barrier, {', '.join(taken)}) "
        f'{{ asm volatile("{code}" :: {", ".join(inputs)} : "memory"); }}'
    )
