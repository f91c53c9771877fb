"""The Metal Shading Language, from version 3.2 on."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from luminal.codegen.c_family.dialect import INTEGERS, KERNEL, Dialect
from luminal.dtypes import DType

TYPES = {
    "bool": "bool", "i8": "char", "u8": "uchar", "i16": "short", "u16": "ushort", "i32": "int",
    "u32": "uint", "i64": "long", "u64": "ulong", "f32": "float",
}  # fmt: skip
SUFFIXES = {"u32": "u", "i64": "l", "u64": "ul", "f32": "f"}
HEAD = """#include <metal_stdlib>
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
using namespace metal;"""


class MetalC(Dialect):
    """A kernel may have 31 parameters: its integers share one.

    Apple's GPUs may take denormals for zero; no option keeps them.
    """

    name = "Metal"
    types = TYPES
    suffixes = SUFFIXES
    space = "device "
    inline = "inline"
    worker = "position"
    workers = "positions"
    integers_in_memory = True

    def head(self, dtypes: AbstractSet[DType]) -> str:
        return HEAD

    def signature(self, pointers: Sequence[str], integers: Sequence[str]) -> str:
        memory = [f"device uchar *{name} [[buffer({n})]]" for n, name in enumerate(pointers)]
        values = f"constant long *{INTEGERS} [[buffer({len(pointers)})]]"
        position = "uint position [[thread_position_in_grid]]"
        positions = "uint positions [[threads_per_grid]]"
        return f"kernel void {KERNEL}({', '.join([*memory, values, position, positions])})"

    def bitcast(self, dtype: DType, value: str) -> str:
        return f"as_type<{self.types[dtype.short]}>({value})"


METAL = MetalC()
