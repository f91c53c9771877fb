"""A whole Llama of 8B parameters, all of its layers, in bfloat16 and in Q4_0: prompts and tokens.

Two sides do not fit into memory together, so they do not take turns: each has its process, one
after the other, and ends before the next begins. What binds a side is measured between its blocks.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bench.block import EFFORT
from bench.guarded import Side, side
from bench.large_models import Sizes, stored_bytes, write_llama
from bench.limits import (
    Counted,
    Rate,
    beyond_cache,
    greatest,
    has_own_arithmetic,
    measured_now,
    rates,
)
from bench.load import available
from bench.row import KEPT, OURS, Row, Rows, Skipped
from bench.work import BFLOAT16
from luminal.backends.cpu.team import team_size_default
from luminal.models.speed import Work
from luminal.runtime.roofline import Peaks

PROMPT = 128
WORKS = Work(1, PROMPT), Work(PROMPT, 0)
TARGETS = {("bf16", 1): 0.85, ("bf16", PROMPT): 0.75, ("q4_0", 1): 0.85, ("q4_0", PROMPT): 0.25}
"""Of the limit, by kind and tokens; that of bytes' products is four times that of f32."""
PEERS = {"bf16": ("PyTorch", "llama.cpp"), "q4_0": ("llama.cpp",)}
NEEDED = {"PyTorch": ("torch", "transformers"), "llama.cpp": ("llama_cpp",), "JAX": ("jax",)}
"""What has to be installed for each."""
AGREE = {"bf16": 0.05, "q4_0": 0.25}  # of the logits' norm; packed sums round activations
LOAD_LIMIT, LIMIT = 400.0, 90.0  # seconds of a side to load, and of one block
MARGIN = 3 << 30  # bytes beside the weights
IDS = [1, 7, 42, 3, 99, 5, 11, 2]


@dataclass(slots=True)
class Found:
    """What a side answered: seconds of each block by work, peaks between, its logits, why not."""

    blocks: dict[Work, list[float]] = field(default_factory=dict)
    peaks: list[Peaks] = field(default_factory=list)
    logits: list[float] = field(default_factory=list)
    failed: str = ""
    peak_bytes: int = 0


def rows() -> Rows:
    """Both kinds, of the 8B shape."""
    for kind in PEERS:
        yield from model_rows("8B", Sizes.named("8b"), kind)


def model_rows(size: str, sizes: Sizes, kind: str) -> Rows:
    """Tokens a second of each work beside the limit and peers; skipped where memory is short."""
    titles = {work: f"Llama {size}, {kind}: {work}" for work in WORKS}
    wanted = [title for title in titles.values() if EFFORT.asks_for(title)]
    if not wanted:
        return
    if all(title in KEPT for title in wanted):
        yield from (KEPT[title] for title in wanted)
        return
    weights = stored_bytes(sizes.parameters, kind)
    if available() < weights + MARGIN:
        said = f"needs {(weights + MARGIN) / 2**30:.0f} GiB of memory"
        reason = f"{said}; {available() / 2**30:.0f} are available"
        yield from (Skipped(title, reason) for title in wanted)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}.gguf"
        write_llama(path, sizes, kind)
        names = (OURS, *filter(is_installed, PEERS[kind]))
        found = {name: measured(name, path, kind) for name in names}
    _check(size, kind, found)
    yield from (row_of(titles[work], work, sizes, kind, found) for work in WORKS)


def measured(name: str, path: Path, kind: str) -> Found:
    """Times a side: blocks of all works in turns, the machine's limits between."""
    found = Found({work: [] for work in WORKS})
    spec = {"path": str(path), "kind": kind, "context": PROMPT + 1}
    threads = team_size_default()
    with side(name) as process:
        loaded = process.ask({"what": "load", **spec, "threads": threads}, LOAD_LIMIT)
        found.failed = loaded.get("failed", "")
        for work in WORKS:
            found.failed = found.failed or _blocks(process, work, found)
        if found.failed:
            return found
        # Prompts pack the weights into memory of their own: tokens are timed before any.
        found.logits = process.ask({"what": "logits", "ids": IDS}, LIMIT).get("answer", [])
        found.peak_bytes = process.ask({"what": "peak"}, LIMIT)["bytes"]
    return found


def _blocks(process: Side, work: Work, found: Found) -> str:
    """The blocks of one work; why there are none, if so."""
    request = {"what": "run", "work": list(work)}
    for number in range(-1, EFFORT.blocks):  # the first warms up
        seconds = EFFORT.seconds if number >= 0 else 0.0
        answer = process.ask({**request, "seconds": seconds}, LIMIT)
        if "failed" in answer:
            return f"{work}: {answer['failed']}"
        if number >= 0:
            found.blocks[work].append(statistics.median(answer["seconds"]))
        time.sleep(EFFORT.pause)  # until its threads have come to rest
        found.peaks.append(measured_now())
    return ""


def row_of(
    title: str, work: Work, sizes: Sizes, kind: str, found: dict[str, Found]
) -> Row | Skipped:
    """Ours as a share of the limit that was measured between its blocks; peers beside it."""
    ours = found[OURS]
    if not ours.blocks[work]:
        return Skipped(title, f"ours: {ours.failed}")
    told = {name: each for name, each in found.items() if each.blocks[work]}
    counted = counted_of(sizes, kind, work)
    reached = [
        rate
        for name, each in told.items()
        for rate in rates(
            counted, {name: statistics.median(each.blocks[work])}, greatest(each.peaks)
        )
    ]
    own, sides = reached[0], {name: each.blocks[work] for name, each in told.items()}
    measured, spread = _shares(own, ours.blocks[work])
    said = [f"{rate.side} {rate}" for rate in reached]
    said += [f"{name}: {each.failed}" for name, each in found.items() if each.failed]
    said += [f"{name}: not installed" for name in PEERS[kind] if name not in found]
    detail = f"{'; '.join(said)}; {ours.peak_bytes / 2**30:.1f} GiB held"
    return Row(title, measured, TARGETS[kind, work.tokens], "x", spread, detail, sides, reached)


def _shares(own: Rate, blocks: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The share of the limit, and that of the slowest and the fastest block."""
    assert own.share is not None
    middle = statistics.median(blocks)
    return own.share, (own.share * middle / max(blocks), own.share * middle / min(blocks))


def counted_of(sizes: Sizes, kind: str, work: Work) -> Counted:
    """What reading a text's tokens needs: each weight once, and the cache; arithmetic in f32."""
    read = beyond_cache(stored_bytes(sizes.multiplied, kind) + sizes.cached(work.past))
    # Packed matrices are multiplied by activations that are rounded to bytes.
    narrow = has_own_arithmetic(np.dtype(np.int8) if kind != "bf16" else BFLOAT16)
    return Counted(sizes.flops(*work), read, work.tokens, narrow)


def _check(size: str, kind: str, found: dict[str, Found]) -> None:
    """AssertionError where a side computes something else."""
    own = np.array(found[OURS].logits)
    for name, each in found.items():
        if not each.logits or not len(own):
            continue
        theirs = np.array(each.logits)
        off = float(np.linalg.norm(own - theirs) / np.linalg.norm(theirs))
        if not off <= AGREE[kind]:
            raise AssertionError(f"Llama {size}, {kind}: {name}'s logits differ by {off:.3g}")


def is_installed(name: str) -> bool:
    return all(find_spec(module) is not None for module in NEEDED[name])
