"""Our time and a peer's, measured in one process in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import luminal as lm
from bench.row import Row

REPEATS = 7
QUIET = 0.02  # seconds after PyTorch: its idle threads burn 10-16 ms of the other CPU
TOLERANCE = 1e-3  # of results that only have to be of the same computation


def compare(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any], target: float, flops: float = 0
) -> Row:
    """The ratio of median times.

    Each side hands out its result as a user would get it, and drops it before the next call.
    """
    _check(name, ours(), theirs())
    pairs = in_turns(ours, theirs)
    own, peer = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = [p / o for o, p in pairs]
    detail = f"{own * 1e3:.3g} ms against {peer * 1e3:.3g} ms"
    if flops:
        detail += f", {flops / own / 1e9:.0f} against {flops / peer / 1e9:.0f} GFLOP/s"
    return Row(name, peer / own, target, "x", (min(ratios), max(ratios)), detail)


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any]) -> list[tuple[float, float]]:
    """(our seconds, their seconds), REPEATS times; an untimed call stands before each timed one."""
    pairs = []
    for _ in range(REPEATS):
        peer = _timed(theirs)
        time.sleep(QUIET)
        pairs.append((_timed(ours), peer))
    return pairs


def caller(graph: lm.Graph, **inputs: np.ndarray) -> Callable[[], np.ndarray]:
    """The compiled graph's only output for these inputs, passed anew at each call."""
    executable = lm.compile(graph)
    return lambda: next(iter(executable(inputs).values()))


def _timed(call: Callable[[], Any]) -> float:
    call()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _check(name: str, ours: Any, theirs: Any) -> None:
    worst = float(np.abs(np.asarray(ours) - np.asarray(theirs)).max())
    scale = float(np.abs(np.asarray(theirs)).max())
    if not worst <= TOLERANCE * scale:
        raise AssertionError(f"{name}: differs from the peer by {worst:.3g} of {scale:.3g}")
