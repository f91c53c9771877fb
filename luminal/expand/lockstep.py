"""The lanes of a group as the interpreter runs them: each by itself from barrier to barrier.

Between two barriers lanes run in any order, so no lane may touch what another one writes there; and
all lanes must come to the same barrier, the same number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from luminal.errors import VerifyError
from luminal.expand.ir import Load, Statement, Store, headline

Place = tuple[str, int]
"""An element of a buffer."""


@dataclass
class Accesses:
    """Who touched what since the last barrier, by element: the lanes, and the statement of one."""

    written: dict[Place, tuple[int, Statement]] = field(default_factory=dict)
    read: dict[Place, tuple[int, Statement]] = field(default_factory=dict)
    read_by_more: set[Place] = field(default_factory=set)

    def note(self, lane: int, statement: Load | Store, addresses: Iterable[int]) -> None:
        """Raises VerifyError where another lane wrote there, or read what this one writes."""
        for address in addresses:
            place = (statement.buffer, int(address))
            self._compare(lane, statement, place, self.written.get(place))
            if isinstance(statement, Store):
                other = self.read.get(place)
                if place in self.read_by_more and other is not None and other[0] == lane:
                    other = (lane + 1, other[1])  # any of the others
                self._compare(lane, statement, place, other)
                self.written[place] = lane, statement
            elif self.read.setdefault(place, (lane, statement))[0] != lane:
                self.read_by_more.add(place)

    def _compare(
        self,
        lane: int,
        statement: Statement,
        place: Place,
        other: tuple[int, Statement] | None,
    ) -> None:
        if other is not None and other[0] != lane:
            does, did = (
                "writes" if isinstance(each, Store) else "reads" for each in (statement, other[1])
            )
            buffer, address = place
            raise VerifyError(
                f"expanded IR: `{headline(statement)}`: lane {lane} {does} {buffer}[{address}], "
                f"which lane {other[0]} {did} in `{headline(other[1])}`; put a barrier between them"
            )

    def clear(self) -> None:
        """A barrier: what was before it, is done."""
        self.written.clear()
        self.read.clear()
        self.read_by_more.clear()


def in_turns(lanes: Sequence[Iterator[Statement]], accesses: Accesses) -> None:
    """Runs lanes, which give the barriers they come to, to their ends."""
    while True:
        met = [next(lane, None) for lane in lanes]
        accesses.clear()
        if met[0] is None and all(each is None for each in met):
            return
        for number, barrier in enumerate(met):
            if barrier is not met[0]:
                raise VerifyError(
                    f"expanded IR: lanes 0 and {number} do not meet at one barrier; put it where "
                    "all come by"
                )
