"""Machines that are like none here: what is compiled for them is the same everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from luminal.backends.cpu import backend
from luminal.backends.cpu.backend import Cpu
from luminal.backends.cpu.target import MACHINES, CpuTarget, cap, machine_of


def vectors(bits: int, registers: int) -> Cpu:
    """Two cores with registers of so many bits, and usual caches."""
    target = CpuTarget(
        name="test",
        vector_bits=bits,
        registers=registers,
        dots=(),
        cores=2,
        l1_bytes=32 << 10,
        l2_bytes=1 << 20,
        l3_bytes=16 << 20,
        triple="",
        cpu="",
        features=(),
        llvm_features="",
        fma=True,
    )
    return Cpu(target)


def usual() -> Cpu:
    """The instructions of this machine with two cores and usual caches: what is chosen by sizes."""
    found = backend.current().target
    return Cpu(replace(found, cores=2, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=16 << 20))


def level(name: str) -> Cpu:
    """A level of x86-64 or AArch64 as it is on Linux, with two cores and usual caches: what is
    compiled for it can be read on any machine.
    """
    architecture, machine = next(pair for pair in MACHINES.items() if name in pair[1].levels)
    has_all = replace(
        vectors(128, 1).target,
        triple=f"{architecture}-unknown-linux-gnu",
        cpu="any",
        multiplies_memory=machine.multiplies_memory,
        stores_past_caches=machine.stores_past_caches,
        features=tuple({feature for row in machine.levels.values() for feature in row.features}),
    )
    return Cpu(cap(has_all, name))


LEVELS = (*machine_of(backend.current().target.triple).levels,)
"""The levels of this machine's instruction set, from the highest on."""
NARROWER = LEVELS[-2]
"""The level above the lowest one: AVX2, or AArch64 of 2016."""

needs_wide = pytest.mark.skipif(
    backend.current().target.vector_bits < 512,
    reason="asks what is chosen for registers of 512 bits",
)
COSTS = vectors(512, 32).costs
"""Of one whose registers hold 16 floats."""
