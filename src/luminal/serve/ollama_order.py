"""What a client asks of the paths of Ollama's API: https://docs.ollama.com/api.

As there, fields and options that are not known are left aside; those that are known, would change
a text and are not there are refused.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from luminal.loaders.shown import shown
from luminal.serve.conversation import MOST_MESSAGES
from luminal.serve.errors import refused
from luminal.serve.fields import Fields, object_of
from luminal.serve.local_options import refuse, room_of, sampling_of
from luminal.serve.orders import Limits, Order, Ready, Vectors, prompts_of, stops_of
from luminal.serve.pictures import Pictures
from luminal.serve.tools import MOST_TOOLS, Schema, schema_of, tools_of
from luminal.serve.words import Words

OFF = {"think": False, "logprobs": False}


def chat(body: Fields, words: Words, limits: Limits) -> Order | Ready:
    """The order of a body of `/api/chat`. Raises ApiError."""
    pictures = Pictures(words, limits)
    messages = [_message(item, pictures) for item in body.objects("messages", MOST_MESSAGES)]
    if not messages:
        return _preloaded(body, {"message": {"role": "assistant", "content": ""}})
    tools = tools_of(body)
    ids, images = words.encode_chat(messages, tools)
    names = tuple(tool["function"]["name"] for tool in tools)
    return _order(body, words, limits, ids=ids, images=images, tools=names)


def generate(body: Fields, words: Words, limits: Limits) -> Order | Ready:
    """The order of a body of `/api/generate`. Raises ApiError."""
    refuse(body, {"suffix": "", "template": "", "context": []})
    prompt, system = body.text("prompt") or "", body.text("system") or ""
    pictures = Pictures(words, limits)
    images = _images(body, pictures)
    if not prompt and not images:
        return _preloaded(body, {"response": ""})
    if body.flag("raw") or (words.template is None and not images):
        if images:
            raise refused("images", "with raw they have no place; leave raw out")
        ids = words.encode(f"{system}\n\n{prompt}" if system else prompt)
        return _order(body, words, limits, ids=ids, images=[])
    said: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    said.append({"role": "user", "content": _content(prompt, images)})
    ids, prepared = words.encode_chat(said, [])
    return _order(body, words, limits, ids=ids, images=prepared)


def embed(body: Fields, words: Words, limits: Limits) -> Vectors:
    """The texts of a body of `/api/embed`. Raises ApiError."""
    refuse(body, {"dimensions": 0})
    prompts = prompts_of(body.needed("input"), words, "input")
    if len(prompts) > limits.vectors:
        raise refused("input", f"{len(prompts)} texts; at most {limits.vectors}")
    cut = body.flag("truncate", True)
    for ids in prompts:
        if len(ids) > words.context and not cut:
            raise refused("input", f"{len(ids)} tokens; at most {words.context}")
    return Vectors(tuple(ids[: words.context] for ids in prompts), "float")


def _order(
    body: Fields, words: Words, limits: Limits, *, ids: Any, images: Any, tools: Any = ()
) -> Order:
    """What both kinds of requests have."""
    refuse(body, OFF)
    options = body.object("options") or Fields({}, "options.")
    return Order(
        prompts=(tuple(ids),),
        count=1,
        new_tokens=room_of(options, "num_predict", ids, words, limits),
        sampling=sampling_of(options, words, top_p=0.9, min_p=0.0),
        stops=stops_of(options.get("stop"), options.name("stop")),
        logprobs=None,
        stream=body.flag("stream", True),
        usage_in_stream=True,
        schema=_schema(body),
        tools=tools,
        images=(*images,),
    )


def _schema(body: Fields) -> Schema | None:
    """What all of the text obeys: any object of JSON, or a schema."""
    value = body.get("format")
    if value in (None, ""):
        return None
    if value == "json":
        return schema_of("format", {"type": "object"})
    if not isinstance(value, dict):
        raise refused("format", f"{shown(value)} is neither 'json' nor a JSON schema")
    return schema_of("format", value)


def _preloaded(body: Fields, said: dict[str, Any]) -> Ready:
    """The answer to a request without a text, by which clients load a model or let it go: it is
    there, and stays.
    """
    reason = "unload" if body.get("keep_alive") in (0, "0", "0s") else "load"
    return Ready({"created_at": now(), "done": True, "done_reason": reason} | said)


def now() -> str:
    """The time, as RFC 3339 has it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _message(message: Fields, pictures: Pictures) -> dict[str, Any]:
    message.needed("role")
    role = message.choice("role", ("system", "user", "assistant", "tool"), "")
    content, images = message.text("content") or "", _images(message, pictures)
    if images and role != "user":
        raise refused(message.name("images"), "they belong in messages of the user")
    entry: dict[str, Any] = {"role": role, "content": _content(content, images)}
    calls = [_call(call) for call in message.objects("tool_calls", MOST_TOOLS)]
    if calls:
        entry["tool_calls"] = calls
    name = message.text("tool_name")
    return entry if name is None else entry | {"name": name}


def _images(fields: Fields, pictures: Pictures) -> list[dict[str, Any]]:
    """The images of a message, in base64."""
    images = fields.get("images") or []
    if not isinstance(images, list):
        raise refused(fields.name("images"), f"{shown(images)} is no list of images in base64")
    return [
        pictures.of_base64(image, fields.name(f"images[{number}]"))
        for number, image in enumerate(images)
    ]


def _content(text: str, images: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    return [*images, {"type": "text", "text": text}] if images else text


def _call(call: Fields) -> dict[str, Any]:
    function = call.object("function") or object_of(None, call.name("function"))
    function.needed("name")
    arguments = function.get("arguments") or {}
    object_of(arguments, function.name("arguments"))
    return {"type": "function", "function": {"name": function.text("name"), "arguments": arguments}}
