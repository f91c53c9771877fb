"""The texts of one request while they are written, and the events that a stream sends of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from luminal.serve.errors import ApiError, refused
from luminal.serve.jobs import Event
from luminal.serve.orders import Order
from luminal.serve.replies import Choice, Replies, usage

if TYPE_CHECKING:
    from luminal.serve.app import Api

WRITES = 2500  # a second, by all streams: each costs about what a token of a small model does
SHORT = 0.002  # seconds; no less is waited for more tokens
Feed = asyncio.Queue[Event | None]
"""Events of a request's texts; None: its time is over."""


def ended() -> ApiError:
    """What texts end with that are still being written when the server ends."""
    return ApiError(503, "The server ends; ask another", code="server_ends")


def late(seconds: float) -> ApiError:
    """What a request ends with whose time is over."""
    text = f"It took more than {seconds:g} s, the server's --timeout; ask for less, or raise it"
    return ApiError(504, text, code="timeout")


class Work:
    """The texts of one request while they are written; at its end nothing of them is left."""

    def __init__(
        self,
        api: Api,
        order: Order,
        choices: Sequence[Choice],
        feed: Feed,
        start: float,
        noted: dict[str, Any],
    ) -> None:
        self._api, self.order, self.choices = api, order, choices
        self._feed, self._start, self._noted = feed, start, noted
        self.stack = AsyncExitStack()
        """What ends with it."""
        self._of = {choice.job: choice for choice in choices}
        self._left = sum(choice.reason is None for choice in choices)

    async def __aenter__(self) -> Work:
        loop = asyncio.get_running_loop()
        left = self._api.limits.seconds - (time.perf_counter() - self._start)
        # The end of the time comes as an event among the others, so whoever waits for events needs
        # no second wait.
        self._limit = loop.call_later(max(0.0, left), self._feed.put_nowait, None)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._limit.cancel()
        # Whatever happened, nothing of the request stays in the engine: a text that nobody reads
        # would keep its row and its blocks.
        self._api.release([choice.job for choice in self.choices])
        await self.stack.aclose()
        used = usage(self.order.prompts, self.choices)
        metrics = self._api.metrics
        metrics.prompt_tokens.inc(used["prompt_tokens"])
        metrics.cached_tokens.inc(used["prompt_tokens_details"]["cached_tokens"])
        metrics.new_tokens.inc(used["completion_tokens"])
        metrics.seconds.observe(time.perf_counter() - self._start)
        self._noted |= {
            "prompt_tokens": used["prompt_tokens"],
            "new_tokens": used["completion_tokens"],
            "finish": [choice.reason for choice in self.choices],
        }

    async def events(self) -> AsyncIterator[list[tuple[Choice, Event, int]]]:
        """What has come since the last time, until all texts have ended. Raises ApiError."""
        while self._left:
            got = [await self._feed.get()]
            # One chunk for all that has come: at many texts, sending costs as much as computing.
            while not self._feed.empty():
                got.append(self._feed.get_nowait())
            yield [self._noticed(event) for event in got]
            pause = self._api.texts / WRITES
            if self._left and pause > SHORT:
                await asyncio.sleep(pause)  # what comes meanwhile is sent together

    def _noticed(self, event: Event | None) -> tuple[Choice, Event, int]:
        """The choice whose event it is, and where its token's text begins."""
        if event is None:
            raise late(self._api.limits.seconds)
        choice = self._of[event.job]
        if event.error is not None and event.is_fault:
            schema = self.order.schema
            raise refused("response_format" if schema is None else schema.field, event.error)
        if event.error is not None:
            raise ApiError(500, event.error, code="model_error")
        if "first_token_seconds" not in self._noted:
            seconds = time.perf_counter() - self._start
            self._noted["first_token_seconds"] = round(seconds, 4)
            self._api.metrics.first_token.observe(seconds)
        offset = choice.add(event)
        self._left -= event.reason is not None
        return choice, event, offset

    async def finish(self) -> None:
        """Waits for all of it."""
        async for _ in self.events():
            pass


class Stream(Response):
    """Server-sent events of a request's texts, sent as they come until the client goes.

    After `seconds` nothing more is sent: the client has not read that its time was over.
    """

    def __init__(self, work: Work, replies: Replies, seconds: float) -> None:
        self._work, self._replies, self._seconds = work, replies, seconds
        self.background = None
        self.status_code = 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends all events that wait."""
        async with self._work:
            left = asyncio.ensure_future(gone(receive))
            sent = asyncio.ensure_future(self._send(send))
            try:
                await asyncio.wait(
                    (left, sent), timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if sent.done():
                    await sent
            except asyncio.CancelledError:  # the server ends before the text does
                sent.cancel()
                await asyncio.wait((sent,))
                data = self._replies.failed(ended())
                with contextlib.suppress(TimeoutError, OSError):
                    async with asyncio.timeout(1):
                        await send({"type": "http.response.body", "body": data})
            finally:
                left.cancel()
                sent.cancel()
                await asyncio.gather(left, sent, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        headers = [
            (b"content-type", self._replies.media.encode()),
            (b"cache-control", b"no-cache"),
        ]
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for data in self._data():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def _data(self) -> AsyncIterator[bytes]:
        replies, work = self._replies, self._work
        yield self._lines([chunk for choice in work.choices for chunk in replies.begin(choice)])
        try:
            async for events in work.events():
                yield self._lines([chunk for event in events for chunk in replies.chunks(*event)])
            last = replies.end(usage(work.order.prompts, work.choices))
            yield self._lines(last) + replies.last
        except ApiError as error:
            yield replies.failed(error)

    def _lines(self, chunks: Sequence[dict[str, Any]]) -> bytes:
        return b"".join(map(self._replies.line, chunks))


async def gone(receive: Callable[[], Awaitable[Any]]) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
