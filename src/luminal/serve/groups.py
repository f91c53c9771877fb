"""Groups of ranks that serve one model, and the process in front of them, which has no model.

It starts the groups, hands each request to the one with the fewest, and starts those again that
die. A client of a group that dies is told so by this process, whichever rank it was: of MPI's ranks
none outlives another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pickle
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from socket import socket
from types import FrameType

from starlette.types import Message, Receive, Scope, Send

from luminal.base import config, host, installation
from luminal.base.errors import InputError
from luminal.runtime.collectives.engine import Deadlines
from luminal.runtime.collectives.launcher import RANK, exit_status
from luminal.runtime.collectives.mpich import mpiexec
from luminal.runtime.collectives.start import LOOKS, Start, opened
from luminal.serve.errors import ApiError
from luminal.serve.forward import fetched, forwarded
from luminal.serve.front import send_error
from luminal.serve.last_words import handed_on, reason_of
from luminal.serve.rank_process import REFUSED, Settings
from luminal.serve.replies import failed_stream, to_json
from luminal.serve.server import Server, listen, make_server
from luminal.serve.work import ended
from luminal_rank import die_with_parent

LOG = logging.getLogger("luminal.serve")
MODULE = "luminal.serve.rank_process"
STEADY_SECONDS = 10.0  # a group that has served for so long has not failed at its start
BACKOFF_SECONDS, MOST_BACKOFF = 0.5, 30.0  # before a first restart, and doubled for each in a row
ORDERLY_SECONDS = 10.0  # for a group to end by itself, then for mpiexec to end its ranks
START_DEADLINES = 2  # a start may take so many times what ranks wait for others that compile
TOLD_SECONDS = 1.0  # in which clients read why their texts end


class Group:
    """The ranks of one copy of the model, which begin anew when they die."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.port: int | None = None
        """Where its first rank listens; None while it has none."""
        self.open = 0
        """How many requests it has."""
        self.died = asyncio.Event()
        """Set when the ranks that now are there have died."""
        self.status = 0
        self.why = ""
        """What those that were there before have died of."""
        self.process: Process | None = None
        self.start: Start
        self.looks: asyncio.Task[None]
        """Looks after the processes while there are any."""
        self.says: asyncio.Task[str]
        """Hands on what the process writes to its standard error."""

    async def ended(self) -> None:
        """Waits until its ranks have ended, and notes how."""
        assert self.process is not None
        self.status = exit_status(await self.process.wait(), self.start)
        self.port = None
        self.looks.cancel()
        self.start.kill()  # whom the launcher may have left
        # Whoever was started by a rank may have the stream still.
        await asyncio.wait((self.says,), timeout=TOLD_SECONDS / 2)
        said = self.says.result() if self.says.done() else ""
        self.why = said or reason_of(self.status)
        self.died.set()

    async def end(self) -> None:
        """Ends its ranks: the input ends, so they do, once they serve; else by force."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        for how in (None, process.terminate, self.start.kill):
            if self.port is None and how != self.start.kill:
                continue
            if how is not None:
                with contextlib.suppress(ProcessLookupError):
                    how()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended(), ORDERLY_SECONDS)
                return

    async def look(self) -> None:
        """Sees that no rank dies unheard, and that a start does not last for ever."""
        last = time.monotonic() + START_DEADLINES * Deadlines.of(None).first
        while True:
            await asyncio.sleep(LOOKS)
            self.start.look()
            if self.port is None and time.monotonic() > last and not self.start.is_ended:
                LOG.error(
                    "group %d does not serve after %d times LUMINAL_COLLECTIVE_TIMEOUT: it is "
                    "ended; where a start takes so long, set that to more seconds",
                    self.number, 10 * START_DEADLINES,
                )  # fmt: skip
                self.start.kill()


class Groups:
    """The application in front of `replicas` groups of `tensor` ranks each.

    `restarts`: how often in a row a group that dies starts again.
    """

    def __init__(self, settings: Settings, tensor: int, replicas: int, restarts: int) -> None:
        if tensor > 1 and mpiexec() is None:
            raise InputError(f"--tensor {tensor}: there is no mpiexec; {installation.hint('mpi')}")
        self._settings, self._tensor, self._restarts = settings, tensor, restarts
        self._count = replicas
        self._groups: list[Group] = []
        self._lives: list[asyncio.Task[None]] = []
        self._turns = 0
        self._status = 0
        self.draining = False
        self._server: Server
        self._folder: Path

    def run(self, sockets: list[socket], drain: int) -> int:
        """Serves on bound sockets until SIGTERM or Ctrl-C, or until no group is left; returns the
        exit status.
        """
        cores = len(host.core_ids())
        config.provide(LUMINAL_THREADS=max(1, cores // (self._tensor * self._count)))
        listen(sockets)
        server = make_server(self, 1, self._settings.limits.body, DrainingServer)
        assert isinstance(server, DrainingServer)
        server.groups, server.drain = self, drain
        self._server = server
        # uvicorn raises KeyboardInterrupt anew, when all is over.
        with opened() as self._folder, contextlib.suppress(KeyboardInterrupt):
            # MPICH ends all where more than a pipe's room of a standard input is not read at once.
            self._written.write_bytes(pickle.dumps(self._settings))
            server.run(sockets)
        return self._status

    @property
    def _written(self) -> Path:
        """The file with the settings, in a folder that only this user reads: there are keys."""
        return self._folder / "settings"

    # --- requests

    @property
    def open(self) -> int:
        """How many requests there are."""
        return sum(group.open for group in self._groups)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or lives as long as the server does."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["path"] == "/health":
            await self._health(send)
        elif scope["path"] == "/metrics" and self._count > 1 and not self.draining:
            await self._metrics(scope, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        group = self._chosen()
        if self.draining or group is None:
            refusal = ended() if self.draining else _none()
            await send_error(send, refusal, scope["path"])
            return
        assert group.port is not None
        group.open += 1
        died = group.died
        begun = _Begun(send, scope["path"])
        try:
            await forwarded(group.port, scope, receive, begun)
        except asyncio.CancelledError:
            await begun.fail(ended())
        except ConnectionError:
            with contextlib.suppress(TimeoutError):  # the kernel is faster than who waits for it
                await asyncio.wait_for(died.wait(), TOLD_SECONDS)
            await begun.fail(_died(group))
        finally:
            group.open -= 1

    def _chosen(self) -> Group | None:
        """The group with the fewest requests, in turns where several have as few."""
        up = [group for group in self._groups if group.port is not None]
        if not up:
            return None
        self._turns += 1
        start = self._turns % len(up)
        return min([*up[start:], *up[:start]], key=lambda group: group.open)

    async def _health(self, send: Send) -> None:
        """200 where a text can be written."""
        up = sum(group.port is not None for group in self._groups)
        status = 200 if up and not self.draining else 503
        told = "ok" if status == 200 else "ends" if self.draining else "starts"
        body = {"status": told, "groups": self._count, "up": up}
        await _send_whole(send, status, to_json(body), b"application/json")

    async def _metrics(self, scope: Scope, send: Send) -> None:
        """The figures of all groups that are up, each with a label that says whose they are."""
        key = dict(scope["headers"]).get(b"authorization", b"")
        lines: dict[str, None] = {}
        for group in self._groups:
            if group.port is None:
                continue
            try:
                status, body = await fetched(group.port, b"/metrics", key)
            except ConnectionError:
                continue
            if status != 200:
                await _send_whole(send, status, body, b"application/json")
                return
            lines.update(dict.fromkeys(_labelled(body.decode(), group.number)))
        text = "".join(f"{line}\n" for line in lines)
        await _send_whole(send, 200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")

    # --- groups

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._groups = [Group(number) for number in range(self._count)]
        self._lives = [asyncio.create_task(self._life(group)) for group in self._groups]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        await asyncio.gather(*(group.end() for group in self._groups))
        await send({"type": "lifespan.shutdown.complete"})

    async def _life(self, group: Group) -> None:
        """Starts a group, and again when it has died, as often as it may."""
        in_a_row, has_served = 0, False
        while True:
            up = await self._start(group)
            has_served |= up
            start = time.monotonic()
            await group.ended()
            if up and time.monotonic() - start > STEADY_SECONDS:
                in_a_row = 0
            refuses = group.status == REFUSED and not has_served
            if refuses or in_a_row == self._restarts:
                break
            pause = min(MOST_BACKOFF, BACKOFF_SECONDS * 2**in_a_row)
            in_a_row += 1
            LOG.error(
                "group %d has ended (%s); it starts again in %g s (restart %d of %d in a row)",
                group.number, group.why, pause, in_a_row, self._restarts,
            )  # fmt: skip
            await asyncio.sleep(pause)
        LOG.error("group %d has ended (%s), for good", group.number, group.why)
        self._lost()

    def _lost(self) -> None:
        """Ends the server where no group is left."""
        living = [life for life in self._lives if not life.done()]
        if living == [asyncio.current_task()]:
            self._status = 1
            self._server.should_exit = True

    async def _start(self, group: Group) -> bool:
        """Starts a group; whether it has come so far that it serves."""
        started = time.monotonic()
        group.died = asyncio.Event()
        command = [sys.executable]
        if self._tensor > 1:
            command = [str(mpiexec()), "-n", str(self._tensor), *RANK]
        # In a session of its own: what a user types in a terminal is for this process, which ends
        # the ranks when the texts are written.
        group.start = Start(self._folder)
        group.process = process = await asyncio.create_subprocess_exec(
            *command, "-m", MODULE, str(self._written), stdin=PIPE, stdout=PIPE, stderr=PIPE,
            env=config.child_environment() | group.start.variables,
            start_new_session=True, preexec_fn=self._last_word,
        )  # fmt: skip
        group.start.launcher = process.pid
        group.looks = asyncio.create_task(group.look())
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        group.says = asyncio.create_task(handed_on(process.stderr))
        async for line in process.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                group.port = int(json.loads(line)["port"])
                seconds = time.monotonic() - started
                LOG.info("group %d serves, after %.1f s", group.number, seconds)
                return True
        return False

    def _last_word(self) -> None:
        """Has a group end when this process is killed: mpiexec hears of it, and ends its ranks."""
        if self._tensor > 1:
            die_with_parent(signal.SIGTERM)
        else:
            die_with_parent()


class DrainingServer(Server):
    """One that listens on while it drains, so that who comes then is told, by 503."""

    groups: Groups
    drain: int
    _drains: asyncio.Task[None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM or Ctrl-C, in the main thread; the second one ends the wait."""
        if self.groups.draining:
            self.drain = 0
            return
        self.groups.draining = True
        self._captured_signals.append(sig)
        LOG.info("ends, when the %d requests that run have their answers", self.groups.open)
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._drains = asyncio.create_task(self._drained())

    async def _drained(self) -> None:
        start = time.monotonic()
        while self.groups.open and time.monotonic() - start < self.drain:
            await asyncio.sleep(0.05)
        if self.groups.open:
            await self.end_all()
        self.should_exit = True


class _Begun:
    """Sends an answer on, and knows how far it is, should it have to end with an error."""

    def __init__(self, send: Send, path: str) -> None:
        self._send, self._path = send, path
        self._status = 0
        self._streams = self._done = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            kind = dict(message["headers"]).get(b"content-type", b"")
            self._streams = kind.startswith((b"text/event-stream", b"application/x-ndjson"))
        else:
            self._done = not message.get("more_body", False)
        await self._send(message)

    async def fail(self, error: ApiError) -> None:
        """Tells the client, in a stream as its last event."""
        if self._done:
            return
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(TOLD_SECONDS):
                if not self._status:
                    await send_error(self._send, error, self._path)
                    return
                if not self._streams:
                    raise error  # the connection ends in the middle of the answer
                lines = failed_stream(self._path, error)
                await self._send({"type": "http.response.body", "body": lines})


def _none() -> ApiError:
    return ApiError(503, "No ranks are up yet; try again soon", code="server_starts")


def _died(group: Group) -> ApiError:
    how = f" ({group.why})" if group.died.is_set() else ""
    return ApiError(
        503,
        f"The ranks that wrote this have ended{how}, and start again; ask once more",
        code="ranks_ended",
    )


def _labelled(text: str, number: int) -> list[str]:
    """Lines of Prometheus's text, whose samples say of which replica they are."""
    lines = []
    for line in text.splitlines():
        name, space, value = line.rpartition(" ")
        if line.startswith("#") or not space:
            lines.append(line)
        elif "{" in name:
            lines.append(name.replace("{", f'{{replica="{number}",', 1) + space + value)
        else:
            lines.append(f'{name}{{replica="{number}"}}{space}{value}')
    return lines


async def _send_whole(send: Send, status: int, body: bytes, kind: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
