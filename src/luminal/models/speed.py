"""How fast a decoder reads prompts and writes tokens, against what the machine can do."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from luminal.base.dtypes import int32
from luminal.base.records import dataclass
from luminal.models.decoder import Decoder
from luminal.models.peer import Peer
from luminal.runtime.executable import Executable
from luminal.runtime.roofline import MISSED, NARROW, Peaks
from luminal.session.graph import Graph, compile

BLOCK_SECONDS = 0.25
"""A block of one side; blocks take turns, so that a slow spell of the machine meets all."""
PAUSE_SECONDS = 0.05
PROFILED = 3  # runs with a clock in them
WIDE = 1.5  # times its low end that an interval's high end may be, or the interval says nothing


class Work(NamedTuple):
    """Reading `tokens` of a text after `past` others: a prompt, or one token that was written."""

    tokens: int
    past: int

    def __str__(self) -> str:
        return f"decode at {self.past}" if self.tokens == 1 else f"prefill {self.tokens}"


class Interval(NamedTuple):
    """Seconds: a quarter of the runs took no more than `low`, a quarter no less than `high`."""

    low: float
    middle: float
    high: float

    @staticmethod
    def of(taken: Sequence[float]) -> Interval:
        """The quartiles of what runs took."""
        return Interval(*(float(x) for x in np.quantile(taken, (0.25, 0.5, 0.75))))


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of each work, the medians of peers, and what the machine's roofline allows."""

    layers: int
    seconds: Mapping[Work, Interval]
    least: Mapping[Work, float]
    """The least seconds that the launches' arithmetic or bytes take; NaN where that is unknown."""
    rooflines: Mapping[Work, float]
    """These over the seconds taken; NaN where a run seems to take less than it can."""
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

    def roofline(self, work: Work) -> tuple[float, float, Peaks | None]:
        """The least seconds that a run can take, their share of what runs beside the measurement of
        the machine's peaks took, and these peaks.
        """
        program, inputs, dims = self.given(work)
        report = program.profile(inputs, dims=dims, runs=PROFILED)
        if report.peaks is None or not report.run_seconds:
            return math.nan, math.nan, None
        least = sum(row.limit(report.peaks)[1] for row in report.kernels)
        share = least / report.run_seconds
        doubtful = report.doubts or share > NARROW * MISSED
        return least, math.nan if doubtful else share, report.peaks

    def memory(self) -> dict[str, int]:
        """The bytes that the programs hold, by what they hold them for."""
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
            # Threads of a library spin for a while after its last call, and would run beside the
            # next one's block.
            time.sleep(PAUSE_SECONDS)
    rooflines = {work: programs.roofline(work) for work in works}
    return Speed(
        len(programs.model.config.layers),
        {work: Interval.of(taken) for work, taken in ours.items()},
        {work: least for work, (least, *_) in rooflines.items()},
        {work: share for work, (_, share, _) in rooflines.items()},
        {name: {w: median(taken) for w, taken in times.items()} for name, times in theirs.items()},
        next((peaks for *_, peaks in rooflines.values()), None),
        programs.memory(),
    )


def extrapolated(fewer: Speed, more: Speed, layers: int) -> dict[Work, Interval | None]:
    """Seconds of the model with so many layers, from two speeds of some of its layers.

    A line through both: what is beside the layers (embedding, head) does not grow with them. None
    where the two are too close together to tell what a layer takes: the ends of the interval lie
    far apart, or its middle is less than the machine can do.
    """
    intervals: dict[Work, Interval | None] = {}
    for work, many in more.seconds.items():
        few = fewer.seconds[work]
        trips = (layers - more.layers) / (more.layers - fewer.layers)
        whole = Interval(
            # The ends are crossed on purpose: the least that a layer can take is the deeper model's
            # low end less the other's high one.
            many.low + trips * (many.low - few.high),
            many.middle + trips * (many.middle - few.middle),
            many.high + trips * (many.high - few.low),
        )
        least = more.least[work] + trips * (more.least[work] - fewer.least[work])
        is_told = whole.low > 0 and whole.high <= WIDE * whole.low
        is_possible = math.isnan(least) or least <= MISSED * whole.middle
        intervals[work] = whole if is_told and is_possible else None
    return intervals
