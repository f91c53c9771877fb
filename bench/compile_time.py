"""How the time of a compile grows with the layers of a Llama: rolled, all but one cost little."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import luminal as lm
from bench.row import Row, Rows
from luminal.backends import registry
from luminal.base import config
from luminal.models.llama import Llama, LlamaConfig
from luminal.rolling.roll import roll

FEW, LAYERS = 4, {32: 1.5, 128: 4.0}  # layers: how many times what FEW of them take
REPEATS = 7
LONGEST = 128

PROGRAM = """
import pathlib, sys, time
from bench.compile_time import decoder
from luminal import config
with config.override(LUMINAL_CACHE_DIR=pathlib.Path(sys.argv[2])):
    graph = decoder(int(sys.argv[1]))
    start = time.perf_counter()
    graph.compile()
print(time.perf_counter() - start)
"""


def decoder(layers: int, output: str = "logits") -> lm.Graph:
    """One decoding step of a Llama, with caches. A name that no other has makes it a new program,
    of the same kernels.
    """
    model = Llama(LlamaConfig(256, 688, layers, 8, 4, 32, 512, LONGEST))
    model.eval()
    graph = lm.Graph()
    past = graph.dim("past", 0, LONGEST - 1)
    ids = graph.tensor((1,), np.int64, "ids")
    model(ids, model.make_caches(LONGEST), past, last_only=True).output(output)
    return graph


def rows() -> Rows:
    """Seconds of a whole compile against FEW layers, with compiled kernels at hand and without, and
    against itself where the program has been kept.
    """
    with tempfile.TemporaryDirectory() as folder, config.override(LUMINAL_CACHE_DIR=Path(folder)):
        for layers, target in LAYERS.items():
            names = [f"{layers}.{k}" for k in range(REPEATS)]
            pairs = [(_warm(FEW, name), _warm(layers, name)) for name in names]
            yield _ratio(f"lm.compile of {layers} layers, warm cache", pairs[1:], target)
        pairs = [(_warm(LONGEST, f"two {k}"), _warm(LONGEST, f"two {k}")) for k in range(REPEATS)]
        yield _ratio(f"lm.compile of {LONGEST} layers, kept", pairs, 0.7, "without a program kept")
    with tempfile.TemporaryDirectory() as cache:
        cold = [(_cold(FEW, f"{cache}/{k}"), _cold(32, f"{cache}/{k}b")) for k in range(3)]
    yield _ratio("lm.compile of 32 layers, empty cache", cold, LAYERS[32])
    yield _roll()


def _warm(layers: int, output: str) -> float:
    graph = decoder(layers, output)
    start = time.thread_time()
    graph.compile()
    return time.thread_time() - start


def _cold(layers: int, cache: str) -> float:
    command = [sys.executable, "-c", PROGRAM, str(layers), cache]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def _ratio(
    name: str, pairs: list[tuple[float, float]], target: float, peer: str = f"for {FEW} layers"
) -> Row:
    ratios = [many / few for few, many in pairs]
    few, many = (1e3 * statistics.median(side) for side in zip(*pairs, strict=True))
    detail = f"{few:.0f} ms {peer}, {many:.0f} ms"
    spread = (min(ratios), max(ratios))
    return Row(name, statistics.median(ratios), target, "times", spread, detail)


def _roll() -> Row:
    """Per 10,000 nodes of HLIR."""
    graph, costs = decoder(96).graph(), registry.compiling("cpu").costs
    count, times = len(graph.nodes()), []
    for _ in range(REPEATS):
        start = time.thread_time()
        roll(graph, costs)
        times.append((time.thread_time() - start) * 10_000 / count)
    spread = (min(times), max(times))
    return Row("roll 10,000 nodes", statistics.median(times), 2, "s", spread, f"{count} nodes")
