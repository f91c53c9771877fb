"""The HTTP application: OpenAI's API over an engine."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import StreamDecoder
from luminal.serve import orders
from luminal.serve.engine import Event, Job
from luminal.serve.errors import ApiError
from luminal.serve.fields import Fields, parse
from luminal.serve.front import Front
from luminal.serve.metrics import Metrics
from luminal.serve.orders import Limits, Order
from luminal.serve.replies import Chats, Choice, Completions, to_json, usage
from luminal.serve.served import Served

PAGE = Path(__file__).parent / "page" / "index.html"
GRACE_SECONDS = 5.0  # that a client may read later than its texts must end
WRITES = 2500  # a second, by all streams: each costs about what a token of a small model does
SHORT = 0.002  # seconds; no less is waited for more tokens
Replies = Completions | Chats
Feed = asyncio.Queue[Event | None]
"""Events of a request's texts; None: its time is over."""

Read = Callable[[Fields, orders.Vocabulary, Limits], Order]


def ended() -> ApiError:
    """What texts end with that are still being written when the server ends."""
    return ApiError(503, "The server ends; ask another", code="server_ends")


def make_app(
    served: Served, limits: Limits, keys: Sequence[str] = (), origins: Sequence[str] = ()
) -> ASGIApp:
    """The application; its engine starts and ends with it. `keys`, `origins`: see Front."""
    return Api(served, limits, keys, origins).app


class Api:
    """Handlers, and the events of the texts that are being written."""

    def __init__(
        self, served: Served, limits: Limits, keys: Sequence[str], origins: Sequence[str]
    ) -> None:
        self.served, self.limits = served, limits
        self.metrics = Metrics(served.engine)
        self._feeds: dict[Job, Feed] = {}
        self._vectors = 0
        routes = [
            Route("/", self.page),
            Route("/health", self.health),
            Route("/metrics", self.numbers),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
        ]
        handlers: Any = {
            ApiError: _refused,
            HTTPException: _no_such_path,
            ClientDisconnect: _went,
            RecursionError: _too_deep,
            Exception: _failed,
        }
        inner = Starlette(routes=routes, lifespan=self._life, exception_handlers=handlers)
        inner.router.redirect_slashes = False
        self.app = Front(inner, keys, origins, self.metrics)

    @contextlib.asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def deliver(events: list[Event]) -> None:
            loop.call_soon_threadsafe(self._hand_out, events)

        self.served.engine.start(deliver)
        try:
            yield
        finally:
            await asyncio.to_thread(self.served.engine.stop)

    def _hand_out(self, events: list[Event]) -> None:
        for event in events:
            feed = self._feeds.get(event.job)
            if feed is not None:
                feed.put_nowait(event)

    # --- small answers

    async def page(self, _: Request) -> Response:
        """The chat page."""
        policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        return Response(
            PAGE.read_bytes(),
            media_type="text/html; charset=utf-8",
            headers={"content-security-policy": policy + "connect-src 'self'"},
        )

    async def health(self, _: Request) -> Response:
        """Whether texts can be written."""
        works = self.served.engine.works
        return _json({"status": "ok" if works else "failed"}, 200 if works else 503)

    async def numbers(self, _: Request) -> Response:
        """Prometheus's metrics."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models(self, _: Request) -> Response:
        """The one model."""
        return _json({"object": "list", "data": [self._about()]})

    async def model(self, request: Request) -> Response:
        """The model of a name."""
        self._check_model(request.path_params["name"])
        return _json(self._about())

    def _about(self) -> dict[str, Any]:
        about = {"id": self.served.name, "object": "model", "created": 0, "owned_by": "luminal"}
        return about | {"context_length": self.served.context}

    def _check_model(self, name: Any) -> None:
        if name != self.served.name:
            raise ApiError(
                404,
                f"The model {shown(name)} does not exist; there is {self.served.name!r}",
                "model",
                "model_not_found",
            )

    # --- texts

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        order, groups = await self._ordered(request, orders.completion)
        about = self.served.name, int(time.time()), self.served.tokenizer, order.usage_in_stream
        replies = Completions(*about)
        return await self._written(request, order, groups, replies)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        order, groups = await self._ordered(request, orders.chat)
        about = self.served.name, int(time.time()), self.served.tokenizer, order.usage_in_stream
        return await self._written(request, order, groups, Chats(*about, order.tools, order.calls))

    async def _ordered(self, request: Request, read: Read) -> tuple[Order, list[list[Job]]]:
        """What is asked for, and its jobs; long prompts are read beside the event loop."""
        body = await self._body(request)

        def ordered() -> tuple[Order, list[list[Job]]]:
            order = read(self._fields(body), self.served, self.limits)
            return order, self.served.jobs(order)

        return await asyncio.to_thread(ordered)

    async def _body(self, request: Request) -> bytes:
        """A request of at most so many bytes. Raises ApiError at once where it says it has more."""
        most, got = self.limits.body, bytearray()
        coding = request.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            raise ApiError(
                415,
                f"Content-Encoding: {shown(coding)} is not understood; send the body as it is",
                code="unsupported_encoding",
            )
        if int(request.headers.get("content-length", 0)) > most:  # h11 lets digits pass only
            raise ApiError(413, f"body: more than {most} bytes", code="too_large")
        async for part in request.stream():
            got += part
            if len(got) > most:
                raise ApiError(413, f"body: more than {most} bytes", code="too_large")
        return bytes(got)

    def _fields(self, body: bytes) -> Fields:
        """The fields of a request for this model."""
        fields = parse(body)
        self._check_model(fields.needed("model"))
        return fields

    async def _written(
        self, request: Request, order: Order, groups: list[list[Job]], replies: Replies
    ) -> Response:
        start = time.perf_counter()
        jobs = [job for group in groups for job in group]
        self._check_queue(len(jobs))
        choices = [
            Choice(job, number, StreamDecoder(self.served.tokenizer, job.place.tokens))
            for number, job in enumerate(jobs)
        ]
        feed: Feed = asyncio.Queue()
        for job in jobs:
            self._feeds[job] = feed
        for group in groups:
            self.served.engine.submit(group)
        work = Work(self, order, choices, feed, start, request.scope["luminal"])
        if order.stream:
            return Stream(work, replies, self.limits.seconds + GRACE_SECONDS)
        async with work:
            gone = asyncio.ensure_future(_gone(request.receive))
            whole = asyncio.ensure_future(work.finish())
            try:
                await asyncio.wait((gone, whole), return_when=asyncio.FIRST_COMPLETED)
                if not whole.done():
                    return Response(status_code=499)  # nobody reads it
                await whole
            except asyncio.CancelledError:
                raise ended() from None
            finally:
                gone.cancel()
                whole.cancel()
        return _json(replies.whole(choices, usage(order.prompts, choices)))

    def _check_queue(self, more: int) -> None:
        room = self.served.engine.options.rows + self.limits.queue
        if len(self._feeds) + more > room:
            raise ApiError(
                429, f"The server is busy with {len(self._feeds)} texts; try again later",
                code="rate_limit_exceeded",
            )  # fmt: skip

    @property
    def texts(self) -> int:
        """How many are written now, or wait for it."""
        return len(self._feeds)

    def release(self, jobs: Sequence[Job]) -> None:
        """Ends what is left of jobs."""
        self.served.engine.cancel(jobs)
        for job in jobs:
            self._feeds.pop(job, None)

    # --- vectors

    async def embeddings(self, request: Request) -> Response:
        """POST /v1/embeddings."""
        body = await self._body(request)

        def ordered() -> tuple[tuple[tuple[int, ...], ...], str]:
            return orders.embeddings(self._fields(body), self.served, self.limits)

        prompts, form = await asyncio.to_thread(ordered)
        if self._vectors + len(prompts) > self.limits.queue:
            raise ApiError(429, "The server is busy; try again later", code="rate_limit_exceeded")
        self._vectors += len(prompts)
        try:
            calls = [self.served.engine.call(partial(self.served.vector, ids)) for ids in prompts]
            vectors = await asyncio.gather(*map(asyncio.wrap_future, calls))
        finally:
            self._vectors -= len(prompts)
        count = sum(map(len, prompts))
        self.metrics.prompt_tokens.inc(count)
        data = [
            {"object": "embedding", "index": number, "embedding": _encoded(vector, form)}
            for number, vector in enumerate(vectors)
        ]
        about = {"object": "list", "data": data, "model": self.served.name}
        return _json(about | {"usage": {"prompt_tokens": count, "total_tokens": count}})


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
        self._of = {choice.job: choice for choice in choices}
        self._left = len(choices)

    async def __aenter__(self) -> Work:
        loop = asyncio.get_running_loop()
        self._limit = loop.call_later(self._api.limits.seconds, self._feed.put_nowait, None)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._limit.cancel()
        self._api.release([choice.job for choice in self.choices])
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
            while not self._feed.empty():
                got.append(self._feed.get_nowait())
            yield [self._noticed(event) for event in got]
            pause = self._api.texts / WRITES
            if self._left and pause > SHORT:
                await asyncio.sleep(pause)  # what comes meanwhile is sent together

    def _noticed(self, event: Event | None) -> tuple[Choice, Event, int]:
        """Whose event it is, and where its token's text begins."""
        if event is None:
            seconds = self._api.limits.seconds
            raise ApiError(504, f"It took more than {seconds:g} s", code="timeout")
        choice = self._of[event.job]
        if event.error is not None and event.is_fault:
            raise ApiError(400, event.error, "response_format", "invalid_value")
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
        """Sends all."""
        async with self._work:
            gone = asyncio.ensure_future(_gone(receive))
            sent = asyncio.ensure_future(self._send(send))
            try:
                await asyncio.wait(
                    (gone, sent), timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if sent.done():
                    await sent
            except asyncio.CancelledError:  # the server ends before the text does
                sent.cancel()
                await asyncio.wait((sent,))
                data = _lines([ended().body()]) + b"data: [DONE]\n\n"
                with contextlib.suppress(TimeoutError, OSError):
                    async with asyncio.timeout(1):
                        await send({"type": "http.response.body", "body": data})
            finally:
                gone.cancel()
                sent.cancel()
                await asyncio.gather(gone, sent, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
        ]
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for data in self._data():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _data(self) -> AsyncIterator[bytes]:
        replies, work = self._replies, self._work
        yield _lines([chunk for choice in work.choices for chunk in replies.begin(choice)])
        try:
            async for events in work.events():
                yield _lines([chunk for each in events for chunk in replies.chunks(*each)])
            if work.order.usage_in_stream:
                yield _lines([replies.end(usage(work.order.prompts, work.choices))])
        except ApiError as error:
            yield _lines([error.body()])


def _lines(chunks: Sequence[Any]) -> bytes:
    return b"".join(b"data: " + to_json(chunk) + b"\n\n" for chunk in chunks)


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _encoded(vector: np.ndarray[Any, Any], form: str) -> Any:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


def _json(value: Any, status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")


# --- errors


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    answer = _json(error.body(), error.status)
    if error.status in (429, 503):
        answer.headers["retry-after"] = "1"
    return answer


async def _no_such_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {shown(request.scope['path'])}: {error.detail}"
    answer = await _refused(request, ApiError(error.status_code, message))
    answer.headers.update(error.headers or {})
    return answer


async def _went(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the client, before its request was there


async def _too_deep(request: Request, error: Exception) -> Response:
    """Of a body: whoever walks it, its parser, a chat template or a schema, goes as deep as it."""
    return await _refused(request, ApiError(400, "body: lists or objects nest too deeply"))


async def _failed(request: Request, error: Exception) -> Response:
    return await _refused(request, ApiError(500, "The server failed; its log says more"))
