"""Where requests become orders: nothing here holds up the engine, or the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from luminal.models.constraints import ConstraintError
from luminal.models.seen import Images
from luminal.serve.errors import ApiError, refused
from luminal.serve.jobs import Job
from luminal.serve.orders import Limits, Order
from luminal.serve.pools import in_pool
from luminal.serve.reading import Asked, read
from luminal.serve.served import Served
from luminal.serve.tools import Schema
from luminal.serve.workshop import Gone, Worker, matchers

SMALL = 1 << 14  # bytes of a body that is read at once: within some milliseconds
READERS = 4  # bodies that are read at a time
FOLLOWERS = 16  # requests with a schema at a time, each with its process


class Desk:
    """Reads what a served model is asked for. Large bodies, and all that follows a schema, are the
    work of the model's workshop; who finds no place there waits.
    """

    def __init__(self, served: Served, limits: Limits) -> None:
        self._served, self._limits = served, limits
        self._small = ThreadPoolExecutor(READERS, "luminal-reader")
        self._large = ThreadPoolExecutor(READERS + FOLLOWERS, "luminal-workshop")
        self._readers = asyncio.Semaphore(READERS)
        self._followers = asyncio.Semaphore(FOLLOWERS)

    async def read(self, path: str, body: bytes) -> Asked:
        """What a body asks for. Raises ApiError."""
        words = self._served.words
        # A few bytes of a file may be a large image: those are read where large bodies are. JSON
        # may spell the word with escapes.
        may_show = not isinstance(words.processor, str) and (b"image" in body or b"\\u" in body)
        call = "look" if may_show else "read"
        if len(body) <= SMALL and not may_show:
            return await in_pool(self._small, partial(read, path, body, words, self._limits))
        async with self._worker(self._readers) as worker:
            try:
                asked: Asked = await self._called(worker, call, path, body, self._limits)
            except Gone as error:
                raise ApiError(400, f"body: {error}", code="too_large") from None
            return asked

    async def jobs(
        self, order: Order, stack: AsyncExitStack, images: Images | None = None
    ) -> list[list[Job]]:
        """The jobs of an order; what they follow lives until the stack ends. Raises ApiError."""
        if order.schema is None:
            return await in_pool(self._small, partial(self._served.jobs, order, images=images))
        worker = await stack.enter_async_context(self._worker(self._followers))
        count = len(order.prompts) * order.count
        try:
            followers = await in_pool(
                self._large, partial(matchers, worker, order.schema.text, count)
            )
        except ConstraintError as error:
            raise await in_pool(self._large, partial(_fault, worker, order.schema, error)) from None
        return self._served.jobs(order, followers, images)

    @asynccontextmanager
    async def _worker(self, places: asyncio.Semaphore) -> AsyncIterator[Worker]:
        """A process, in its turn; it ends with the context, whatever it does then."""
        async with places:
            worker = await in_pool(self._large, self._served.workshop.worker)
            try:
                yield worker
            finally:
                worker.end()

    async def _called(self, worker: Worker, *call: Any) -> Any:
        return await in_pool(self._large, partial(worker.call, *call))


def _fault(worker: Worker, schema: Schema, error: ConstraintError) -> ApiError:
    """What is wrong with a schema, by the first of the request's fields that is so on its own."""
    for field, part in schema.parts.items() if len(schema.parts) > 1 else ():
        try:
            matchers(worker, part, 1)
        except ConstraintError as fault:
            return refused(field, str(fault))
    return refused(schema.field, str(error))
