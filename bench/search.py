"""Searches: the e-graph of a Llama block, what a search gains, the same compile once more, and how
near `fast` comes to what searches find.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import luminal as lm
from bench import costs
from bench.block import EFFORT
from bench.pair import REPEATS, in_pairs
from bench.row import Row, Rows, duration
from luminal import nn
from luminal.backends import registry
from luminal.base import config
from luminal.models.llama import Llama, LlamaConfig
from luminal.runtime.executable import Executable
from luminal.search.genome import Genome
from luminal.search.search import search
from luminal.search.space import Space

SECONDS = 30.0  # for each search
PARITY = 0.98  # a searched program may be the fast one


def rows() -> Rows:
    """With a cache of their own, so that every search is a first one."""
    with (
        tempfile.TemporaryDirectory() as folder,
        config.override(LUMINAL_CACHE_DIR=Path(folder)),
    ):
        yield _egraph()
        yield from _searched("digits, two pools", *_digits())
        yield from _searched("Llama decode step", *_decode())
        yield from _fast_share()


def _egraph() -> Row:
    """Everything from the algebra to classes with spellings, as CPU time of the one thread."""
    backend = registry.compiling("cpu")
    times = []
    for _ in range(REPEATS):
        space = Space(_llama(layers=1).graph(), backend)
        start = time.thread_time()
        space.all_classes()
        times.append(time.thread_time() - start)
    return duration("e-graph of a Llama block", times[1:], 500, "ms")


def _searched(name: str, cx: lm.Graph, given: dict[str, Any], dims: dict[str, int]) -> Rows:
    fast = lm.compile(cx)
    options = lm.SearchOptions(stop_below_us=0, progress=False, dims=dims)
    best = lm.compile(cx, mode=lm.TimeBudget(SECONDS), search=options)
    found = best.report().search
    assert found is not None
    pairs = in_pairs(_runs(best, given, dims), _runs(fast, given, dims))
    own, peer = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = [p / o for o, p in pairs]
    detail = f"{own * 1e6:.4g} us against {peer * 1e6:.4g} us; {found.decision}"
    yield Row(f"searched, {name}", peer / own, PARITY, "x", (min(ratios), max(ratios)), detail)
    start = time.perf_counter()
    lm.compile(cx, mode=lm.TimeBudget(SECONDS), search=options)
    again = time.perf_counter() - start
    yield duration(f"searched again, {name}", [again], 2, "s")


def _fast_share() -> Rows:
    """How near the fast program of each subject comes to the best one that a search finds."""
    found = []
    for name in costs.QUICK if EFFORT.quick else costs.SUBJECTS:
        row = fast_share(name)
        found.append(row.measured)
        yield row
    spread = min(found), max(found)
    detail = f"geometric mean of {len(found)}"
    yield Row("fast / searched", statistics.geometric_mean(found), 0.85, "x", spread, detail)


def fast_share(name: str, seconds: float = SECONDS) -> Row:
    """The searched program's time over the fast one's, in turns: below 1 where a search pays."""
    graph, backend = costs.graph_of(name), registry.compiling("cpu")
    options = lm.SearchOptions(stop_below_us=0, progress=False)
    stages, found = search(graph, backend, lm.TimeBudget(seconds), options)
    space = Space(graph, backend)
    with costs.timing(space) as runner:
        numbers = [runner.add(p) for p in (stages.program, space.decode(Genome()).program)]
        runner.pairs(numbers[0], numbers[1], 3)
        pairs = runner.pairs(numbers[0], numbers[1], REPEATS)
    ratios = [best / fast for best, fast in zip(*pairs, strict=True)]
    detail = f"{min(pairs.first) * 1e6:.4g} of {min(pairs.second) * 1e6:.4g} us; {found.decision}"
    spread = min(ratios), max(ratios)
    share = min(pairs.first) / min(pairs.second)
    return Row(f"fast / searched, {name}", min(1.0, share), 0.7, "x", spread, detail)


def _runs(exe: Executable, given: dict[str, Any], dims: dict[str, int]) -> Callable[[], Any]:
    """Ten runs, so that one does not drown in the clock."""

    def run() -> None:
        for _ in range(10):
            exe(given, dims=dims)

    return run


def _digits() -> tuple[lm.Graph, dict[str, Any], dict[str, int]]:
    """Two convolutions, each with relu and a pool, and a dense layer; 64 images."""
    layers = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    cx = lm.Graph("digits")
    x = cx.tensor((64, 1, 28, 28), name="x")
    layers.eval()(x).output("scores")
    images = np.random.default_rng(0).standard_normal((64, 1, 28, 28), np.float32)
    return cx, {"x": images}, {}


def _llama(layers: int) -> lm.Graph:
    model = Llama(LlamaConfig(512, 1376, layers, 8, 4, 64, 4096))
    caches = model.make_caches(512)
    cx = lm.Graph("decode")
    past = cx.dim("past", 0, 511)
    token = cx.tensor((1,), dtype="int32", name="token")
    model(token, caches, past, last_only=True).output("logits")
    return cx


def _decode() -> tuple[lm.Graph, dict[str, Any], dict[str, int]]:
    """One token of a Llama of 4 layers of 512, with 200 tokens before it."""
    return _llama(4), {"token": np.array([7], np.int32)}, {"past": 200}
