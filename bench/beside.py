"""A product beside another process that never stops: what a run then takes, in quiet times."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import luminal as lm
from bench.pair import caller
from bench.row import Row, Rows

SECONDS = 1.5  # of one block
BLOCKS = 3
SETTLE = 0.3  # seconds until the other process has its share of the CPUs


def rows() -> Rows:
    """Mean and 95th percentile of 512 x 512 products, with one spinning process on the machine."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((512, 512), np.float32) for _ in "ab")
    graph = lm.Graph()
    (graph.tensor((512, 512), name="a") @ graph.tensor((512, 512), name="b")).output("c")
    call = caller(graph, a=a, b=b)
    means, late = [], []
    for _ in range(BLOCKS):
        quiet = statistics.fmean(_block(call))
        with _spinning():
            beside = _block(call)
        means.append(statistics.fmean(beside) / quiet)
        late.append(float(np.percentile(beside, 95)) / quiet)
    yield _row("mean", means, 1.7)
    yield _row("95th percentile", late, 3)


def _row(what: str, ratios: list[float], target: float) -> Row:
    name = f"matmul 512 beside a spinning process: {what}"
    middle = statistics.median(ratios)
    return Row(name, middle, target, "quiet times", (min(ratios), max(ratios)))


def _block(call: Callable[[], Any]) -> list[float]:
    call()
    taken: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


@contextmanager
def _spinning() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(SETTLE)
        yield
    finally:
        process.kill()
        process.wait()
