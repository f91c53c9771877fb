"""The strategy, with a builder and a runner that pretend: what it tries, keeps and gives up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import luminal as lm
from luminal.backends.cpu import backend
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import Program, walk
from luminal.search import log as search_log
from luminal.search import strategy as search_strategy
from luminal.search.genome import Genome
from luminal.search.options import SearchOptions, TimeBudget
from luminal.search.space import Space
from luminal.search.strategy import in_turns
from tests.unit.search.invented_machine import (
    Builders,
    Clock,
    Runner,
    layers,
    make,
    only_key,
    product,
    rows,
)


def test_the_fastest_schedule_is_found(tmp_path: Path) -> None:
    """On a machine that likes one schedule of the product best."""
    space = Space(product().graph(), backend.current())
    schedules = space.knobs(space.decode(Genome()), 0)
    wanted = to_text(
        space.decode(Genome().with_tuned({only_key(space): schedules[3]})).program.kernels[0]
    )
    runner = Runner(lambda p: 1.0 if to_text(p.kernels[0]) == wanted else 2.0)
    strategy = make(product(), tmp_path, runner)
    strategy.run()
    assert strategy.best.seconds == 1.0
    assert to_text(strategy.best.candidate.program.kernels[0]) == wanted
    assert strategy.log.history[-1].best_seconds == 1.0


def test_a_machine_that_likes_many_kernels_gets_them(tmp_path: Path) -> None:
    runner = Runner(lambda p: 10.0 - len(list(walk(p.launches))))
    strategy = make(rows(), tmp_path, runner)
    fast = len(list(walk(strategy.fast.candidate.program.launches)))
    strategy.run()
    assert len(list(walk(strategy.best.candidate.program.launches))) > fast
    assert strategy.best.seconds < strategy.fast.seconds


@pytest.mark.long
def test_structure_and_schedules_share_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for module in (search_log, search_strategy):
        monkeypatch.setattr(module, "time", clock)
    for seconds in (3, 8):
        clock.now = 0.0
        runner = Runner(lambda p: 1.0, clock=clock)
        made = make(
            layers(), tmp_path / str(seconds), runner, Builders(clock=clock), TimeBudget(seconds)
        )
        made.run()
        structure, schedules = (made.log.side(name) for name in ("structure", "schedules"))
        assert seconds <= clock.now < seconds + 2  # it ends in time, and not before
        assert abs(structure.seconds - schedules.seconds) < 2
        assert clock.now - 1 < structure.seconds + schedules.seconds <= clock.now
        assert structure.candidates >= seconds
        assert schedules.candidates >= seconds
        assert made.log.candidates == structure.candidates + schedules.candidates


@pytest.mark.long
def test_structure_and_schedules_share_the_candidates(tmp_path: Path) -> None:
    for most in (24, 48):
        made = make(layers(), tmp_path / str(most), Runner(lambda p: 1.0), max_candidates=most)
        made.run()
        for name in ("structure", "schedules"):
            assert made.log.side(name).candidates > most / 2 - 12, name


def test_a_search_without_limits_tries_everything(tmp_path: Path) -> None:
    made = make(rows(), tmp_path, runner := Runner(lambda p: 1.0))
    made.run()
    space, fast = made.space, made.fast.candidate
    timed = {space.decode(Genome()).text, *made.seen}
    dropped = [row for row in made.log.rejected() if row.reason.startswith("predicted")]
    tried = [space.decode(move.of(Genome())).text in timed for move in space.moves(fast)]
    assert tried.count(False) <= sum(row.candidates for row in dropped)
    assert tried.count(True) > len(tried) / 2
    ran = {to_text(kernel) for program in runner.programs for kernel in program.kernels}
    for kernel, origin in enumerate(fast.stages.origins):
        for knobs in space.knobs(fast, kernel):
            variant = space.decode(Genome().with_tuned({origin.name: knobs}))
            assert {each.text for each in variant.stages.origins} <= ran
    priced = [trial for trial in made.log.trials if trial.outcome == "priced"]
    assert len(priced) == made.log.side("schedules").candidates
    assert {trial.gain for trial in priced} == {1.0}
    assert priced[0].changed.startswith("kernel k0 (")
    assert priced[0].changed.endswith(": that of the rules")
    assert len({trial.changed for trial in priced}) == len(priced)


def test_gains_of_both_sides_add_up(tmp_path: Path) -> None:
    """On a machine that likes many kernels, and loops in steps of two."""

    def speed(program: Program) -> float:
        steps = sum("unroll(2)" in to_text(kernel) for kernel in program.kernels)
        return 10.0 - len(list(walk(program.launches))) - steps

    strategy = make(rows(), tmp_path, Runner(speed))
    strategy.run()
    assert strategy.best.candidate.genome.tuned
    assert strategy.structure != Genome()


def test_moves_of_every_kind_come_early(tmp_path: Path) -> None:
    space = Space(layers().graph(), backend.current())
    moves = space.moves(space.decode(Genome()))
    ordered = in_turns(moves)
    assert sorted(map(id, ordered)) == sorted(map(id, moves))
    kinds = {move.choices[0][0] for move in moves}
    assert len(kinds) == 4
    assert {move.choices[0][0] for move in ordered[: len(kinds)]} == kinds


def test_nothing_better_keeps_fast(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))
    strategy.run()
    assert strategy.best is strategy.fast
    assert {row.reason for row in strategy.log.rejected()} >= {"not faster than the best"}


def test_kernels_that_do_not_compile_are_records(tmp_path: Path) -> None:
    space = Space(product().graph(), backend.current())
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


def test_prices_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.search.measure.PREDICTED_SLOW", float("inf"))
    first = make(product(), tmp_path, Runner(lambda p: 1.0))
    first.run()
    first.measurements.database.close()
    again = make(product(), tmp_path, runner := Runner(lambda p: 1.0))
    measured = len(runner.programs)
    space = {again.fast.candidate.stages.origins[0][0]: again.space.knobs(again.fast.candidate, 0)}
    (*_, ranked) = again.measurements.ranked(again.fast.candidate, space)
    assert {key: set(found) for key, found in ranked.items()} == {
        key: set(schedules) for key, schedules in space.items()
    }
    assert len(runner.programs) == measured  # every price was in the database


def test_prices_are_kept(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, runner := Runner(lambda p: 1.0))
    spaces = strategy.untuned()
    before, *_ = strategy.measurements.ranked(strategy.fast.candidate, spaces)
    measured = len(runner.programs)
    runner.speed = lambda p: 2.0
    assert next(strategy.measurements.ranked(strategy.fast.candidate, spaces)) == before
    assert len(runner.programs) == measured


@pytest.mark.parametrize("make_graph", [rows, product])
def test_every_move_makes_a_program(make_graph: Callable[[], lm.Graph]) -> None:
    space = Space(make_graph().graph(), backend.current())
    candidate = space.decode(Genome())
    moves = space.moves(candidate)
    assert moves
    for move in moves:
        space.decode(move.of(candidate.genome))
