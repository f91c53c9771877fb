"""The messages of a conversation, as chat templates read them."""

from __future__ import annotations

from typing import Any

from luminal.serve.errors import refused
from luminal.serve.fields import Fields, decoded, object_of
from luminal.serve.tools import MOST_TOOLS

MOST_MESSAGES = 10_000


def messages_of(body: Fields) -> list[dict[str, Any]]:
    """Messages as chat templates read them; parts of text are joined."""
    body.needed("messages")
    messages = body.objects("messages", MOST_MESSAGES)
    if not messages:
        raise refused("messages", "there are none; give at least one")
    return [_message(message) for message in messages]


def _message(message: Fields) -> dict[str, Any]:
    roles = ("system", "developer", "user", "assistant", "tool")
    message.needed("role")
    role = message.choice("role", roles, "")
    # "developer" is OpenAI's newer word for "system", which is the one that templates know.
    entry: dict[str, Any] = {"role": "system" if role == "developer" else role}
    content = message.get("content")
    calls = message.objects("tool_calls", MOST_TOOLS)
    if isinstance(content, list):
        entry["content"] = "".join(
            _part(part) for part in message.objects("content", MOST_MESSAGES)
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


def _part(part: Fields) -> str:
    part.choice("type", ("text",), "text")
    text = part.text("text")
    part.end()
    if text is None:
        raise refused(part.name("text"), "it is missing")
    return text


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
