"""The bodies of requests, read: the same here as in the processes of a workshop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from luminal.loaders.shown import shown
from luminal.serve import orders
from luminal.serve.errors import RESPONSES, ApiError
from luminal.serve.fields import Fields, parse
from luminal.serve.orders import Limits, Order
from luminal.serve.responses_order import responses
from luminal.serve.words import Words

Asked = Order | orders.Vectors
READERS: Mapping[str, Callable[[Fields, Words, Limits], Asked]] = {
    "/v1/completions": orders.completion,
    "/v1/chat/completions": orders.chat,
    "/v1/embeddings": orders.embeddings,
    RESPONSES: responses,
}


def read(path: str, body: bytes, words: Words, limits: Limits) -> Asked:
    """What a body asks for at a path. Raises ApiError."""
    try:
        fields = parse(body)
        check_model(fields.needed("model"), words.name)
        return READERS[path](fields, words, limits)
    except RecursionError:  # whoever walks it goes as deep as it: parser, template, schema
        raise ApiError(400, "body: lists or objects nest too deeply") from None


def check_model(name: Any, served: str) -> None:
    """Raises ApiError for another model than the server's."""
    if name != served:
        raise ApiError(
            404,
            f"The model {shown(name)} does not exist; there is {served!r}",
            "model",
            "model_not_found",
        )
