"""A Program's fixed arrays: weights, literals, and what the prologue derives from them.

Derived arrays are shared by all programs that derive the same, named by what makes them: kernel
texts, their parameters and, at the leaves, Parameters and literals. Two programs of one model
(prefill and decode) then pack each weight once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import numpy as np

from luminal import config, forks
from luminal.backends.cpu import team
from luminal.backends.cpu.launch_rows import CACHE_LINES, LaunchRows
from luminal.backends.cpu.poison import poison
from luminal.dtypes import uint8
from luminal.hlir.attributes import ConstantAttrs, WeightAttrs
from luminal.hlir.memory import Array, address, aligned_empty
from luminal.hlir.state import Parameter
from luminal.kernel.tile_ir import Role
from luminal.program import memory_plan
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import KernelLaunch, Launch, Program
from luminal.program.quantities import Quantities
from luminal.program.unroll import written_out
from luminal.runtime.report import KernelRow

Key = Hashable


class Derived:
    """One derived array and the versions of the Parameters it was made from."""

    __slots__ = ("__weakref__", "array", "versions")

    def __init__(self) -> None:
        self.array: Array | None = None
        self.versions: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Made:
    """What makes a buffer: a name for it, and the Parameters it depends on."""

    key: Key
    parameters: frozenset[Parameter]

    def versions(self) -> tuple[int, ...]:
        return tuple(p.version for p in sorted(self.parameters, key=lambda p: p.id))


_known: WeakValueDictionary[Key, Derived] = WeakValueDictionary()
_lock = forks.rlock()  # held while derived arrays are looked up or made


class Prologue:
    """The arrays of WEIGHT, CONSTANT and DERIVED buffers by id, in step with the Parameters."""

    def __init__(self, program: Program, texts: Sequence[str], functions: Sequence[int]) -> None:
        # Launch by launch, so that only what is stale runs, and programs share what they derive.
        program = replace(program, prologue=written_out(program.prologue))
        self._program = program
        self._functions = functions
        self._poisons = config.get("LUMINAL_POISON")
        self._weights = {
            b.id: b.owner.parameter for b in program.buffers if isinstance(b.owner, WeightAttrs)
        }
        self._parameters = tuple(dict.fromkeys(self._weights.values()))
        self._versions: list[int] | None = None
        self._newest: int | None = None  # version of any Parameter, when they were last compared
        self._made = _derivations(program, texts)
        self._derived: dict[int, Derived] = {}
        for buffer in program.buffers:
            if buffer.kind is BufferKind.DERIVED:
                self._derived[buffer.id] = _shared(self._made[buffer.id].key)
        self.arrays: dict[int, Array] = {
            b.id: _literal(b.owner) for b in program.buffers if isinstance(b.owner, ConstantAttrs)
        }
        self.addresses: dict[int, int] = {}  # of `arrays`
        self.stamp = 0  # counts their changes

    @property
    def nbytes(self) -> int:
        """Bytes of derived arrays."""
        return sum(d.array.nbytes for d in self._derived.values() if d.array is not None)

    def refresh(self) -> int:
        """Brings `arrays` up to date; the stamp tells whether they changed since it was seen."""
        newest = Parameter.newest
        if newest == self._newest:
            return self.stamp
        versions = [parameter.version for parameter in self._parameters]
        if versions != self._versions:
            self._renew()
            self.addresses = {number: address(array) for number, array in self.arrays.items()}
            self._versions = versions
            self.stamp += 1
        self._newest = newest
        return self.stamp

    def report(self) -> tuple[KernelRow, ...]:
        """The prologue's launches."""
        rows, values = self._rows(self._program.prologue)
        return rows.report(values)

    def _renew(self) -> None:
        for number, parameter in self._weights.items():
            self.arrays[number] = parameter.memory
        with _lock:
            stale = {n for n, d in self._derived.items() if d.versions != self._made[n].versions()}
            for number, derived in self._derived.items():
                if derived.array is not None:
                    self.arrays[number] = derived.array
            if not stale:
                return
            launches, written = _needed(self._program, stale)
            # New arrays, never the old ones overwritten: another program may be reading those.
            made = {number: aligned_empty((self._bytes(number),), uint8) for number in written}
            if self._poisons:
                poison(made.values())
            self.arrays |= made
            self._run(launches)
            for number, array in made.items():
                self._derived[number].array = array
                self._derived[number].versions = self._made[number].versions()

    def _run(self, launches: tuple[Launch, ...]) -> None:
        program = self._program
        rows, values = self._rows(launches)
        filled, stride = rows.make(), rows.scratch_stride(values)
        rows.fill(filled, values)
        plan = memory_plan.plan(program, launches)
        placement = memory_plan.place(plan, [self._bytes(number) for number in plan.buffers])
        arena = aligned_empty((placement.arena_bytes,), uint8)
        addresses = {number: address(array) for number, array in self.arrays.items()}
        for number, offset in zip(plan.buffers, placement.offsets, strict=True):
            addresses[number] = address(arena) + offset
        table = np.array([addresses.get(number, 0) for number in program.table], np.uint64)
        threads = team.team_size_default()
        scratch = aligned_empty((threads * stride + CACHE_LINES,), uint8)
        if self._poisons:
            poison((arena, scratch))
        start = address(scratch) + -address(scratch) % CACHE_LINES
        record = team.run_record(filled.launches, filled.slot_refs, table, threads, start, stride)
        team.execute(record.ctypes.data)

    def _rows(self, launches: tuple[Launch, ...]) -> tuple[LaunchRows, tuple[int, ...]]:
        quantities = Quantities(())
        rows = LaunchRows(self._program, launches, self._functions, quantities)
        return rows, quantities.evaluate({})

    def _bytes(self, number: int) -> int:
        return self._program.buffers[number].bytes.value


def _literal(attrs: ConstantAttrs) -> Array:
    array = aligned_empty(attrs.shape, attrs.dtype)
    array[...] = attrs.array
    return array


def _shared(key: Key) -> Derived:
    with _lock:
        found = _known.get(key)
        if found is None:
            found = _known[key] = Derived()
        return found


def _needed(program: Program, stale: set[int]) -> tuple[tuple[Launch, ...], set[int]]:
    """The launches of the prologue that make the stale derived buffers from what is fresh, and all
    derived buffers that they write.
    """
    kinds = {b.id: b.kind for b in program.buffers}
    while True:
        needed, kept, written = set(stale), [], set[int]()
        for launch in reversed(program.prologue):
            accesses = list(program.accesses(launch))
            writes = {number for number, role in accesses if role is not Role.IN}
            if not needed.isdisjoint(writes):
                needed.update(n for n, _ in accesses if kinds[n] is BufferKind.ARENA)
                written.update(n for n in writes if kinds[n] is BufferKind.DERIVED)
                kept.append(launch)
        if written == stale:
            return tuple(reversed(kept)), written
        stale = stale | written  # whoever else writes there must run as well


def _derivations(program: Program, texts: Sequence[str]) -> dict[int, _Made]:
    """What makes each buffer that the prologue touches. `texts[k]` is kernel k's canonical text.

    A prologue with Loops, or with buffers of several writers, is not shared: its keys are unique.
    """
    found: dict[int, _Made] = {}
    for buffer in program.buffers:
        if isinstance(buffer.owner, WeightAttrs):
            parameter = buffer.owner.parameter
            found[buffer.id] = _Made(("parameter", parameter.id), frozenset((parameter,)))
        elif isinstance(buffer.owner, ConstantAttrs):
            digest = hashlib.sha256(buffer.owner.data).hexdigest()
            found[buffer.id] = _Made(("literal", digest), frozenset())
    for launch in program.prologue:
        if not isinstance(launch, KernelLaunch) or not _derive(program, launch, texts, found):
            return _unshared(program)
    return found


def _derive(
    program: Program, launch: KernelLaunch, texts: Sequence[str], found: dict[int, _Made]
) -> bool:
    """Adds what the launch writes; False if one of its buffers was written before."""
    buffers = program.kernels[launch.kernel].buffers
    numbers = [program.table[operand.entry] for operand in launch.operands]
    reads = [n for n, b in zip(numbers, buffers, strict=True) if b.role is Role.IN]
    writes = [(k, n) for k, n in enumerate(numbers) if buffers[k].role is not Role.IN]
    if any(n in found for _, n in writes) or any(n not in found for n in reads):
        return False
    made = (texts[launch.kernel], launch.params, launch.chunks, [found[n].key for n in reads])
    digest = hashlib.sha256(repr(made).encode()).hexdigest()
    parameters = frozenset(parameter for n in reads for parameter in found[n].parameters)
    for k, n in writes:
        found[n] = _Made((digest, k), parameters)
    return True


def _unshared(program: Program) -> dict[int, _Made]:
    """Every derived buffer under a key of its own, depending on every weight."""
    owners = [b.owner.parameter for b in program.buffers if isinstance(b.owner, WeightAttrs)]
    return {b.id: _Made((object(), b.id), frozenset(owners)) for b in program.buffers}
