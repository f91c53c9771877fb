"""How `luminal serve --tensor 2` ends: ranks that hang, clients that go, signals, a front that is
killed. What is asked for is told one error at most, and no process stays.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.distributed.running import needs_mpi
from tests.serve.asking import HEADERS, TEMPLATE, asked
from tests.serve.process import NAME, Process, left_of, parent_of, serving

pytestmark = [pytest.mark.long, needs_mpi(), pytest.mark.timeout(1200)]
LONG = {"model": NAME, "prompt": "To be", "max_tokens": 480, "stream": True, "temperature": 0}
SECONDS = 60.0  # for what takes one or two where nothing else runs
DEADLINE = 5.0  # of a wait of ranks for one another


@contextmanager
def two_ranks(place: Path, waits: bool = True, *more: str) -> Iterator[Process]:
    """A server on two ranks, that serves if this `waits`."""
    (place / "template").write_text(TEMPLATE, "utf-8")
    options = ("--tensor", "2", "--template", str(place / "template"), *more)
    with serving(place, *options) as server:
        if waits:
            server.up()
        yield server


class Stream:
    """A long text, which is read in a thread once its first event has come."""

    def __init__(self, server: Process) -> None:
        self.lines: list[str] = []
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(server,))
        self._thread.start()
        assert self._begun.wait(SECONDS)

    def _read(self, server: Process) -> None:
        url = f"{server.url}/v1/completions"
        with httpx.stream("POST", url, json=LONG, headers=HEADERS, timeout=300) as answer:
            for line in filter(None, answer.iter_lines()):
                self.lines.append(line)
                self._begun.set()

    def errors(self) -> list[str]:
        """The codes of its errors, once it has ended."""
        self._thread.join(300)
        assert not self._thread.is_alive()
        assert self.lines[-1] == "data: [DONE]"
        events = [json.loads(line.removeprefix("data: ")) for line in self.lines[:-1]]
        return [event["error"]["code"] for event in events if "error" in event]


@pytest.mark.parametrize("which", [0, 1])
def test_a_rank_that_hangs(which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have waited for it, and all end: one error, and the server serves again."""
    monkeypatch.setenv("LUMINAL_COLLECTIVE_TIMEOUT", str(DEADLINE))
    with two_ranks(tmp_path) as server:
        before = server.ranks()
        ranks = sorted(n for n in before if parent_of(n) in before)
        stream = Stream(server)
        start = time.monotonic()
        os.kill(ranks[which], signal.SIGSTOP)
        assert stream.errors() == ["ranks_ended"]
        seconds = time.monotonic() - start
        assert left_of(before) == []
        server.up()
        print(f"one error after {seconds:.1f} s, serves again after {time.monotonic() - start:.1f}")
        assert DEADLINE / 2 < seconds < SECONDS
        assert asked(server, 0).error is None
        server.end()


def test_clients_that_go(tmp_path: Path) -> None:
    """Others get their texts, and what those had is free."""
    with two_ranks(tmp_path) as server:
        right = [asked(server, number) for number in range(4)]
        url = f"{server.url}/v1/completions"
        for number in range(4):
            with httpx.stream("POST", url, json=LONG, headers=HEADERS, timeout=300) as answer:
                assert next(answer.iter_lines()).startswith("data: {")
                other = threading.Thread(target=answer.close)
                other.start()
                assert asked(server, number) == right[number]
                other.join()
        assert server.is_idle(SECONDS)
        server.end()


def test_ctrl_c(tmp_path: Path) -> None:
    """The first one waits for what runs, and refuses the rest."""
    with two_ranks(tmp_path, True, "--drain", "600") as server:
        started, stream = server.started(), Stream(server)
        server.popen.send_signal(signal.SIGINT)
        while (error := asked(server, 0).error) is None:
            pass
        assert error["code"] == "server_ends"
        assert stream.errors() == []
        assert len(stream.lines) > 100, "the text is whole"
        server.popen.wait(SECONDS)
        assert left_of(started) == []


@pytest.mark.parametrize("serves", [True, False])
def test_ctrl_c_twice(serves: bool, tmp_path: Path) -> None:
    """The second one ends all at once, also while the ranks start."""
    with two_ranks(tmp_path, serves) as server:
        streams = [Stream(server)] if serves else []
        while not (ranks := server.ranks()):
            time.sleep(0.01)
        started, start = server.started(), time.monotonic()
        server.popen.send_signal(signal.SIGINT)
        time.sleep(0.3)
        server.popen.send_signal(signal.SIGINT)
        for stream in streams:
            assert stream.errors() == ["server_ends"]
        server.popen.wait(SECONDS)
        print(f"ended after {time.monotonic() - start:.1f} s")
        assert left_of([*started, *ranks]) == []


def test_a_front_that_is_killed(tmp_path: Path) -> None:
    """While it starts, at a drawn moment, and while it serves: no process stays."""
    draw = random.Random(3)
    for number, waits in enumerate([False] * 5 + [True]):
        place = tmp_path / str(number)
        place.mkdir()
        with two_ranks(place, waits) as server:
            while not server.ranks():
                time.sleep(0.01)
            if not waits:
                time.sleep(draw.uniform(0, 4))
            started = server.started()
            server.popen.kill()
            assert left_of(started, SECONDS) == [], f"the {number}. time"


def test_ranks_killed_while_they_start(tmp_path: Path) -> None:
    """At many drawn moments: each time all of the group end, and another one starts; in the end
    one serves.
    """
    draw, kills, seconds = random.Random(5), 8, []
    (tmp_path / "template").write_text(TEMPLATE, "utf-8")
    options = ("--tensor", "2", "--restarts", "100", "--template", str(tmp_path / "template"))
    with serving(tmp_path, *options) as server:
        for _ in range(kills):
            while not server.ranks():
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 4))
            ranks = server.ranks()
            start = time.monotonic()
            os.kill(draw.choice(ranks), signal.SIGKILL)
            assert left_of(ranks, SECONDS) == []
            seconds.append(time.monotonic() - start)
        server.up()
        assert asked(server, 0).error is None
        print(f"all have ended after {[round(each, 1) for each in seconds]} s")
        server.end()
