"""A training step of a Llama of 1.2B parameters in bfloat16, with AdamW: seconds, memory, peers.

Each side has a process of its own, one after the other (`bench/large.py` says why).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

from bench.block import EFFORT
from bench.guarded import side
from bench.large import Found, is_installed
from bench.large_models import Sizes
from bench.limits import Counted, greatest, measured_now, rates
from bench.load import available
from bench.row import KEPT, OURS, Row, Rows, Skipped
from luminal.backends.cpu.team import team_size_default
from luminal.models.speed import Work

LENGTH = 256
LIMIT = "2GB"  # of the arena: Parameters and States are beside it
STEPS = 3
LOAD_LIMIT, STEP_LIMIT = 400.0, 120.0  # seconds
MARGIN = 5 << 30  # bytes beside Parameters and moments
TARGET = 0.6  # of the limit by arithmetic, what is computed again not counted
TOLERANCE = 0.02  # of losses in bfloat16
PEERS = ("JAX", "PyTorch")
STEP = Work(LENGTH, 0)


def rows() -> Rows:
    """The step of the 1B shape."""
    yield from step_rows("1B", Sizes.named("1b"), LENGTH, LIMIT)


def step_rows(size: str, sizes: Sizes, length: int, memory_limit: str | None) -> Rows:
    """One row; skipped where memory is short."""
    title = f"training step: Llama {size}, bf16, AdamW in f32, {length} tokens"
    if not EFFORT.asks_for(title):
        return
    if title in KEPT:
        yield KEPT[title]
        return
    needed = 10 * sizes.parameters + MARGIN
    if available() < needed:
        free = f"{available() / 2**30:.0f} are available"
        yield Skipped(title, f"needs {needed / 2**30:.0f} GiB of memory; {free}")
        return
    spec = {"keys": dict(sizes.keys), "length": length, "memory_limit": memory_limit}
    names = (OURS, *filter(is_installed, PEERS))
    found = {name: measured(name, spec) for name in names}
    yield row_of(title, sizes, length, found)


def measured(name: str, spec: Mapping[str, Any]) -> Found:
    """Times the steps of a side, the machine's limits between; its losses."""
    found = Found({STEP: []})
    with side(f"{name}, steps") as process:
        answer = process.ask({"what": "load", **spec, "threads": team_size_default()}, LOAD_LIMIT)
        for number in range(-1, STEPS):  # the first warms up
            if "failed" in answer:
                break
            limit = STEP_LIMIT if number >= 0 else LOAD_LIMIT
            answer = process.ask({"what": "run", "work": [], "seconds": 0.0}, limit)
            if number >= 0 and "failed" not in answer:
                found.blocks[STEP] += answer["seconds"]
                time.sleep(EFFORT.pause)
                found.peaks.append(measured_now())
        found.failed = answer.get("failed", "")
        if found.failed:
            return found
        found.logits = process.ask({"what": "loss"}, STEP_LIMIT)["answer"]
        found.peak_bytes = process.ask({"what": "peak"}, STEP_LIMIT)["bytes"]
    return found


def row_of(title: str, sizes: Sizes, length: int, found: Mapping[str, Found]) -> Row | Skipped:
    """The best peer's time over ours where there is one, else our share of the limit."""
    ours = found[OURS]
    if ours.failed:
        return Skipped(title, f"ours: {ours.failed}")
    told = {name: each for name, each in found.items() if not each.failed}
    for name, each in told.items():
        for own, other in zip(ours.logits, each.logits, strict=False):
            if not abs(own - other) <= TOLERANCE * abs(other):
                losses = f"{each.logits} of {name}, {ours.logits} of ours"
                raise AssertionError(f"{title}: the losses differ: {losses}")
    sides = {name: each.blocks[STEP] for name, each in told.items()}
    medians = {name: statistics.median(each) for name, each in sides.items()}
    counted = Counted(3.0 * sizes.flops_of_all(length), tokens=length)
    reached = [
        rate
        for name, each in told.items()
        for rate in rates(counted, {name: medians[name]}, greatest(each.peaks))
    ]
    said = [f"{rate.side} {medians[rate.side]:.3g} s, {rate}" for rate in reached]
    said += [f"{name} {each.peak_bytes / 2**30:.1f} GiB" for name, each in told.items()]
    said += [f"{name}: {each.failed}" for name, each in found.items() if each.failed]
    said += [f"{name}: not installed" for name in PEERS if name not in found]
    mine, middle = sides[OURS], medians[OURS]
    best = min((name for name in told if name != OURS), key=medians.__getitem__, default=None)
    if best is None:
        assert reached[0].share is not None
        share = reached[0].share
        spread = share * middle / max(mine), share * middle / min(mine)
        title = f"{title}: of the limit"
        return Row(title, share, TARGET, "x", spread, "; ".join(said), sides, reached)
    ratios = medians[best] / max(mine), medians[best] / min(mine)
    return Row(title, medians[best] / middle, 1.0, "x", ratios, "; ".join(said), sides, reached)
