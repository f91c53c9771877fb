"""The model that comes with Luminal, served by each device that is here to 64 clients at once."""

from __future__ import annotations

import threading
import time
from collections import Counter

import httpx
import pytest

from luminal.models.shipped import SHIPPED
from luminal.serve.load import load
from tests.backends.c_family.present import present
from tests.serve.running import running

CLIENTS = 64
TOKENS = 24
STALL = 60.0  # seconds without any answer: a device on two cores that other tests keep busy
PROMPTS = [
    f"{name}:\n{word}"
    for name in ("ROMEO", "JULIET", "KING HENRY VI", "First Citizen")
    for word in ("The", "My lord", "What", "O")
]


def answered(backend: str, clients: int) -> tuple[dict[str, Counter[str]], float]:
    """What clients that ask at once for two texts each are told, by prompt; new tokens a second."""
    served = load(str(SHIPPED), context=128, rows=CLIENTS, backend=backend)
    told: dict[str, Counter[str]] = {prompt: Counter() for prompt in PROMPTS}
    wrong: list[Exception] = []
    last = [time.monotonic()]
    longest = [0.0]
    lock = threading.Lock()

    def ask(number: int, url: str) -> None:
        try:
            with httpx.Client(base_url=url, timeout=STALL * 5) as client:
                for turn in range(2):
                    prompt = PROMPTS[(number + turn) % len(PROMPTS)]
                    body = {
                        "model": served.names[0],
                        "prompt": prompt,
                        "max_tokens": TOKENS,
                        "temperature": 0,
                    }
                    answer = client.post("/v1/completions", json=body)
                    assert answer.status_code == 200, answer.text
                    with lock:
                        told[prompt][answer.json()["choices"][0]["text"]] += 1
                        now = time.monotonic()
                        longest[0] = max(longest[0], now - last[0])
                        last[0] = now
        except Exception as error:
            wrong.append(error)

    with running(served) as server:
        last[0] = start = time.monotonic()
        threads = [
            threading.Thread(target=ask, args=(number, server.url)) for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - start
        assert wrong == []
        assert server.blocks_are_free()
    assert longest[0] < STALL
    assert sum(sum(texts.values()) for texts in told.values()) == 2 * clients
    return told, 2 * clients * TOKENS / seconds


@pytest.mark.long
@pytest.mark.parametrize("name", present())
def test_many_clients_get_the_cpu_s_texts(name: str) -> None:
    """Each prompt has one text, whoever else is served beside it, and it is the CPU's."""
    expected, _ = answered("cpu", len(PROMPTS))
    found, speed = answered(name, CLIENTS)
    for prompt in PROMPTS:
        assert [*found[prompt]] == [*expected[prompt]], prompt
    print(f"{name}: {CLIENTS} clients, {speed:.0f} tokens/s")
