"""The bodies of requests, read: the same here as in the processes of a workshop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from luminal.loaders.shown import shown
from luminal.serve import llama_cpp, ollama_order, orders
from luminal.serve.errors import LLAMA_CPP, OLLAMA, RESPONSES, ApiError
from luminal.serve.fields import Fields, parse
from luminal.serve.orders import Limits, Order
from luminal.serve.responses_order import responses
from luminal.serve.words import Words

Asked = Order | orders.Vectors | orders.Ready
READERS: Mapping[str, Callable[[Fields, Words, Limits], Asked]] = {
    "/v1/completions": orders.completion,
    "/v1/chat/completions": orders.chat,
    "/v1/embeddings": orders.embeddings,
    RESPONSES: responses,
    OLLAMA + "chat": ollama_order.chat,
    OLLAMA + "generate": ollama_order.generate,
    OLLAMA + "embed": ollama_order.embed,
    "/completion": llama_cpp.completion,
    "/tokenize": llama_cpp.tokenize,
    "/detokenize": llama_cpp.detokenize,
}


def read(path: str, body: bytes, words: Words, limits: Limits) -> Asked:
    """What a body asks for at a path. Raises ApiError."""
    try:
        fields = parse(body)
        # Clients of llama.cpp name no model: they mean the model without adapters.
        name = words.names[0]
        if path not in LLAMA_CPP:
            name = named(path, fields.needed("model"), words.names)
        number = number_of(name, words.names)
        asked = READERS[path](fields, words, limits)
        if not isinstance(asked, orders.Ready):
            return replace(asked, adapter=number)
        told = {"model": words.names[number]} if path.startswith(OLLAMA) else {}
        return orders.Ready(told | asked.value)
    except RecursionError:  # whoever walks it goes as deep as it: parser, template, schema
        raise ApiError(400, "body: lists or objects nest too deeply") from None


def named(path: str, name: Any, served: Sequence[str]) -> Any:
    """The name of a model that a path's clients ask for: Ollama's put a tag behind it, unless it is
    a name of this server as it is.
    """
    tagged = path.startswith(OLLAMA) and isinstance(name, str) and name not in served
    return name.removesuffix(":latest") if tagged else name


def number_of(name: Any, served: Sequence[str]) -> int:
    """The place of a model among those of the server. Raises ApiError for one that is not there."""
    if name not in served:
        there = ("is ", "are ")[len(served) > 1] + ", ".join(map(repr, served))
        raise ApiError(
            404,
            f"The model {shown(name)} does not exist; there {there}",
            "model",
            "model_not_found",
        )
    return served.index(name)
