"""Requests that ask for much outside of the model: each is allowed, or nearly, and takes long.

As a program, `hostile.py URL KEY KIND COUNT`, it sends so many at once and prints their statuses:
what a client takes to make them is not to be the server's loss.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

Draw = random.Random
Asked = tuple[str, dict[str, Any]]
"""A path and a body."""
CHAT, TEXT, VECTORS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
MANY = 900_000
"""Characters: as many as a body of 1 MiB holds."""


def _chat(**more: Any) -> Asked:
    return CHAT, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 8} | more


def _schema(schema: Any, **more: Any) -> Asked:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return _chat(response_format=form, **more)


def _properties(count: int) -> dict[str, Any]:
    return {f"p{number}": {"type": "string"} for number in range(count)}


def _tools(draw: Draw) -> Asked:
    tool = {"name": "f", "parameters": {"type": "object", "properties": _properties(1500)}}
    choice = draw.choice(["auto", "required"])
    return _chat(tools=[{"type": "function", "function": tool}], tool_choice=choice)


def _calls(draw: Draw) -> Asked:
    arguments = json.dumps({"a": ["\u00e9" * 9] * 20_000})
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return _chat(messages=[message, {"role": "user", "content": "a"}])


KINDS: dict[str, Callable[[Draw], Asked]] = {
    "one text": lambda draw: _chat(max_tokens=16),  # as ordinary clients ask, to compare with
    "four texts": lambda draw: _chat(n=4, max_tokens=30),
    "const": lambda draw: _schema({"const": "a" * MANY}),
    "const that is allowed": lambda draw: _schema({"const": "a" * 60_000}, n=4),
    "items": lambda draw: _schema(
        {
            "type": "array",
            "minItems": draw.randrange(5000, 6000),
            "maxItems": 10_000,
            "items": {"type": "string", "maxLength": 5000},
        }
    ),
    "properties": lambda draw: _schema({"type": "object", "properties": _properties(1500)}),
    "pattern": lambda draw: _schema(
        {"type": "string", "pattern": draw.choice(["(a|b|ab|.){900,1000}", ".*a.{40}", "(a+)+$"])}
    ),
    "tools": _tools,
    "calls": _calls,
    "words": lambda draw: (TEXT, {"prompt": "To be, or not. " * (MANY // 15)}),
    "one word": lambda draw: (TEXT, {"prompt": draw.choice("ae ") * MANY}),
    "ids": lambda draw: (TEXT, {"prompt": [draw.randrange(50)] * (MANY // 4)}),
    "messages": lambda draw: (CHAT, {"messages": [{"role": "user", "content": "a"}] * 10_000}),
    "parts": lambda draw: _chat(
        messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 10_000}]
    ),
    "biases": lambda draw: _chat(logit_bias={str(number): 1 for number in range(80_000)}),
    "stops": lambda draw: _chat(stop=["a" * (MANY // 4)] * 4),
    "fields": lambda draw: _chat(**{f"x{number}": 1 for number in range(70_000)}),
    "escapes": lambda draw: _chat(stop="\u00e9" * (MANY // 6)),
    "lists": lambda draw: _chat(stop=[[]] * (MANY // 4)),
    "logprobs": lambda draw: _chat(logprobs=True, top_logprobs=20, max_tokens=100),
    "texts for vectors": lambda draw: (VECTORS, {"input": ["To be, or not to be"] * 200}),
    "long texts for vectors": lambda draw: (VECTORS, {"input": ["To be" * 2000] * 200}),
}


def request(kind: str, draw: Draw) -> Asked:
    """One of a kind, for the model `tiny`."""
    path, body = KINDS[kind](draw)
    return path, {"model": "tiny"} | body


def attack(url: str, key: str, kind: str, count: int) -> list[int]:
    """The statuses of so many requests of a kind that are sent at once."""
    draw = random.Random(kind)
    sent = [request(kind, draw) for _ in range(count)]
    made = [(path, json.dumps(body).encode()) for path, body in sent]

    def ask(path: str, body: bytes) -> int:
        headers = {"authorization": f"Bearer {key}"}
        answer = httpx.post(url + path, content=body, headers=headers, timeout=120, verify=False)
        assert "server_error" not in answer.text, answer.text[:500]
        return answer.status_code

    with ThreadPoolExecutor(count) as pool:
        return [*pool.map(lambda each: ask(*each), made)]


if __name__ == "__main__":
    os.nice(19)
    print(json.dumps(attack(*sys.argv[1:4], int(sys.argv[4]))))
