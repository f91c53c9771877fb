"""The process that serves: sockets, signals, logs."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import socket
import time
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from luminal.base import host
from luminal.base.errors import InputError
from luminal.serve.connection import BACKLOG, SPARE_FILES, Connection

SWITCH = 0.0005
"""Seconds that a thread may keep the interpreter from others: a step waits for it after its run."""
HURRY_SECONDS = 2.0  # that clients have to read why their texts end
LOG = logging.getLogger("luminal.serve")


class JsonLines(logging.Formatter):
    """A log record as one line of JSON; what is JSON already becomes part of it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a log record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        text = record.getMessage()
        line |= json.loads(text) if record.name.endswith(".access") else {"message": text}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_as_json(level: str = "INFO") -> None:
    """Sends the server's logs to the standard error, a JSON object a line."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name in ("luminal.serve", "uvicorn"):
        logger = logging.getLogger(name)
        # The root logger would write each line a second time, in another form.
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def bound(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host; none listens yet. Raises InputError."""
    sockets: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
        for number, (family, *_, address) in enumerate(addresses, 1):
            try:
                sockets.append(_bound(family, address))
            except OSError as error:
                lacks = error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # such as IPv6
                if not lacks or (number == len(addresses) and not sockets):
                    raise
    except (OSError, UnicodeError) as error:
        for listener in sockets:
            listener.close()
        why = error.strerror if isinstance(error, OSError) else "it is no name of a machine"
        raise _no_listening(host, port, why) from None
    return sockets


def _no_listening(host: str, port: int, why: str | None) -> InputError:
    return InputError(
        f"serve: cannot listen on {host!r}, port {port}: {why}; "
        "choose others with --host and --port"
    )


def _bound(family: int, address: Any) -> socket.socket:
    """A socket bound to the address. Raises OSError."""
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Without it a server that was restarted could not bind for a minute, while connections of
        # the old one are in TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # On Linux an IPv6 socket takes IPv4 connections as well, and then the second socket,
            # for IPv4, could not be bound.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def run(app: ASGIApp, sockets: list[socket.socket], drain: int, body: int) -> None:
    """Serves on bound sockets until SIGTERM or Ctrl-C, as many clients as the system allows.

    `drain`, `body`: see make_server.
    """
    listen(sockets)
    freeze()
    make_server(app, drain, body).run(sockets)


def listen(sockets: list[socket.socket]) -> None:
    """Has bound sockets listen, and the process open as many files as the system allows.

    Raises InputError where another process was faster, or there may be too few files.
    """
    for listener in sockets:
        name, port = listener.getsockname()[:2]
        try:
            listener.listen(BACKLOG)
        except OSError as error:  # another process has bound it too, and was faster
            raise _no_listening(name, port, error.strerror) from None
        shown = f"[{name}]" if listener.family == socket.AF_INET6 else name
        LOG.info("Listens on http://%s:%d", shown, port)
    # The soft limit is often 1024, which is a default for programs with select, not a wish of
    # whoever runs the server.
    most = host.raise_open_files(SPARE_FILES)
    if most <= SPARE_FILES:
        raise InputError(
            f"serve: the process may open {most} files, which must be more than {SPARE_FILES}; "
            "raise `ulimit -n`"
        )


def freeze() -> None:
    """Leaves programs out of searches for garbage, which would hold up every text for 0.2 s."""
    gc.collect()
    gc.freeze()


class Server(uvicorn.Server):
    """One that is as orderly when a second signal tells it not to wait: what runs then is told, and
    the engine ends. (Uvicorn's own would leave both to the end of the event loop.)
    """

    _hurries: asyncio.Task[None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM or Ctrl-C, in the main thread."""
        if self.should_exit:
            asyncio.get_running_loop().call_soon_threadsafe(self._hurry)
        else:
            super().handle_exit(sig, frame)

    def _hurry(self) -> None:
        self._hurries = asyncio.create_task(self.end_all())  # the loop itself keeps none alive

    async def end_all(self) -> None:
        """Ends all requests as if their time were over, then the connections of who reads none."""
        tasks = [*self.server_state.tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=HURRY_SECONDS)
        for connection in [*self.server_state.connections]:
            connection.transport.abort()


def make_server(app: ASGIApp, drain: int, body: int, kind: type[Server] = Server) -> Server:
    """A server; `drain`: seconds that running requests have after SIGTERM or Ctrl-C, `body`: bytes
    that a request may have.
    """
    protocol: Any = partial(Connection, body)  # uvicorn calls it, whatever its types say
    return kind(
        uvicorn.Config(
            app,
            backlog=BACKLOG,
            timeout_graceful_shutdown=drain,
            access_log=False,
            log_config=None,
            http=protocol,
            ws="none",
            server_header=False,
        )
    )
