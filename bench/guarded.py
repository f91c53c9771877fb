"""A side of a large row in a process of its own, ended before the machine runs out of memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.gpu.command import Worker
from bench.load import available

LEAST = 1 << 30  # bytes that stay free
EVERY = 0.1  # seconds between looks
COMMAND = (sys.executable, "-u", "-m", "bench.large_sides")


@dataclass(slots=True)
class Side:
    """A process that `bench/large_sides.py` runs; what it answers to each request."""

    worker: Worker
    least: int
    ended_for_memory: bool = False

    def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Its answer; "failed" says why there is none, and nothing more can be asked then."""
        answer = self.worker.ask(request, limit)
        if "failed" in answer and self.ended_for_memory:
            return {"failed": f"ended, as less than {self.least >> 30} GiB of memory were free"}
        return answer


@contextmanager
def side(name: str, least: int = LEAST) -> Iterator[Side]:
    """The process of a side by its name; ended with the block, and as soon as less than `least`
    bytes are free.
    """
    started, over = Side(Worker((*COMMAND, name)), least), threading.Event()

    def watch() -> None:
        while not over.wait(EVERY):
            process = started.worker.process
            if process is not None and available() < least:
                started.ended_for_memory = True
                process.kill()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield started
    finally:
        over.set()
        watching.join()
        started.worker.close()
