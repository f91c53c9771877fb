"""Clients that send nonsense, go away or do not read; steps that fail; a small cache."""

from __future__ import annotations

import gc
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from luminal import models
from luminal.serve import app
from luminal.serve.app import make_app
from luminal.serve.orders import Limits
from tests.serve.running import Running, asked

OK: dict[str, Any] = {"model": "tiny", "prompt": "Once", "max_tokens": 2, "temperature": 0}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 2,
}
LONG = OK | {"max_tokens": 100, "stream": True}


# --- nonsense

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 130)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["user", "text", "json_schema", "function", "\ud800", "tiny"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "1", "name", "json_schema"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
FIELDS = (
    "model", "prompt", "messages", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n",
    "stream", "stream_options", "stop", "logprobs", "top_logprobs", "seed", "logit_bias", "tools",
    "tool_choice", "response_format", "presence_penalty", "repetition_penalty", "echo", "input",
    "encoding_format", "best_of", "other",
)  # fmt: skip
PATHS = ("completions", "chat/completions", "embeddings")


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """A path, and a body with some fields of a good one replaced, and some bytes perhaps."""
    good = {
        "completions": OK,
        "chat/completions": CHAT,
        "embeddings": {"model": "tiny", "input": "a"},
    }
    path = draw(st.sampled_from(PATHS))
    changed = draw(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4))
    body = json.dumps(good[path] | changed).encode()
    if draw(st.integers(0, 4)) == 0:
        place = draw(st.integers(0, len(body)))
        body = body[:place] + draw(st.binary(max_size=3)) + body[place + draw(st.integers(0, 3)) :]
    return path, body


def check_nonsense(server: Running, count: int) -> None:
    with httpx.Client(base_url=server.url) as client:

        @settings(
            max_examples=count,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(requests())
        def answers(request: tuple[str, bytes]) -> None:
            path, body = request
            answer = client.post(f"/v1/{path}", content=body)
            assert answer.status_code in (200, 400, 404, 413), answer.text
            if answer.status_code != 200:
                assert answer.json()["error"]["message"]

        answers()
    assert server.blocks_are_free()


def test_nonsense_is_refused_politely(server: Running) -> None:
    check_nonsense(server, 40)


@pytest.mark.long
def test_nonsense_10000_times(server: Running) -> None:
    check_nonsense(server, 10_000)


SCHEMAS = st.recursive(
    st.sampled_from(["string", "integer", "boolean", "null", "king"]).map(
        lambda kind: {"type": kind}
    )
    | st.fixed_dictionaries({"enum": st.lists(VALUES, max_size=3)})
    | st.fixed_dictionaries(
        {"$ref": st.sampled_from(["#", "#/properties/a", "file:///etc/passwd"])}
    )
    | st.fixed_dictionaries(
        {"pattern": st.text("a(){1,9}|*[", max_size=8), "type": st.just("string")}
    )
    | VALUES,
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner, "minItems": st.integers(-1, 9)}
        )
        | st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
                "required": st.lists(st.text("ab", max_size=2), max_size=2),
            }
        )
    ),
    max_leaves=6,
)


def check_schemas(server: Running, count: int) -> None:
    with httpx.Client(base_url=server.url) as client:

        @settings(
            max_examples=count,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(SCHEMAS, st.booleans())
        def answers(schema: Any, in_tool: bool) -> None:
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
            asks: dict[str, Any] = {"response_format": form}
            if in_tool:
                asks = {"tools": [tool], "tool_choice": "required"}
            answer = client.post("/v1/chat/completions", content=json.dumps(CHAT | asks))
            assert answer.status_code in (200, 400), answer.text

        answers()


def test_any_schema_is_followed_or_refused(server: Running) -> None:
    check_schemas(server, 40)


@pytest.mark.long
def test_2000_schemas(server: Running) -> None:
    check_schemas(server, 2000)


def test_bytes_that_are_no_http(server: Running) -> None:
    for sent in (b"\0" * 50, b"GET / HTTP/9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(sent)
    assert httpx.get(f"{server.url}/health").status_code == 200


# --- clients that go away or do not read


def begin(server: Running, body: dict[str, Any]) -> socket.socket:
    """A connection on which a request was sent, and nothing is read."""
    data = json.dumps(body).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.connect(("127.0.0.1", server.port))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


def check_disconnects(server: Running, count: int) -> None:
    for number in range(count):
        connection = begin(server, LONG | {"stream": number % 2 == 0, "n": 1 + number % 3})
        if number % 3 == 0:
            time.sleep(0.002)
        connection.close()
    assert server.blocks_are_free()
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_clients_that_go_free_their_blocks(server: Running) -> None:
    check_disconnects(server, 20)


@pytest.mark.long
def test_200_disconnects(server: Running) -> None:
    check_disconnects(server, 200)


def test_a_client_that_goes_stops_its_text(server: Running) -> None:
    """The engine does not write 100 tokens for nobody."""
    gate = threading.Event()
    server.served.engine.call(gate.wait)
    before = server.served.engine.load.computed
    connection = begin(server, OK | {"max_tokens": 100, "prompt": "nobody reads this"})
    time.sleep(0.1)
    connection.close()
    time.sleep(0.1)
    gate.set()
    assert server.blocks_are_free()
    assert server.served.engine.load.computed - before < 60


def test_a_slow_reader_holds_nobody_up(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up when it has read nothing for a while."""
    monkeypatch.setattr(app, "STALL_SECONDS", 0.5)
    before = answered(server)
    slow = [begin(server, LONG | {"n": 8, "logprobs": 5}) for _ in range(2)]
    answer = httpx.post(f"{server.url}/v1/completions", json=OK, timeout=20)
    assert answer.status_code == 200
    assert server.blocks_are_free()
    end = time.monotonic() + 10
    while answered(server) < before + 3:
        assert time.monotonic() < end, "who reads nothing is waited for"
        time.sleep(0.02)
    for connection in slow:
        connection.close()


def answered(server: Running) -> float:
    """How many completions were answered or given up."""
    name = 'luminal_requests_total{path="/v1/completions",status="200"} '
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_request_has_a_time_limit(server: Running) -> None:
    """The engine's events go to the other application: this one gets none."""
    limited = make_app(server.served, Limits(seconds=0.2))
    answer = asked(limited, OK)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    lines = asked(limited, LONG).text.split("\n\n")
    assert json.loads(lines[0].removeprefix("data: "))["error"]["code"] == "timeout"
    assert lines[1:] == ["data: [DONE]", ""]
    assert server.blocks_are_free()


# --- the engine


def test_a_step_that_fails_is_an_error_and_no_more(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = server.served.engine
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> Any:
            raise RuntimeError("a secret of the machine")

        patch.setattr(engine._program, "run", fail)
        answer = httpx.post(f"{server.url}/v1/completions", json=OK)
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "the model could not be run"
    assert server.blocks_are_free()
    assert httpx.post(f"{server.url}/v1/completions", json=OK).status_code == 200


def test_few_blocks_change_no_text(server: Running, client: Any) -> None:
    """8 of 12 texts of up to 48 tokens at a time, in a cache of 256, each as it is alone."""

    def text(number: int) -> str:
        found = client.completions.create(
            model="tiny", prompt=f"Tale {number}:", max_tokens=40, temperature=0
        )
        return str(found.choices[0].text)

    before = server.served.engine.load.preemptions
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(text, range(12)))
    assert server.served.engine.load.preemptions > before
    assert together == [text(number) for number in range(12)]
    assert server.blocks_are_free()


# --- processes


@contextmanager
def serving(tmp_path: Path, drain: int) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """`luminal serve` of the shipped model in a process, and a client of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    keys = tmp_path / "keys"
    keys.write_text("right\n", "utf-8")
    command = [sys.executable, "-m", "luminal.cli.main", "serve", str(models.SHIPPED)]
    options = ["--port", str(port), "--keys", str(keys), "--name", "m", "--drain", str(drain)]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            while process.poll() is None:
                try:
                    httpx.get(f"{url}/health")
                    break
                except httpx.ConnectError:
                    time.sleep(0.05)
            with openai.OpenAI(base_url=f"{url}/v1", api_key="right", max_retries=0) as client:
                yield process, client
        finally:
            process.kill()


def begun(client: Any) -> Any:
    """A stream whose first part has come."""
    stream = client.completions.create(
        model="m", prompt="To be", max_tokens=200, temperature=0, stream=True
    )
    next(stream)
    return stream


@pytest.mark.long
def test_sigterm_finishes_what_runs(tmp_path: Path) -> None:
    """A stream goes on to its end; the process ends well, and its log is JSON."""
    with serving(tmp_path, drain=20) as (process, client):
        stream = begun(client)
        process.send_signal(signal.SIGTERM)
        parts = list(stream)
        assert parts[-1].choices[0].finish_reason in ("length", "stop")
        assert process.wait(20) in (0, -signal.SIGTERM)
        assert process.stderr is not None
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    (request,) = [line for line in lines if line.get("path") == "/v1/completions"]
    assert (request["status"], request["new_tokens"]) == (200, len(parts) + 1)


@pytest.mark.long
def test_what_does_not_end_in_time_is_told(tmp_path: Path) -> None:
    with serving(tmp_path, drain=0) as (process, client):
        stream = begun(client)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError, match="The server ends; ask another"):
            list(stream)
        assert process.wait(20) in (0, -signal.SIGTERM)


@pytest.mark.long
def test_10000_requests_leave_nothing(server: Running) -> None:
    def resident() -> int:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096

    with httpx.Client(base_url=server.url) as client:
        found = {}
        for number in range(1, 10_001):
            body = OK | {"prompt": f"Number {number}", "stream": number % 2 == 0}
            assert client.post("/v1/completions", json=body).status_code == 200
            if number in (1000, 10_000):
                found[number] = resident()
    assert found[10_000] <= 1.02 * found[1000]
