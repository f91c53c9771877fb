"""One trip of a Loop: what each launch needs of others, and what trips share.

Collectives are starts, each followed by its wait. What touches a buffer that one trip writes and
another one touches must keep its place among the trips: it is *bound*. Buffers that each trip
writes anew and nobody else touches are *private*: trips may have copies of their own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from luminal.kernel.tile_ir import Role
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Launch, LoopLaunch, Operand, Program, tickets, walk


class Body:
    """The items of a Loop's trip in their order; `depth` is the Loop's, `trips` are a number.

    `needs[k]`: the items that must come before item k in every trip; `outside`: buffers that are
    touched elsewhere.
    """

    def __init__(
        self, program: Program, loop: LoopLaunch, depth: int, outside: Container[int] = ()
    ) -> None:
        self.program, self.depth, self.trips = program, depth, loop.trips.value
        self.items = loop.body
        self.needs: list[set[int]] = [set() for _ in self.items]
        trips_of: dict[int, set[int]] = {}
        for trip in range(self.trips):
            self._join(trip, trips_of)
        uses: dict[int, list[tuple[Operand, Role]]] = {}
        for launch in walk(self.items):
            for operand, role in zip(launch.operands, program.roles(launch), strict=True):
                for entry in program.entries(operand):
                    uses.setdefault(program.table[entry], []).append((operand, role))
        shared = {
            number
            for number, those in uses.items()
            if any(role is not Role.IN for _, role in those)
            and len(trips_of[number]) > 1
            and not self._is_by_slices([operand for operand, _ in those])
        }
        self.private = {n for n in shared if n not in outside and self._is_private(n, uses[n])}
        self.bound = {k for k in range(len(self.items)) if self.buffers(k) & shared - self.private}

    def buffers(self, item: int) -> set[int]:
        """The buffers that an item touches in some trip."""
        return {number for number, _ in self.program.accesses(self.items[item])}

    def before(self, items: Iterable[int]) -> set[int]:
        """These items and all that they need, directly or not."""
        closed, waiting = set[int](), [*items]
        while waiting:
            item = waiting.pop()
            if item not in closed:
                closed.add(item)
                waiting += self.needs[item]
        return closed

    def behind(self, items: Iterable[int]) -> set[int]:
        """These items and all that need one of them, directly or not."""
        closed = {*items}
        for item, needs in enumerate(self.needs):
            if needs & closed:
                closed.add(item)
        return closed

    def _join(self, trip: int, trips_of: dict[int, set[int]]) -> None:
        """Notes what items need of each other in this trip, and which buffers it touches."""
        writers: dict[int, int] = {}
        readers: dict[int, set[int]] = {}
        for k, item in enumerate(self.items):
            for number, role in self._touched(item, trip):
                trips_of.setdefault(number, set()).add(trip)
                self.needs[k] |= {writers[number]} if number in writers else set()
                if role is Role.IN:
                    readers.setdefault(number, set()).add(k)
                else:
                    self.needs[k] |= readers.pop(number, set())
                    writers[number] = k
            self.needs[k].discard(k)

    def _touched(self, item: Launch, trip: int) -> Iterator[tuple[int, Role]]:
        """The buffers that an item touches in one trip; a ticket counts as one."""
        for launch in walk((item,)):
            for operand, role in zip(launch.operands, self.program.roles(launch), strict=True):
                entries = self.program.entries(operand)
                if operand.depth == self.depth and operand.offset.is_const:
                    entry = entries[(trip + operand.offset.value) % operand.modulus]
                    entries = range(entry, entry + 1)
                for entry in entries:
                    yield self.program.table[entry], role
        for ticket in tickets(item):
            yield -1 - ticket, Role.OUT

    def _is_by_slices(self, operands: Sequence[Operand]) -> bool:
        """Has each trip a slice of its own, the same for all of these?"""
        first = operands[0]
        return first.stride != 0 and all(
            (o.depth, o.modulus, o.stride, o.start) == (self.depth, 1, first.stride, first.start)
            for o in operands
        )

    def _is_private(self, number: int, uses: Sequence[tuple[Operand, Role]]) -> bool:
        """Does each trip write a buffer of the arena anew, before it reads it?"""
        return (
            self.program.buffers[number].kind is BufferKind.ARENA
            and uses[0][1] is Role.OUT
            and not any(operand.modulus > 1 or operand.stride != 0 for operand, _ in uses)
        )
