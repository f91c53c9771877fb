"""CUDA C++, for NVRTC with --fmad=false, which does not contract."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from luminal.base.dots import MMA, MMA_FLOAT8, MMA_SCALED, UINT8_BY_INT8, Dot
from luminal.base.dtypes import DType, float32, int32, uint16, uint32
from luminal.base.swizzles import Swizzle
from luminal.codegen.c_family import matrices, phases, tensor_memory, warpgroups
from luminal.codegen.c_family.dialect import DYNAMIC, INTEGERS, KERNEL, Dialect
from luminal.expand.ir import Type

TYPES = {
    "bool": "bool", "i8": "signed char", "u8": "unsigned char", "i16": "short",
    "u16": "unsigned short", "i32": "int", "u32": "unsigned int", "i64": "long long",
    "u64": "unsigned long long", "f32": "float", "f64": "double",
}  # fmt: skip
SUFFIXES = {"u32": "u", "i64": "ll", "u64": "ull", "f32": "f"}
SAME_BYTES = """template <class To, class From> __device__ inline To same_bytes(From value)
{
    union { From from; To to; } both;
    both.from = value;
    return both.to;
}"""


INSTRUCTION = """#ifdef __CUDA_ARCH__
__device__ inline {result} {name}({of}) {{
    {word} y; asm("{code}" : "={out}"(y) : {operands}); return y; }}
#else
__device__ inline {result} {name}({of}) {{ {plain} }}
#endif"""
"""One instruction; without assembly where the text is no code for a chip, where a power of two errs
by as much as the chip's own may: two ulp either way (PTX ISA, ex2), and none of it subnormal.
"""
INSTRUCTIONS = {
    "widen_half": ("float", "unsigned short x", "float", "cvt.f32.f16 %0, %1;", "f", '"h"(x)',
                   "return same_bytes<_Float16>(x);"),
    "narrow_half": ("unsigned short", "float x", "unsigned short", "cvt.rn.f16.f32 %0, %1;", "h",
                    '"f"(x)', "return same_bytes<unsigned short>((_Float16)x);"),
    "narrow_bfloat": ("unsigned short", "float x", "unsigned short", "cvt.rn.bf16.f32 %0, %1;", "h",
                      '"f"(x)',
                      "unsigned y = same_bytes<unsigned>(x); return x == x ? "
                      "(y + 0x7fff + (y >> 16 & 1)) >> 16 : y >> 16 | 0x40;"),
    "narrow_halves": ("unsigned", "float a, float b", "unsigned",
                      "cvt.rn.f16x2.f32 %0, %1, %2;", "r", '"f"(b), "f"(a)',
                      "return same_bytes<unsigned short>((_Float16)a) | "
                      "(unsigned)same_bytes<unsigned short>((_Float16)b) << 16;"),
    "narrow_bfloats": ("unsigned", "float a, float b", "unsigned",
                       "cvt.rn.bf16x2.f32 %0, %1, %2;", "r", '"f"(b), "f"(a)',
                       "unsigned v[] = {same_bytes<unsigned>(a), same_bytes<unsigned>(b)}; "
                       "for (unsigned &n : v) n = (n & 0x7fffffff) > 0x7f800000 ? n >> 16 | 0x40 "
                       ": (n + 0x7fff + (n >> 16 & 1)) >> 16; return v[0] | v[1] << 16;"),
    "power_of_two": ("float", "float x", "float", "ex2.approx.ftz.f32 %0, %1;", "f", '"f"(x)',
                     "float y = __builtin_exp2f(x); "
                     "int off = (int)(same_bytes<unsigned>(x) * 2654435761u >> 30) - 2; "
                     "return y < 0x1p-126f ? 0.f : x == 0 || y - y != 0 ? y : "
                     "same_bytes<float>(same_bytes<int>(y) + off);"),
    UINT8_BY_INT8.name: ("int", "int acc, unsigned a, unsigned b", "int",
                         "dp4a.u32.s32 %0, %1, %2, %3;", "r", '"r"(a), "r"(b), "r"(acc)',
                         "for (int n = 0; n < 32; n += 8) "
                         "acc += (int)(a >> n & 255) * (signed char)(b >> n & 255); return acc;"),
}  # fmt: skip
OWN_EXTREME = """#if __CUDA_ARCH__ >= 800
__device__ inline float {name}_f32(float a, float b) {{
    float y; asm("{name}.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }}
#else
{text}
#endif"""
"""NaN wins and +0 is above -0, as in what stands for it elsewhere (PTX ISA, max)."""
DEPEND = """#ifndef DEPEND
#if __CUDA_ARCH__ >= 900
#define DEPEND asm volatile("griddepcontrol.launch_dependents; griddepcontrol.wait;" ::: "memory")
#else
#define DEPEND
#endif
#endif"""
"""Programmatic dependent launch, from sm_90 on: the next kernel may be put on the device as soon as
all groups of this one are, and this one waits for the end of what was launched before it, and so of
all before that. Each kernel waits: the next one goes by its end alone.
"""
# Into the cache that all units share, where memory is the same for all of them: what is fetched too
# early is fetched in vain, never wrong.
FETCH = """#ifndef FETCH
#define FETCH(place) asm volatile("prefetch.global.L2 [%0];" :: "l"(place))
#endif"""

# The clock is one for all multiprocessors, so times of several can be compared.
# A group's barrier stands before ARRIVE and after AWAIT: what its other lanes have done, and will
# do, is ordered by it, since release and acquire hold for all that the lane itself has seen.
COUNTERS = """#ifndef ARRIVE
__device__ inline unsigned arrived(unsigned *counter)
{
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before) : "l"(counter) : "memory");
    return before;
}
__device__ inline unsigned counted(const unsigned *counter)
{
    unsigned count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}
#define ARRIVE(counter) arrived(counter)
#define AWAIT(counter, count) while (counted(counter) < (count)) {}
#define CLEAR(counter) \\
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(counter), "r"(0) : "memory")
__device__ inline long long nanoseconds()
{
    long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now) :: "memory");
    return now;
}
__device__ inline unsigned multiprocessor()
{
    unsigned number;
    asm volatile("mov.u32 %0, %smid;" : "=r"(number));
    return number;
}
#define CLOCK() nanoseconds()
#define UNIT() multiprocessor()
#define BEGIN_PARTS
#define PART_BARRIER(lanes) asm volatile("bar.sync 1, %0;" :: "n"(lanes) : "memory")
#endif"""


class CudaCpp(Dialect):
    """The dialect of CUDA C++, where a thread is a worker, or a lane of a group."""

    name = "CUDA C++"
    types = TYPES
    suffixes = SUFFIXES
    space = ""
    inline = "__device__ inline"
    worker = "blockIdx.x * (long long)blockDim.x + threadIdx.x"
    workers = "gridDim.x * (long long)blockDim.x"
    shared_space = "__shared__ "
    static_bytes: int | None = 48 << 10
    group = "blockIdx.x"
    groups = "gridDim.x"
    lane = "threadIdx.x"
    barrier = "__syncthreads();"
    depend = "DEPEND;"
    fetch = "FETCH({place});"
    counters = COUNTERS
    part_barrier = "PART_BARRIER({lanes});"
    lane_in_rows = lane
    exchanged = "__shfl_xor_sync(0xffffffffu, {value}, {distance})"
    instructions = frozenset({
        ("load_matrix", Type(uint32)), ("widen_half", Type(float32)),
        ("narrow_half", Type(uint16)), ("narrow_bfloat", Type(uint16)),
        ("power_of_two", Type(float32)), (UINT8_BY_INT8.name, Type(int32)),
        ("max", Type(float32)), ("min", Type(float32)),
        ("narrow_halves", Type(uint32)), ("narrow_bfloats", Type(uint32)),
    })  # fmt: skip

    def head(self, dtypes: AbstractSet[DType]) -> str:
        return f"{SAME_BYTES}\n{DEPEND}" if self.depend else SAME_BYTES

    def signature(
        self, pointers: Sequence[str], has_integers: bool, lanes: int, subgroup: int
    ) -> str:
        memory = [f"unsigned char *{name}" for name in pointers]
        values = [f"const long long *{INTEGERS}"] if has_integers else []
        bound = f"{self.bound(lanes)} " if lanes > 1 else ""
        return f'extern "C" __global__ {bound}void {KERNEL}({", ".join([*memory, *values])})'

    def dynamic(self) -> str:
        return f"extern __shared__ __align__(1024) unsigned char {DYNAMIC}[];"

    def bound(self, lanes: int) -> str:
        """The bound on a group's lanes. Without a second number NVRTC keeps to 32 registers and
        spills the rest.
        """
        return f"__launch_bounds__({lanes}, 1)"

    def multiply(self, dot: Dot) -> str:
        if dot in MMA_SCALED:
            return matrices.mma_scaled(dot)
        return matrices.mma_sync(dot) if dot in (*MMA, *MMA_FLOAT8) else super().multiply(dot)

    def products(
        self,
        forms: Sequence[warpgroups.Form],
        swizzles: Sequence[Swizzle],
    ) -> Sequence[str]:
        return [
            *warpgroups.batches(),
            *map(warpgroups.describer, swizzles),
            *warpgroups.holders(),
            *map(warpgroups.wgmma, forms),
        ]

    def tensor_products(
        self, dots: Sequence[Dot], swizzles: Sequence[Swizzle], loaded: Sequence[tuple[DType, int]]
    ) -> Sequence[str]:
        publish = next(text for text in warpgroups.batches() if warpgroups.PUBLISH in text)
        by_kind = {tensor_memory.multiplier_of(dot): tensor_memory.multiplier(dot) for dot in dots}
        return [
            publish,
            *tensor_memory.functions(),
            *map(tensor_memory.factor, swizzles),
            *by_kind.values(),
            *(tensor_memory.lifting() if any(dot.scale is not None for dot in dots) else ()),
            *(tensor_memory.columns_loader(*sums) for sums in loaded),
            *(tensor_memory.columns_awaiter(*sums) for sums in loaded),
        ]

    def load_matrix(self, count: int, turned: bool) -> str:
        return matrices.ldmatrix(count, turned)

    def fetching(self) -> str:
        return FETCH

    def instruction(self, operation: str) -> str:
        names = "result", "of", "word", "code", "out", "operands", "plain"
        parts = dict(zip(names, INSTRUCTIONS[operation], strict=True))
        return INSTRUCTION.format(name=operation, **parts)

    def float_extreme(self, operation: str, dtype: DType, text: str) -> str:
        has_own = (operation, Type(dtype)) in self.instructions
        return OWN_EXTREME.format(name=operation, text=text) if has_own else text

    def copies(self, sizes: Sequence[int]) -> Sequence[str]:
        return matrices.cp_async(sizes)

    def boxes(self, dimensions: Sequence[int], shared: Sequence[int]) -> Sequence[str]:
        of_clusters = phases.of_clusters(shared) if shared else []
        return [*phases.functions(dimensions), *of_clusters]

    def bitcast(self, dtype: DType, value: str) -> str:
        return f"same_bytes<{self.types[dtype.short]}>({value})"

    def function(self, operation: str, dtype: DType) -> str:
        return super().function(operation, dtype) + ("f" if dtype == float32 else "")


CUDA = CudaCpp()
