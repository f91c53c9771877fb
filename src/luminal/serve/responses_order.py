"""What a client asks of `/v1/responses`, OpenAI's newer form of a conversation.

https://platform.openai.com/docs/api-reference/responses has the fields. Nothing is kept of a
conversation, so each request has all of it.
"""

from __future__ import annotations

from typing import Any

from luminal.serve.conversation import DETAILS, MOST_MESSAGES, arguments_of, joined
from luminal.serve.errors import refused
from luminal.serve.fields import Fields
from luminal.serve.orders import Limits, Order, Vocabulary, order_of
from luminal.serve.pictures import Pictures
from luminal.serve.tools import form_of, tools_of

ROLES = ("system", "developer", "user", "assistant")
TEXTS = ("input_text", "output_text", "text")
ECHOED = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "temperature",
    "tool_choice", "tools", "top_p", "user", "text", "top_logprobs",
)  # fmt: skip
"""Fields that the answer repeats."""
IGNORED = (
    "metadata", "store", "user", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "include", "prompt_cache_options",
)  # fmt: skip
"""Those that change no answer."""


def responses(body: Fields, words: Vocabulary, limits: Limits) -> Order:
    """The order of a body of `/v1/responses`. Raises ApiError."""
    for name in ("previous_response_id", "conversation"):
        if body.get(name) is not None:
            raise refused(
                name, "no conversation is kept here; send all of its items in input instead"
            )
    if body.flag("background"):
        raise refused("background", "it is not supported; leave it out, and wait or stream")
    body.choice("truncation", ("disabled",), "disabled")
    reasoning = body.object("reasoning")
    if reasoning is not None:
        for name in ("effort", "summary"):
            if reasoning.get(name) not in (None, "none"):
                raise refused(f"reasoning.{name}", "it is not supported; leave it out")
        reasoning.end()
    instructions = body.text("instructions")
    messages = _messages(body, Pictures(words, limits))
    if instructions is not None:
        messages.insert(0, {"role": "system", "content": instructions})
    new = body.integer("max_output_tokens", 1, limits.new_tokens)
    tools = tools_of(body, flat=True)
    schema, names = form_of(body, tools, flat=True)
    ids, images = words.encode_chat(messages, tools)
    if body.get("top_logprobs"):
        raise refused("top_logprobs", "it is not supported; /v1/chat/completions has them")
    body.ignore(*IGNORED)
    order = order_of(
        body,
        words,
        limits,
        prompts=(tuple(ids),),
        count=1,
        new_tokens=min(limits.new_tokens, max(1, words.context - len(ids))) if new is None else new,
        logprobs=None,
        schema=schema,
        tools=names,
        images=(*images,),
        calls=None if body.flag("parallel_tool_calls", True) else 1,
        told={name: body.get(name) for name in ECHOED},
    )
    body.end()
    return order


def _messages(body: Fields, pictures: Pictures) -> list[dict[str, Any]]:
    """The items of the input, as chat templates read them."""
    value = body.needed("input")
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    items = body.objects("input", MOST_MESSAGES)
    if not items:
        raise refused("input", "it has no items; give at least one")
    messages: list[dict[str, Any]] = []
    for item in items:
        kinds = ("message", "function_call", "function_call_output")
        kind = item.choice("type", kinds, "message")
        if kind == "message":
            messages.append(_message(item, pictures))
        elif kind == "function_call":
            _add_call(item, messages)
        else:
            messages.append(_result(item))
        item.ignore("id", "status")
        item.end()
    return messages


def _message(item: Fields, pictures: Pictures) -> dict[str, Any]:
    item.needed("role")
    role = item.choice("role", ROLES, "")
    item.ignore("phase")
    content = _content(item, "content", pictures if role == "user" else None)
    return {"role": "system" if role == "developer" else role, "content": content}


def _content(
    item: Fields, field: str, pictures: Pictures | None = None
) -> str | list[dict[str, Any]]:
    """A text, or parts of one, with images among them where these may be."""
    value = item.needed(field)
    if isinstance(value, str):
        return value
    parts = []
    for part in item.objects(field, MOST_MESSAGES):
        part.needed("type")
        images = ("input_image",) if pictures is not None else ()
        kind = part.choice("type", (*TEXTS, *images), "")
        if pictures is not None and kind == "input_image":
            if part.get("file_id") is not None:
                raise refused(part.name("file_id"), "no files are kept here; send image_url")
            part.choice("detail", DETAILS, "auto")
            parts.append(pictures.of_url(part.needed("image_url"), part.name("image_url")))
        else:
            part.needed("text")
            parts.append({"type": "text", "text": part.text("text") or ""})
            part.ignore("annotations", "logprobs")
        part.end()
    return joined(parts)


def _add_call(item: Fields, messages: list[dict[str, Any]]) -> None:
    """A call that the assistant made: those side by side are of one message, as in chats."""
    for field in ("call_id", "name", "arguments"):
        item.needed(field)
    name, arguments = item.text("name"), item.text("arguments")
    function = {"name": name, "arguments": arguments_of(arguments or "")}
    call = {"id": item.text("call_id"), "type": "function", "function": function}
    if not messages or "tool_calls" not in messages[-1]:
        messages.append({"role": "assistant", "content": "", "tool_calls": []})
    messages[-1]["tool_calls"].append(call)


def _result(item: Fields) -> dict[str, Any]:
    item.needed("call_id")
    return {
        "role": "tool",
        "content": _content(item, "output"),
        "tool_call_id": item.text("call_id"),
    }
