"""`luminal serve` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from luminal import models
from luminal.base import host

KEY = "right"
NAME = "tiny"


@dataclass(frozen=True, slots=True)
class Process:
    """A server that runs, and the file of its log."""

    popen: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Any:
        """The official client."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEY, max_retries=0, timeout=60)

    def lines(self) -> list[dict[str, Any]]:
        """Those of the log."""
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]

    def resident(self) -> int:
        """Its memory, in bytes."""
        pages = int(Path(f"/proc/{self.popen.pid}/statm").read_text("utf-8").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def files(self) -> int:
        """How many files and sockets it has open."""
        return len(list(Path(f"/proc/{self.popen.pid}/fd").iterdir()))

    def metrics(self) -> dict[str, float]:
        """Its figures by their names."""
        found = httpx.get(f"{self.url}/metrics", headers={"authorization": f"Bearer {KEY}"}).text
        lines = [line.rsplit(" ", 1) for line in found.splitlines() if line[0] != "#"]
        return {name: float(value) for name, value in lines}

    def up(self, seconds: float = 300.0) -> None:
        """Waits until it writes texts."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.popen.poll() is None:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(self.log.read_text("utf-8"))

    def started(self) -> list[int]:
        """The processes that it has started, and those of these."""
        return [*host.beginnings(self.popen.pid)][1:]

    def ranks(self) -> list[int]:
        """Those that run the model, and what watches them; none that one of these has forked, and
        that has its words until it runs something else.
        """
        named = [n for n in self.started() if words_of(n)[1:3] == ["-m", "luminal_rank"]]
        watchers = [n for n in named if parent_of(n) not in named]
        return [n for n in named if n in watchers or parent_of(n) in watchers]

    def end(self) -> None:
        """SIGTERM ends it, and all that it has started."""
        started = self.started()
        self.popen.send_signal(signal.SIGTERM)
        assert self.popen.wait(60) in (0, -signal.SIGTERM)
        assert left_of(started) == []

    def is_idle(self, within: float = 10.0) -> bool:
        """Whether no text holds a block, soon."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            now = self.metrics()
            texts = now["luminal_running"] + now["luminal_waiting"]
            if texts == 0 and now["luminal_free_blocks"] == now["luminal_blocks"]:
                return True
            time.sleep(0.05)
        return False


def words_of(number: int) -> list[str]:
    """The command line of a process; empty where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_text("utf-8").split("\0")
    return []


def parent_of(number: int) -> int:
    """The process that has started another; 0 where that has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
    return 0


def left_of(numbers: Sequence[int], seconds: float = 10.0) -> list[int]:
    """Those of some processes that do not end within so many seconds."""
    end = time.monotonic() + seconds
    while left := [number for number in numbers if words_of(number)]:
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    return left


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(
    place: Path, *options: str, model: Path = models.SHIPPED, waits: bool = True
) -> Iterator[Process]:
    """A server of a model that has come up, if this `waits`; its files are in `place`."""
    keys, log, port = place / "keys", place / "log", free_port()
    keys.write_text(f"{KEY}\n", "utf-8")
    command = [sys.executable, "-m", "luminal.cli.main", "serve", str(model), *options]
    command += ["--port", str(port), "--keys", str(keys), "--name", NAME]
    with log.open("w") as file, subprocess.Popen(command, stderr=file, text=True) as popen:
        try:
            found = Process(popen, port, log)
            while waits and popen.poll() is None:
                try:
                    httpx.get(f"{found.url}/health")
                    break
                except httpx.ConnectError:
                    time.sleep(0.05)
            yield found
        finally:
            for number in host.beginnings(popen.pid):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
