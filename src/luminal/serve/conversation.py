"""The messages of a conversation, as chat templates read them."""

from __future__ import annotations

from typing import Any

from luminal.serve.errors import refused
from luminal.serve.fields import Fields, decoded, object_of
from luminal.serve.pictures import Pictures
from luminal.serve.tools import MOST_TOOLS

MOST_MESSAGES = 10_000
DETAILS = ("auto", "low", "high", "original")
"""How closely images are looked at, which is for other servers: a model has its one way."""


def messages_of(body: Fields, pictures: Pictures) -> list[dict[str, Any]]:
    """Messages as chat templates read them; parts of text are joined where no images are."""
    body.needed("messages")
    messages = body.objects("messages", MOST_MESSAGES)
    if not messages:
        raise refused("messages", "there are none; give at least one")
    return [_message(message, pictures) for message in messages]


def joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Parts of a content, as one text where all are texts: most templates know no parts."""
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _message(message: Fields, pictures: Pictures) -> dict[str, Any]:
    roles = ("system", "developer", "user", "assistant", "tool")
    message.needed("role")
    role = message.choice("role", roles, "")
    # "developer" is OpenAI's newer word for "system", which is the one that templates know.
    entry: dict[str, Any] = {"role": "system" if role == "developer" else role}
    content = message.get("content")
    calls = message.objects("tool_calls", MOST_TOOLS)
    if isinstance(content, list):
        parts = message.objects("content", MOST_MESSAGES)
        entry["content"] = joined(
            [_part(part, pictures if role == "user" else None) for part in parts]
        )
    # An assistant's message that only calls functions has null as its content.
    elif content is not None or not calls:
        message.needed("content")
        entry["content"] = message.text("content")
    else:
        entry["content"] = ""
    if calls:
        entry["tool_calls"] = [call_of(call) for call in calls]
    for name in ("name", "tool_call_id"):
        value = message.text(name)
        if value is not None:
            entry[name] = value
    message.ignore("refusal", "annotations", "audio", "function_call")
    message.end()
    return entry


def _part(part: Fields, pictures: Pictures | None) -> dict[str, Any]:
    """A text, or in the user's messages an image."""
    kinds = ("text",) if pictures is None else ("text", "image_url")
    if part.choice("type", kinds, "text") == "image_url" and pictures is not None:
        part.needed("image_url")
        image = part.object("image_url") or object_of(None, part.name("image_url"))
        image.choice("detail", DETAILS, "auto")
        entry = pictures.of_url(image.needed("url"), image.name("url"))
        image.end()
    else:
        entry = {"type": "text", "text": part.text("text")}
        if entry["text"] is None:
            raise refused(part.name("text"), "it is missing")
    part.end()
    return entry


def call_of(call: Fields) -> dict[str, Any]:
    """A call of a function that the assistant made earlier."""
    function = call.object("function") or object_of(None, call.name("function"))
    name, arguments = function.text("name"), function.text("arguments")
    if name is None or arguments is None:
        raise refused(call.name("function"), "it needs a name and arguments")
    entry = {"id": call.text("id"), "type": "function"}
    call.choice("type", ("function",), "function")
    call.ignore("index")
    call.end()
    function.end()
    return entry | {"function": {"name": name, "arguments": arguments_of(arguments)}}


def arguments_of(text: str) -> Any:
    """The object that a call was made with, as templates read it; a text that is none as it is."""
    try:
        value = decoded(text)
    except (ValueError, RecursionError):
        # Clients send arguments as a text of JSON, and templates print an object. What a model once
        # wrote need not be JSON, so it is then passed on as it was.
        return text
    return value if isinstance(value, dict) else text
