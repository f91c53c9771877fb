"""Errors as OpenAI's API gives them: a status, and a body that says what was wrong with what."""

from __future__ import annotations

from typing import Any

from luminal.base.errors import LuminalError

OLLAMA, RESPONSES = "/api/", "/v1/responses"
LLAMA_CPP = frozenset(("/completion", "/tokenize", "/detokenize", "/props"))
"""Paths of other servers, whose clients read errors of another form."""


class ApiError(LuminalError):
    """An answer that is no success. `param`: the field at fault; `code`: a name programs read."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def __reduce__(self) -> tuple[Any, ...]:
        return ApiError, (self.status, self.message, self.param, self.code)

    @property
    def kind(self) -> str:
        """OpenAI's word for errors of this status."""
        named = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
        of_what_was_sent = (501, 505)
        is_internal = self.status >= 500 and self.status not in of_what_was_sent
        default = "server_error" if is_internal else "invalid_request_error"
        return named.get(self.status, default)

    @property
    def headers(self) -> dict[str, str]:
        """Those that an answer has besides: how many seconds to wait before one asks again."""
        # Clients of OpenAI's API wait for as long as that says, and try at once without it.
        return {"retry-after": "1"} if self.status in (429, 503) else {}

    def body(self, path: str = "") -> dict[str, Any]:
        """The JSON object of the answer, in the form of the API that a path is of."""
        if path.startswith(OLLAMA):
            return {"error": self.message}
        if path in LLAMA_CPP:
            return {"error": {"code": self.status, "message": self.message, "type": self.kind}}
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


def refused(param: str, message: str) -> ApiError:
    """A field of the request that breaks its rule."""
    return ApiError(400, f"{param}: {message}", param, "invalid_value")


def too_large(most: int) -> ApiError:
    """A body of more than `most` bytes."""
    return ApiError(413, f"body: more than {most} bytes", code="too_large")
