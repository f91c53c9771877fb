"""The HTTP application: OpenAI's API over an engine."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from luminal.frontend.handle import Array
from luminal.loaders.token_bytes import TokenTexts
from luminal.loaders.tokenizer import StreamDecoder
from luminal.models.seen import Images
from luminal.serve import orders
from luminal.serve.application import Application, json_answer
from luminal.serve.desk import Desk
from luminal.serve.errors import RESPONSES, ApiError
from luminal.serve.jobs import Event, Job
from luminal.serve.local_api import LocalApi
from luminal.serve.metrics import Metrics
from luminal.serve.orders import Limits, Order
from luminal.serve.pools import in_pool
from luminal.serve.readers import Reading, ReadingApp
from luminal.serve.replies import Chats, Choice, Completions, Replies, in_pieces, usage
from luminal.serve.responses_replies import Responses
from luminal.serve.served import Score, Served
from luminal.serve.vectors import listed
from luminal.serve.work import Feed, Stream, Work, ended, gone

PAGE = Path(__file__).parent / "page" / "index.html"
GRACE_SECONDS = 5.0  # that a client may read later than its texts must end


def make_app(
    served: Served | Reading,
    limits: Limits,
    keys: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> ASGIApp:
    """The application; its engine starts and ends with it. `keys`, `origins`: see Front."""
    if isinstance(served, Reading):
        return ReadingApp(served, limits, keys, origins).app
    return Api(served, limits, keys, origins).app


class Api(Application):
    """Handlers, and the events of the texts that are being written."""

    def __init__(
        self, served: Served, limits: Limits, keys: Sequence[str], origins: Sequence[str]
    ) -> None:
        self.served = served
        self._desk = Desk(served, limits)
        self._feeds: dict[Job, Feed] = {}
        self._vectors = 0
        self._shown = 0  # tokens of images that are looked at, or in texts
        self._writer = ThreadPoolExecutor(1, "luminal-writer")  # of long answers, one at a time
        routes = [
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route(RESPONSES, self.responses, methods=["POST"]),
        ]
        routes += LocalApi(self).routes
        super().__init__(served.names, limits, Metrics(served.engine), routes, keys, origins)

    @contextlib.asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def deliver(events: list[Event]) -> None:
            # The engine's thread touches nothing of the event loop; it hands over whole steps.
            loop.call_soon_threadsafe(self._hand_out, events)

        self.served.engine.start(deliver)
        self.served.workshop.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.served.engine.stop)
            await asyncio.to_thread(self.served.workshop.stop)

    def _hand_out(self, events: list[Event]) -> None:
        for event in events:
            feed = self._feeds.get(event.job)
            if feed is not None:
                feed.put_nowait(event)

    # --- small answers

    async def page(self, _: Request) -> Response:
        """Answers with the chat page."""
        # The page shows what a model wrote. Should some of it ever be taken for markup, it may load
        # nothing and speak to no other server.
        policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        return Response(
            PAGE.read_bytes(),
            media_type="text/html; charset=utf-8",
            headers={"content-security-policy": policy + "connect-src 'self'"},
        )

    @property
    def works(self) -> bool:
        """Whether texts can be written."""
        return self.served.engine.works

    def about(self, number: int) -> dict[str, Any]:
        """What is told of a model; an adapter's `parent` is the model that it changes."""
        reads = ["text"] if self.served.sight is None else ["text", "image"]
        more = {"parent": self.names[0]} if number else {}
        return (
            super().about(number)
            | more
            | {
                "context_length": self.served.context,
                "input_modalities": reads,
            }
        )

    # --- texts

    async def completions(self, request: Request) -> Response:
        """Answers a POST to /v1/completions."""
        return await self.written(request, lambda order: Completions(*self._of(order)))

    async def chat(self, request: Request) -> Response:
        """Answers a POST to /v1/chat/completions."""
        return await self.written(
            request, lambda order: Chats(*self._of(order), order.tools, order.calls)
        )

    async def responses(self, request: Request) -> Response:
        """Answers a POST to /v1/responses."""
        created = int(time.time())
        return await self.written(
            request, lambda order: Responses(self.names[order.adapter], created, order)
        )

    async def ready(self, request: Request) -> Response:
        """Answers what needs no run of the model."""
        with self._clock():
            async with asyncio.timeout(self.limits.seconds):
                asked = await self._desk.read(request.url.path, await self.body(request))
        assert isinstance(asked, orders.Ready)
        return json_answer(asked.value)

    def _of(self, order: Order) -> tuple[str, int, TokenTexts, bool]:
        """What both kinds of answers have."""
        name = self.names[order.adapter]
        return name, int(time.time()), self.served.texts, order.usage_in_stream

    async def written(self, request: Request, form: Callable[[Order], Replies]) -> Response:
        """The answer to a request for texts; the clock runs from here to its end."""
        start = time.perf_counter()
        async with AsyncExitStack() as stack:
            with self._clock():
                async with asyncio.timeout(self.limits.seconds):
                    body = await self.body(request)
                    order = await self._desk.read(request.url.path, body)
                    if isinstance(order, orders.Ready):
                        return json_answer(order.value)
                    assert isinstance(order, Order)
                    # One limit spans reading the body, reading the request and waiting for a
                    # worker: a client that is slow at each of these would otherwise take its time
                    # three times.
                    images = await self._images(order, stack)
                    order = replace(order, images=())  # which nobody needs any more
                    groups = await self._desk.jobs(order, stack, images)
                    told = await self._told(order)
            work = self._submitted(order, groups, told, start, request.scope["luminal"])
            # From here on the answer owns what the request took, to the end of a stream.
            work.stack = stack.pop_all()
        return await self._answered(request, work, form(order))

    async def _images(self, order: Order, stack: AsyncExitStack) -> Images | None:
        """What the model sees in an order's images. They are looked at one by one between steps:
        all texts wait for each of them.
        """
        sight = self.served.sight
        if sight is None or not order.images:
            return None
        engine, tokens = self.served.engine, sum(image.tokens for image in order.images)
        # Images take memory for as long as their texts, beside the blocks of these.
        if self._shown + tokens > engine.options.cache:
            raise ApiError(429, "The server looks at too many images; try again later",
                code="rate_limit_exceeded",
            )  # fmt: skip
        self._shown += tokens
        stack.callback(self._forget, tokens)
        calls = [engine.call(partial(sight.look, image)) for image in order.images]
        return sight.images(
            order.prompts[0], await asyncio.gather(*map(asyncio.wrap_future, calls))
        )

    def _forget(self, tokens: int) -> None:
        self._shown -= tokens

    async def _told(self, order: Order) -> list[list[Score]]:
        """The scores of each prompt that is told with its text."""
        if not order.echo:
            return [[] for _ in order.prompts]
        if order.logprobs is None:
            return [[(None, ())] * len(prompt) for prompt in order.prompts]
        engine, served = self.served.engine, self.served
        calls = [
            engine.call(partial(served.scores, prompt, order.adapter)) for prompt in order.prompts
        ]
        scores: list[list[Score]] = await asyncio.gather(*map(asyncio.wrap_future, calls))
        return scores

    def _choice(self, order: Order, job: Job, number: int, told: list[Score]) -> Choice:
        """A text that is to be written, after its prompt if that is told."""
        tokenizer, ids = self.served.tokenizer, job.place.tokens[: len(told)]
        decoder, pieces = StreamDecoder(tokenizer, job.place.tokens), StreamDecoder(tokenizer)
        ranked = order.logprobs is not None
        choice = Choice(job, number, StreamDecoder(tokenizer) if told else decoder, ranked)
        begun = [
            Event(job, pieces.push(token), token, logprob, top[: order.logprobs])
            for token, (logprob, top) in zip(ids, told, strict=True)
        ]
        if not order.new_tokens:
            begun.append(Event(job, pieces.finish(), reason="length"))
        choice.begin(begun)
        return choice

    def _submitted(
        self,
        order: Order,
        groups: list[list[Job]],
        told: list[list[Score]],
        start: float,
        noted: dict[str, Any],
    ) -> Work:
        jobs = [job for group in groups for job in group]
        self._check_queue(len(jobs))
        choices = [
            self._choice(order, job, number, told[number // order.count])
            for number, job in enumerate(jobs)
        ]
        if not order.new_tokens:
            # A prompt that is only echoed with its scores never enters the queue of texts, as
            # nothing is to be written.
            return Work(self, order, choices, asyncio.Queue(), start, noted)
        feed: Feed = asyncio.Queue()
        for job in jobs:
            # Before the engine hears of them: its first event may come before this function
            # returns.
            self._feeds[job] = feed
        for group in groups:
            self.served.engine.submit(group)
        return Work(self, order, choices, feed, start, noted)

    async def _answered(self, request: Request, work: Work, replies: Replies) -> Response:
        order, choices = work.order, work.choices
        if order.stream:
            return Stream(work, replies, self.limits.seconds + GRACE_SECONDS)
        async with work:
            # Whoever hangs up stops the text: otherwise rows would go on for nobody.
            left = asyncio.ensure_future(gone(request.receive))
            whole = asyncio.ensure_future(work.finish())
            try:
                await asyncio.wait((left, whole), return_when=asyncio.FIRST_COMPLETED)
                if not whole.done():
                    return Response(status_code=499)  # nobody reads it
                await whole
            except asyncio.CancelledError:
                raise ended() from None
            finally:
                left.cancel()
                whole.cancel()
        if order.logprobs is None:
            return json_answer(replies.whole(choices, usage(order.prompts, choices)))
        # Log-probabilities make answers of MiB. Written in the event loop, one of them would hold
        # up every stream.
        return await in_pool(self._writer, partial(self._long, order, choices, replies))

    @staticmethod
    def _long(order: Order, choices: Sequence[Choice], replies: Replies) -> Response:
        """An answer that may be of some MiB, made beside the event loop."""
        body = in_pieces(replies.whole(choices, usage(order.prompts, choices)))
        return Response(body, media_type="application/json")

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
        # Also for jobs that have ended, where it does nothing: whoever releases cannot know how far
        # the engine's thread is.
        self.served.engine.cancel(jobs)
        for job in jobs:
            self._feeds.pop(job, None)

    # --- vectors

    async def embeddings(self, request: Request) -> Response:
        """Answers a POST to /v1/embeddings."""
        asked, vectors = await self.vectors(request)
        count = sum(map(len, asked.prompts))
        return json_answer(listed(vectors, asked.form, self.names[asked.adapter], count))

    async def vectors(self, request: Request) -> tuple[orders.Vectors, list[Array]]:
        """What a request for vectors asks, and these."""
        with self._clock():
            async with asyncio.timeout(self.limits.seconds):
                return await self._embedded(request)

    async def _embedded(self, request: Request) -> tuple[orders.Vectors, list[Array]]:
        asked = await self._desk.read(request.url.path, await self.body(request))
        assert isinstance(asked, orders.Vectors)
        prompts, number = asked.prompts, asked.adapter
        # Vectors have a count of their own: they are computed between two steps, one at a time, and
        # would not be seen in the queue of texts.
        if self._vectors + len(prompts) > self.limits.queue:
            raise ApiError(429, "The server is busy; try again later", code="rate_limit_exceeded")
        self._vectors += len(prompts)
        try:
            calls = [
                self.served.engine.call(partial(self.served.vector, ids, number)) for ids in prompts
            ]
            vectors = await asyncio.gather(*map(asyncio.wrap_future, calls))
        finally:
            self._vectors -= len(prompts)
        count = sum(map(len, prompts))
        self.metrics.prompt_tokens.inc(count)
        return asked, vectors
