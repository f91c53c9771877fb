"""Neighbours in the order of collectives become one, whose buffers lie side by side.

What a collective costs beside its bytes is paid once for all of a bucket. Its operands stay where
kernels write them and its results where kernels read them: the memory plan lays them out in one
row, so nothing is copied. That is right for what acts on each element alone, sums and maxima over
ranks and whatever goes to one other rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from luminal.hlir.sharding import in_order
from luminal.kernel.tile_ir import Role
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import (
    CollectiveLaunch,
    Launch,
    LoopLaunch,
    Operand,
    Program,
    collects,
)

MOST_BYTES = 1 << 20
"""A bucket's, and those of what joins one. A usual link sends 64 KiB in the time that it takes to
begin: beyond some times that there is little to gain, and who waits for more begins later.
"""

BY_ELEMENT = ("all_reduce", "permute")


def bucketed(program: Program) -> Program:
    """The program with small collectives of one kind and group joined; the same object if none
    are.
    """
    if in_order.get() or not any(map(collects, program.launches)):
        return program
    launches = _Buckets(program).joined(program.launches)
    return program if launches == program.launches else replace(program, launches=launches)


class _Buckets:
    """The lists of a program in the making; a buffer lies in one row at most."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._taken: set[int] = set()

    def joined(self, launches: Iterable[Launch]) -> tuple[Launch, ...]:
        """A list with its collectives in buckets, each where the last of its members stood."""
        rest: list[Launch] = []
        bucket: list[CollectiveLaunch] = []
        places: list[int] = []
        gone: set[int] = set()

        def end() -> None:
            if len(bucket) > 1:
                rest[places[-1]] = _one(bucket)
                gone.update(places[:-1])
                self._taken.update(*map(self._buffers, bucket))
            bucket.clear()
            places.clear()

        for launch in launches:
            if isinstance(launch, LoopLaunch):
                launch = replace(launch, body=self.joined(launch.body))
            is_small = isinstance(launch, CollectiveLaunch) and self._is_small(launch)
            if (collects(launch) and not (is_small and self._joins(bucket, launch))) or any(
                self._meets(member, launch) for member in bucket
            ):
                end()
            if isinstance(launch, CollectiveLaunch) and is_small:
                bucket.append(launch)
                places.append(len(rest))
            rest.append(launch)
        end()
        return tuple(launch for place, launch in enumerate(rest) if place not in gone)

    def _joins(self, bucket: list[CollectiveLaunch], launch: Launch) -> bool:
        """Can a small collective be in the bucket of these?"""
        assert isinstance(launch, CollectiveLaunch)
        return (
            all((m.attrs, m.dtype) == (launch.attrs, launch.dtype) for m in bucket)
            and sum(map(_bytes, (*bucket, launch))) <= MOST_BYTES
            and all(self._buffers(m).isdisjoint(self._buffers(launch)) for m in bucket)
        )

    def _is_small(self, launch: CollectiveLaunch) -> bool:
        """Does a collective gain in a bucket, and may its buffers lie anywhere?"""
        return (
            launch.attrs.kind in BY_ELEMENT
            and all(size.is_const for size in launch.sizes)
            and 0 < _bytes(launch) <= MOST_BYTES
            and all(map(self._is_free, launch.operands))
            and len(self._buffers(launch)) == 2
            and self._taken.isdisjoint(self._buffers(launch))
        )

    def _is_free(self, operand: Operand) -> bool:
        """Is it the whole of a buffer of the arena, the same one in every trip?"""
        buffer = self._program.buffers[self._program.table[operand.entry]]
        is_whole = operand == Operand(operand.entry)
        return is_whole and buffer.kind is BufferKind.ARENA

    def _meets(self, member: CollectiveLaunch, launch: Launch) -> bool:
        """Does a launch touch what a member receives, or write what it sends?"""
        sent, received = self._program.ends(member)
        return any(
            number in received or (number in sent and role is not Role.IN)
            for number, role in self._program.accesses(launch)
        )

    def _buffers(self, launch: Launch) -> set[int]:
        return {number for number, _ in self._program.accesses(launch)}


def _bytes(launch: CollectiveLaunch) -> int:
    return launch.sizes[0].value * launch.dtype.size


def _one(members: list[CollectiveLaunch]) -> CollectiveLaunch:
    """The collective of all members: what is sent first, then what is received."""
    halves = range(2)
    operands = tuple(member.operands[half] for half in halves for member in members)
    sizes = tuple(member.sizes[half] for half in halves for member in members)
    first, others = members[0].label, len(members) - 1
    label = f"{first} and {others} more" if first else ""
    return replace(members[0], operands=operands, sizes=sizes, label=label)
