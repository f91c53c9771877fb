"""Hostile requests beside ordinary clients: who asks for much holds up nobody."""

from __future__ import annotations

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

SECONDS = 15.0  # that an attack may last
WARM = ("four texts", "logprobs", "pattern")
HEADERS = {"authorization": f"Bearer {KEY}"}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}a:"
ORDINARY: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "To be, or not to be?"}],
    "max_tokens": 16,
    "temperature": 0,
}


SLOWER = 4  # times as long: who is held up waits far longer on any machine
BODIES = 20 << 20  # bytes of twenty bodies, whose pages the allocator may keep for the next ones


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


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server whose programs have met all numbers of rows that there will be."""
    place = tmp_path_factory.mktemp("hostile")
    folder = shutil.copytree(models.SHIPPED, place / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    with serving(place, model=folder) as server:
        for kind in WARM:
            hostile.attack(server.url, KEY, kind, 20)
        yield server


def attacked(
    server: Process, kind: str, ordinary: Sequence[httpx.Client]
) -> tuple[str, list[float]]:
    """The statuses of 20 hostile requests, and how long ordinary ones took beside them.

    Who is not answered in time goes.
    """
    program = [sys.executable, str(Path(hostile.__file__)), server.url, KEY, kind, "20"]
    found: list[float] = []
    end = time.monotonic() + SECONDS
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as popen:
        while (popen.poll() is None and time.monotonic() < end) or len(found) < 200:
            found += latencies(ordinary, 0.5)
        popen.kill()
        assert popen.stdout is not None
        return popen.stdout.read().strip(), found


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
def test_who_asks_for_much_holds_up_nobody(process: Process, kind: str) -> None:
    """20 requests at once beside 16 clients: these are not held up, and the memory of the server is
    what it was. What is worse than the goal is an expected failure, what is beyond all goals fails.
    """
    with clients(process.url, 16) as ordinary:
        before = process.resident()
        quiet = latencies(ordinary, 1.5)
        statuses, found = attacked(process, kind, ordinary)
        assert process.is_idle(20)
        after = process.resident()
        quiet += latencies(ordinary, 1.5)
    ratio = p95(found) / p95(quiet)
    print(
        f"{kind}: {p95(found):.3f} s, {ratio:.2f} of {p95(quiet):.3f} s; "
        f"memory {after / before:.3f}; statuses {statuses}"
    )
    assert after <= 1.05 * before + BODIES
    assert ratio <= SLOWER
    if after > 1.05 * before or ratio > 2:
        pytest.xfail("the goal, twice as long and 5% of memory, is not met on this machine now")
