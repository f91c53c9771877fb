"""A request handed on to a server on this machine, and its answer handed back as it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import h11
from starlette.types import Message, Receive, Scope

HERE = "127.0.0.1"
BYTES = 1 << 16
HOPS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding",
     b"upgrade", b"expect", b"x-forwarded-for", b"x-forwarded-proto")
)  # fmt: skip
"""Headers of one connection only (RFC 9110, 7.6.1), and those that say who asked."""


async def forwarded(
    port: int, scope: Scope, receive: Receive, send: Callable[[Message], Awaitable[None]]
) -> None:
    """Hands a request of ASGI on, and back what is answered. Returns early where the client goes.

    Raises ConnectionError where the server is not there, or ends before its answer does.
    """
    reader, writer = await asyncio.open_connection(HERE, port)
    connection = h11.Connection(h11.CLIENT)
    try:
        writer.write(_bytes(connection.send(_head(scope))))
        up = asyncio.ensure_future(_sent(connection, writer, receive, scope))
        down = asyncio.ensure_future(_answered(connection, reader, send))
        try:
            # The client may go while its body is sent, or while it is answered.
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if not down.done():
                return  # nobody reads it
            await down
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
    finally:
        writer.close()  # by which the server hears that nobody waits
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _head(scope: Scope) -> h11.Request:
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    headers = [(name, value) for name, value in scope["headers"] if name not in HOPS]
    if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
        headers.append((b"transfer-encoding", b"chunked"))
    client = (scope.get("client") or ("",))[0]
    headers += [(b"x-forwarded-for", client.encode()), (b"connection", b"close")]
    return h11.Request(method=scope["method"], target=target, headers=headers)


def _bytes(data: bytes | None) -> bytes:
    return data or b""


async def _sent(
    connection: h11.Connection, writer: asyncio.StreamWriter, receive: Receive, scope: Scope
) -> None:
    """Hands the body on; returns when the client has gone. A server that is gone is seen by who
    reads.
    """
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        with contextlib.suppress(OSError):
            if message.get("body"):
                writer.write(_bytes(connection.send(h11.Data(data=message["body"]))))
            if not message.get("more_body", False) and connection.our_state is h11.SEND_BODY:
                writer.write(_bytes(connection.send(h11.EndOfMessage())))
            await writer.drain()


async def _answered(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Hands the answer back."""
    while True:
        event: Any = connection.next_event()
        if event is h11.NEED_DATA:
            try:
                connection.receive_data(await reader.read(BYTES))
                event = connection.next_event()
            except h11.RemoteProtocolError:
                raise ConnectionResetError("the server ended in the middle") from None
        if isinstance(event, h11.Response):
            headers = [(name, value) for name, value in event.headers if name not in HOPS]
            start = {"type": "http.response.start", "status": event.status_code}
            await send(start | {"headers": headers})
        elif isinstance(event, h11.Data):
            data = bytes(event.data)
            await send({"type": "http.response.body", "body": data, "more_body": True})
        elif isinstance(event, h11.EndOfMessage):
            await send({"type": "http.response.body", "body": b""})
            return
        elif isinstance(event, h11.ConnectionClosed):
            raise ConnectionResetError("the server ended before it answered")


async def fetched(port: int, path: bytes, key: bytes) -> tuple[int, bytes]:
    """The status and the body of what a server answers to a GET. Raises ConnectionError."""
    headers = [(b"host", HERE.encode())] + ([(b"authorization", key)] if key else [])
    scope = {"method": "GET", "raw_path": path, "query_string": b"", "headers": headers}
    status, body = 0, b""

    async def nothing() -> Message:
        if not asked:
            asked.append(True)
            return {"type": "http.request", "body": b""}
        await asyncio.Event().wait()
        raise AssertionError

    async def take(message: Message) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    asked: list[bool] = []
    await forwarded(port, scope, nothing, take)
    return status, body
