"""The lanes of a group as the interpreter runs them: each by itself from barrier to barrier.

Between two barriers lanes run in any order, so no lane may touch what another one writes there; and
all lanes must come to the same barrier, the same number of times. So must they to an exchange, or
to what they multiply or load together, but these order no memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from luminal.base.errors import VerifyError
from luminal.base.records import dataclass
from luminal.expand.ir import (
    Barrier,
    Copy,
    Exchange,
    Load,
    LoadMatrix,
    Meeting,
    Multiply,
    Statement,
    Store,
    headline,
)

Element = tuple[str, int]
"""An element of a buffer."""
ROW = 32
"""Lanes that load matrices together."""
Lane = Generator[tuple[Meeting, Any], Any, None]
"""What a lane does from one meeting to the next: it brings a value to an exchange, and is sent
another lane's; brings its part of blocks, and is sent that of their product; or brings an address,
and is sent those of its row.
"""


@dataclass
class Accesses:
    """Who touched what since the last barrier, by element: the lanes, and the statement of one."""

    written: dict[Element, tuple[int, Statement]] = field(default_factory=dict)
    read: dict[Element, tuple[int, Statement]] = field(default_factory=dict)
    read_by_more: set[Element] = field(default_factory=set)

    def note(
        self, lane: int, statement: Load | Store | LoadMatrix | Copy, addresses: Iterable[int]
    ) -> None:
        """Raises VerifyError where another lane wrote there, or read what this one writes."""
        for address in addresses:
            element = (statement.buffer, int(address))
            self._compare(lane, statement, element, self.written.get(element))
            if isinstance(statement, Store | Copy):
                other = self.read.get(element)
                if element in self.read_by_more and other is not None and other[0] == lane:
                    other = (lane + 1, other[1])  # any of the others
                self._compare(lane, statement, element, other)
                self.written[element] = lane, statement
            elif self.read.setdefault(element, (lane, statement))[0] != lane:
                self.read_by_more.add(element)

    def _compare(
        self,
        lane: int,
        statement: Statement,
        element: Element,
        other: tuple[int, Statement] | None,
    ) -> None:
        if other is not None and other[0] != lane:
            does, did = (
                "writes" if isinstance(access, Store | Copy) else "reads"
                for access in (statement, other[1])
            )
            buffer, address = element
            raise VerifyError(
                f"expanded IR: `{headline(statement)}`: lane {lane} {does} {buffer}[{address}], "
                f"which lane {other[0]} {did} in `{headline(other[1])}`; put a barrier between them"
            )

    def clear(self) -> None:
        """A barrier: what was before it, is done."""
        self.written.clear()
        self.read.clear()
        self.read_by_more.clear()


def in_turns(lanes: Sequence[Lane], accesses: Accesses) -> None:
    """Runs lanes to their ends, all from one meeting to the next."""
    brought = [next(lane, None) for lane in lanes]
    while (first := brought[0]) is not None:
        meeting = first[0]
        for number, stop in enumerate(brought):
            if stop is None or stop[0] is not meeting:
                raise _missed(number)
        sent = [stop[1] for stop in brought if stop is not None]
        match meeting:
            case Exchange(_, _, distance):
                sent = [sent[number ^ distance] for number in range(len(sent))]
            case Multiply():
                sent = _multiplied(meeting, sent)
            case LoadMatrix():
                sent = [sent[number - number % ROW :][:ROW] for number in range(len(sent))]
            case Barrier():
                accesses.clear()
        brought = [_resumed(*stop) for stop in zip(lanes, sent, strict=True)]
    late = next((number for number, stop in enumerate(brought) if stop is not None), None)
    if late is not None:
        raise _missed(late)


def _multiplied(meeting: Multiply, brought: Sequence[Any]) -> list[Any]:
    """The results that each lane holds, of the (results, factors) that each brings."""
    dot, rows = meeting.dot, []
    for first in range(0, len(brought), dot.together):
        together = brought[first : first + dot.together]
        blocks = [np.array([held[n] for held in together]) for n in range(3)]
        rows += [*dot.of_lanes(*blocks)]
    return rows


def _resumed(lane: Lane, sent: Any) -> tuple[Meeting, Any] | None:
    """The meeting that a lane comes to next, and what it brings there; None where it runs to its
    end.
    """
    try:
        return lane.send(sent)
    except StopIteration:
        return None


def _missed(number: int) -> VerifyError:
    return VerifyError(
        f"expanded IR: lanes 0 and {number} do not meet at one barrier or exchange; put it where "
        "all come by"
    )
