"""Where ranks are, as they tell one another when one waits long, and the errors made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from luminal.base.errors import CollectiveError, CollectiveTimeoutError
from luminal.base.records import dataclass
from luminal.runtime.collectives.tickets import Ticket

Doing = Literal["computes", "waits", "has ended", "does not answer"]


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What a rank does: `started` counts its collectives in the group that was asked about, `last`
    is the title of the last one it has started in any group; "" before the first.
    """

    rank: int
    doing: Doing
    started: int = 0
    last: str = ""

    def encode(self) -> bytes:
        """This record as a message for another rank."""
        return json.dumps([self.rank, self.doing, self.started, self.last]).encode()

    @staticmethod
    def decode(data: bytes) -> Whereabouts:
        """The record that another rank has sent as a message."""
        return Whereabouts(*json.loads(data))

    def __str__(self) -> str:
        """The rank and what it does, as errors say it."""
        if not self.last:
            before = (
                "nothing started yet" if self.doing != "does not answer" else "hangs, or is gone"
            )
        else:
            before = f"its last: {self.last}"
        return f"rank {self.rank} {self.doing} ({before})"


def missing(ticket: Ticket, ranks: Sequence[Whereabouts]) -> list[Whereabouts]:
    """The ranks that have not started what the ticket waits for."""
    return [
        rank for rank in ranks if rank.started <= ticket.number or rank.doing == "does not answer"
    ]


def timeout_error(
    ticket: Ticket, rank: int, seconds: float, ranks: Sequence[Whereabouts]
) -> CollectiveTimeoutError:
    """The error of a wait past its deadline: what was waited for, and who has not come."""
    absent = missing(ticket, ranks)
    if absent:
        who = "not come: " + "; ".join(map(str, absent))
    else:
        others = [other for other in ranks if other.last != ticket.title]
        who = "all have come"
        if others:
            who += ", but to different ones: " + "; ".join(map(str, others))
    return CollectiveTimeoutError(
        f"rank {rank}: {ticket.title} has waited {seconds:g} s; {who}. Where ranks need longer, "
        "set LUMINAL_COLLECTIVE_TIMEOUT to more seconds"
    )


def ended_error(ticket: Ticket, rank: int, ended: Sequence[Whereabouts]) -> CollectiveError:
    """The error of a wait for ranks that have ended, so will never come."""
    return CollectiveError(
        f"rank {rank}: {ticket.title} waits for ranks that will not come: "
        f"{'; '.join(map(str, ended))}; all ranks of a group start the same collectives"
    )
