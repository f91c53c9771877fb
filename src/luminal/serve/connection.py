"""A client's connection: what is no HTTP is refused like other requests, and waiting has an end.

It builds on uvicorn's protocol over h11; uvicorn would choose another one where that is installed.
h11 parses strictly, but reads on where RFC 9112 lets a server refuse: see Strict.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from luminal.base import host
from luminal.serve.errors import ApiError, too_large
from luminal.serve.replies import to_json

HEAD = 64 << 10  # bytes of a request before its body
REQUEST_SECONDS = 30.0  # a request, its body too, must be there within
STALL_SECONDS = 60.0  # a client that reads nothing for so long is given up
LINGER_SECONDS = 2.0  # a client may go on to send, after it was refused, so that it reads the error
BACKLOG = 256  # connections that wait to be accepted, which then happens at once
SPARE_FILES = BACKLOG + 32  # what a process may open besides the connections that it knows of


# Leniency is a hole here: a proxy in front that reads the end of a request elsewhere would hand one
# client's bytes to another.
class Strict(h11.Connection):
    """One that takes a request only where all readers agree on where it ends.

    A proxy in front that reads another length, or another version, would take part of one client's
    body for the request of another (RFC 9112, 2.3, 6.1 and 11.2).
    """

    refusal: ApiError | None = None
    """Why what the client sent was no request; None before."""

    def __init__(self, body: int) -> None:
        super().__init__(h11.SERVER, HEAD)
        self._body = body

    def next_event(self) -> Any:
        """See h11. Raises RemoteProtocolError."""
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.refusal = _refusal(error.error_status_hint)
            raise
        if isinstance(event, h11.Request):
            self.refusal = _checked(event)
        elif self._chunk(event) > self._body:
            self.refusal = too_large(self._body)
        if self.refusal is not None:
            raise h11.RemoteProtocolError(self.refusal.message)
        return event

    def _chunk(self, event: Any) -> int:
        """The size of the chunk that begins, or what is to come of it: h11 has no name for that."""
        came = len(event.data) if isinstance(event, h11.Data) and event.chunk_start else 0
        return came + getattr(self._reader, "_bytes_in_chunk", 0)


def _refusal(status: int) -> ApiError:
    """What h11 does not understand."""
    said = {
        431: f"More than {HEAD >> 10} KiB of headers; send fewer",
        501: "Transfer-Encoding: only chunked is understood; send the body with its Content-Length",
    }
    return ApiError(status, said.get(status, "This is no request of HTTP/1.1"))


def _checked(request: h11.Request) -> ApiError | None:
    """What is wrong with a request that h11 has parsed, if anything is."""
    version = request.http_version.decode()
    names = [name for name, _ in request.headers]
    if version not in ("1.0", "1.1"):
        return ApiError(505, f"HTTP/{version}: the server speaks HTTP/1.1 and 1.0; use one of them")
    if b"transfer-encoding" in names and (b"content-length" in names or version == "1.0"):
        beside = "a Content-Length" if b"content-length" in names else "HTTP/1.0"
        return ApiError(
            400, f"Transfer-Encoding beside {beside}: where the body ends is not sure; send one"
        )
    lines = sum(len(name) + len(value) + len(": \r\n") for name, value in request.headers)
    if lines + len(request.method) + len(request.target) > HEAD:
        return _refusal(431)
    return None


class Connection(H11Protocol):
    """One of uvicorn's, with limits of time, and errors in OpenAI's form.

    A chunk of more than `body` bytes is refused before it comes: all of a body may have no more.
    """

    conn: Strict
    _request: asyncio.TimerHandle | None = None
    _answer: asyncio.TimerHandle | None = None
    _unread = 0
    _refused = False

    def __init__(self, body: int, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._body = body

    def connection_made(self, transport: Any) -> None:
        """A client has come; it is sent away where the process would have no files for others."""
        super().connection_made(transport)
        self.conn = Strict(self._body)
        # With no descriptor left, accept fails for everyone and the loop spins on it. One client
        # less is the better answer.
        if len(self.connections) + SPARE_FILES > host.open_files():
            transport.abort()
        transport.set_write_buffer_limits(0)  # writing is paused while anything is not sent
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """It has sent something."""
        if not self._refused:
            super().data_received(data)
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: whoever waits for it is told."""
        super().connection_lost(exc)
        for timer in (self._request, self._answer):
            if timer is not None:
                timer.cancel()

    # --- what the client sends

    def send_400_response(self, msg: str) -> None:
        """Answers what h11 does not understand."""
        self._refuse(self.conn.refusal or ApiError(400, msg))

    def _await_request(self) -> None:
        """The time of a request begins with the connection; of another, with its first byte."""
        # While a body is missing the clock goes on: a client that sends a byte a minute holds a
        # connection for no longer than one that sends nothing.
        wanting = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if wanting and self._request is None:
            self._request = self.loop.call_later(REQUEST_SECONDS, self._late)
        elif not wanting and self._request is not None:
            self._request.cancel()
            self._request = None

    def _late(self) -> None:
        self._refuse(ApiError(408, f"The request did not come within {REQUEST_SECONDS:g} s"))

    def _refuse(self, error: ApiError) -> None:
        """Ends the connection, with an error where no answer has begun."""
        # A status line in the middle of an answer would be read as a part of its body.
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = to_json(error.body())
        lines = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
            "",
            "",
        )
        self.transport.write("\r\n".join(lines).encode() + body)
        self._refused = True
        # Closing at once while the client still sends makes its system reset the connection, and
        # the error is dropped before it is read (RFC 9112, section 9.6).
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    # --- what it reads

    def pause_writing(self) -> None:
        """What was written waits for the client."""
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        """The client has taken what was written."""
        super().resume_writing()
        if self._answer is not None:
            self._answer.cancel()

    def _await_reading(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._answer = self.loop.call_later(STALL_SECONDS, self._stalls)

    def _stalls(self) -> None:
        # A slow reader is no dead one: while anything was taken since the last look, it has its
        # time anew.
        if self.transport.get_write_buffer_size() < self._unread:
            self._await_reading()
        else:
            self.transport.abort()
