"""What carries values from rank to rank: the protocol of all engines, and what is built on it.

A rank starts a collective, computes something else, and waits for it. All ranks of a group start
the same ones in the same order. Nothing waits for ever: past its deadline a wait is an error that
names the collective and who has not come, and the engine ends all ranks.
"""

from __future__ import annotations

import hashlib
import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from luminal.base import config
from luminal.base.errors import CollectiveError, InputError
from luminal.base.number_kinds import is_number
from luminal.base.records import dataclass
from luminal.runtime.collectives.same import difference_error
from luminal.runtime.collectives.tickets import (
    Buffer,
    Kind,
    Label,
    Monoid,
    Pairs,
    Request,
    Ticket,
    checked,
)

ABORTED = 75
"""The status of a rank that is ended because ranks have lost one another: EX_TEMPFAIL, as a run may
be started again.
"""

_LENGTH = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How many seconds a wait lasts at most: each one, and those before which ranks compile."""

    each: float = 60.0
    first: float = 600.0

    @staticmethod
    def of(seconds: float | None) -> Deadlines:
        """The deadlines of waits that may last so long; None: LUMINAL_COLLECTIVE_TIMEOUT."""
        if seconds is None:
            seconds = config.get("LUMINAL_COLLECTIVE_TIMEOUT")
        if not is_number(seconds, Real) or not seconds > 0:
            raise InputError(f"a collective's timeout is {seconds!r} s; it takes more than 0 s")
        # Compiles take ten times as long as what a run waits for otherwise.
        return Deadlines(seconds, 10 * seconds)


class Engine(ABC):
    """A group of ranks, seen by one of them: `rank` of `size`, and `axis`, the name of the mesh
    axis that the group lies along. `unlike`: devices of its ranks are of several kinds.
    `compares`: ranks tell one another each collective before it starts, and so wait for one
    another; not where each may be far ahead, as along a pipeline, whose plan has been compared as a
    whole.

    Buffers are contiguous arrays. `source` must not be written, and `target` not be read, between
    start and wait.
    """

    rank: int
    size: int
    axis: str
    unlike = False

    def __init__(self, rank: int, size: int, axis: str) -> None:
        self.rank, self.size, self.axis = rank, size, axis
        self._started = 0
        self._groups: dict[object, Engine] = {}
        self.compares = config.get("LUMINAL_VERIFY")

    # What an engine has to have.
    @abstractmethod
    def _start(self, ticket: Ticket) -> None:
        """Begins to move what the ticket asks for."""

    @abstractmethod
    def wait(self, ticket: Ticket, *, first: bool = False) -> None:
        """Waits until the target is written.

        `first`: ranks may still compile, so the longer deadline holds. Raises
        CollectiveTimeoutError past it and CollectiveError where a rank has ended; all ranks end
        then.
        """

    @abstractmethod
    def look(self, ticket: Ticket, waited: float, *, first: bool = False) -> None:
        """Called again and again by who waits elsewhere for what it has announced, for `waited`
        seconds by now: raises what `wait` would raise; all ranks end then.
        """

    @abstractmethod
    def fail(self, error: CollectiveError) -> CollectiveError:
        """The error, after which all ranks end soon, whatever becomes of it."""

    @abstractmethod
    def _split(self, members: tuple[int, ...], axis: str) -> Engine:
        """This rank's part of a group of some of the ranks."""

    @abstractmethod
    def abort(self, reason: str, code: int = ABORTED) -> None:
        """Ends all ranks of the program, not only the group's, and says why on stderr."""

    @abstractmethod
    def set_timeout(self, seconds: float) -> None:
        """Sets how many seconds a wait lasts at most in all groups, the first ten times as many."""

    # What follows.
    def start(
        self, kind: Kind, source: Buffer, target: Buffer, *, label: Label | str,
        monoid: Monoid = "sum", pairs: Pairs = (), root: int = 0,
    ) -> Ticket:  # fmt: skip
        """Starts a collective of all ranks of the group, and returns what `wait` takes.

        `all_reduce`: the target is the sum (or what `monoid` says) of all sources, added in the
        engine's order. `reduce_scatter`: likewise, and rank r gets piece r of it. `all_gather`: all
        sources in the order of ranks. `all_to_all`: piece r of the source goes to rank r, the
        target has a piece of each rank. `permute`: each of `pairs` is a rank that sends and one
        that receives; a target that nobody sends to is zeros. `broadcast`: the source of `root`.
        """
        label = Label(label) if isinstance(label, str) else label
        title = label.of(kind, self.axis)
        pairs = tuple((sender, receiver) for sender, receiver in pairs)
        request = checked(title, kind, source, target, self.size, monoid, pairs, root)
        if self.compares:
            self._compare(title, request)
        return self._begin(title, request)

    def run(
        self, kind: Kind, source: Buffer, target: Buffer, *, label: Label | str,
        monoid: Monoid = "sum", pairs: Pairs = (), root: int = 0, first: bool = False,
    ) -> None:  # fmt: skip
        """Starts a collective and waits for it."""
        ticket = self.start(
            kind, source, target, label=label, monoid=monoid, pairs=pairs, root=root
        )
        self.wait(ticket, first=first)

    def announce(self, title: str) -> Ticket:
        """Notes that this rank has started what others move: its device, and theirs. All ranks of
        the group announce the same.
        """
        nothing = np.empty(0, np.uint8)
        return self._begin(title, checked(title, "all_reduce", nothing, nothing, self.size))

    def split(self, groups: Sequence[Sequence[int]], axis: str) -> Engine:
        """The group that this rank is in, of a partition of all ranks that all of them give alike.

        A rank's number in a group is its place there. The same partition gives the same engine.
        """
        parts = tuple(tuple(group) for group in groups)
        if sorted(rank for part in parts for rank in part) != list(range(self.size)):
            raise InputError(
                f"split over {axis!r}: {parts} is no partition of ranks 0 to {self.size - 1}; "
                "each of them stands in one group"
            )
        if (parts, axis) not in self._groups:
            self.barrier(f"groups of {axis!r}")
            members = next(part for part in parts if self.rank in part)
            self._groups[parts, axis] = self._split(members, axis)
        return self._groups[parts, axis]

    def barrier(self, label: str = "barrier") -> None:
        """Waits until all ranks have come here."""
        self.exchange(b"", label)

    def exchange(self, data: bytes, label: str) -> list[bytes]:
        """The bytes of all ranks, in their order: for small things of a start, not for values."""
        if self.compares:
            self._compare(f"exchange of {label!r}", None)
        return self._exchange(data, Label(label).of("exchange", self.axis), first=True)

    def broadcast_object(self, value: Any, label: str, root: int = 0) -> Any:
        """What rank `root` gives, on all ranks; pickled on the way."""
        data = pickle.dumps(value) if self.rank == root else b""
        return pickle.loads(self.exchange(data, label)[root])

    def check_same(self, text: str, label: str) -> None:
        """Raises CollectiveError where ranks have different texts, naming the first line that
        differs.
        """
        digest = hashlib.sha256(text.encode()).digest()
        digests = self.exchange(digest, f"digest of {label}")
        if len(set(digests)) > 1:  # on all ranks alike
            texts = self.exchange(text.encode(), f"text of {label}")
            other = next(rank for rank, seen in enumerate(digests) if seen != digests[0])
            raise difference_error(label, other, texts[0].decode(), texts[other].decode())

    def _begin(self, title: str, request: Request) -> Ticket:
        ticket = Ticket(self._started, title, request)
        self._started += 1
        self._start(ticket)
        return ticket

    def _exchange(self, data: bytes, title: str, first: bool) -> list[bytes]:
        lengths = self._gathered(_LENGTH.pack(len(data)), title, first)
        sizes = [_LENGTH.unpack(length)[0] for length in lengths]
        most = max(sizes)
        if not most:
            return [b""] * self.size
        pieces = self._gathered(data.ljust(most, b"\0"), title, first)
        return [piece[:size] for piece, size in zip(pieces, sizes, strict=True)]

    def _gathered(self, data: bytes, title: str, first: bool) -> list[bytes]:
        target = np.empty((self.size, len(data)), np.uint8)
        source = np.frombuffer(data, np.uint8)
        request = checked(title, "all_gather", source, target, self.size)
        self.wait(self._begin(title, request), first=first)
        return [row.tobytes() for row in target]

    def _compare(self, title: str, request: Request | None) -> None:
        """With LUMINAL_VERIFY: all ranks tell what they start, before they do."""
        shape = "" if request is None else f" {request.shape}"
        mine = f"{title}{shape}".encode()
        texts = [data.decode() for data in self._exchange(mine, title, request is None)]
        for rank, text in enumerate(texts):
            if text != texts[0]:
                raise CollectiveError(
                    f"ranks start different collectives: rank 0 {texts[0]}; rank {rank} {text}; "
                    "all ranks of a group start the same ones in the same order"
                )
