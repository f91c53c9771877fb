"""A team whose members run as far apart as barriers let them, so that no missing one goes unseen.

It stands in for the native driver: the same rows, the same compiled kernels, one thread. Each
member in turn runs to the next barrier before another one starts: the first member first, or the
last one first and each of its chunks alone, the last chunk first. A kernel's scratch is poisoned,
and the registers it is called with.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

from luminal.backends.cpu import launch_ir, team
from luminal.backends.cpu.team import Records
from luminal.base.dtypes import uint8
from luminal.memory.arrays import aligned_empty
from luminal.memory.poison import poison
from tests.backends.cpu import dirty


class Skew(NamedTuple):
    """How many members, and which of them and of their chunks come first."""

    members: int
    backwards: bool


TEAMS = (2, 3, 8)
SKEWS = tuple(Skew(members, backwards) for members in TEAMS for backwards in (False, True))


def both(members: int) -> tuple[Skew, Skew]:
    """Both directions: some missing barriers show in one only, as before a launch of one chunk."""
    return Skew(members, False), Skew(members, True)


@contextmanager
def skewed(skew: Skew) -> Iterator[None]:
    """Runs of dims that are bound inside the block, and prologues, are walked skewed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(team, "entry", lambda: entry(skew))
        yield


def entry(skew: Skew) -> Callable[[int], int]:
    """What takes the address of a RUN record, as `team.entry()` does."""

    def enter(address: int) -> int:
        members = [_Member(address, number, skew).walk() for number in range(skew.members)]
        if skew.backwards:
            members.reverse()
        while True:
            still = {next(member, False) for member in members}
            assert len(still) == 1, "some members are at a barrier, others at the end"
            if still == {False}:
                return skew.members

    return enter


class _Member:
    """One member's walk of a launch list, as `launch_walk.py` has it, with even shares."""

    def __init__(self, address: int, number: int, skew: Skew) -> None:
        (run,) = _records(address, launch_ir.RUN, 1)
        self.launches = _records(int(run["launches"]), launch_ir.LAUNCH, int(run["n"]))
        self.refs, self.table = int(run["slot_refs"]), int(run["table"])
        self.number, self.skew = number, skew
        self.scratch = aligned_empty((int(run["scratch_stride"]) + 128,), uint8)
        self.iterations = [0]

    def walk(self) -> Iterator[bool]:
        """Yields True at each barrier."""
        at = 0
        while at < len(self.launches):
            launch = self.launches[at]
            if launch["flags"] & launch_ir.BARRIER:
                yield True
            at += 1
            if launch["kind"] == launch_ir.KERNEL:
                self.run(launch)
            elif launch["kind"] == launch_ir.LOOP_BEGIN:
                if launch["grid"] > 0:
                    self.iterations.append(0)
                else:
                    yield True
                    at = int(launch["jump"])
            else:
                yield True
                begin = int(launch["jump"])
                self.iterations[-1] += 1
                if self.iterations[-1] < self.launches[begin]["grid"]:
                    at = begin + 1
                else:
                    self.iterations.pop()

    def run(self, launch: Any) -> None:
        """This member's chunks of a kernel."""
        begin, end = self.share(launch)
        if begin == end:
            return
        slots = np.array(list(self.slots(launch)) or [0], np.uint64)
        step = 1 if self.skew.backwards else end - begin
        for start in reversed(range(begin, end, step)):
            poison([self.scratch])
            scratch = self.scratch.ctypes.data
            kernel, dims = int(launch["fn"]), int(launch["dims"])
            dirty.call(kernel, slots.ctypes.data, dims, start, start + step, scratch)

    def share(self, launch: Any) -> tuple[int, int]:
        """Its chunks, from and to."""
        grid, members = int(launch["grid"]), self.skew.members
        if launch["flags"] & launch_ir.SERIAL:
            return 0, grid if self.number == 0 else 0
        return grid * self.number // members, grid * (self.number + 1) // members

    def slots(self, launch: Any) -> Iterator[int]:
        """The addresses of a launch's buffers."""
        size = launch_ir.SLOT_REF.itemsize
        refs = self.refs + size * int(launch["slot_start"])
        for ref in _records(refs, launch_ir.SLOT_REF, int(launch["n_slots"])).tolist():
            base, depth, offset, modulus, stride, start = ref
            iteration = self.iterations[depth]
            place = base + (iteration + offset) % modulus
            (buffer,) = _records(self.table + 8 * place, np.dtype(np.uint64), 1)
            yield int(buffer) + start + iteration * stride


def _records(address: int, dtype: np.dtype[Any], count: int) -> Records:
    """The records that lie at an address, as they are now."""
    if count == 0:
        return np.empty(0, dtype)
    memory = (ctypes.c_char * (dtype.itemsize * count)).from_address(address)
    return np.frombuffer(memory, dtype)
