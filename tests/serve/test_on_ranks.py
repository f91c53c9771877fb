"""`luminal serve --tensor 2` as users start it: what it writes, and what deaths leave."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from luminal.serve.groups import STEADY_SECONDS
from tests.distributed.running import needs_mpi
from tests.serve.asking import TEMPLATE, Answer, asked
from tests.serve.process import Process, left_of, serving

pytestmark = [pytest.mark.long, needs_mpi()]
KILLS = 20
CODES = ("ranks_ended", "server_starts")


class Size(NamedTuple):
    """How much is asked for, by how many at a time, and how often a rank is killed meanwhile."""

    prompts: int
    clients: int
    kills: int


SIZES = pytest.mark.parametrize(
    "size", [Size(24, 8, 2), Size(200, 64, KILLS)], ids=lambda size: str(size.prompts)
)


LONG = "{# " + "more than a pipe holds " * 5000 + "#}"


def options(place: Path, *more: str) -> tuple[str, ...]:
    """Those of a server with files of its own."""
    place.mkdir()
    (place / "template").write_text(LONG + TEMPLATE, "utf-8")
    return "--template", str(place / "template"), "--compute-dtype", "float32", *more


def texts(server: Process, numbers: Sequence[int], clients: int) -> dict[int, str]:
    """What so many clients are written, of these requests."""
    with ThreadPoolExecutor(clients) as pool:
        answers = dict(zip(numbers, pool.map(lambda n: asked(server, n), numbers), strict=True))
    assert [answer for answer in answers.values() if answer.error] == []
    return {number: answer.text for number, answer in answers.items()}


@SIZES
@pytest.mark.timeout(1800)
def test_two_ranks_write_what_one_writes(size: Size, tmp_path: Path) -> None:
    """Many clients get what few do, bit for bit, and what one process writes: in float32 sums over
    ranks differ in the last bits alone, which one drawn text of 200 may meet.
    """
    numbers = range(size.prompts)
    with serving(tmp_path / "one", *options(tmp_path / "one")) as server:
        server.up()
        alone = texts(server, numbers, size.clients)
    with serving(tmp_path / "two", *options(tmp_path / "two", "--tensor", "2")) as server:
        server.up()
        many = texts(server, numbers, size.clients)
        some = random.Random(1).sample(numbers, size.prompts // 4)
        few = texts(server, some, 3)
        server.end()
    assert {number: many[number] for number in some} == few
    flips = [number for number in numbers if alone[number] != many[number]]
    print(f"{len(flips)} of {size.prompts} texts differ from one rank's: {flips}")
    assert len(flips) <= size.prompts // 200
    assert len(set(many.values())) > size.prompts // 2, "the texts are not one and the same"


class Asking:
    """Clients who ask for texts of a server and ask again where an error comes, until each request
    has had its text and nothing `is_killing`.
    """

    def __init__(self, server: Process, right: dict[int, str]) -> None:
        self._server, self._right, self._lock = server, right, threading.Lock()
        self._left = [*right]
        self.is_killing = True
        self.told: Counter[str] = Counter()
        """How many answers there were of each kind."""

    def run(self, seed: int) -> None:
        """What one client does."""
        draw = random.Random(seed)
        while True:
            with self._lock:
                if not self._left and not self.is_killing:
                    return
                number = self._left.pop() if self._left else draw.choice([*self._right])
            while not self._is_right(number, asked(self._server, number)):
                time.sleep(0.5)

    def _is_right(self, number: int, answer: Answer) -> bool:
        """Whether it is the text; else it is one error, after a beginning of the text."""
        right = self._right[number]
        if answer.error is None:
            assert answer.text == right
            self.told["text"] += 1
            return True
        assert answer.error["code"] in CODES, answer
        assert right.startswith(answer.text)
        self.told[f"{answer.error['code']}, {'event' if answer.status == 200 else 503}"] += 1
        return False


def kill_one(server: Process, draw: random.Random) -> None:
    """Kills a rank, or what watches it, and waits until all of its group have ended."""
    if ranks := server.ranks():
        os.kill(draw.choice(ranks), signal.SIGKILL)
        assert left_of(ranks, 60) == []


@SIZES
@pytest.mark.timeout(3600)
def test_kills_at_random_moments(size: Size, tmp_path: Path) -> None:
    """While clients ask, ranks are killed, as they serve and as they start: each answer is the
    right text or one error, and in the end all texts were written.
    """
    draw = random.Random(7)
    more = "--tensor", "2", "--restarts", "100"
    with serving(tmp_path / "two", *options(tmp_path / "two", *more)) as server:
        server.up()
        right = texts(server, range(size.prompts), size.clients)
        asking = Asking(server, right)
        seconds = []
        with ThreadPoolExecutor(size.clients) as pool:
            clients = [pool.submit(asking.run, seed) for seed in range(size.clients)]
            try:
                for _ in range(size.kills):
                    # Of a group that serves, or one of four times of one that starts; later than
                    # what makes the pauses before restarts grow, which would be all of the test.
                    time.sleep(STEADY_SECONDS * draw.uniform(1, 1.2))
                    start = time.monotonic()
                    kill_one(server, draw)
                    if draw.random() < 0.25:
                        time.sleep(draw.uniform(1, 4))
                        kill_one(server, draw)
                    server.up()
                    seconds.append(time.monotonic() - start)
                    assert not any(client.done() for client in clients)
            finally:
                asking.is_killing = False
            for client in clients:
                client.result()
        print(f"serves again after {sorted(round(s, 1) for s in seconds)} s; {dict(asking.told)}")
        assert asking.told["ranks_ended, event"] or size.kills < KILLS
        assert asking.told["ranks_ended, 503"]
        server.end()
