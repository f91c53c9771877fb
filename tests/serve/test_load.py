"""Many clients at once: each gets the text that it gets alone."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import httpx
import pytest

from luminal.serve.errors import ApiError
from luminal.serve.words import Words
from tests.serve.running import Running, characters

CLIENTS = 16  # of 24 places: those that are left may be held a moment longer
SECONDS = 20.0


def text_of(client: httpx.Client, number: int) -> str:
    """A greedy text that depends on the number."""
    body = {"model": "tiny", "prompt": f"Story {number}.", "max_tokens": 30, "temperature": 0}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def leave(client: httpx.Client, draw: random.Random) -> None:
    """Begins a stream and goes in the middle of it."""
    body: dict[str, Any] = {
        "model": "tiny",
        "prompt": "I am gone",
        "max_tokens": 90,
        "stream": True,
    }
    with client.stream("POST", "/v1/completions", json=body) as answer:
        for number, _ in enumerate(answer.iter_lines()):
            if number > draw.randrange(20):
                return


@pytest.mark.long
def test_many_clients_get_the_texts_they_get_alone(server: Running) -> None:
    """Some go in the middle of a text; in the end every block is free."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        alone = [text_of(client, number) for number in range(CLIENTS)]
    wrong: list[Any] = []
    end = time.monotonic() + SECONDS

    def run(number: int) -> None:
        draw = random.Random(number)
        try:
            with httpx.Client(base_url=server.url, timeout=60) as client:
                while time.monotonic() < end:
                    if number % 4 == 0:
                        leave(client, draw)
                    chosen = draw.randrange(CLIENTS)
                    assert text_of(client, chosen) == alone[chosen]
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert server.blocks_are_free()
    assert server.served.engine.load.preemptions > 0


def test_a_chat_without_a_template_is_told_what_gives_one() -> None:
    words = Words(("m",), characters(), None, 8, 96)
    with pytest.raises(ApiError, match=r"/v1/completions needs none, .* luminal serve --template"):
        words.encode_chat([{"role": "user", "content": "a"}], [])
