"""What small things cost: one call of a small graph, and from recording to something callable."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import luminal as lm
from bench.pair import REPEATS
from bench.row import Row, Rows, duration
from luminal.base import config

CALLS = 2000  # in one timed batch


def rows() -> Rows:
    """Call overhead, then compile times with an empty object cache."""
    yield _call()
    yield _compile("(a*b+c).relu()", _elementwise, 20)
    yield _compile("softmax", _softmax, 35)
    yield _compile("matmul", _matmul, 70)


def _elementwise(extent: int = 1000) -> lm.Graph:
    graph = lm.Graph()
    a, b, c = (graph.tensor((extent,), name=name) for name in "abc")
    (a * b + c).relu().output("y")
    return graph


def _softmax() -> lm.Graph:
    graph = lm.Graph()
    graph.tensor((512, 1024), name="x").softmax(-1).output("y")
    return graph


def _matmul() -> lm.Graph:
    graph = lm.Graph()
    (graph.tensor((512, 512), name="a") @ graph.tensor((512, 512), name="b")).output("c")
    return graph


def _call() -> Row:
    executable = lm.compile(_elementwise(64))
    inputs = {name: np.ones(64, np.float32) for name in "abc"}
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        for _ in range(CALLS):
            executable(inputs)
        times.append((time.perf_counter() - start) / CALLS)
    return duration("one call of (a*b+c).relu() on 64", times[1:], 20, "us")


def _compile(name: str, record: Callable[[], lm.Graph], target: float) -> Row:
    """Recording and compiling, in a process that has compiled before."""
    times = []
    for _ in range(REPEATS + 1):  # the first warms up what every compile shares
        gc.collect()  # no kernel of the last round stays loaded
        with (
            tempfile.TemporaryDirectory() as folder,
            config.override(LUMINAL_CACHE_DIR=Path(folder)),
        ):
            start = time.perf_counter()
            lm.compile(record())
            times.append(time.perf_counter() - start)
    return duration(f"record to callable: {name}", times[1:], target, "ms")
