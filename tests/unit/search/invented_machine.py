"""A machine for tests of searches: nothing is compiled, a formula says how long programs take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import luminal as lm
from luminal.backends.backend import Backend
from luminal.program.launch_list import Program, walk
from luminal.search.database import FILE, Database
from luminal.search.genome import Genome
from luminal.search.log import Log
from luminal.search.measure import Measurements
from luminal.search.options import CompilationMode, SearchOptions
from luminal.search.process import Lost
from luminal.search.runner import Pairs
from luminal.search.space import Space
from luminal.search.strategy import Strategy
from tests.machines import usual

Speed = Callable[[Program], float]
"""Seconds of a program: an invented machine."""


class Clock:
    """Time that only passes when something is built or run."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Builders:
    """Compiles nothing; `refuses` says which kernels have no code."""

    def __init__(
        self, refuses: Callable[[str], bool] = lambda text: False, clock: Clock | None = None
    ) -> None:
        self.refuses = refuses
        self.requests: list[str] = []
        self.clock = clock or Clock()

    def build(self, requests: list[tuple[Any, ...]]) -> list[str | None]:
        self.clock.now += 0.05 * len(requests)
        self.requests += [text for _, _, text in requests]
        return ["refused" if self.refuses(text) else None for _, _, text in requests]


class Runner:
    """Times programs by a formula; a program in `hangs` never comes back. `noise`: what to multiply
    the times of the k-th comparison with, of the first and of the second program, in each round.
    """

    def __init__(
        self,
        speed: Speed,
        hangs: Callable[[Program], bool] = lambda p: False,
        clock: Clock | None = None,
        noise: Callable[[int], Sequence[tuple[float, float]]] = lambda k: [(1, 1)],
    ) -> None:
        self.speed = speed
        self.hangs = hangs
        self.programs: list[Program] = []
        self.clock = clock or Clock()
        self.noise = noise
        self.asked: list[int] = []  # rounds of each comparison
        self.dropped: list[int] = []

    def add(self, program: Program) -> int:
        self.programs.append(program)
        return len(self.programs) - 1

    def drop(self, number: int) -> None:
        self.dropped.append(number)

    def seconds(self, number: int, rounds: int) -> float:
        if self.hangs(self.programs[number]):
            raise Lost("took longer than 10 s")
        self.clock.now += 0.01 * rounds
        return self.speed(self.programs[number])

    def pairs(self, first: int, second: int, rounds: int) -> Pairs:
        noise = self.noise(len(self.asked))
        self.asked.append(rounds)
        factors = [noise[k % len(noise)] for k in range(rounds)]
        one, other = self.seconds(first, rounds), self.seconds(second, rounds)
        return Pairs([one * f for f, _ in factors], [other * s for _, s in factors])

    def profile(self, number: int, slow: float) -> list[float]:
        program = self.programs[number]
        sites = list(walk(program.launches))
        return [self.seconds(number, 1) / len(sites)] * len(sites)


def make(
    graph: lm.Graph,
    folder: Path,
    runner: Runner,
    builders: Builders | None = None,
    mode: CompilationMode = CompilationMode.OPTIMAL,
    backend: Backend | None = None,
    **options: Any,
) -> Strategy:
    space = Space(graph.graph(), backend or usual())
    chosen = SearchOptions(stop_below_us=0, **options)
    measurements = Measurements(
        space,
        builders or Builders(),  # type: ignore[arg-type]
        runner,  # type: ignore[arg-type]
        Database(folder / FILE),
        Log(False, None, chosen.max_candidates),
        {dim.name: 8 for dim in graph.graph().dims},
        "an invented machine",
    )
    return Strategy(measurements, mode, chosen)


def rows() -> lm.Graph:
    cx = lm.Graph()
    x = cx.tensor((cx.dim("s", 1, 64), 96), name="x")
    (x.exp() / x.exp().sum(-1, keepdim=True)).output("y")
    return cx


def product() -> lm.Graph:
    cx = lm.Graph()
    x, w = cx.tensor((64, 48), name="x"), cx.tensor((48, 64), name="w")
    (x @ w).relu().output("y")
    return cx


def layers() -> lm.Graph:
    """Kernels of several kinds, and many moves."""
    cx = lm.Graph()
    x, w = cx.tensor((48, 32), name="x"), cx.weight((32, 32), name="w")
    hidden = (x @ w + 1).relu()
    (hidden @ w).softmax(-1).output("y")
    hidden.sum(-1).output("sums")
    return cx


def only_key(space: Space) -> str:
    (origin,) = space.decode(Genome()).stages.origins
    return origin.name
