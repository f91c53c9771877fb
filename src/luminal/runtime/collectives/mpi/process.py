"""This process as others see it over MPI: who drives MPI when, questions and answers about where
ranks are, deadlines, and the end.
"""

from __future__ import annotations

import faulthandler
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from luminal.base.errors import CollectiveError
from luminal.runtime.collectives.drain import drain
from luminal.runtime.collectives.engine import ABORTED, Deadlines
from luminal.runtime.collectives.mpi.library import MPI
from luminal.runtime.collectives.mpi.shared_memory import let_go
from luminal.runtime.collectives.note import Note
from luminal.runtime.collectives.tickets import Ticket
from luminal.runtime.collectives.whereabouts import (
    Whereabouts,
    ended_error,
    missing,
    timeout_error,
)

ASK, TELL = 1, 2
KEY = struct.Struct("<I")

SPIN = 50e-6  # seconds without a pause: what is small comes in less
YIELDING = 2e-3  # then so long only who wants the core gets it: what is large, on a quiet machine
PAUSE = 2e-4  # then, or once somebody has wanted it, a sleep between looks: others compute
TAKEN = 5e-5  # seconds of a yield in which somebody else has had the core
IDLE = 0.02  # between looks for questions, where nothing is under way
LARGE = 1 << 16  # bytes that MPI moves in steps, each of which somebody has to drive

PATIENCE = 1.0  # seconds of a wait before ranks ask one another where they are
GRACE = 0.7  # seconds for an error to be shown before all is ended


class MpiProcess:
    """What all groups of a process share. MPI is called under `lock` only."""

    def __init__(self, timeout: float | None) -> None:
        self._pid = os.getpid()
        self._starts_mpi = not MPI.Is_initialized()
        self.deadlines = Deadlines.of(timeout)
        if self._starts_mpi:
            _come_up_with_all_ranks(self.deadlines.first)
        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise CollectiveError(
                "MPI was started for one thread only (MPI_THREAD_FUNNELED or less); let "
                "lm.distributed.init() start it, or ask for MPI_THREAD_SERIALIZED or more"
            )
        self.communicator = MPI.COMM_WORLD.Dup()  # now all ranks have come up
        let_go()
        self._control = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._control.rank, self._control.size
        self.lock = threading.Lock()
        self._wake = threading.Event()
        self._flying: list[Ticket] = []
        self._waits = 0  # threads that drive MPI themselves
        self._note = Note(self.rank)
        self._counts: dict[int, int] = {}  # collectives started, by group
        self._asked = 0  # the group that others were asked about last, and what they told of it
        self._told: dict[int, Whereabouts] = {}
        self._replies: list[tuple[Any, bytes]] = []
        self._abort_at = float("inf")
        self._reason = ""
        self._stops = False
        self._daemon = threading.Thread(target=self._serve, name="luminal-mpi", daemon=True)
        self._daemon.start()

    def add_group(self, members: tuple[int, ...], axis: str) -> int:
        """A number for a group, the same on all its ranks."""
        key = zlib.crc32(repr((members, axis)).encode())
        self._counts[key] = 0
        return key

    # --- moving -------------------------------------------------------------------------------

    def start(self, key: int, ticket: Ticket, begin: Callable[[], Any]) -> None:
        """Starts a collective of a group."""
        self._counts[key] = ticket.number + 1
        self._note.start(ticket.title)
        if ticket.done:
            return
        with self.lock:
            try:
                ticket.state = begin()
            except MPI.Exception as error:
                raise self._failed(ticket, error) from None
            self._flying.append(ticket)
        if max(ticket.request.source.nbytes, ticket.request.target.nbytes) >= LARGE:
            self._wake.set()

    def wait(self, key: int, ticket: Ticket, members: tuple[int, ...], first: bool) -> None:
        """Drives MPI until the ticket is done; past the deadline, or where a rank that is needed
        has ended, raises an error, and all ranks end.
        """
        seconds = self.deadlines.first if first else self.deadlines.each
        start = time.monotonic()
        # Of what comes at once, nobody is told.
        while time.monotonic() - start < SPIN:
            if self._advance(ticket):
                return
        busy = False
        self._waits += 1
        self._note.doing = "waits"
        try:
            while not self._advance(ticket):
                waited = time.monotonic() - start
                self._look(key, ticket, members, seconds, waited)
                busy = _pause(waited, busy)
        finally:
            self._waits -= 1
            self._note.doing = "computes"
            self._told = {}

    def look(
        self, key: int, ticket: Ticket, members: tuple[int, ...], first: bool, waited: float
    ) -> None:
        """What a wait of so many seconds does, of which MPI knows nothing."""
        self._look(
            key, ticket, members, self.deadlines.first if first else self.deadlines.each, waited
        )

    def _look(
        self, key: int, ticket: Ticket, members: tuple[int, ...], seconds: float, waited: float
    ) -> None:
        """Asks others where they are, once a wait is long; raises an error where it is too long, or
        a rank that is needed has ended.
        """
        if waited > (ticket.asks or min(PATIENCE, seconds / 2)):
            self._ask(key, ticket, members)
            ticket.asks = min(2 * waited, max(seconds - 0.3, waited + 0.1))
        if waited > seconds:
            raise self._late(ticket, seconds, members)
        if waited > PATIENCE or self._told:
            self._refuse_ended(ticket, members)

    def _advance(self, ticket: Ticket) -> bool:
        with self.lock:
            if not ticket.done:
                self._test(ticket)
            return ticket.done

    def _test(self, ticket: Ticket) -> None:
        try:
            if ticket.state.advance():
                ticket.done = True
                ticket.state = None
                self._flying.remove(ticket)
        except MPI.Exception as error:
            raise self._failed(ticket, error) from None

    def _serve(self) -> None:
        """Runs as the daemon: drives MPI while nobody waits, and answers questions."""
        while not self._stops:
            self._wake.clear()
            with self.lock:
                self._answer()
                if not self._waits:
                    for ticket in tuple(self._flying):
                        try:
                            self._test(ticket)
                        except CollectiveError as error:
                            self._flying.remove(ticket)
                            self.fail(error)
            if time.monotonic() > self._abort_at:
                self.abort(self._reason)
            self._wake.wait(PAUSE if self._flying and not self._waits else IDLE)

    # --- where ranks are ----------------------------------------------------------------------

    def _ask(self, key: int, ticket: Ticket, members: tuple[int, ...]) -> None:
        with self.lock:
            question, self._asked = KEY.pack(key), key
            for member in members:
                if member != self.rank:
                    self._send(question, member, ASK)

    def _send(self, data: bytes, rank: int, tag: int) -> None:
        self._replies = [(sent, text) for sent, text in self._replies if not sent.Test()]
        self._replies.append((self._control.Isend([data, MPI.BYTE], rank, tag), data))

    def _answer(self) -> None:
        """Reads what other ranks ask and tell, and answers what they ask."""
        status = MPI.Status()
        while self._control.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            data = bytearray(status.Get_count(MPI.BYTE))
            self._control.Recv([data, MPI.BYTE], status.source, status.tag)
            (key,) = KEY.unpack_from(data)
            if status.tag == ASK:
                here = self._note.whereabouts(self._counts.get(key, 0))
                self._send(KEY.pack(key) + here.encode(), status.source, TELL)
            elif key == self._asked:  # and not a late answer about another group
                self._told[status.source] = Whereabouts.decode(bytes(data[KEY.size :]))

    def _whereabouts(self, members: tuple[int, ...]) -> list[Whereabouts]:
        return [
            self._told.get(member, Whereabouts(member, "does not answer"))
            for member in members
            if member != self.rank
        ]

    def _refuse_ended(self, ticket: Ticket, members: tuple[int, ...]) -> None:
        told = [self._told[member] for member in members if member in self._told]
        ended = [rank for rank in missing(ticket, told) if rank.doing == "has ended"]
        if ended:
            raise self.fail(ended_error(ticket, self.rank, ended))

    # --- the end ------------------------------------------------------------------------------

    def _late(self, ticket: Ticket, seconds: float, members: tuple[int, ...]) -> CollectiveError:
        return self.fail(timeout_error(ticket, self.rank, seconds, self._whereabouts(members)))

    def _failed(self, ticket: Ticket, error: MPI.Exception) -> CollectiveError:
        return self.fail(
            CollectiveError(
                f"rank {self.rank}: {ticket.title} has failed: {error}; ranks that start different "
                "collectives, or of different sizes, are named with LUMINAL_VERIFY=1"
            )
        )

    def fail(self, error: CollectiveError) -> CollectiveError:
        """The error, after which all ranks end soon, whatever becomes of it."""
        if not self._reason:
            self._reason = str(error)
            self._abort_at = time.monotonic() + GRACE
        return error

    def abort(self, reason: str, code: int = ABORTED) -> None:
        """Says why, and ends all processes of the program; in a child that was forked, only it."""
        if os.getpid() != self._pid:
            os._exit(code)
        drain(f"luminal: rank {self.rank} of {self.size} ends all: {reason}")
        # Whoever holds the lock may hold it for ever.
        self.lock.acquire(timeout=0.2)
        MPI.COMM_WORLD.Abort(code)
        os._exit(code)

    def farewell(self) -> None:
        """Ends this process's part when all others have come to their ends: until then it answers
        those who wait for it that it has ended.
        """
        if os.getpid() != self._pid:  # a child that was forked, which is no rank
            return
        self._note.doing = "has ended"
        with self.lock:
            barrier = self._control.Ibarrier()
        pause = PAUSE
        while True:
            with self.lock:
                if barrier.Test():
                    break
                self._answer()
            time.sleep(pause)
            pause = min(2 * pause, IDLE)
        self._stops = True
        self._wake.set()
        self._daemon.join()
        if self._starts_mpi:
            MPI.Finalize()


def _come_up_with_all_ranks(seconds: float) -> None:
    """Starts MPI, which waits for all ranks that were launched to do so: at most so long, since
    one of them may have ended before.
    """
    # MPI keeps the interpreter meanwhile, and no Python would run: this shows where it waits, in
    # this function, and ends the process.
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    # A user's own mpi4py may be called beside us, from other threads.
    MPI.Init_thread(MPI.THREAD_MULTIPLE)
    faulthandler.cancel_dump_traceback_later()


def _pause(waited: float, busy: bool) -> bool:
    """Lets others have this core, the more the longer nothing has come. Returns whether the core is
    busy, given whether it was.
    """
    if busy or waited > YIELDING:
        time.sleep(PAUSE)
        return busy
    start = time.monotonic()
    os.sched_yield()
    return time.monotonic() - start > TAKEN
