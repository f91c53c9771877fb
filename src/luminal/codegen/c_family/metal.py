"""The Metal Shading Language, from version 3.2 on."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from luminal.base.dtypes import DType
from luminal.codegen.c_family.dialect import INTEGERS, KERNEL, Dialect

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

    def bitcast(self, dtype: DType, value: str) -> str:
        return f"as_type<{self.types[dtype.short]}>({value})"


METAL = MetalC()
