"""Products of warp groups (wgmma, sm_90a) as functions in the text of a kernel that uses them.

Four warps multiply factors that lie in shared memory, each said by a descriptor; the first one may
be in their registers. The product runs on while the lanes do other things: a batch of products
begins with a fence and ends with a commit, and the results are there when it has been awaited.
"""

from __future__ import annotations

from luminal.base.dots import Dot
from luminal.base.dtypes import DType, float32, int32
from luminal.base.records import dataclass
from luminal.base.swizzles import Swizzle
from luminal.codegen.c_family.matrices import CONSTRAINTS, CPP, PTX, PTX_SUMS, constrained, name_of

BEGIN, COMMIT, AWAIT = "begin_products", "commit_products", "await_products"
PUBLISH = "publish_copies"
HOLD = "hold"
TURNED = "_turned_"
STARTS, HELD = "_starts", "_held"


@dataclass(frozen=True, slots=True)
class Form:
    """A product by a dot as a function: `turned` names the factors, of "a" and "b", whose
    neighbours in memory are rows or columns and not steps of the sum; `held`: the first one is in
    registers; `starts`: nothing has been added up before.
    """

    dot: Dot
    turned: str = ""
    held: bool = False
    starts: bool = False

    @property
    def name(self) -> str:
        """The name of the function."""
        turned = TURNED + self.turned if self.turned else ""
        return name_of(self.dot) + HELD * self.held + STARTS * self.starts + turned


def wgmma(form: Form) -> str:
    """The function of a product: it takes the results by reference, then the first factor's
    registers or descriptor, and the second one's descriptor. What it adds to the results is there
    once it has been awaited.
    """
    dot, count = form.dot, form.dot.fragment("c").elements
    parameters, outs = _results(dot.accumulator, count, "=&" if form.starts else "+")
    names = [f"a{n}" for n in range(dot.fragment("a").elements)] if form.held else []
    firsts = [f"{CPP.get(dot.a, 'unsigned')} {name}" for name in names] or ["unsigned long long a"]
    ins = constrained(dot.a, names) or ['"l"(a)']
    sums = PTX_SUMS[dot.accumulator]
    shape = f"m{dot.m}n{dot.n}k{dot.k}.{sums}.{PTX[dot.a]}.{PTX[dot.b]}"
    first = _places(count, len(names)) if form.held else f"%{count}"
    # Only factors of 16 bits may be turned, and only theirs say so; integers have no signs to flip.
    sides = "b" if form.held else "ab"
    ends = "".join(f", {int(side in form.turned)}" for side in sides) if dot.a.size == 2 else ""
    ends = ", 1, 1" + ends if dot.accumulator.is_float else ""
    factors = f"{first}, %{count + len(ins)}, {int(not form.starts)}{ends}"
    code = f"wgmma.mma_async.sync.aligned.{shape} {_places(0, count)}, {factors};"
    return (
        f"__device__ inline void {form.name}({parameters}, {', '.join(firsts)}, unsigned long long "
        f'b) {{ asm volatile("{code}" : {outs} : {", ".join(ins)}, "l"(b)); }}'
    )


def _places(first: int, count: int) -> str:
    """So many operands of a statement of assembly."""
    return "{" + ", ".join(f"%{n}" for n in range(first, first + count)) + "}"


def _results(dtype: DType, count: int, sign: str = "+") -> tuple[str, str]:
    """So many results of a lane as the parameters of a function, and as what its assembly reads and
    writes, or, of the sign "=&", writes only.
    """
    names = [f"c{n}" for n in range(count)]
    parameters = (f"{CPP[dtype]} &{name}" for name in names)
    outs = (f'"{sign}{CONSTRAINTS[dtype]}"({name})' for name in names)
    return ", ".join(parameters), ", ".join(outs)


def holders() -> list[str]:
    """The function that has sums, or words of a first factor, in registers where it stands. The
    assembler may else compute them between the first products, of which then each waits for the one
    before; or take them for read before they are awaited.
    """
    one = f"__device__ inline void {HOLD}_one"
    sums = (
        f'{one}({CPP[dtype]} &c) {{ asm volatile("" : "+{CONSTRAINTS[dtype]}"(c)); }}'
        for dtype in (float32, int32)
    )
    words = (
        f'{one}(const {word} &a) {{ asm volatile("" :: "{constraint}"(a)); }}'
        for word, constraint in (("unsigned", "r"), ("float", "f"))
    )
    every = f"__device__ inline void {HOLD}(C &...c) {{ ({HOLD}_one(c), ...); }}"
    return [*sums, *words, f"template <class... C> {every}"]


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
