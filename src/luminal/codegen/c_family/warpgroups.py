"""Products of warp groups (wgmma, sm_90a) as functions in the text of a kernel that uses them.

Four warps multiply factors that lie in shared memory, each said by a descriptor. The product runs
on while the lanes do other things: a batch of products begins with a fence and ends with a commit,
and the results are there when it has been awaited.
"""

from __future__ import annotations

from luminal.base.dots import Dot
from luminal.base.dtypes import DType
from luminal.base.swizzles import Swizzle
from luminal.codegen.c_family.matrices import CONSTRAINTS, CPP, PTX, PTX_SUMS, name_of

BEGIN, COMMIT, AWAIT = "begin_products", "commit_products", "await_products"
PUBLISH = "publish_copies"
TURNED = "_turned_"


def function_of(dot: Dot, turned: str = "") -> str:
    """The function of a dot; `turned` names the factors, of "a" and "b", whose neighbours in memory
    are rows or columns and not steps of the sum.
    """
    return name_of(dot) + (TURNED + turned if turned else "")


def wgmma(dot: Dot, turned: str = "") -> str:
    """The function of a dot: it takes the results by reference, then both descriptors. What it adds
    to them is there once it has been awaited.
    """
    count = dot.fragment("c").elements
    parameters, outs = _results(dot.accumulator, count)
    sums = PTX_SUMS[dot.accumulator]
    shape = f"m{dot.m}n{dot.n}k{dot.k}.{sums}.{PTX[dot.a]}.{PTX[dot.b]}"
    places = "{" + ", ".join(f"%{n}" for n in range(count)) + "}"
    # Only factors of 16 bits may be turned, and only theirs say so; integers have no signs to flip.
    sides = "".join(f", {int(side in turned)}" for side in "ab") if dot.a.size == 2 else ""
    sides = ", 1, 1" + sides if dot.accumulator.is_float else ""
    code = f"wgmma.mma_async.sync.aligned.{shape} {places}, %{count}, %{count + 1}, 1{sides};"
    return (
        f"__device__ inline void {function_of(dot, turned)}({parameters}, unsigned long long a, "
        f'unsigned long long b) {{ asm volatile("{code}" : {outs} : "l"(a), "l"(b)); }}'
    )


def _results(dtype: DType, count: int) -> tuple[str, str]:
    """So many results of a lane as the parameters of a function, and as what its assembly reads and
    writes.
    """
    names = [f"c{n}" for n in range(count)]
    parameters = (f"{CPP[dtype]} &{name}" for name in names)
    outs = (f'"+{CONSTRAINTS[dtype]}"({name})' for name in names)
    return ", ".join(parameters), ", ".join(outs)


def holder_of(count: int) -> str:
    """The function that holds so many results."""
    return f"hold_{count}"


def holder(dtype: DType, count: int) -> str:
    """The function that has so many results in registers where it stands. The assembler may else
    clear them between the first products, of which then each waits for the one before; or take them
    for read before they are awaited.
    """
    parameters, outs = _results(dtype, count)
    return (
        f'__device__ inline void {holder_of(count)}({parameters}) {{ asm volatile("" : {outs}); }}'
    )


def describer_of(swizzle: Swizzle) -> str:
    """The function that describes a factor which lies in this swizzle."""
    return f"describe_{swizzle.width}"


def describer(swizzle: Swizzle) -> str:
    """The function from the place of a factor in shared memory, and how many bytes its tiles lie
    apart, to its descriptor.
    """
    return descriptor(describer_of(swizzle), swizzle, f"{swizzle.code}ull << 62")


def descriptor(name: str, swizzle: Swizzle, code: str) -> str:
    """The function of this name that describes a factor: where it is, how far apart its tiles and
    its groups of eight lines are, and the `code` of its swizzle. wgmma and tcgen05 differ in that.
    """
    rest = f"{swizzle.alignment >> 4}ull << 32 | {code}"
    return (
        f"__device__ inline unsigned long long {name}(const void *factor, unsigned apart) "
        "{ return (unsigned long long)__cvta_generic_to_shared(factor) >> 4 & 0x3fff "
        f"| (unsigned long long)(apart >> 4) << 16 | {rest}; }}"
    )


def batches() -> list[str]:
    """The functions that begin a batch of products, end it, and await all but the last ones; and
    the one by which each lane shows what it has written to the products of all of them.
    """
    codes = {
        BEGIN: "wgmma.fence.sync.aligned;",
        COMMIT: "wgmma.commit_group.sync.aligned;",
        PUBLISH: "fence.proxy.async.shared::cta;",
    }
    plain = [
        f'__device__ inline void {name}() {{ asm volatile("{code}" ::: "memory"); }}'
        for name, code in codes.items()
    ]
    waiting = (
        f"template <int N> __device__ inline void {AWAIT}() "
        '{ asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }'
    )
    return [*plain, waiting]
