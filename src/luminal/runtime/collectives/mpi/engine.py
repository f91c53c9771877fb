"""Ranks that are processes exchange values by MPI.

Who waits drives MPI; while nobody does, a daemon thread drives it, so that collectives go on beside
computation, and answers other ranks that ask where this one is, whatever the main thread does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from luminal.base.errors import CollectiveError
from luminal.runtime.collectives.engine import ABORTED, Deadlines, Engine
from luminal.runtime.collectives.mpi.library import MPI
from luminal.runtime.collectives.mpi.process import MpiProcess
from luminal.runtime.collectives.tickets import Array, Monoid, Request, Ticket
from luminal.runtime.collectives.wire import from_wire, to_wire

_OPERATIONS: dict[Monoid, MPI.Op] = {
    "sum": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN,
}  # fmt: skip

TAGS = 32767  # MPI has at least so many


class Flight:
    """What a started collective waits for, and what is left to do when that has come."""

    __slots__ = ("finish", "requests")

    def __init__(
        self, requests: list[MPI.Request], finish: Callable[[], None] | None = None
    ) -> None:
        self.requests, self.finish = requests, finish

    def advance(self) -> bool:
        """Lets MPI work. Is all done?"""
        if not MPI.Request.Testall(self.requests):
            return False
        if self.finish is not None:
            self.finish()
        return True


class MpiEngine(Engine):
    """This process's part of a group: a communicator of its own, `members` being ranks of all."""

    def __init__(
        self, process: MpiProcess, communicator: MPI.Intracomm, members: tuple[int, ...], axis: str
    ) -> None:
        super().__init__(communicator.rank, communicator.size, axis)
        self._process, self._communicator, self._members = process, communicator, members
        self._key = process.add_group(members, axis)

    def _start(self, ticket: Ticket) -> None:
        request = ticket.request
        if not max(request.source.nbytes, request.target.nbytes):
            ticket.done = True  # nothing moves, on any rank
        self._process.start(self._key, ticket, lambda: _START[request.kind](self, request, ticket))

    def wait(self, ticket: Ticket, *, first: bool = False) -> None:
        """Drives MPI until the target is written."""
        if not ticket.done:
            self._process.wait(self._key, ticket, self._members, first)

    def look(self, ticket: Ticket, waited: float, *, first: bool = False) -> None:
        """Asks other ranks where they are, once this one has waited long."""
        self._process.look(self._key, ticket, self._members, first, waited)

    def fail(self, error: CollectiveError) -> CollectiveError:
        """The error, after which all processes end within a second."""
        return self._process.fail(error)

    def abort(self, reason: str, code: int = ABORTED) -> None:
        """Ends all processes of the program by MPI_Abort."""
        self._process.abort(reason, code)

    def set_timeout(self, seconds: float) -> None:
        """Sets how long waits of all groups last from now on."""
        self._process.deadlines = Deadlines.of(seconds)

    def farewell(self) -> None:
        """Waits at the end of the program until all processes have come to theirs."""
        self._process.farewell()

    def _split(self, members: tuple[int, ...], axis: str) -> Engine:
        with self._process.lock:
            group = self._communicator.Get_group().Incl(members)
            communicator = self._communicator.Create_group(group)
        return MpiEngine(
            self._process, communicator, tuple(self._members[member] for member in members), axis
        )

    def _all_reduce(self, request: Request, ticket: Ticket) -> Flight:
        source, target, operation = request.source, request.target, _OPERATIONS[request.monoid]
        reduce = self._communicator.Iallreduce
        wire = to_wire(source, request.monoid)
        if wire is not source:
            # The wire is a copy, or a view of bools.
            into = np.empty_like(wire)
            return Flight(
                [reduce(wire, into, operation)], lambda: from_wire(into, target, request.monoid)
            )
        start = MPI.IN_PLACE if _is_same(source, target) else source
        return Flight([reduce(start, target, operation)])

    def _reduce_scatter(self, request: Request, ticket: Ticket) -> Flight:
        source, target, operation = request.source, request.target, _OPERATIONS[request.monoid]
        scatter = self._communicator.Ireduce_scatter_block
        wire = to_wire(source, request.monoid)
        if wire is source:
            return Flight([scatter(source, target, operation)])
        into = np.empty(target.size, wire.dtype)
        return Flight(
            [scatter(wire, into, operation)], lambda: from_wire(into, target, request.monoid)
        )

    def _all_gather(self, request: Request, ticket: Ticket) -> Flight:
        start = self._communicator.Iallgather
        return Flight([start(_bytes(request.source), _bytes(request.target))])

    def _all_to_all(self, request: Request, ticket: Ticket) -> Flight:
        start = self._communicator.Ialltoall
        return Flight([start(_bytes(request.source), _bytes(request.target))])

    def _broadcast(self, request: Request, ticket: Ticket) -> Flight:
        start = self._communicator.Ibcast
        if self.rank != request.root:
            return Flight([start(_bytes(request.target), request.root)])
        if not _is_same(request.source, request.target):
            request.target[:] = request.source
        return Flight([start(_bytes(request.source), request.root)])

    def _permute(self, request: Request, ticket: Ticket) -> Flight:
        tag = ticket.number % TAGS
        source, target = _bytes(request.source), _bytes(request.target)
        senders = [sender for sender, receiver in request.pairs if receiver == self.rank]
        receivers = [receiver for sender, receiver in request.pairs if sender == self.rank]
        if not senders:
            target[0][:] = 0
        return Flight(
            [self._communicator.Irecv(target, sender, tag) for sender in senders]
            + [self._communicator.Isend(source, receiver, tag) for receiver in receivers]
        )


_START: dict[str, Callable[[MpiEngine, Request, Ticket], Flight]] = {
    "all_reduce": MpiEngine._all_reduce,
    "all_gather": MpiEngine._all_gather,
    "reduce_scatter": MpiEngine._reduce_scatter,
    "all_to_all": MpiEngine._all_to_all,
    "permute": MpiEngine._permute,
    "broadcast": MpiEngine._broadcast,
}


def _bytes(array: Array) -> list[Any]:
    return [array.view(np.uint8), MPI.BYTE]


def _is_same(one: Array, other: Array) -> bool:
    return bool(np.may_share_memory(one, other))


def world(timeout: float | None, launched: int | None) -> MpiEngine:
    """The group of all processes that the launcher has started; `launched`: how many it says."""
    process = MpiProcess(timeout)
    if launched not in (None, process.size):
        raise CollectiveError(
            f"{launched} ranks were launched, but MPI knows {process.size}: the launcher is of "
            f"another MPI than mpi4py ({MPI.Get_library_version().split(chr(10))[0].strip()}); "
            "start ranks by `luminal launch`, or by that MPI's mpiexec"
        )
    return MpiEngine(process, process.communicator, tuple(range(process.size)), "")
