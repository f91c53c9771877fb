"""`torch.compile(backend="luminal")` beside eager PyTorch and inductor: runs, compile time, a call.

Each network's three functions run in turns of blocks (`bench/block.py`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch._inductor.utils import fresh_cache

from bench.block import Call, in_turns
from bench.row import Row
from bench.torch_models import NETWORKS, Network
from luminal.base import config

CALLS = 20_000
TOLERANCE = 2e-3


def rows() -> Iterator[Row]:
    """One row a network, their geometric mean, compile times, the cost of a call."""
    ratios, compiles = [], []
    for network in NETWORKS:
        row, compile_ratio = _network(network)
        yield row
        ratios.append(row.measured)
        compiles.append(compile_ratio)
    low, high = min(ratios), max(ratios)
    mean = statistics.geometric_mean(ratios)
    yield Row("torch.compile: ten networks", mean, 1.5, "x", (low, high), "geometric mean")
    worst = max(compiles)
    mean = statistics.geometric_mean(compiles)
    detail = f"geometric mean {mean:.2g}"
    yield Row(
        "torch.compile: first call", worst, 0.5, "of inductor's", (min(compiles), worst), detail
    )
    yield _small_call()


def _network(network: Network) -> tuple[Row, float]:
    torch.manual_seed(0)
    with torch.inference_mode(False):  # where PyTorch counts the versions of parameters
        model, arguments = network.make().eval(), network.arguments()
    calls: dict[str, Call] = {"eager": partial(model, *arguments)}
    expected, seconds = _first(calls["eager"])[0], {}
    for backend in ("luminal", "inductor"):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        calls[backend] = partial(compiled, *arguments)
        with (
            TemporaryDirectory() as empty,
            config.override(LUMINAL_CACHE_DIR=empty),
            fresh_cache(),
        ):
            found, seconds[backend] = _first(calls[backend])
        scale = float(expected.abs().max())
        error = float((found - expected).abs().max()) / scale
        if not error <= TOLERANCE:
            raise AssertionError(f"{network.name}: {backend} differs from eager by {error:.1e}")
    times = in_turns(calls)
    medians = {name: statistics.median(each) for name, each in times.items()}
    peer = min(("eager", "inductor"), key=medians.__getitem__)
    spread = [b / a for a, b in zip(times["luminal"], times[peer], strict=True)]
    ratio = medians[peer] / medians["luminal"]
    detail = f"{medians['luminal'] * 1e3:.3g} ms against {medians[peer] * 1e3:.3g} ms ({peer})"
    detail += f"; compiled in {seconds['luminal']:.2g} s against {seconds['inductor']:.2g} s"
    row = Row(network.name, ratio, 1.0, "x", (min(spread), max(spread)), detail)
    return row, seconds["luminal"] / seconds["inductor"]


def _first(call: Call) -> tuple[Tensor, float]:
    """The first result, and the seconds of the first call."""
    start = time.perf_counter()
    found = call()
    taken = time.perf_counter() - start
    return (found[0] if isinstance(found, tuple) else found), taken


def _small_call() -> Row:
    """Three operations on 8x8: what a call costs beside them."""
    x = torch.randn(8, 8)
    times = {}
    for backend in ("luminal", "inductor"):
        torch._dynamo.reset()
        compiled = torch.compile(lambda a: (a * 2 + 1).relu(), backend=backend)
        for _ in range(100):
            compiled(x)
        blocks = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(CALLS // 5):
                compiled(x)
            blocks.append((time.perf_counter() - start) / (CALLS // 5))
        times[backend] = blocks
    own, theirs = (statistics.median(times[name]) for name in ("luminal", "inductor"))
    spread = [a / b for a, b in zip(times["luminal"], times["inductor"], strict=True)]
    detail = f"{own * 1e6:.1f} us against {theirs * 1e6:.1f} us"
    return Row(
        "torch.compile: call of three ops on 8x8",
        own / theirs,
        1.0,
        "of inductor's",
        (min(spread), max(spread)),
        detail,
    )
