"""The Metal Shading Language, from version 3.2 on."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from luminal.base.dots import SIMDGROUP, Dot
from luminal.base.dtypes import DType
from luminal.codegen.c_family import matrices
from luminal.codegen.c_family.dialect import INTEGERS, KERNEL, Dialect
from luminal.expand.ir import Type

TYPES = {
    "bool": "bool", "i8": "char", "u8": "uchar", "i16": "short", "u16": "ushort", "i32": "int",
    "u32": "uint", "i64": "long", "u64": "ulong", "f32": "float",
}  # fmt: skip
SUFFIXES = {"u32": "u", "i64": "l", "u64": "ul", "f32": "f"}
HEAD = """#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;"""


ALONE = {"position": "thread_position_in_grid", "positions": "threads_per_grid"}
GROUPS = {"group": "threadgroup_position_in_grid", "groups": "threadgroups_per_grid"}
LANE = {"lane": "thread_position_in_threadgroup"}
ROWS = {
    "row": "simdgroup_index_in_threadgroup",
    "row_lanes": "threads_per_simdgroup",
    "row_lane": "thread_index_in_simdgroup",
}
"""Parameters that say which worker this is: without groups, and by groups, whose lanes are numbered
or found in their rows.
"""


class MetalC(Dialect):
    """The dialect of Metal.

    Apple's GPUs may take denormals for zero; no option keeps them.
    """

    name = "Metal"
    types = TYPES
    suffixes = SUFFIXES
    space = "device "
    inline = "inline"
    worker = "position"
    workers = "positions"
    shared_space = "threadgroup "
    group = "group"
    groups = "groups"
    lane = "lane"
    in_shared = "threadgroup "
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);"
    lane_in_rows = "row * row_lanes + row_lane"
    exchanged = "simd_shuffle_xor({value}, {distance})"

    def head(self, dtypes: AbstractSet[DType]) -> str:
        return HEAD

    def signature(
        self, pointers: Sequence[str], has_integers: bool, lanes: int, subgroup: int
    ) -> str:
        memory = [f"device uchar *{name} [[buffer({n})]]" for n, name in enumerate(pointers)]
        if has_integers:
            memory.append(f"constant long *{INTEGERS} [[buffer({len(pointers)})]]")
        size = f"[[max_total_threads_per_threadgroup({lanes})]] " if lanes > 1 else ""
        numbers = {**GROUPS, **(ROWS if subgroup > 1 else LANE)} if lanes > 1 else ALONE
        place = [f"uint {name} [[{attribute}]]" for name, attribute in numbers.items()]
        return f"{size}kernel void {KERNEL}({', '.join([*memory, *place])})"

    def exchange(self, dtype: DType, value: str, distance: int) -> str:
        if dtype.size < 8:
            return super().exchange(dtype, value, distance)
        words = super().exchange(dtype, f"as_type<int2>({value})", distance)  # no 64 bits at once
        return self.bitcast(dtype, words)

    # Vectors have four elements at most, and structs do not leave the memory they are in. So eight
    # and sixteen are held in words of 32 bits.
    def vector(self, type_: Type) -> str:
        name, count = self.types[type_.dtype.short], type_.lanes
        return f"{name}{count}" if count <= 4 else f"uint{count * type_.dtype.size // 4}"

    def vectors(self, types: Sequence[Type]) -> list[str]:
        return []

    def part(self, vector: str, type_: Type, number: int) -> str:
        if type_.lanes <= 4:
            return f"{vector}.{'xyzw'[number]}"
        word, place = divmod(number, 4 // type_.dtype.size)
        bits = f"{vector}.{'xyzw'[word]} >> {place * type_.dtype.bits}"
        return f"({self.types[type_.dtype.short]})({bits})"

    def joined(self, type_: Type, parts: Sequence[str]) -> str:
        if type_.lanes > 4 and parts:
            in_word, bits = 4 // type_.dtype.size, type_.dtype.bits
            unsigned = self.types[f"u{bits}"]
            shifted = [
                f"(uint)({unsigned}){x} << {k % in_word * bits}" for k, x in enumerate(parts)
            ]
            parts = [" | ".join(shifted[k : k + in_word]) for k in range(0, len(parts), in_word)]
        return super().joined(type_, parts)

    def multiply(self, dot: Dot) -> str:
        return matrices.simdgroup(dot) if dot in SIMDGROUP else super().multiply(dot)

    def bitcast(self, dtype: DType, value: str) -> str:
        return f"as_type<{self.types[dtype.short]}>({value})"


METAL = MetalC()
