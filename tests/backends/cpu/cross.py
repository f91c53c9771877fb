"""Targets of systems that are not here, and the object files of kernels for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from luminal.backends.cpu import kernels, machine_code
from luminal.backends.cpu.backend import Cpu
from luminal.backends.cpu.target import CpuTarget
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from tests.machines import level

LEVELS = {
    "arm64-apple-macosx": "v8.6",
    "x86_64-apple-macosx": "avx2",
    "aarch64-linux-gnu": "v8.2",
    "x86_64-pc-windows-msvc": "avx512",
}
"""By triple: a level that is usual there."""


@cache
def target_of(triple: str) -> CpuTarget:
    """Eight cores of that system at its usual level. Object files are ELF on all systems."""
    return replace(
        level(LEVELS[triple]).target,
        triple=machine_code.elf_triple(triple),
        cores=8,
        l1_bytes=64 << 10,
        l2_bytes=4 << 20,
    )


def objects(graph: Graph, where: CpuTarget) -> Iterator[bytes]:
    """The object file of each kernel of a graph's program, compiled anew."""
    for kernel in lower_to_program(graph, Cpu(where)).kernels:
        yield kernels.object_code(kernel, where)


def as_the_system_has_it(where: CpuTarget) -> CpuTarget:
    """The same target with object files of the system's own kind."""
    return replace(where, triple=where.triple.removesuffix(machine_code.ELF))
