"""How fast a decoder reads prompts and writes tokens, against what the machine can do."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from luminal.dtypes import int32
from luminal.models.decoder import Decoder
from luminal.models.peer import Peer
from luminal.records import dataclass
from luminal.runtime.executable import Executable
from luminal.runtime.roofline import Peaks
from luminal.session import Graph, compile

BLOCK_SECONDS = 0.25
"""A block of one side; blocks take turns, so that a slow spell of the machine meets all."""
PAUSE_SECONDS = 0.05
PROFILED = 3  # runs with a clock in them


class Work(NamedTuple):
    """Reading `tokens` of a text after `past` others: a prompt, or one token that was written."""

    tokens: int
    past: int

    def __str__(self) -> str:
        return f"decode at {self.past}" if self.tokens == 1 else f"prefill {self.tokens}"


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds (medians) of each work, the same of peers, and of the machine's roofline."""

    layers: int
    seconds: Mapping[Work, float]
    rooflines: Mapping[Work, float]
    """The least seconds that the launches' arithmetic or bytes take, over the seconds taken."""
    peers: Mapping[str, Mapping[Work, float]]
    peaks: Peaks | None
    memory: Mapping[str, int]
    """Bytes: weights, caches, arenas of both programs."""


def filled(model: Decoder) -> Decoder:
    """The model with weights that are random enough to be timed, and quick to make."""
    block = np.random.default_rng(0).normal(0, 0.02, 1 << 16).astype(np.float32)
    for held in model.parameters():
        count = math.prod(held.shape)
        repeated = np.resize(block.astype(held.dtype.numpy), count)
        held.set(repeated.reshape(held.shape))
    model.eval()
    return model


class Programs:
    """The prefill and the decode of one text."""

    def __init__(self, model: Decoder, context: int, mode: str, backend: str) -> None:
        self.model = model
        self.caches = model.make_caches(context)
        self.prefill, self.decode = (
            compile(self._record(most, context), mode=mode, backend=backend)
            for most in (context, 1)
        )

    def _record(self, most: int, context: int) -> Graph:
        graph = Graph("prefill" if most > 1 else "decode")
        past = graph.dim("past", 0, context - 1)
        ids = graph.tensor((graph.dim("s", 1, most) if most > 1 else 1,), int32, "ids")
        self.model(ids, self.caches, past, last_only=True).output("logits")
        return graph

    def given(self, work: Work) -> tuple[Executable, dict[str, Any], dict[str, int]]:
        """The program of a work, its inputs and dims."""
        program = self.decode if work.tokens == 1 else self.prefill
        return program, {"ids": np.zeros(work.tokens, np.int32)}, {"past": work.past}

    def run(self, work: Work) -> float:
        """Seconds of one run."""
        program, inputs, dims = self.given(work)
        start = time.perf_counter()
        program(inputs, dims=dims)
        return time.perf_counter() - start

    def roofline(self, work: Work) -> tuple[float, Peaks | None]:
        """The share of the roofline that a run reaches, and the machine's rates."""
        program, inputs, dims = self.given(work)
        report = program.profile(inputs, dims=dims, runs=PROFILED)
        if report.peaks is None or not report.run_seconds:
            return math.nan, None
        least = sum(row.limit(report.peaks)[1] for row in report.kernels)
        return least / report.run_seconds, report.peaks

    def memory(self) -> dict[str, int]:
        """Bytes held."""
        reports = [program.memory_report() for program in (self.prefill, self.decode)]
        return {
            "weights": reports[0].weight_bytes,
            "caches": reports[0].state_bytes,
            "arena": sum(report.arena_bytes + report.scratch_bytes for report in reports),
        }


def measured(
    programs: Programs, works: Sequence[Work], peers: Sequence[Peer], blocks: int
) -> Speed:
    """Times all in blocks that take turns."""
    ours: dict[Work, list[float]] = {work: [] for work in works}
    theirs: dict[str, dict[Work, list[float]]] = {
        peer.name: {work: [] for work in works} for peer in peers
    }
    for work in works:
        programs.run(work)  # what the first run sets up
        for peer in peers:
            peer.seconds(*work, 0)
    for _ in range(blocks):
        for work in works:
            end = time.perf_counter() + BLOCK_SECONDS
            ours[work].append(programs.run(work))
            while time.perf_counter() < end:
                ours[work].append(programs.run(work))
            for peer in peers:
                theirs[peer.name][work] += peer.seconds(*work, BLOCK_SECONDS)
            time.sleep(PAUSE_SECONDS)
    found = {work: programs.roofline(work) for work in works}
    return Speed(
        len(programs.model.config.layers),
        {work: median(taken) for work, taken in ours.items()},
        {work: share for work, (share, _) in found.items()},
        {name: {w: median(taken) for w, taken in each.items()} for name, each in theirs.items()},
        next((peaks for _, peaks in found.values()), None),
        programs.memory(),
    )


def extrapolated(
    fewer: Mapping[Work, float], more: Mapping[Work, float], counts: Sequence[int]
) -> dict[Work, float]:
    """Seconds of a model with `counts[2]` layers, from those of `counts[0]` and `counts[1]`.

    A line through both: what is beside the layers (embedding, head) does not grow with them.
    """
    low, high, all_layers = counts
    found = {}
    for work, seconds in more.items():
        each = max(seconds - fewer[work], 0.0) / (high - low)
        found[work] = seconds + each * (all_layers - high)
    return found
