"""How time grows: of a product with its size, of a token with what came before it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import luminal as lm
from bench.block import in_block, in_turns
from bench.row import Row, Rows
from bench.work import normal
from luminal import nn
from luminal.backends.cpu.peaks import measure
from luminal.backends.cpu.target import current
from luminal.backends.cpu.team import team_size_default
from luminal.models.llama import Llama, LlamaConfig

MOST = 1.1  # times what it should be
SIZES = (1024, 4096)
HEADS, GROUPS, WIDTH = 32, 4, 64  # of the 1.1B Llama
LAYERS = 4
CONTEXT = 8192
PAST = (2048, 4096, CONTEXT - 1)
BLOCKS = 40  # differences of times: more of them, and shorter, as memory drifts; nobody else spins
SECONDS = 0.03


def rows() -> Rows:
    """Time a multiplication of large products; time for each position of a cache."""
    yield _products()
    yield from _positions()


def _products() -> Row:
    calls: dict[str, Callable[[], Any]] = {}
    for size in SIZES:
        cx = lm.Graph()
        given = {name: normal(size, size, seed=seed) for seed, name in enumerate("ab")}
        a, b = (cx.tensor((size, size), name=name) for name in given)
        (a @ b).output("c")
        exe = lm.compile(cx)
        calls[str(size)] = partial(exe, given)
    small, large = in_turns(calls).values()
    more = (SIZES[1] / SIZES[0]) ** 3
    ratios = [after / before / more for before, after in zip(small, large, strict=True)]
    return _row(f"time a flop of {SIZES[1]} against {SIZES[0]}", ratios)


def _positions() -> Rows:
    """What a position more takes, against a sum of as many bytes as its keys and values have, of
    which the caches keep as much; and whether that is the same later on.
    """
    nn.init.manual_seed(0)
    model = Llama(LlamaConfig(HEADS * WIDTH, 256, LAYERS, HEADS, GROUPS, WIDTH, 256, CONTEXT))
    cx = lm.Graph()
    past, ids = cx.dim("past", 0, CONTEXT - 1), cx.tensor((1,), np.int64, "ids")
    model.eval()(ids, model.make_caches(CONTEXT), past).output("logits")
    exe, given = lm.compile(cx), {"ids": np.array([7])}
    calls = [partial(exe, given, dims={"past": n}) for n in PAST]
    sums = lm.Graph()
    count = sums.dim("count", 1, CONTEXT)
    sums.tensor((count, 2 * LAYERS * GROUPS * WIDTH), name="x").sum().output("y")
    read, cache = lm.compile(sums), normal(CONTEXT, 2 * LAYERS * GROUPS * WIDTH)
    reads = [partial(read, {"x": cache[:n]}) for n in (PAST[0], PAST[2])]
    flops = 4 * LAYERS * HEADS * WIDTH / measure(current(), team_size_default()).flops
    slopes, bends, shares = [], [], []
    for _ in range(BLOCKS):
        first, middle, last = (in_block(call, SECONDS, 0.0) for call in calls)
        fewer, more = (in_block(call, SECONDS, 0.0) for call in reads)  # of the same seconds
        slopes.append((last - first) / (more - fewer))
        shares.append(flops * (PAST[2] - PAST[0]) / (more - fewer))
        later, before = (
            (last - middle) / (PAST[2] - PAST[1]),
            (middle - first) / (PAST[1] - PAST[0]),
        )
        bends.append(later / before)
    detail = f"its arithmetic alone, at the peak: {statistics.median(shares):.2f}"
    yield _row("a position more of a cache, against a sum of its bytes", slopes, detail)
    yield _row(f"the same from {PAST[1]} on, against before", bends)


def _row(name: str, found: list[float], detail: str = "") -> Row:
    return Row(name, statistics.median(found), MOST, "times", (min(found), max(found)), detail)
