"""What clients ask of a server of the shipped model, and what they are answered."""

from __future__ import annotations

import json
import random
import threading
from contextlib import nullcontext
from typing import Any, NamedTuple

import httpx

from tests.serve.process import KEY, NAME, Process

SECONDS = 300.0
HEADERS = {"authorization": f"Bearer {KEY}"}
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "one", "schema": SCHEMA}}
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
"""A chat template, which the shipped model lacks."""

# Matchers run behind all else: with more at once one may take 20 s of a busy core, the server's
# limit.
_FOLLOWERS = threading.BoundedSemaphore(4)


class Answer(NamedTuple):
    """A text, whole or as far as it came; `error`: what came instead of its end."""

    text: str
    status: int
    error: dict[str, Any] | None = None


def follows(number: int) -> bool:
    """Whether request `number` has a schema."""
    return number % 5 == 4


def body_of(number: int) -> tuple[str, dict[str, Any]]:
    """Where request `number` goes and what it asks for: of five two are greedy texts, two are drawn
    by a seed, and one is a chat under a schema; of seven three come as streams.
    """
    words = "Romeo the king speaks of love and war unto his noble lords tonight".split()
    prompt = " ".join(random.Random(number).choices(words, k=3 + number % 9))
    body: dict[str, Any] = {"model": NAME, "max_tokens": 24, "stream": number % 7 < 3}
    if follows(number):
        messages = [{"role": "user", "content": prompt}]
        more = {"messages": messages, "temperature": 0, "response_format": FORMAT}
        return "chat/completions", body | more
    drawn = {"temperature": 0.9, "seed": number} if number % 5 > 1 else {"temperature": 0}
    return "completions", body | {"prompt": prompt} | drawn


def asked(server: Process, number: int) -> Answer:
    """The answer to request `number`."""
    path, body = body_of(number)
    with (
        _FOLLOWERS if follows(number) else nullcontext(),
        httpx.stream(
            "POST", f"{server.url}/v1/{path}", json=body, headers=HEADERS, timeout=SECONDS
        ) as answer,
    ):
        kind = answer.headers["content-type"].partition(";")[0]
        if kind == "text/event-stream":
            return _streamed([line for line in answer.iter_lines() if line])
        told = json.loads(answer.read())
        if answer.status_code != 200:
            return Answer("", answer.status_code, told["error"])
        return Answer(_piece(told), 200)


def _streamed(lines: list[str]) -> Answer:
    """What a stream's events say: at most one error, then the end."""
    assert lines[-1] == "data: [DONE]", lines[-3:]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    errors = [event["error"] for event in events if "error" in event]
    assert errors in ([], [events[-1].get("error")]), events[-3:]
    text = "".join(_piece(event) for event in events if "error" not in event)
    return Answer(text, 200, errors[0] if errors else None)


def _piece(told: dict[str, Any]) -> str:
    (choice,) = told["choices"]
    if "text" in choice:
        return str(choice["text"])
    return str(choice.get("message", choice.get("delta")).get("content") or "")
