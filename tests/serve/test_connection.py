"""Connections: what is no HTTP, clients that send or read slowly, requests one behind another."""

from __future__ import annotations

import http.client
import json
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.serve.malformed import KEY, message, post
from tests.serve.running import Running

OK: dict[str, Any] = {"model": "tiny", "prompt": "Once", "max_tokens": 2, "temperature": 0}
BODY = json.dumps(OK).encode()
GOOD = post("/v1/completions", BODY)


@contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), 60) as found:
        yield found


def read(connection: socket.socket) -> bytes:
    """All until the server closes."""
    found = b""
    while part := connection.recv(1 << 16):
        found += part
    return found


def parted(answer: bytes) -> tuple[bytes, Any]:
    """The first line, and the JSON of the body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    return head.partition(b"\r\n")[0], json.loads(body)


def soon(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


SMUGGLED = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked"
NO_HTTP: dict[str, tuple[bytes, int, str]] = {
    "zeros": (b"\0" * 50 + b"\r\n\r\n", 400, "no request of HTTP/1.1"),
    "version": (b"GET / HTTP/9\r\n\r\n", 400, "no request of HTTP/1.1"),
    "tls": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", 400, "no request of HTTP/1.1"),
    "length": (message("POST / HTTP/1.1", ["Content-Length: x"]), 400, "no request of HTTP/1.1"),
    "chunk": (message("POST /v1/completions HTTP/1.1", [CHUNKED], b"z\r\n"), 400, "no request"),
    "head": (message("GET / HTTP/1.1", ["X: " + "a" * 3_000_000]), 431, "More than 64 KiB"),
    "head at once": (message("GET / HTTP/1.1", ["X: " + "a" * 66_000]), 431, "More than 64 KiB"),
    "headers": (message("GET / HTTP/1.1", ["X: " + "a" * 999] * 70), 431, "More than 64 KiB"),
    "two lengths": (
        message("POST /health HTTP/1.1", [CHUNKED, "Content-Length: 5"], b"0\r\n\r\n" + SMUGGLED),
        400,
        "Transfer-Encoding beside a Content-Length",
    ),
    "chunks of 1.0": (
        message("POST /health HTTP/1.0", [CHUNKED], b"0\r\n\r\n" + SMUGGLED),
        400,
        "Transfer-Encoding beside HTTP/1.0",
    ),
    "coding": (message("POST / HTTP/1.1", ["Transfer-Encoding: gzip"]), 501, "only chunked"),
    **{
        name: (message(f"GET /health HTTP/{name}", []), 505, f"HTTP/{name}: the server speaks")
        for name in ("0.9", "1.2", "2.0", "9.9")
    },
}


@pytest.mark.parametrize("name", NO_HTTP)
def test_what_is_no_http_is_refused_as_all_else(
    server: Running, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Once; then the connection ends, and nothing that follows is taken for a request."""
    monkeypatch.setattr("luminal.serve.connection.LINGER_SECONDS", 0.2)
    sent, status, said = NO_HTTP[name]
    with connected(server) as connection:
        connection.sendall(sent)
        found = read(connection)
    start, body = parted(found)
    assert len(re.findall(rb"HTTP/1\.1 \d", found)) == 1
    assert start.startswith(b"HTTP/1.1 %d " % status)
    assert said in body["error"]["message"]
    assert body["error"]["type"] == "invalid_request_error"


def test_a_head_of_64_kib_is_read(server: Running) -> None:
    with connected(server) as connection:
        connection.sendall(
            message("GET /health HTTP/1.1", ["X: " + "a" * 65_000, "Connection: close"])
        )
        assert read(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("header", "status", "said"),
    [
        ("Content-Length: " + "9" * 20, 413, "more than 20000 bytes"),
        ("Content-Length: 20001", 413, "more than 20000 bytes"),
        (f"{CHUNKED}\r\n\r\n{'f' * 20}", 413, "more than 20000 bytes"),
        (f"{CHUNKED}\r\n\r\n4e21", 413, "more than 20000 bytes"),
        ("Content-Encoding: gzip\r\nContent-Length: 9", 415, "'gzip' is not understood"),
    ],
    ids=["absurd", "long", "absurd chunk", "long chunk", "coded"],
)
def test_a_body_that_is_not_read_is_refused_at_once(
    server: Running, header: str, status: int, said: str
) -> None:
    """None of it has come."""
    with connected(server) as connection:
        connection.sendall(message("POST /v1/completions HTTP/1.1", [header]))
        connection.settimeout(10)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, said in json.loads(answer.read())["error"]["message"]) == (
            status,
            True,
        )


SLOW = {"nothing": b"", "head": GOOD[:30], "body": GOOD[:-5]}


@pytest.mark.parametrize("name", SLOW)
def test_a_request_has_a_time_to_come(
    server: Running, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """However it trickles."""
    monkeypatch.setattr("luminal.serve.connection.REQUEST_SECONDS", 0.3)
    monkeypatch.setattr("luminal.serve.connection.LINGER_SECONDS", 0.1)
    with connected(server) as connection:
        for byte in SLOW[name]:
            connection.sendall(bytes([byte]))
        start, body = parted(read(connection))
    assert start == b"HTTP/1.1 408 Request Timeout"
    assert "did not come within 0.3 s" in body["error"]["message"]


def test_a_body_that_nobody_wants_has_a_time_to_come(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is there before it: a path that does not exist."""
    monkeypatch.setattr("luminal.serve.connection.REQUEST_SECONDS", 0.3)
    with connected(server) as connection:
        connection.sendall(message("POST /v2 HTTP/1.1", ["Content-Length: 9"], b"a"))
        assert read(connection).startswith(b"HTTP/1.1 404")


def test_the_time_of_a_request_does_not_count_its_answer(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor that of the next request on the connection the one before."""
    monkeypatch.setattr("luminal.serve.connection.REQUEST_SECONDS", 0.3)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for _ in range(2):
        server.served.engine.call(lambda: time.sleep(0.4))
        connection.request("POST", "/v1/completions", BODY)
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
    connection.close()


def test_there_is_an_end_of_connections(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that of files, which would stop and flood the log."""
    with monkeypatch.context() as patch:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        patch.setattr("luminal.serve.connection.SPARE_FILES", limit)
        with connected(server) as connection:
            assert connection.recv(1) == b""
    assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize("size", [1, 50, 10_000], ids=["bytes", "parts", "at once"])
def test_requests_one_behind_another(server: Running, size: int) -> None:
    """Each has its answer, in the order of the requests."""
    paths = ["/health", "/v2", "/v1/models", "/v1/completions", "/health"]
    sent = b"".join(post(path, BODY) for path in paths[:-1])
    sent += message("GET /health HTTP/1.1", ["Connection: close"])
    with connected(server) as connection:
        for place in range(0, len(sent), size):
            connection.sendall(sent[place : place + size])
        found = read(connection)
    assert [int(part[:3]) for part in found.split(b"HTTP/1.1 ")[1:]] == [405, 404, 405, 200, 200]


def test_http_1_0(server: Running) -> None:
    """The end of the connection is the end of a stream."""
    body = json.dumps(OK | {"stream": True}).encode()
    sent = post("/v1/completions", body).replace(b"HTTP/1.1", b"HTTP/1.0")
    with connected(server) as connection:
        connection.sendall(sent)
        head, _, found = read(connection).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert found.endswith(b"data: [DONE]\n\n")


def test_a_head_has_no_body(server: Running) -> None:
    whole = httpx.get(f"{server.url}/v1/models")
    head = httpx.head(f"{server.url}/v1/models")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]


def test_other_methods_are_told_which_there_are(server: Running) -> None:
    answer = httpx.request("OPTIONS", f"{server.url}/v1/completions")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_path_is_not_made_another(server: Running) -> None:
    assert httpx.get(f"{server.url}/health/").status_code == 404


@pytest.mark.parametrize("count", [1, 8], ids=["a little", "much"])
def test_who_reads_nothing_is_given_up(
    server: Running, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Its connection is gone though it goes on to hold it; also when all has been written."""
    monkeypatch.setattr("luminal.serve.connection.STALL_SECONDS", 0.3)
    body = OK | {"max_tokens": 100, "n": count, "stream": True}
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(post("/v1/completions", json.dumps(body).encode()))
        name = connection.getsockname()
        assert soon(lambda: name in server.clients)
        assert soon(lambda: name not in server.clients)
    assert server.blocks_are_free()


def test_who_reads_slowly_gets_all(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.serve.connection.STALL_SECONDS", 0.2)
    body = OK | {"max_tokens": 100, "n": 8, "logprobs": 5, "stream": True}
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", server.port))
        sent = post("/v1/completions", json.dumps(body).encode())
        connection.sendall(sent.replace(KEY.encode(), b"Connection: close"))
        found = b""
        for _ in range(10):
            found += connection.recv(1 << 14)
            time.sleep(0.05)
        assert b"data: [DONE]" in found + read(connection)
