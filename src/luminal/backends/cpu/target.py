"""Facts of the CPU this process runs on, and how to pretend that it has less."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from luminal.backends.cpu import libraries
from luminal.backends.cpu.host import host as host_facts
from luminal.backends.cpu.hwcaps import SVE_BITS
from luminal.backends.cpu.team_systems import require
from luminal.base import config
from luminal.base.dots import (
    BF16_BLOCKS,
    BF16_PAIRS,
    INT8_BLOCKS,
    INT8_FOURS,
    UINT8_BLOCKS,
    UINT8_BY_INT8,
    UINT8_FOURS,
    Dot,
)
from luminal.base.errors import CompileError
from luminal.base.host import cache_bytes, core_ids
from luminal.base.records import dataclass
from luminal.schedule.vectors.vector_target import VectorTarget

# Stand-ins where the system says nothing: small, so that tiles still fit.
DEFAULT_CACHE_BYTES = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTarget(VectorTarget):
    """A CPU, with what LLVM needs to know of it (`LlvmTarget`)."""

    triple: str
    cpu: str
    features: tuple[str, ...]
    llvm_features: str
    fma: bool


@dataclass(frozen=True, slots=True)
class Level:
    """A published feature level: LLVM's CPU name and what it needs of the host."""

    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    registers: int
    llvm_features: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """An instruction set: its levels from the highest on, the dots that a feature brings, the
    feature that has fused multiply-adds, whether a factor of these may be in memory, and whether
    stores have to say that they pass the caches by.
    """

    levels: Mapping[str, Level]
    dots: tuple[tuple[Dot, str], ...]
    fma: str
    multiplies_memory: bool
    stores_past_caches: bool


_AVX2 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_AVX512 = ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
X86_64 = Machine(
    {
        "avx512": Level("x86-64-v4", _AVX2 + _AVX512, 512, 32),
        "avx2": Level("x86-64-v3", _AVX2, 256, 16),
        "baseline": Level("x86-64", (), 128, 16),
    },
    ((BF16_PAIRS, "avx512bf16"), (INT8_FOURS, "avx2"), (UINT8_BY_INT8, "avx2")),
    "fma",
    multiplies_memory=True,
    stores_past_caches=True,
)


def _arm(vector_bits: int, *features: str) -> Level:
    """A level of AArch64, whose CPU is LLVM's plain one with features."""
    return Level("generic", features, vector_bits, 32, ",".join(f"+{name}" for name in features))


_V8_2 = ("fp-armv8", "neon", "lse", "rdm", "fullfp16", "dotprod")
_V8_6 = (*_V8_2, "bf16", "i8mm")
AARCH64 = Machine(
    {
        "sve256": _arm(SVE_BITS, *_V8_6, "sve"),
        "v8.6": _arm(128, *_V8_6),
        "v8.2": _arm(128, *_V8_2),
        "neon": _arm(128, "fp-armv8", "neon"),
    },
    (
        (BF16_BLOCKS, "bf16"),
        (INT8_BLOCKS, "i8mm"),
        (UINT8_BLOCKS, "i8mm"),
        (BF16_PAIRS, "bf16"),
        (INT8_FOURS, "dotprod"),
        (UINT8_FOURS, "dotprod"),
        (UINT8_BY_INT8, "i8mm"),
    ),
    "neon",
    multiplies_memory=False,
    # Its cores see a stream of stores by themselves. LLVM's `stnp` of one vector of 128 bits is a
    # move and halves.
    stores_past_caches=False,
)
MACHINES = {"x86_64": X86_64, "aarch64": AARCH64, "arm64": AARCH64}
"""By the first part of LLVM's triple; Apple has a name of its own."""
BASELINE = "baseline"
"""The lowest level of every machine."""


def current() -> CpuTarget:
    """The target to compile for: this machine, capped by LUMINAL_TARGET."""
    return cap(detect(), config.get("LUMINAL_TARGET"))


@functools.cache
def detect() -> CpuTarget:
    """The facts of this machine, all it has.

    Raises CompileError where it is none of ours.
    """
    # The level whose features the machine has decides vector width and registers: equal levels so
    # make equal programs, whatever else the processor can do.
    host = host_facts()
    machine = machine_of(host.triple)
    require(host.triple)
    features = tuple(sorted(name for name, present in host.features.items() if present))
    # From the highest on; the last asks for nothing that any machine lacks, so there always is one.
    level = next(row for row in machine.levels.values() if set(row.features) <= set(features))
    return CpuTarget(
        name="native",
        triple=host.triple,
        cpu=host.cpu,
        features=features,
        llvm_features=",".join(
            ("+" if present else "-") + name for name, present in sorted(host.features.items())
        ),
        vector_bits=level.vector_bits,
        registers=level.registers,
        fma=machine.fma in features,
        multiplies_memory=machine.multiplies_memory,
        stores_past_caches=machine.stores_past_caches,
        dots=dots_of(machine, features),
        cores=len(core_ids()),
        l1_bytes=_cache_bytes(1),
        l2_bytes=_cache_bytes(2),
        l3_bytes=_cache_bytes(3),
        libraries=libraries.installed(),
    )


def machine_of(triple: str) -> Machine:
    """The instruction set of a triple. Raises CompileError where there is no backend for it."""
    machine = MACHINES.get(triple.split("-")[0])
    if machine is None:
        raise CompileError(
            f"cpu backend: {triple}: only x86-64 and AArch64 are supported; use backend='reference'"
        )
    return machine


@functools.cache
def cap(target: CpuTarget, name: str) -> CpuTarget:
    """The target reduced to a level of its machine: "avx512", "avx2", "baseline"; on AArch64
    "sve256", "v8.6", "v8.2", "neon", where "baseline" is the last. "native" keeps it.

    A capped target is the same on every machine but for its cores and caches, so code for older
    CPUs can be tested on newer ones. Raises CompileError where the target lacks the level.
    """
    if name == "native":
        return target
    machine = machine_of(target.triple)
    if name == BASELINE:
        name = [*machine.levels][-1]
    if name not in machine.levels:
        names = ", ".join(dict.fromkeys(("native", *machine.levels, BASELINE)))
        raise CompileError(f"target {name!r}: on this machine LUMINAL_TARGET takes {names}")
    level = machine.levels[name]
    missing = sorted(set(level.features) - set(target.features))
    if missing:
        # Code for SVE is made for one width: a machine of another one has none that could be used.
        lacks = ", ".join(missing).replace("sve", f"sve of {SVE_BITS} bits")
        raise CompileError(
            f"target {name!r}: this CPU ({target.cpu}) lacks {lacks}; "
            "choose a lower level or native"
        )
    return replace(
        target,
        name=name,
        cpu=level.cpu,
        features=level.features,
        llvm_features=level.llvm_features,
        vector_bits=level.vector_bits,
        registers=level.registers,
        fma=machine.fma in level.features,
        dots=dots_of(machine, level.features),
        # Those of this machine are not those of the next one, and capped targets are to be alike.
        libraries=(),
    )


def dots_of(machine: Machine, features: Sequence[str]) -> tuple[Dot, ...]:
    return tuple(dot for dot, feature in machine.dots if feature in features)


def _cache_bytes(level: int) -> int:
    return cache_bytes(level) or DEFAULT_CACHE_BYTES[level]
