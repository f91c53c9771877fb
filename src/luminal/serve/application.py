"""What every server's application has: its endpoints about itself, bodies, time limits, errors."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from luminal.loaders.shown import shown
from luminal.serve.errors import ApiError, too_large
from luminal.serve.front import Front
from luminal.serve.metrics import Metrics
from luminal.serve.orders import Limits
from luminal.serve.reading import number_of
from luminal.serve.replies import to_json
from luminal.serve.work import late


class Application:
    """Answers about the models of a server, by their names; `keys`, `origins`: see Front."""

    def __init__(
        self,
        names: Sequence[str],
        limits: Limits,
        metrics: Metrics,
        routes: Sequence[Route],
        keys: Sequence[str],
        origins: Sequence[str],
    ) -> None:
        self.names, self.limits, self.metrics = names, limits, metrics
        common = [
            Route("/", self.page),
            Route("/health", self.health),
            Route("/metrics", self.numbers),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
        ]
        handlers: Any = {
            ApiError: _refused,
            HTTPException: _no_such_path,
            ClientDisconnect: _went,
            Exception: _failed,
        }
        inner = Starlette(
            routes=[*common, *routes], lifespan=self._life, exception_handlers=handlers
        )
        # The address of a redirect would be made of the Host header, which behind a proxy need not
        # be where the client came from.
        inner.router.redirect_slashes = False
        self.app = Front(inner, keys, origins, self.metrics)

    @contextlib.asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        """What lives as long as the server does."""
        yield

    @property
    def works(self) -> bool:
        """Whether requests can be answered."""
        return True

    def about(self, number: int) -> dict[str, Any]:
        """What is told of a model."""
        return {
            "id": self.names[number], "object": "model", "created": 0, "owned_by": "luminal",
        }  # fmt: skip

    # --- small answers

    async def page(self, _: Request) -> Response:
        """Answers with what a browser shows."""
        raise NotImplementedError

    async def health(self, _: Request) -> Response:
        """Whether requests can be answered."""
        # Load balancers look at the status alone, so a server whose engine has died must not answer
        # 200.
        return json_answer({"status": "ok" if self.works else "failed"}, 200 if self.works else 503)

    async def numbers(self, _: Request) -> Response:
        """Answers with Prometheus's metrics."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models(self, _: Request) -> Response:
        """Answers with all models."""
        data = [self.about(number) for number in range(len(self.names))]
        return json_answer({"object": "list", "data": data})

    async def model(self, request: Request) -> Response:
        """The model of a name."""
        return json_answer(self.about(number_of(request.path_params["name"], self.names)))

    # --- bodies and their time

    async def body(self, request: Request) -> bytes:
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
            raise too_large(most)
        async for part in request.stream():
            got += part
            if len(got) > most:
                raise too_large(most)
        return bytes(got)

    @contextlib.contextmanager
    def _clock(self) -> Iterator[None]:
        """Says that the time of a request is over."""
        try:
            yield
        except TimeoutError:
            raise late(self.limits.seconds) from None


def json_answer(value: Any, status: int = 200) -> Response:
    """An answer of JSON."""
    return Response(to_json(value), status, media_type="application/json")


# --- errors


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    answer = json_answer(error.body(request.scope["path"]), error.status)
    answer.headers.update(error.headers)
    return answer


async def _no_such_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {shown(request.scope['path'])}: {error.detail}"
    answer = await _refused(request, ApiError(error.status_code, message))
    answer.headers.update(error.headers or {})
    return answer


async def _went(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the client, before its request was there


async def _failed(request: Request, error: Exception) -> Response:
    return await _refused(request, ApiError(500, "The server failed; its log says more"))
