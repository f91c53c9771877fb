"""The process in front of groups of ranks: who gets a request, and what a death is to clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from luminal.base import host
from luminal.runtime.collectives import start
from luminal.serve import groups
from luminal.serve.groups import DrainingServer, Groups
from luminal.serve.orders import Limits
from luminal.serve.rank_process import Settings
from luminal.serve.server import bound
from tests.serve.process import left_of

SECONDS = 20.0


class Front:
    """A front that runs in a thread, over groups that are tests.serve.fake_rank."""

    def __init__(self, replicas: int, restarts: int, tensor: int) -> None:
        self.groups = Groups(Settings({}, Limits()), tensor, replicas, restarts)
        self._sockets = bound("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._sockets[0].getsockname()[1]}"
        self.status = -1
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.status = self.groups.run(self._sockets, 1)

    @property
    def server(self) -> DrainingServer:
        """What was made for it."""
        server = self.groups._server
        assert isinstance(server, DrainingServer)
        return server

    def up(self, count: int) -> None:
        """Waits until so many groups are up."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with suppress(httpx.ConnectError):  # it does not listen yet
                if httpx.get(f"{self.url}/health").json()["up"] == count:
                    return
            time.sleep(0.02)
        raise AssertionError(f"never {count} groups were up")

    def who(self) -> int:
        """The process that answers next."""
        return int(httpx.get(f"{self.url}/who").text)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """As the signal does."""
        loop = self.groups._lives[0].get_loop()
        loop.call_soon_threadsafe(self.server.handle_exit, number, None)


@contextmanager
def fronted(
    monkeypatch: pytest.MonkeyPatch, replicas: int = 1, restarts: int = 3, tensor: int = 1
) -> Iterator[Front]:
    monkeypatch.setattr(groups, "MODULE", "tests.serve.fake_rank")
    monkeypatch.setattr(groups, "BACKOFF_SECONDS", 0.01)
    front = Front(replicas, restarts, tensor)
    try:
        yield front
    finally:
        if front.thread.is_alive():
            front.end()
        front.thread.join(SECONDS)
        assert not front.thread.is_alive()
        for group in front.groups._groups:
            assert group.process is not None
            assert group.process.returncode is not None


def error_of(line: str) -> str:
    return str(json.loads(line)["error"]["code"])


def test_a_death_is_one_error_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go where the fewest are. A death is told to whoever waited, in a stream as its
    last event; the other group goes on, and the dead one comes again.
    """
    with fronted(monkeypatch, replicas=2) as front, ExitStack() as stack:
        front.up(2)
        lines: dict[int, Iterator[str]] = {}
        for _ in range(2):
            before = [group.open for group in front.groups._groups]
            stream = stack.enter_context(httpx.stream("GET", f"{front.url}/stream", timeout=5))
            (where,) = [g.number for g in front.groups._groups if g.open > before[g.number]]
            lines[where] = stream.iter_lines()
            assert next(lines[where]) == "data: 1"
        assert sorted(lines) == [0, 1]
        answers: list[httpx.Response] = []
        quiet = threading.Thread(target=lambda: answers.append(httpx.get(f"{front.url}/quiet")))
        quiet.start()
        while sum(group.open for group in front.groups._groups) < 3:
            time.sleep(0.01)
        victim = max(front.groups._groups, key=lambda group: group.open)
        assert victim.process is not None
        killed = victim.process.pid
        os.kill(killed, signal.SIGKILL)
        quiet.join(SECONDS)
        assert answers[0].status_code == 503
        assert answers[0].headers["retry-after"] == "1"
        assert "ended (killed by SIGKILL)" in answers[0].json()["error"]["message"]
        told = [line for line in lines[victim.number] if line and line != "data: 1"]
        assert error_of(told[0].removeprefix("data: ")) == "ranks_ended"
        assert told[1:] == ["data: [DONE]"]
        assert any(next(lines[1 - victim.number]) for _ in range(20)), "the other one goes on"
        front.up(2)
        assert killed not in {front.who() for _ in range(8)}
        front.end()
        said = [line for line in lines[1 - victim.number] if line and line != "data: 1"]
        assert error_of(said[0].removeprefix("data: ")) == "server_ends", "its time was over"
    assert front.status == 0


def test_draining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes while others have their answers is refused, and told so."""
    with fronted(monkeypatch) as front:
        front.up(1)
        front.server.drain = 600
        with httpx.stream("GET", f"{front.url}/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: 1"
            front.end()
            while not front.groups.draining:
                time.sleep(0.01)
            refused = httpx.get(f"{front.url}/who")
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "server_ends"
            assert httpx.get(f"{front.url}/health").status_code == 503


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """Ends what runs at once, whatever time it had."""
    with fronted(monkeypatch) as front:
        front.up(1)
        front.server.drain = 600
        with httpx.stream("GET", f"{front.url}/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: 1"
            front.end(number)
            while not front.groups.draining:
                time.sleep(0.01)
            assert next(line for line in lines if line) == "data: 1", "the first one waits"
            front.end(number)
            said = [line for line in lines if line and line != "data: 1"]
        assert error_of(said[0].removeprefix("data: ")) == "server_ends"
        assert said[1:] == ["data: [DONE]"]
        front.thread.join(SECONDS)
    assert front.status == 0


KILLED = """
from luminal.serve import groups
from luminal.serve.orders import Limits
from luminal.serve.rank_process import Settings
from luminal.serve.server import bound

groups.MODULE = "tests.serve.fake_rank"
(socket,) = bound("127.0.0.1", 0)
print(socket.getsockname()[1], flush=True)
groups.Groups(Settings({}, Limits()), 1, 1, 0).run([socket], 1)
"""


@pytest.mark.long
def test_a_front_that_is_killed() -> None:
    """Its group goes with it, though it hangs and does not see that its input has ended."""
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": path},
    ) as popen:  # fmt: skip
        assert popen.stdout is not None
        url, who = f"http://127.0.0.1:{int(popen.stdout.readline())}", 0
        while not who:
            with suppress(httpx.ConnectError):
                answer = httpx.get(f"{url}/who")
                who = int(answer.text) if answer.status_code == 200 else 0
        assert left_of([who], 0) == [who]
        os.kill(who, signal.SIGSTOP)
        popen.kill()
    left = left_of([who])
    for number in left:
        os.kill(number, signal.SIGKILL)
    assert left == []


def test_a_client_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request is the group's no longer."""
    with fronted(monkeypatch) as front:
        front.up(1)
        with httpx.stream("GET", f"{front.url}/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: 1"
            assert front.groups.open == 1
        end = time.monotonic() + SECONDS
        while front.groups.open and time.monotonic() < end:
            time.sleep(0.01)
        assert front.groups.open == 0


def test_metrics_say_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with fronted(monkeypatch, replicas=2) as front:
        front.up(2)
        assert httpx.get(f"{front.url}/metrics").text.splitlines() == [
            "# HELP a b",
            'plain{replica="0"} 1.0',
            'with{replica="0",x="y"} 2.0',
            'plain{replica="1"} 1.0',
            'with{replica="1",x="y"} 2.0',
        ]


def test_restarts_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that always dies is given up, and without any the server ends."""
    with fronted(monkeypatch, restarts=1) as front:
        for _ in range(2):
            front.up(1)
            os.kill(front.who(), signal.SIGKILL)
            time.sleep(0.1)
        front.thread.join(SECONDS)
    assert front.status == 1


def test_a_launcher_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It hears of no death and of no signal, as MPICH's while ranks start: all that it has started
    ends, and starts again.
    """
    launcher = tmp_path / "mpiexec"
    launcher.write_text(
        f"#!{sys.executable} -S\n"
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(sys.argv[3:], start_new_session=True)\n"
        "time.sleep(100)\n"
    )
    launcher.chmod(0o700)
    monkeypatch.setattr(groups, "mpiexec", lambda: launcher)
    monkeypatch.setattr(groups, "RANK", (sys.executable,))
    monkeypatch.setattr(groups, "LOOKS", 0.02)
    monkeypatch.setattr(groups, "ORDERLY_SECONDS", 0.1)
    monkeypatch.setattr(start, "GRACE", 0.1)
    with fronted(monkeypatch, tensor=2) as front:
        front.up(1)
        process = front.groups._groups[0].process
        assert process is not None
        whole = [*host.beginnings(process.pid)]
        killed = front.who()
        assert killed in whole[1:]
        os.kill(killed, signal.SIGKILL)
        assert left_of(whole, SECONDS) == []
        front.up(1)
        assert front.who() not in whole


def test_a_start_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, and tried again, as often as it may be."""
    said: list[str] = []
    monkeypatch.setattr(groups.LOG, "error", lambda text, *about: said.append(text % about))
    monkeypatch.setenv("HANGS", "")
    monkeypatch.setenv("LUMINAL_COLLECTIVE_TIMEOUT", "0.01")
    monkeypatch.setattr(groups, "LOOKS", 0.02)
    with fronted(monkeypatch, restarts=1) as front:
        front.thread.join(SECONDS)
    assert front.status == 1
    text = "group 0 does not serve after 20 times LUMINAL_COLLECTIVE_TIMEOUT: it is ended; "
    assert sum(line.startswith(text) for line in said) == 2
    assert "(restart 1 of 1 in a row)" in "".join(said)
