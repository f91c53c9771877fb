"""Processes for what takes long: they give what is computed here, and end with their requests."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from luminal.models.constraints import ConstraintError
from luminal.serve import workshop
from luminal.serve.app import make_app
from luminal.serve.errors import ApiError
from luminal.serve.orders import Limits
from luminal.serve.reading import read
from luminal.serve.workshop import Gone, matchers
from tests.serve.hostile import request
from tests.serve.malformed import CHAT, Draw
from tests.serve.running import LIMITS, Running, asked

HEAVY = json.dumps({"const": "a" * 60_000})
FORM: dict[str, Any] = {"json_schema": {"name": "x", "schema": json.loads(HEAVY)}}
SLOW: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "a"}],
    "response_format": {"type": "json_schema"} | FORM,
}


def workers(server: Running) -> int:
    """How many processes work."""
    process = server.served.workshop._process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii")
    return len(children.split())


def none_work(server: Running) -> bool:
    end = time.monotonic() + 10
    while workers(server) and time.monotonic() < end:
        time.sleep(0.01)
    return workers(server) == 0


def test_a_body_is_read_there_as_here(server: Running) -> None:
    words, worker = server.served.words, server.served.workshop.worker()
    good = json.dumps({"model": "tiny", "seed": 1} | CHAT).encode()
    try:
        there = worker.call("read", "/v1/chat/completions", good, LIMITS)
        assert there == read("/v1/chat/completions", good, words, LIMITS)
        path, body = request("biases", Draw(0))
        with pytest.raises(ApiError, match="logit_bias: 80000 tokens; at most 300") as caught:
            worker.call("read", path, json.dumps(body).encode(), LIMITS)
        assert (caught.value.status, caught.value.param) == (400, "logit_bias")
    finally:
        worker.end()
    assert none_work(server)


def test_what_takes_too_long_is_given_up(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workshop, "CALL_SECONDS", 0.01)
    worker = server.served.workshop.worker()
    with pytest.raises(ConstraintError, match=r"it takes more than 0\.01 s; ask for less at once"):
        matchers(worker, HEAVY, 1)
    worker.end()
    assert none_work(server)


def test_whoever_waits_for_a_worker_is_told_of_its_end(server: Running) -> None:
    worker = server.served.workshop.worker()
    threading.Timer(0.05, worker.end).start()
    with pytest.raises(Gone):
        worker.call("follow", HEAVY, 1)
    assert none_work(server)


def held(monkeypatch: pytest.MonkeyPatch, held_name: str) -> threading.Event:
    """Processes answer calls of this name once the event is set."""
    gate = threading.Event()
    original = workshop.Worker.call

    def call(self: workshop.Worker, name: str, *arguments: Any) -> Any:
        if name == held_name:
            gate.wait(20)
        return original(self, name, *arguments)

    monkeypatch.setattr(workshop.Worker, "call", call)
    return gate


def test_the_clock_runs_while_a_grammar_is_made(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its process ends when the time is over."""
    server.served.workshop.worker().end()  # the first one waits for the workshop to begin
    gate = held(monkeypatch, "follow")
    start = time.monotonic()
    answer = asked(make_app(server.served, Limits(seconds=0.2)), SLOW, "/v1/chat/completions")
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    assert time.monotonic() - start < 10
    assert none_work(server)
    gate.set()
    assert server.blocks_are_free()


def test_others_go_on_while_a_matcher_is_asked(
    server: Running, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts under a schema whose process does not answer hold up nobody else, however many."""
    gate = held(monkeypatch, "accept")
    found: list[Any] = []
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["Ann"]}}}
    rows = server.served.engine.options.rows
    body = SLOW | {"response_format": form, "temperature": 0, "n": rows}
    thread = threading.Thread(target=lambda: found.append(client.chat.completions.create(**body)))
    thread.start()
    while not server.served.engine._held:
        time.sleep(0.005)
    plain = client.completions.create(model="tiny", prompt="a", max_tokens=20, temperature=0)
    assert plain.usage.completion_tokens == 20
    assert server.served.engine._held
    gate.set()
    thread.join()
    assert [choice.message.content for choice in found[0].choices] == ['"Ann"'] * rows
    assert server.blocks_are_free()
