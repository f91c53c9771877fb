"""The strategy, with a builder and a runner that pretend: what it tries, keeps and gives up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import luminal as lm
from luminal.backends.cpu import target
from luminal.kernel.tile_ir import to_text
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

Speed = Callable[[Program], float]
"""Seconds of a program: an invented machine."""


class Builders:
    """Compiles nothing; `refuses` says which kernels have no code."""

    def __init__(self, refuses: Callable[[str], bool] = lambda text: False) -> None:
        self.refuses = refuses
        self.requests: list[str] = []

    def build(self, requests: list[tuple[Any, ...]]) -> list[str | None]:
        self.requests += [text for _, text, _ in requests]
        return ["refused" if self.refuses(text) else None for _, text, _ in requests]


class Runner:
    """Times programs by a formula; a program in `hangs` never comes back."""

    def __init__(self, speed: Speed, hangs: Callable[[Program], bool] = lambda p: False) -> None:
        self.speed = speed
        self.hangs = hangs
        self.programs: list[Program] = []

    def add(self, program: Program) -> int:
        self.programs.append(program)
        return len(self.programs) - 1

    def drop(self, number: int) -> None:
        pass

    def seconds(self, number: int, rounds: int) -> float:
        if self.hangs(self.programs[number]):
            raise Lost("took longer than 10 s")
        return self.speed(self.programs[number])

    def pairs(self, first: int, second: int, rounds: int) -> Pairs:
        return Pairs([self.seconds(first, 1)] * rounds, [self.seconds(second, 1)] * rounds)

    def profile(self, number: int, slow: float) -> list[float]:
        program = self.programs[number]
        sites = list(walk(program.launches))
        return [self.seconds(number, 1) / len(sites)] * len(sites)


def make(
    graph: lm.Graph,
    folder: Path,
    runner: Runner,
    builders: Builders | None = None,
    **options: Any,
) -> Strategy:
    space = Space(graph.graph(), target.current())
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
    return Strategy(measurements, CompilationMode.OPTIMAL, chosen)


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


def test_the_fastest_schedule_is_found(tmp_path: Path) -> None:
    """On a machine that likes one schedule of the product best."""
    space = Space(product().graph(), target.current())
    schedules = space.knobs(space.decode(Genome()), 0)
    wanted = to_text(
        space.decode(Genome().with_tuned({_only_key(space): schedules[3]})).program.kernels[0]
    )
    runner = Runner(lambda p: 1.0 if to_text(p.kernels[0]) == wanted else 2.0)
    strategy = make(product(), tmp_path, runner)
    strategy.run()
    assert strategy.best.seconds == 1.0
    assert to_text(strategy.best.candidate.program.kernels[0]) == wanted
    assert strategy.log.history[-1].best_seconds == 1.0


def _only_key(space: Space) -> str:
    (origin,) = space.decode(Genome()).stages.origins
    return origin.name


def test_a_machine_that_likes_many_kernels_gets_them(tmp_path: Path) -> None:
    runner = Runner(lambda p: 10.0 - len(list(walk(p.launches))))
    strategy = make(rows(), tmp_path, runner)
    fast = len(list(walk(strategy.fast.candidate.program.launches)))
    strategy.run()
    assert len(list(walk(strategy.best.candidate.program.launches))) > fast
    assert strategy.best.seconds < strategy.fast.seconds


def test_nothing_better_keeps_fast(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))
    strategy.run()
    assert strategy.best is strategy.fast
    assert {row.reason for row in strategy.log.rejected()} >= {"not faster than the best"}


def test_kernels_that_do_not_compile_are_records(tmp_path: Path) -> None:
    space = Space(product().graph(), target.current())
    first = to_text(space.decode(Genome()).program.kernels[0])
    builders = Builders(refuses=lambda text: text != first)
    strategy = make(product(), tmp_path, Runner(lambda p: 1.0), builders)
    strategy.run()
    assert strategy.best is strategy.fast
    assert any(row.reason == "does not compile" for row in strategy.log.rejected())


def test_programs_that_hang_are_records(tmp_path: Path) -> None:
    runner = Runner(
        lambda p: 10.0 - len(list(walk(p.launches))), lambda p: len(runner.programs) > 1
    )
    strategy = make(rows(), tmp_path, runner)
    strategy.run()
    assert strategy.best is strategy.fast
    assert any("took longer" in row.reason for row in strategy.log.rejected())


def test_limits(tmp_path: Path) -> None:
    strategy = make(product(), tmp_path, Runner(lambda p: 1.0), max_candidates=3)
    strategy.run()
    assert 3 <= strategy.log.candidates <= 3 + 8  # a batch is finished
    quick = make(product(), tmp_path, Runner(lambda p: 1e-6))
    quick.options = SearchOptions(stop_below_us=50)
    quick.run()
    assert quick.log.candidates == 0


def test_the_same_seed_and_measurements_choose_the_same_program(tmp_path: Path) -> None:
    def invented(program: Program) -> float:
        return 1.0 + sum(map(len, map(to_text, program.kernels))) % 97 / 100

    found = []
    for name in ("one", "other"):
        strategy = make(rows(), tmp_path / name, Runner(invented), seed=3, max_candidates=120)
        strategy.run()
        found.append((strategy.best.candidate.text, strategy.best.candidate.genome))
    assert found[0] == found[1]


def test_prices_are_asked_for_once(tmp_path: Path) -> None:
    first = make(product(), tmp_path, Runner(lambda p: 1.0))
    first.run()
    first.measurements.database.close()
    again = make(product(), tmp_path, runner := Runner(lambda p: 1.0))
    measured = len(runner.programs)
    space = {again.fast.candidate.stages.origins[0][0]: again.space.knobs(again.fast.candidate, 0)}
    again.measurements.ranked(again.fast.candidate, space)
    assert len(runner.programs) == measured  # every price was in the database


@pytest.mark.parametrize("make_graph", [rows, product])
def test_every_move_makes_a_program(make_graph: Callable[[], lm.Graph]) -> None:
    space = Space(make_graph().graph(), target.current())
    candidate = space.decode(Genome())
    moves = space.moves(candidate)
    assert moves
    for move in moves:
        space.decode(move.of(candidate.genome))
