"""What every request passes: its id, where it comes from, the key, one line in the log."""

from __future__ import annotations

import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Sequence
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from luminal.serve.errors import ApiError
from luminal.serve.metrics import Metrics
from luminal.serve.replies import to_json

LOG = logging.getLogger("luminal.serve")
ACCESS = logging.getLogger("luminal.serve.access")
PATHS = frozenset(
    ("/", "/health", "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions",
     "/v1/embeddings", "/v1/responses", "/v1/rerank", "/rerank", "/v2/rerank", "/classify",
     "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech", "/completion",
     "/tokenize", "/detokenize", "/props", "/api/generate", "/api/chat", "/api/tags", "/api/embed",
     "/api/show", "/api/version")
)  # fmt: skip
"""What metrics tell apart: a client could make up any number of others."""

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Front:
    """Wraps the application. `keys`: who has one of them may ask; none: everybody may.

    `origins`: pages from there may read the answers, as if they were the server's own; "*": all
    pages. Browsers ask for that without a key, so it is checked first.
    """

    def __init__(
        self, app: ASGIApp, keys: Sequence[str], origins: Sequence[str], metrics: Metrics
    ) -> None:
        self._app, self._metrics = app, metrics
        self._keys = [key.encode() for key in keys]
        self._shared: ASGIApp = self._keyed
        if origins:
            self._shared = CORSMiddleware(
                self._keyed,
                allow_origins=origins,
                allow_methods=("GET", "POST"),
                allow_headers=("*",),
                expose_headers=("x-request-id", "retry-after"),
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request of a client."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        headers = dict(scope["headers"])
        client_id = headers.get(b"x-request-id", b"").decode("latin-1")
        # A client's own id joins its log to ours, but only in this form: it goes into a header and
        # a line of the log.
        name = client_id if _ID.fullmatch(client_id) else secrets.token_hex(12)
        noted: dict[str, Any] = {}
        scope["luminal"] = noted
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
            await send(message)

        try:
            await self._shared(scope, receive, answer)
        except Exception:  # the application has answered
            LOG.exception("request %s failed", name)
        finally:
            self._note(scope, name, status, time.perf_counter() - start, noted)

    async def _keyed(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_key(scope["path"], dict(scope["headers"]).get(b"authorization", b""))
        except ApiError as error:
            await send_error(send, error, scope["path"])
            return
        await self._app(scope, receive, send)

    def _check_key(self, path: str, authorization: bytes) -> None:
        """Raises ApiError where a key is needed and none of the right ones is there."""
        # The page asks for the key by itself, and whoever watches the process has none.
        if not self._keys or path in ("/", "/health"):
            return
        kind, _, key = authorization.partition(b" ")
        # All keys are compared, each in the same time: how long an answer takes must not tell how
        # much of a key was right.
        matches = [hmac.compare_digest(key.strip(), allowed) for allowed in self._keys]
        if kind.lower() != b"bearer" or not any(matches):
            raise ApiError(
                401,
                "Incorrect API key: send one of the server's as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
            )

    def _note(
        self, scope: Scope, name: str, status: int, seconds: float, noted: dict[str, Any]
    ) -> None:
        path = scope["path"]
        self._metrics.requests.labels(path if path in PATHS else "other", str(status)).inc()
        line = {
            "id": name,
            "client": (scope.get("client") or ("",))[0],
            "method": scope["method"],
            "path": path[:200],
            "status": status,  # 0: the client went before there was one
            "seconds": round(seconds, 4),
        }
        ACCESS.info(json.dumps(line | noted))


async def send_error(send: Send, error: ApiError, path: str = "") -> None:
    """Answers with an error, in the form that clients of a path read."""
    body = to_json(error.body(path))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *((name.encode(), value.encode()) for name, value in error.headers.items()),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
