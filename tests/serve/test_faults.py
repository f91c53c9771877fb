"""Clients that go away or do not read; steps that fail; a small cache; processes that end."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from luminal.serve.app import make_app
from luminal.serve.orders import Limits
from tests.serve.process import KEY, serving
from tests.serve.running import Running, asked

OK: dict[str, Any] = {"model": "tiny", "prompt": "Once", "max_tokens": 2, "temperature": 0}
LONG = OK | {"max_tokens": 100, "stream": True}


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
    monkeypatch.setattr("luminal.serve.connection.STALL_SECONDS", 0.5)
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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("a secret of the machine"), "the model could not be run"),
        (
            MemoryError("cuda:0: cannot allocate 9 bytes"),
            "there is no memory for a step; start the server with fewer --rows, or a smaller "
            "--cache",
        ),
    ],
)
def test_a_step_that_fails_is_an_error_and_no_more(
    server: Running, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    engine = server.served.engine
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> Any:
            raise error

        patch.setattr(engine._program, "run", fail)
        answer = httpx.post(f"{server.url}/v1/completions", json=OK)
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == told
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


def begun(client: Any, count: int = 1) -> Any:
    """A stream whose first part has come."""
    stream = client.completions.create(
        model="tiny", prompt="To be", max_tokens=400, temperature=0, stream=True, n=count
    )
    next(stream)
    return stream


@pytest.mark.long
def test_sigterm_finishes_what_runs(tmp_path: Path) -> None:
    """A stream goes on to its end; the process ends well, and its log is JSON."""
    with serving(tmp_path, "--drain", "20") as server, server.client() as client:
        stream = begun(client)
        server.popen.send_signal(signal.SIGTERM)
        parts = list(stream)
        assert parts[-1].choices[0].finish_reason in ("length", "stop")
        assert server.popen.wait(20) in (0, -signal.SIGTERM)
        (request,) = [line for line in server.lines() if line.get("path") == "/v1/completions"]
    assert (request["status"], request["new_tokens"]) == (200, len(parts) + 1)


@pytest.mark.long
def test_what_does_not_end_in_time_is_told(tmp_path: Path) -> None:
    """Sixteen texts, one after the other."""
    with serving(tmp_path, "--drain", "0", "--rows", "1") as server, server.client() as client:
        stream = begun(client, 16)
        server.popen.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError, match="The server ends; ask another"):
            list(stream)
        assert server.popen.wait(20) in (0, -signal.SIGTERM)


@pytest.mark.long
def test_a_second_interrupt_ends_what_runs(tmp_path: Path) -> None:
    """In order: the client is told, and nobody sees a traceback."""
    with serving(tmp_path, "--rows", "1") as server, server.client() as client:
        stream = begun(client, 16)
        server.popen.send_signal(signal.SIGINT)
        time.sleep(0.3)
        server.popen.send_signal(signal.SIGINT)
        with pytest.raises(openai.APIError, match="The server ends; ask another"):
            list(stream)
        assert server.popen.wait(20) in (130, -signal.SIGINT)
        *lines, last = server.log.read_text("utf-8").splitlines()
    assert last == "luminal: interrupted"
    assert not [line for line in map(json.loads, lines) if line["level"] != "info"]


@pytest.mark.long
def test_10000_requests_leave_nothing(tmp_path: Path) -> None:
    """The cache is full after the first thousand."""
    found = {}
    with serving(tmp_path, "--cache", "2048") as server:
        headers = {"authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=server.url, headers=headers) as client:
            for number in range(1, 10_001):
                body = OK | {"prompt": f"Number {number}", "stream": number % 2 == 0}
                assert client.post("/v1/completions", json=body).status_code == 200
                if number in (1000, 10_000):
                    found[number] = server.resident()
        assert server.is_idle()
    assert found[10_000] <= 1.02 * found[1000]
