"""Boxes and the barriers that count their bytes (mbarriers), as functions in the text of a kernel
that uses them.

A barrier is 64 bits in shared memory. One arrival ends its present phase, once all bytes have come
that were expected. What a box is cut out of, a tensor map says, 128 bytes in global memory that
the driver has written: a group acquires it before it asks for the first box.

Sources: the PTX ISA on mbarrier, cp.async.bulk.tensor and fence.proxy.tensormap; the CUDA C++
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
}
"""The function for each step: it takes the barrier, then what the step says, if anything."""
ACQUIRE = "acquire_map"
MAP = 128  # bytes of a tensor map, and of which its address is a multiple


def map_of(number: int) -> str:
    """The name of a kernel's tensor map."""
    return f"map_{number}"


def copier_of(dimensions: int) -> str:
    """The function that asks for a box of so many dimensions."""
    return f"bring_box_{dimensions}"


def functions(dimensions: Sequence[int]) -> list[str]:
    """All functions, for boxes of so many dimensions."""
    barrier = '"r"((unsigned)__cvta_generic_to_shared(barrier))'
    plain = {
        Phase.BEGIN: ("", "mbarrier.init.shared::cta.b64 [%0], 1;", barrier),
        Phase.END: ("", "mbarrier.inval.shared::cta.b64 [%0];", barrier),
        Phase.EXPECT: (
            ", unsigned bytes",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
            f'{barrier}, "r"(bytes)',
        ),
    }
    lines = [
        f"__device__ inline void {FUNCTIONS[step]}(unsigned long long *barrier{taken}) "
        f'{{ asm volatile("{code}" :: {inputs} : "memory"); }}'
        for step, (taken, code, inputs) in plain.items()
    ]
    waiting = (
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
    )
    fence = f"fence.proxy.tensormap::generic.acquire.sys [%0], {MAP};"
    return [
        *lines,
        f"__device__ inline void {FUNCTIONS[Phase.AWAIT]}(unsigned long long *barrier, "
        f'unsigned parity) {{ unsigned ended; do {{ asm volatile("{waiting}" : "=r"(ended) : '
        f'{barrier}, "r"(parity) : "memory"); }} while (!ended); }}',
        f"__device__ inline void {ACQUIRE}(const void *map) "
        f'{{ asm volatile("{fence}" :: "l"(map) : "memory"); }}',
        *map(copier, dimensions),
    ]


def copier(dimensions: int) -> str:
    """The function that asks for a box of so many dimensions: it takes the place in shared memory,
    the tensor map, the barrier, and a position in each dimension, the innermost first.
    """
    names = [f"x{n}" for n in range(dimensions)]
    places = ", ".join(f"%{3 + n}" for n in range(dimensions))
    code = (
        f"cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[%0], [%1, {{{places}}}], [%2];"
    )
    address = '"r"((unsigned)__cvta_generic_to_shared({}))'.format
    inputs = [address("to"), '"l"(map)', address("barrier"), *(f'"r"({x})' for x in names)]
    return (
        f"__device__ inline void {copier_of(dimensions)}(void *to, const void *map, "
        f"unsigned long long *barrier, {', '.join(f'int {x}' for x in names)}) "
        f'{{ asm volatile("{code}" :: {", ".join(inputs)} : "memory"); }}'
    )
