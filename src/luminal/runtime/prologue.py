"""A Program's fixed buffers: weights, literals, and what the prologue derives from them.

Derived buffers are shared by all programs of a device that derive the same, named by what makes
them: kernel texts, their parameters and, at the leaves, Parameters and literals. Two programs of
one model (prefill and decode) then pack each weight once. So is the copy of a weight that lies in
another memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeAlias
from weakref import WeakValueDictionary

from luminal.base import forks, tracing
from luminal.base.dtypes import uint8
from luminal.base.records import dataclass
from luminal.hlir.attributes import ConstantAttrs, WeightAttrs
from luminal.kernel.tile_ir import Role
from luminal.memory.arrays import Array, B, HostBuffer, MemorySpace, address
from luminal.memory.mapped_pages import let_go
from luminal.memory.parameter import Parameter
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import KernelLaunch, Launch, Program
from luminal.program.quantities import Quantities
from luminal.program.unroll import written_out
from luminal.runtime.report import KernelRow
from luminal.runtime.sites import Sites

Key: TypeAlias = Hashable
Derive: TypeAlias = Callable[[tuple[Launch, ...], Mapping[int, B]], None]
"""Runs launches of a prologue, with these buffers in place of all but those of the arena."""


class Derived(Generic[B]):
    """One derived buffer and the versions of the Parameters it was made from; or a copy of an
    array, which it holds: no other array has its address meanwhile.
    """

    __slots__ = ("__weakref__", "buffer", "source", "versions")

    def __init__(self) -> None:
        self.buffer: B | None = None
        self.versions: tuple[int, ...] | None = None
        self.source: Array | None = None


@dataclass(frozen=True, slots=True)
class _Made:
    """What makes a buffer: a name for it, and the Parameters it depends on."""

    key: Key
    parameters: frozenset[Parameter]

    def versions(self) -> tuple[int, ...]:
        return tuple(p.version for p in sorted(self.parameters, key=lambda p: p.id))


_known: WeakValueDictionary[Key, Derived[Any]] = WeakValueDictionary()
_lock = forks.rlock()  # held while derived buffers are looked up or made


# Weights stay where they were set and are shared; what is derived from them (panels, scales,
# transformed filters) is made once for each version and device, whichever program asks first.
class Prologue(Generic[B]):
    """The WEIGHT, CONSTANT and DERIVED buffers by id, in step with the Parameters.

    `texts[k]` is kernel k's canonical text.
    """

    def __init__(
        self, program: Program, texts: Sequence[str], space: MemorySpace[B], derive: Derive[B]
    ) -> None:
        # Launch by launch, so that only what is stale runs, and programs share what they derive.
        program = replace(program, prologue=written_out(program.prologue))
        self._program = program
        self._space = space
        self._derive = derive
        self._weights = {
            b.id: b.owner.parameter for b in program.buffers if isinstance(b.owner, WeightAttrs)
        }
        self._parameters = tuple(dict.fromkeys(self._weights.values()))
        self._versions: list[int] | None = None
        self._newest: int | None = None  # version of any Parameter, when they were last compared
        self._made = _derivations(program, texts)
        self._copies: dict[int, Derived[B]] = {}  # of weights that lie elsewhere
        self._derived: dict[int, Derived[B]] = {}
        for buffer in program.buffers:
            if buffer.kind is BufferKind.DERIVED:
                self._derived[buffer.id] = self._shared(self._made[buffer.id].key)
        self.buffers = {
            b.id: self._literal(b.owner)
            for b in program.buffers
            if isinstance(b.owner, ConstantAttrs)
        }
        self.stamp = 0  # counts the changes of `buffers`

    @property
    def nbytes(self) -> int:
        """The bytes of derived buffers, and of copies of weights."""
        held = dict.fromkeys([*self._derived.values(), *self._copies.values()])
        return sum(copy.buffer.nbytes for copy in held if copy.buffer is not None)

    def refresh(self) -> int:
        """Brings `buffers` up to date; the stamp tells whether they changed since it was seen."""
        newest = Parameter.newest
        # One number for all Parameters of the process: most runs follow a run, and nothing was set
        # in between.
        if newest == self._newest:
            return self.stamp
        versions = [parameter.version for parameter in self._parameters]
        if versions != self._versions:
            self._renew()
            self._versions = versions
            self.stamp += 1
        self._newest = newest
        return self.stamp

    def report(self) -> tuple[KernelRow, ...]:
        """A row for each launch of the prologue."""
        quantities = Quantities(())
        sites = Sites(self._program, self._program.prologue, quantities)
        return sites.report(quantities.evaluate({}))

    def _renew(self) -> None:
        with _lock:
            accesses = self._program.accesses
            runs = {n for launch in self._program.launches for n, _ in accesses(launch)}
            for number, parameter in self._weights.items():
                weight = self._weight(number, parameter)
                self.buffers[number] = weight.held() if number in runs else weight
            # Only what depends on a Parameter that was set: an optimizer that moves one layer does
            # not pack all others again.
            stale = {n for n, d in self._derived.items() if d.versions != self._made[n].versions()}
            for number, derived in self._derived.items():
                if derived.buffer is not None:
                    self.buffers[number] = derived.buffer
            if not stale:
                return
            launches, written = _needed(self._program, stale)
            # Derived buffers are named by what makes them, so that prefill and decode of one model,
            # two programs, pack a weight once.
            # New buffers, never the old ones overwritten: another program may be reading those.
            fresh = {number: self._space.empty((self._bytes(number),), uint8) for number in written}
            self.buffers |= fresh
            read = {n for launch in launches for n, _ in accesses(launch)} & {*self._weights}
            # Other weights may have no memory at all.
            used = self.buffers.keys() - self._weights.keys() | read
            with tracing.span("prologue"):
                self._derive(launches, {n: self.buffers[n].held() for n in used})
            for number, buffer in fresh.items():
                self._derived[number].buffer = buffer
                self._derived[number].versions = self._made[number].versions()
            # The pages of mapped files that these launches have read and no run reads.
            done = (self.buffers[number] for number in read - runs)
            let_go(buffer.array for buffer in done if type(buffer) is HostBuffer)

    def _weight(self, number: int, parameter: Parameter) -> B:
        """The Parameter's buffer if it lies in this space, or a copy of it here."""
        stored: Any = parameter.buffer
        if stored.space is self._space:
            self._copies.pop(number, None)
            return stored  # type: ignore[no-any-return]
        array = stored.array
        key: Key = ("parameter", parameter.id)
        versions: tuple[int, ...] = (parameter.version,)
        if parameter.is_part:  # one copy for all that read these bytes, whatever their dtypes
            key, versions = ("memory", address(array), array.nbytes), ()
        copy = self._copies[number] = self._shared(key)
        if copy.buffer is None or copy.versions != versions:
            buffer = self._space.empty(*parameter.memory_type)
            buffer.write(array)
            copy.buffer, copy.versions = buffer, versions
            copy.source = array if parameter.is_part else None
        return copy.buffer

    def _literal(self, attrs: ConstantAttrs) -> B:
        buffer = self._space.empty(attrs.shape, attrs.dtype)
        buffer.write(attrs.array)
        return buffer

    def _shared(self, key: Key) -> Derived[B]:
        with _lock:
            derived = _known.get((self._space, key))
            if derived is None:
                derived = _known[self._space, key] = Derived()
            return derived

    def _bytes(self, number: int) -> int:
        return self._program.buffers[number].bytes.value


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
    makers: dict[int, _Made] = {}
    for buffer in program.buffers:
        if isinstance(buffer.owner, WeightAttrs):
            parameter = buffer.owner.parameter
            makers[buffer.id] = _Made(("parameter", parameter.id), frozenset((parameter,)))
        elif isinstance(buffer.owner, ConstantAttrs):
            digest = hashlib.sha256(buffer.owner.data).hexdigest()
            makers[buffer.id] = _Made(("literal", digest), frozenset())
    for launch in program.prologue:
        if not isinstance(launch, KernelLaunch) or not _derive(program, launch, texts, makers):
            return _unshared(program)
    return makers


def _derive(
    program: Program, launch: KernelLaunch, texts: Sequence[str], makers: dict[int, _Made]
) -> bool:
    """Adds what the launch writes; False if one of its buffers was written before."""
    buffers = program.kernels[launch.kernel].buffers
    numbers = [program.table[operand.entry] for operand in launch.operands]
    reads = [n for n, b in zip(numbers, buffers, strict=True) if b.role is Role.IN]
    writes = [(k, n) for k, n in enumerate(numbers) if buffers[k].role is not Role.IN]
    # A name by what makes it holds only if nothing else writes there, so such a prologue shares
    # nothing.
    if any(n in makers for _, n in writes) or any(n not in makers for n in reads):
        return False
    identity = (texts[launch.kernel], launch.params, launch.chunks, [makers[n].key for n in reads])
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()
    parameters = frozenset(parameter for n in reads for parameter in makers[n].parameters)
    for k, n in writes:
        makers[n] = _Made((digest, k), parameters)
    return True


def _unshared(program: Program) -> dict[int, _Made]:
    """Every derived buffer under a key of its own, depending on every weight."""
    owners = [b.owner.parameter for b in program.buffers if isinstance(b.owner, WeightAttrs)]
    return {b.id: _Made((object(), b.id), frozenset(owners)) for b in program.buffers}
