"""Every kernel of the op table compiles for systems that are not here, and our linker places it."""

from __future__ import annotations

import pytest

from luminal.backends.cpu import linker, machine_code
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.hlir.graph import Graph
from tests.backends import op_table
from tests.backends.cpu import cross
from tests.backends.cpu.cross import LEVELS, target_of

ELF, MACH_O, COFF = b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\x64\x86"
OWN_FORMATS = {
    "arm64-apple-macosx": MACH_O,
    "x86_64-apple-macosx": MACH_O,
    "aarch64-linux-gnu": ELF,
    "x86_64-pc-windows-msvc": COFF,
}
# All that kernels may call: what the math libraries of all systems have.
FOREIGN = {name: 8 for stem in ("sin", "cos", "fmod") for name in (stem, stem + "f")}
TRIPLES = pytest.mark.parametrize("triple", LEVELS)


def table_of(group: op_table.Group, dtype: DType) -> Graph:
    table = op_table.Table()
    group(table, dtype)
    return Graph(tuple(table.outputs))


def check(triple: str, dtype: DType, group: op_table.Group) -> int:
    """Compiles and links all kernels of a group; how many."""
    count = 0
    for code in cross.objects(table_of(group, dtype), target_of(triple)):
        linker.link(code, (linker.KERNEL,), FOREIGN)
        count += 1
    return count


@TRIPLES
def test_a_sample_of_the_op_table(triple: str) -> None:
    assert check(triple, dtypes.bfloat16, op_table.loops) > 1
    assert check(triple, dtypes.float32, op_table.leaves) > 1


@pytest.mark.long
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@TRIPLES
def test_the_op_table(triple: str, dtype: DType) -> None:
    for group in op_table.GROUPS:
        if op_table.takes(group, dtype):
            assert check(triple, dtype, group) > 1


ROOM = """
declare void @fill(ptr, i64)
define double @kernel(i64 %low, i64 %high, double %x) {
  %room = alloca [9000 x i8], align 16
  call void @fill(ptr %room, i64 %high)
  %last.at = getelementptr i8, ptr %room, i64 %low
  %last = load double, ptr %last.at
  %sum = fadd double %last, %x
  ret double %sum
}
"""
# By triple: whether a large stack is touched page by page, how an argument is taken, whether x18
# is the system's own.
CALLS = {
    "arm64-apple-macosx": (False, "mov\tx19, x0", True),
    "x86_64-apple-macosx": (False, "movq\t%rdi, ", None),
    "aarch64-linux-gnu": (False, "mov\tx19, x0", False),
    "x86_64-pc-windows-msvc": (True, "%xmm2, %xmm6", None),
}


@TRIPLES
def test_object_files_are_elf_and_calls_the_systems_own(triple: str) -> None:
    elf = target_of(triple)
    code = machine_code.compile_object(ROOM, elf)
    assert code.startswith(ELF)
    assert machine_code.elf_triple(elf.triple) == elf.triple
    own = machine_code.compile_object(ROOM, cross.as_the_system_has_it(elf))
    assert own.startswith(OWN_FORMATS[triple])
    probes, argument, reserves = CALLS[triple]
    assembly = machine_code.assembly(ROOM, elf)
    assert ("__chkstk" in assembly) == probes
    assert argument in assembly
    linker.link(code, (linker.KERNEL,), {"fill": 8, "__chkstk": 8})
    if reserves is not None:
        assert ("x18" not in machine_code.assembly(pressing(), elf)) == reserves


def pressing() -> str:
    """A function with more numbers alive at once than a processor has registers."""
    loads = "".join(
        f"  %p{k} = getelementptr i64, ptr %p, i64 {7 * k}\n"
        f"  %x{k} = load volatile i64, ptr %p{k}\n"
        for k in range(40)
    )
    stores = "".join(f"  store volatile i64 %x{k}, ptr %p{39 - k}\n" for k in range(40))
    return f"define void @kernel(ptr %p) {{\n{loads}{stores}  ret void\n}}\n"
