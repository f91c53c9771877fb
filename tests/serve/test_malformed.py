"""Malformed requests by the thousand: each is refused as OpenAI does, and none leaves anything."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import time
from itertools import islice
from pathlib import Path

import httpx
import pytest

from luminal import models
from luminal.serve.connection import LINGER_SECONDS
from tests.serve.malformed import KEY, Request, requests
from tests.serve.process import Process, serving
from tests.serve.running import Running

OK = {"model": "tiny", "prompt": "Once", "max_tokens": 12, "temperature": 0}
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ (m.tool_calls or []) | tojson }}\n"
    "{% endfor %}{{ (tools or []) | tojson }}a:"
)


def check(port: int, request: Request) -> None:
    """Sends it; an answer to it is a good one, or an error in OpenAI's form."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(request.data)
        if request.leaves:
            return
        method = "HEAD" if request.data.startswith(b"HEAD ") else "GET"
        answer = http.client.HTTPResponse(connection, method=method)
        answer.begin()
        body = answer.read()
    assert b"server_error" not in body, body  # in a stream too
    if answer.status != 200:
        assert 400 <= answer.status < 500 or answer.status in (501, 505), (answer.status, body)
        if method != "HEAD":
            error = json.loads(body)["error"]
            assert set(error) == {"message", "type", "param", "code"}, error
            assert error["message"]
            assert "\n" not in error["message"], error


def check_all(port: int, seed: int, count: int) -> None:
    for number, request in enumerate(islice(requests(seed), count)):
        try:
            check(port, request)
        except (AssertionError, OSError, ValueError, http.client.HTTPException) as error:
            shown = request.data[:400] + b" ... " + request.data[-100:]
            pytest.fail(f"request {number} of seed {seed}, {request.kind}: {error!r}: {shown!r}")


def test_malformed_requests_are_refused(server: Running) -> None:
    check_all(server.port, 0, 150)
    assert server.blocks_are_free()


def greedy(server: Process) -> str:
    headers = dict([KEY.split(": ")])
    answer = httpx.post(f"{server.url}/v1/completions", json=OK, headers=headers, timeout=30)
    return str(answer.json()["choices"][0]["text"])


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_10000_malformed_requests_leave_nothing(tmp_path: Path) -> None:
    """500 of them are clients that go in the middle.

    Each thread's heap and stack grow until it has met the worst of its requests, which takes some
    thousands: memory is compared from there on.
    """
    folder = shutil.copytree(models.SHIPPED, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    options = ("--cache", "2048", "--max-body", "65536")
    resident = []
    with serving(tmp_path, *options, model=folder) as server:
        text, files = greedy(server), server.files()
        for seed in range(1, 11):
            check_all(server.port, seed, 1000)
            resident.append(server.resident())
        assert server.is_idle()
        time.sleep(2 * LINGER_SECONDS)
        assert server.files() <= files
        assert greedy(server) == text
        assert [line for line in server.lines() if line["level"] == "error"] == []
    print("MiB after each thousand:", [size >> 20 for size in resident])
    assert resident[9] <= 1.02 * resident[4]
