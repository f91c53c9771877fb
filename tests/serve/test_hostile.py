"""Hostile requests beside ordinary clients: who asks for much holds up nobody."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from luminal import models
from tests.serve import hostile
from tests.serve.hostile import KINDS, request
from tests.serve.process import KEY, Process, serving
from tests.serve.running import Running

WARM = ("four texts", "logprobs", "properties")
HEADERS = {"authorization": f"Bearer {KEY}"}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}a:"
ORDINARY: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "To be, or not to be?"}],
    "max_tokens": 16,
    "temperature": 0,
}


@contextmanager
def clients(url: str, count: int) -> Iterator[list[httpx.Client]]:
    """Connected clients: what it takes to begin is no latency of the server's."""
    with ExitStack() as stack:
        found = [
            stack.enter_context(
                httpx.Client(base_url=url, headers=HEADERS, timeout=60, verify=False)
            )
            for _ in range(count)
        ]
        latencies(found, 0.5)
        yield found


def latencies(clients: Sequence[httpx.Client], seconds: float) -> list[float]:
    """Of chats that each of the clients asks for one after the other."""
    end = time.monotonic() + seconds

    def asks(client: httpx.Client) -> list[float]:
        found = []
        while time.monotonic() < end:
            start = time.perf_counter()
            answer = client.post("/v1/chat/completions", json=ORDINARY)
            found.append(time.perf_counter() - start)
            assert answer.status_code == 200, answer.text
        return found

    with ThreadPoolExecutor(len(clients)) as pool:
        return [each for found in pool.map(asks, clients) for each in found]


def p95(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.95))


@pytest.mark.parametrize("kind", ["const", "const that is allowed", "words", "biases", "stops"])
def test_hostile_requests_are_answered(server: Running, kind: str) -> None:
    draw = random.Random(0)
    path, body = request(kind, draw)
    start = time.monotonic()
    answer = httpx.post(server.url + path, json=body, timeout=60)
    assert answer.status_code in (200, 400, 413)
    assert time.monotonic() - start < 10
    assert server.blocks_are_free()


def attacked(
    server: Process, kind: str, clients: Sequence[httpx.Client]
) -> tuple[list[int], list[float]]:
    """The statuses of 20 hostile requests, and how long ordinary ones took beside them."""
    program = [sys.executable, str(Path(hostile.__file__)), server.url, KEY, kind, "20"]
    found: list[float] = []
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as popen:
        while popen.poll() is None or len(found) < 200:
            found += latencies(clients, 1.0)
        assert popen.stdout is not None
        return json.loads(popen.stdout.read()), found


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_who_asks_for_much_holds_up_nobody(tmp_path: Path) -> None:
    """20 requests of each kind at once beside 16 clients: these wait at most twice as long, and the
    memory of the server is what it was.
    """
    folder = shutil.copytree(models.SHIPPED, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    slow, fat = {}, {}
    with serving(tmp_path, model=folder) as server, clients(server.url, 16) as ordinary:
        for kind in WARM:  # programs meet all numbers of rows that there will be
            hostile.attack(server.url, KEY, kind, 20)
        for kind in KINDS:
            before, quiet = server.resident(), p95(latencies(ordinary, 3.0))
            statuses, found = attacked(server, kind, ordinary)
            assert server.is_idle(20)
            ratio, grown = p95(found) / quiet, server.resident() / before
            print(f"{kind}: {ratio:.2f} of {quiet:.3f} s, memory {grown:.3f}, {set(statuses)}")
            slow |= {kind: ratio} if ratio > 2 else {}
            fat |= {kind: grown} if grown > 1.05 else {}
    assert (slow, fat) == ({}, {})
