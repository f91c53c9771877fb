"""The engine of ranks that are threads of one process: of a mesh of its devices, for tests, and
for one rank alone.

It fails as others do: a wait ends at its deadline, and where one rank aborts, all waits end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar, copy_context
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from luminal.base.errors import CollectiveError, InputError
from luminal.base.generator import begin_rank
from luminal.base.number_kinds import is_count
from luminal.runtime.collectives.engine import ABORTED, Deadlines, Engine
from luminal.runtime.collectives.tickets import Array, Monoid, Request, Ticket
from luminal.runtime.collectives.whereabouts import (
    Doing,
    Whereabouts,
    ended_error,
    missing,
    timeout_error,
)
from luminal.runtime.collectives.wire import from_wire, to_wire

T = TypeVar("T")

thread_engine: ContextVar[Engine | None] = ContextVar("engine", default=None)
"""The engine of this thread, where ranks are threads: each has a context of its own."""

_COMBINE: dict[Monoid, np.ufunc] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


class _Meeting:
    """One collective of a group: the tickets of the ranks that have come."""

    def __init__(self) -> None:
        self.tickets: dict[int, Ticket] = {}


class World:
    """All that the ranks of one process share. `unlike`: their devices are of several kinds, so
    their programs are alike in their collectives alone, which the host carries.
    """

    def __init__(self, size: int, deadlines: Deadlines, *, unlike: bool = False) -> None:
        self.size = size
        self.unlike = unlike
        self.deadlines = deadlines
        self.changed = threading.Condition()
        self.aborted: str | None = None
        self.doing: list[Doing] = ["computes"] * size
        self.last = [""] * size
        self._groups: dict[object, dict[int, _Meeting]] = {}

    def engine(self, rank: int) -> LocalEngine:
        """What rank number `rank` has of the group of all ranks."""
        return LocalEngine(self, tuple(range(self.size)), rank, "")

    def group(self, key: object) -> dict[int, _Meeting]:
        """The meetings of a group, by number: one dict for all its ranks."""
        with self.changed:
            return self._groups.setdefault(key, {})

    def abort(self, reason: str) -> None:
        """Ends all waits, now and later; the first reason stays."""
        with self.changed:
            self.aborted = self.aborted or reason
            self.changed.notify_all()

    def begin(self, rank: int) -> None:
        """Notes that a rank begins, maybe again."""
        with self.changed:
            self.doing[rank] = "computes"

    def end(self, rank: int) -> None:
        """Notes that a rank has ended, so that nobody waits for it."""
        with self.changed:
            self.doing[rank] = "has ended"
            self.changed.notify_all()


class LocalEngine(Engine):
    """One thread's part of a group of ranks that share a process."""

    def __init__(self, world: World, members: tuple[int, ...], rank: int, axis: str) -> None:
        super().__init__(rank, len(members), axis)
        self._world, self._members = world, members
        self.unlike = world.unlike
        self._meetings = world.group((members, axis))

    @property
    def _global(self) -> int:
        return self._members[self.rank]

    def _start(self, ticket: Ticket) -> None:
        world = self._world
        with world.changed:
            self._go_on()
            world.last[self._global] = ticket.title
            meeting = self._meetings.setdefault(ticket.number, _Meeting())
            ticket.state = meeting
            meeting.tickets[self.rank] = ticket
            if len(meeting.tickets) == self.size:
                # The last to come moves everything. Nobody is asked for this number again.
                del self._meetings[ticket.number]
                tickets = [meeting.tickets[rank] for rank in range(self.size)]
                if len({other.request.shape for other in tickets}) == 1:
                    _move([other.request for other in tickets])
                    for other in tickets:
                        other.done = True
                    world.changed.notify_all()

    def wait(self, ticket: Ticket, *, first: bool = False) -> None:
        """Waits for the last rank of the group to come."""
        world = self._world
        seconds = world.deadlines.first if first else world.deadlines.each
        end = time.monotonic() + seconds
        with world.changed:
            world.doing[self._global] = "waits"
            while not ticket.done:
                self._go_on()
                self._refuse_ended(ticket)
                left = end - time.monotonic()
                if left <= 0:
                    raise self._late(ticket, seconds)
                world.changed.wait(left)
            world.doing[self._global] = "computes"

    def look(self, ticket: Ticket, waited: float, *, first: bool = False) -> None:
        """Looks whether a rank has failed, has ended or is late."""
        world = self._world
        seconds = world.deadlines.first if first else world.deadlines.each
        with world.changed:
            self._go_on()
            if not ticket.done:
                self._refuse_ended(ticket)
            if waited > seconds:
                raise self._late(ticket, seconds)

    def fail(self, error: CollectiveError) -> CollectiveError:
        """The error, by which the waits of all ranks end."""
        self._world.abort(str(error))
        return error

    def abort(self, reason: str, code: int = ABORTED) -> None:
        """Ends the waits of all ranks: threads cannot be ended."""
        self._world.abort(f"rank {self._global}: {reason}")

    def set_timeout(self, seconds: float) -> None:
        """Sets how long waits of all ranks last from now on."""
        self._world.deadlines = Deadlines.of(seconds)

    def _split(self, members: tuple[int, ...], axis: str) -> Engine:
        global_members = tuple(self._members[member] for member in members)
        return LocalEngine(self._world, global_members, members.index(self.rank), axis)

    def _go_on(self) -> None:
        if self._world.aborted is not None:
            raise CollectiveError(f"all ranks end: {self._world.aborted}")

    def _refuse_ended(self, ticket: Ticket) -> None:
        ended = [
            other
            for other in missing(ticket, self._whereabouts(ticket))
            if other.doing == "has ended"
        ]
        if ended:
            raise self.fail(ended_error(ticket, self._global, ended))

    def _late(self, ticket: Ticket, seconds: float) -> CollectiveError:
        return self.fail(timeout_error(ticket, self._global, seconds, self._whereabouts(ticket)))

    def _whereabouts(self, ticket: Ticket) -> list[Whereabouts]:
        """The other ranks of the group, and whether they have come to this ticket's meeting."""
        world, meeting = self._world, ticket.state
        return [
            Whereabouts(
                member,
                world.doing[member],
                ticket.number + (rank in meeting.tickets),
                meeting.tickets[rank].title if rank in meeting.tickets else world.last[member],
            )
            for rank, member in enumerate(self._members)
            if rank != self.rank
        ]


def run_local(size: int, work: Callable[[Engine], T], *, timeout: float | None = None) -> list[T]:
    """Runs `work(engine)` on `size` ranks that are threads, and returns their results.

    Each has a context and a default generator of its own, as a process has. Raises what the first
    rank raised that failed, with a note of its number, and InputError for a size that is none.
    """
    if not is_count(size):
        raise InputError(f"run_local: size is {size!r}; give an int of at least 1")
    contexts = [Context() for _ in range(size)]
    for context in contexts:
        context.run(begin_rank)
    return run_in(World(int(size), Deadlines.of(timeout)), work, contexts)


def run_here(world: World, work: Callable[[Engine], T], *, finishes: bool = False) -> list[T]:
    """Runs `work(engine)` on ranks that are threads with what is set in this context, as `run_in`.

    `finishes`: Ctrl-C is raised once all ranks have ended as they would have, a second one at once.
    """
    contexts = [copy_context() for _ in range(world.size)]
    return run_in(world, work, contexts, finishes=finishes)


def run_in(
    world: World, work: Callable[[Engine], T], contexts: Sequence[Context], *,
    finishes: bool = False,
) -> list[T]:  # fmt: skip
    """Runs `work(engine)` on all ranks of a world, each in a context, and returns their results.

    Raises what the first rank raised that failed, with a note of its number; the world is of no
    more use then.
    """
    size = world.size
    results: list[Any] = [None] * size
    failures: list[tuple[int, BaseException]] = []

    def rank_work(rank: int) -> None:
        try:
            engine = world.engine(rank)
            thread_engine.set(engine)
            results[rank] = work(engine)
        except BaseException as error:
            failures.append((rank, error))
            world.abort(f"rank {rank}: {type(error).__name__}: {error}")
        finally:
            world.end(rank)

    threads = [
        threading.Thread(
            target=context.run, args=(rank_work, rank), name=f"rank {rank}", daemon=True
        )
        for rank, context in enumerate(contexts)
    ]
    for rank in range(size):
        world.begin(rank)  # all, before one could find that another has ended
    for thread in threads:
        thread.start()
    try:
        _join(threads, world)
    except KeyboardInterrupt:
        if not finishes:
            world.abort("Ctrl-C")
            raise
        for thread in threads:
            thread.join()
        raise
    if failures:
        rank, error = failures[0]
        error.add_note(f"on rank {rank} of {size}")
        stuck = [number for number, thread in enumerate(threads) if thread.is_alive()]
        if stuck:
            error.add_note(f"ranks {stuck} have not ended")
        raise error
    return results


def _join(threads: Sequence[threading.Thread], world: World) -> None:
    """Waits for all ranks to end; one second only for those that an abort does not reach."""
    for thread in threads:
        while thread.is_alive() and world.aborted is None:
            thread.join(0.02)
    end = time.monotonic() + 1
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))


def _move(requests: list[Request]) -> None:
    """Writes the targets of all ranks."""
    kind, root = requests[0].kind, requests[0].root
    sources = [_bytes(request.source) for request in requests]
    targets = [_bytes(request.target) for request in requests]
    size = len(requests)
    if kind in ("all_reduce", "reduce_scatter"):
        _reduce(requests)
    elif kind == "all_gather":
        whole = np.concatenate(sources)
        for target in targets:
            target[:] = whole
    elif kind == "all_to_all":
        pieces = np.stack(sources).reshape(size, size, -1).swapaxes(0, 1).copy()
        for target, piece in zip(targets, pieces, strict=True):
            target[:] = piece.reshape(-1)
    elif kind == "broadcast":
        sent = sources[root].copy()
        for target in targets:
            target[:] = sent
    else:
        sent_by = {receiver: sources[sender].copy() for sender, receiver in requests[0].pairs}
        for rank, target in enumerate(targets):
            target[:] = sent_by.get(rank, np.uint8(0))


def _reduce(requests: list[Request]) -> None:
    monoid = requests[0].monoid
    total = reduce(_COMBINE[monoid], [to_wire(request.source, monoid) for request in requests])
    whole = np.empty_like(requests[0].source)
    from_wire(total, whole, monoid)
    pieces = [whole] * len(requests)
    if requests[0].kind == "reduce_scatter":
        pieces = np.split(whole, len(requests))
    for request, piece in zip(requests, pieces, strict=True):
        request.target[:] = piece


def _bytes(array: Array) -> Array:
    return array.view(np.uint8)
