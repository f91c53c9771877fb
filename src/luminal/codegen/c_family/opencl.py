"""OpenCL C, from version 1.2 on."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from luminal.base.dtypes import DType, float32, float64
from luminal.codegen.c_family.dialect import INTEGERS, KERNEL, Dialect
from luminal.expand.ir import Type

TYPES = {
    "bool": "bool", "i8": "char", "u8": "uchar", "i16": "short", "u16": "ushort", "i32": "int",
    "u32": "uint", "i64": "long", "u64": "ulong", "f32": "float", "f64": "double",
}  # fmt: skip
SUFFIXES = {"u32": "u", "i64": "l", "u64": "ul", "f32": "f"}

FMOD = """static inline {type} fmod_{dtype}(const {type} a, const {type} b)
{{
    const {type} rest = fmod(a, b);
    return fabs(rest) == fabs(b) ? copysign(0.0{suffix}, a) : rest;
}}"""
"""Intel's fmod gives x, not 0, for two denormals of one magnitude."""

EXTREME = """static __attribute__((noinline)) {type} {name}(const {type} a, const {type} b)
{{
    return a {order} b ? a : b;
}}"""
"""Intel's compiler breaks ~max(a, b) of integers, by a fault or in silence, where it sees both."""

MEET = """#ifdef __INTEL_LLVM_COMPILER
#define MEET barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); __asm__ volatile("" ::: "memory")
#else
#define MEET barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif"""
"""Intel's compiler for CPUs takes loads of local memory past barriers, and so gives what a value
was before others, or the lane itself, stored it: at times, in loops that it unrolls. What may
touch all memory keeps them in place and takes no instruction (`mem_fence` does, and made attention
12 times slower).
"""


class OpenClC(Dialect):
    """The dialect of OpenCL C. Memory comes as an object and a byte offset: the host knows no
    addresses in it.
    """

    name = "OpenCL C"
    types = TYPES
    suffixes = SUFFIXES
    # On Intel's implementation for CPUs, the only one at hand, norms and products lose 5 to 8% by
    # addresses of 32 bits, and softmax gains 5%.
    has_short_addresses = False
    space = "global "
    inline = "static inline"
    worker = "get_global_id(0)"
    workers = "get_global_size(0)"
    shared_space = "local "
    group = "get_group_id(0)"
    groups = "get_num_groups(0)"
    lane = "get_local_id(0)"
    in_shared = "local "
    barrier = "MEET;"
    lane_in_rows = "get_sub_group_id() * get_max_sub_group_size() + get_sub_group_local_id()"
    integers = f"((global const long *)({INTEGERS} + {INTEGERS}_offset))"
    exchanged = "sub_group_shuffle_xor({value}, {distance}u)"

    def head(self, dtypes: AbstractSet[DType]) -> str:
        lines = ["#pragma OPENCL FP_CONTRACT OFF", MEET]
        if float64 in dtypes:
            lines.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
        for dtype in (float32, float64):
            if dtype in dtypes:
                suffix = self.suffixes.get(dtype.short, "")
                name = self.types[dtype.short]
                lines.append(FMOD.format(type=name, dtype=dtype, suffix=suffix))
        return "\n".join(lines)

    def signature(
        self, pointers: Sequence[str], has_integers: bool, lanes: int, subgroup: int
    ) -> str:
        names = [*pointers, INTEGERS] if has_integers else pointers
        memory = [f"global uchar *{name}, const long {name}_offset" for name in names]
        size = f"__attribute__((reqd_work_group_size({lanes}, 1, 1))) " if lanes > 1 else ""
        if subgroup > 1:
            size += f"__attribute__((intel_reqd_sub_group_size({subgroup}))) "
        return f"kernel {size}void {KERNEL}({', '.join(memory)})"

    def function(self, operation: str, dtype: DType) -> str:
        return f"fmod_{dtype}" if operation == "fmod" else super().function(operation, dtype)

    def extremes(self, dtype: DType) -> str:
        return "\n".join(
            EXTREME.format(type=self.types[dtype.short], name=f"{name}_{dtype}", order=order)
            for name, order in (("max", ">"), ("min", "<"))
        )

    def extreme(self, operation: str, dtype: DType, a: str, b: str) -> str:
        return f"{operation}_{dtype}({a}, {b})"

    def vector(self, type_: Type) -> str:
        return f"{self.types[type_.dtype.short]}{type_.lanes}"

    def vectors(self, types: Sequence[Type]) -> list[str]:
        return []

    def part(self, vector: str, type_: Type, number: int) -> str:
        return f"{vector}.s{number:x}"

    def joined(self, type_: Type, parts: Sequence[str]) -> str:
        return f"({self.vector(type_)})({', '.join(parts or ['0'])})"

    def shared(self, element: str, name: str, size: int) -> str:
        return f"local {element} {name}[{size}] __attribute__((aligned(16)));"

    def base(self, pointer: str) -> str:
        return f"{pointer} + {pointer}_offset"

    def bitcast(self, dtype: DType, value: str) -> str:
        return f"as_{self.types[dtype.short]}({value})"


OPENCL = OpenClC()
