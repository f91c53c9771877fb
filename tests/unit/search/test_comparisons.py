"""Who wins: what has to be faster than what, by how much and how often, before it is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import luminal as lm
from luminal.base.errors import CompileError
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import KernelLaunch, Launch, walk
from luminal.search.cost_model import cost
from luminal.search.genome import Genome
from luminal.search.space import Candidate
from luminal.search.strategy import Strategy
from luminal.shape.expression import const
from tests.unit.search.invented_machine import (
    Builders,
    Runner,
    Speed,
    layers,
    make,
    only_key,
    product,
    rows,
)


def measured(tmp_path: Path, runner: Runner) -> Strategy:
    """A search that has measured one other program, which has number 1 in the runner."""
    strategy = make(rows(), tmp_path, runner)
    move = next(m for m in strategy.space.moves(strategy.fast.candidate) if "stored" in m.note)
    assert strategy.challenge([(move.of(Genome()), "another")], "structure") == (
        strategy.best is not strategy.fast
    )
    assert runner.programs[0] is strategy.fast.candidate.program
    assert len(runner.programs) == 2
    return strategy


def rivals(seconds: float) -> Speed:
    """The fast program, the one with fewer kernels, takes one second, the other so many."""
    return lambda program: 1.0 if len(list(walk(program.launches))) == 1 else seconds


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        (0.5, None),
        (0.975, None),  # by more than 2%
        (0.985, "not faster than the best"),
        (1.0, "not faster than the best"),
        (1.02, "not faster than the best"),
        (1.45, "not faster than the best"),
        (1.5, "not faster than the best"),
        (1.55, "slow"),
        (30.0, "slow"),
    ],
)
def test_a_challenger_has_to_be_faster(tmp_path: Path, seconds: float, reason: str | None) -> None:
    runner = Runner(rivals(seconds))
    strategy = measured(tmp_path, runner)
    assert [row.reason for row in strategy.log.rejected()] == ([] if reason is None else [reason])
    assert strategy.best.seconds == min(1.0, seconds if reason is None else 1.0)
    assert [best.best_seconds for best in strategy.log.history[1:]] == (
        [seconds] if reason is None else []
    )
    comparisons = {"slow": 1, "not faster than the best": 2}.get(reason or "", 3)
    assert len(runner.asked) == comparisons  # a glance, then long ones, the second to confirm
    assert runner.asked[0] == 3
    assert all(rounds >= 7 for rounds in runner.asked[1:])
    assert runner.dropped == ([] if reason is None else [1])


@pytest.mark.parametrize(
    ("lucky", "reason"),
    [
        ([1], "not faster when timed again"),
        ([0, 1], "not faster when timed again"),
        ([2], "not faster than the best"),
        ([0], "not faster than the best"),
    ],
)
def test_luck_in_one_comparison_is_not_enough(
    tmp_path: Path, lucky: list[int], reason: str
) -> None:
    """Of a program as fast as the best one, in the comparisons of these numbers (0: a glance)."""
    runner = Runner(lambda p: 1.0, noise=lambda k: [(0.5, 1.0)] if k in lucky else [(1.0, 1.0)])
    strategy = measured(tmp_path, runner)
    assert strategy.best is strategy.fast
    assert [row.reason for row in strategy.log.rejected()] == [reason]


@pytest.mark.parametrize(
    "disturbed", [[(3.0, 1.0), (0.9, 1.0), (3.0, 1.0)], [(3.0, 1.0), (3.0, 3.0), (3.0, 1.0)]]
)
def test_a_glance_gives_up_only_what_is_slow_in_every_round(
    tmp_path: Path, disturbed: list[tuple[float, float]]
) -> None:
    runner = Runner(rivals(0.9), noise=lambda k: disturbed if k == 0 else [(1.0, 1.0)])
    assert measured(tmp_path, runner).best.seconds == 0.9


def test_a_program_that_hangs_is_a_record(tmp_path: Path) -> None:
    runner = Runner(rivals(0.5), hangs=lambda p: len(runner.programs) > 1)
    strategy = measured(tmp_path, runner)
    assert strategy.best is strategy.fast
    assert strategy.untuned() == {}
    (row,) = strategy.log.rejected()
    assert (row.reason, row.candidates, row.example) == ("took longer than 10 s", 2, "another")


def test_a_program_without_code_is_a_record(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, runner := Runner(rivals(0.5)), builders := Builders())
    builders.refuses = lambda text: True
    move = next(m for m in strategy.space.moves(strategy.fast.candidate) if "stored" in m.note)
    assert not strategy.challenge([(move.of(Genome()), "another")], "structure")
    assert [row.reason for row in strategy.log.rejected()] == ["does not compile"]
    assert len(runner.programs) == 1


def test_only_the_fast_program_is_kept_when_it_is_beaten(tmp_path: Path) -> None:
    strategy = measured(tmp_path, runner := Runner(rivals(0.5)))
    (tuned, *_) = strategy.space.knobs(strategy.best.candidate, 0)[1:]
    genome = strategy.best.candidate.genome.with_tuned(
        {strategy.best.candidate.stages.origins[0].name: tuned}
    )
    runner.speed = lambda p: 0.2 if p is runner.programs[2] else 0.5
    assert strategy.challenge([(genome, "a third one")], "schedules")
    assert runner.dropped == [1]


@pytest.mark.parametrize(("seconds", "wins"), [(0.9, True), (0.975, True), (0.985, False)])
def test_the_end_is_a_duel_with_the_fast_program(
    tmp_path: Path, seconds: float, wins: bool
) -> None:
    runner = Runner(rivals(0.5))
    strategy = measured(tmp_path, runner)
    assert strategy.best is not strategy.fast
    runner.speed = rivals(seconds)
    assert strategy.duel() == (wins, seconds, 1.0)


def test_short_programs_are_compared_more_often(tmp_path: Path) -> None:
    for seconds, rounds in ((1.0, 7), (0.005, 15), (1e-6, 41)):
        runner = Runner(lambda p, seconds=seconds: seconds)
        strategy = make(rows(), tmp_path, runner)
        strategy.pairs(strategy.fast.number, strategy.fast)
        assert runner.asked == [rounds]


@pytest.mark.parametrize(
    ("share", "taken"), [(0.5, True), (0.97, True), (0.98, False), (0.985, False)]
)
def test_a_schedule_has_to_be_faster(tmp_path: Path, share: float, taken: bool) -> None:
    strategy = make(product(), tmp_path, Runner(lambda p: 1.0))
    key, schedules = only_key(strategy.space), strategy.space.knobs(strategy.fast.candidate, 0)
    default = to_text(strategy.fast.candidate.program.kernels[0])
    other = strategy.space.decode(Genome().with_tuned({key: schedules[3]})).stages.origins[0].text
    speeds = {default: 1.0, other: share}
    strategy.runner.speed = lambda p: speeds.get(to_text(p.kernels[0]), 2.0)  # type: ignore[attr-defined]
    (*_, ranked) = strategy.measurements.ranked(strategy.fast.candidate, {key: schedules})
    assert ranked[key][:2] == [schedules[3], ()]
    chosen = strategy.measurements.confirmed(strategy.fast.candidate, ranked)
    assert chosen == ({key: schedules[3]} if taken else {})


def test_a_schedule_is_confirmed_by_the_median_of_several_runs(tmp_path: Path) -> None:
    strategy = make(product(), tmp_path, runner := Runner(lambda p: 1.0))
    key, schedules = only_key(strategy.space), strategy.space.knobs(strategy.fast.candidate, 0)
    other = strategy.space.decode(Genome().with_tuned({key: schedules[1]})).stages.origins[0].text
    for times, taken in (([0.5, 1.0, 1.0], False), ([0.5, 0.5, 3.0], True)):
        left = list(times)
        runner.speed = lambda p, left=left: (  # type: ignore[misc]
            left.pop(0) if to_text(p.kernels[0]) == other else 1.0
        )
        chosen = strategy.measurements.confirmed(strategy.fast.candidate, {key: [schedules[1]]})
        assert not left
        assert chosen == ({key: schedules[1]} if taken else {})


def test_programs_of_much_more_work_are_not_built(tmp_path: Path) -> None:
    """The sum is computed anew for every element of a row."""
    cx = lm.Graph()
    x, w = cx.tensor((64, 64), name="x"), cx.tensor((64, 64), name="w")
    ((x @ w).exp() @ w).output("y")
    strategy = make(cx, tmp_path, Runner(lambda p: 1.0))
    strategy.run()
    reasons = {row.reason for row in strategy.log.rejected()}
    assert reasons & {"more than 4 times the work", "predicted to be slow"}
    most = 4.0 * strategy.cost(strategy.fast.candidate).flops
    runner: Any = strategy.runner
    assert all(cost(p, {}, strategy.space.backend).flops <= most for p in runner.programs)


def test_kernels_of_small_share_are_not_tuned(tmp_path: Path) -> None:
    for share, tuned in ((0.02, 3), (0.005, 1)):

        class Uneven(Runner):
            def profile(self, number: int, slow: float, share: float = share) -> list[float]:
                sites = len(list(walk(self.programs[number].launches)))
                return [1.0, *[share] * (sites - 1)]

        cx = lm.Graph()
        x = cx.tensor((64, 96), name="x")
        x.sum(0).output("y")
        (x.exp() @ x.T).output("z")
        strategy = make(cx, tmp_path / str(share), Uneven(lambda p: 1.0))
        assert len(strategy.untuned()) == tuned


def test_kernels_of_one_percent_are_not_tuned(tmp_path: Path) -> None:
    class Shares(Runner):
        def profile(self, number: int, slow: float) -> list[float]:
            return [97.0, 1.0, 1.0, 1.0]

    strategy = make(layers(), tmp_path, Shares(lambda p: 1.0))
    assert list(strategy.untuned()) == [strategy.fast.candidate.stages.origins[0].name]


def test_so_many_schedules_are_timed_at_once_and_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luminal.search.measure.PREDICTED_SLOW", float("inf"))
    strategy = make(product(), tmp_path, runner := Runner(lambda p: 1.0))
    key, schedules = only_key(strategy.space), strategy.space.knobs(strategy.fast.candidate, 0)
    assert len(schedules) > 20
    steps = strategy.measurements.ranked(strategy.fast.candidate, {key: schedules})
    assert [len(next(steps)[key]) for _ in range(3)] == [6, 12, 18]
    before = len(runner.programs)
    strategy.measurements.confirmed(strategy.fast.candidate, {key: [*schedules[1:10]]})
    assert len(runner.programs) - before == 3 * (1 + 3)  # thrice the present one and three rivals
    assert runner.dropped == [*range(1, len(runner.programs))]  # all but the fast program
    before = len(runner.programs)
    strategy.measurements.confirmed(strategy.fast.candidate, {key: [schedules[1], schedules[0]]})
    assert len(runner.programs) - before == 3 * 2  # the present one is no rival of its own


def test_kernels_of_fewer_rivals_take_more_turns(tmp_path: Path) -> None:
    strategy = make(layers(), tmp_path, runner := Runner(lambda p: 1.0))
    spaces = strategy.untuned()
    one, other, *_ = (key for key, schedules in spaces.items() if len(schedules) > 3)
    ranked = {one: [spaces[one][1]], other: [*spaces[other][1:4]]}
    before = len(runner.programs)
    strategy.measurements.confirmed(strategy.fast.candidate, ranked)
    assert len(runner.programs) - before == 3 * (1 + 3)
    assert strategy.measurements.confirmed(strategy.fast.candidate, {}) == {}
    assert len(runner.programs) - before == 3 * (1 + 3)  # nothing was run


def test_many_kernels_are_timed_in_shorter_steps(tmp_path: Path) -> None:
    strategy = make(layers(), tmp_path, Runner(lambda p: 1.0))
    spaces = strategy.untuned()
    assert len(spaces) == 4
    (first, *_) = strategy.measurements.ranked(strategy.fast.candidate, spaces)
    assert max(map(len, first.values())) == 3


def test_a_schedule_without_code_costs_no_other_kernel_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luminal.search.measure.PREDICTED_SLOW", float("inf"))
    strategy = make(layers(), tmp_path, runner := Runner(lambda p: 1.0))
    candidate, spaces = strategy.fast.candidate, strategy.untuned()
    refused = next(key for key, schedules in spaces.items() if len(schedules) > 2)
    tuned = candidate.genome.with_tuned({refused: spaces[refused][1]})
    text = next(o.text for o in strategy.space.decode(tuned).stages.origins if o.name == refused)
    strategy.measurements.builders.refuses = lambda each: each == text  # type: ignore[attr-defined]
    (*_, ranked) = strategy.measurements.ranked(candidate, spaces)
    for key, schedules in spaces.items():
        missing = {spaces[refused][1]} if key == refused else set()
        assert set(ranked[key]) == set(schedules) - missing
    assert all(to_text(kernel) != text for p in runner.programs for kernel in p.kernels)
    assert [row.reason for row in strategy.log.rejected()] == ["does not compile"]


def test_a_schedule_that_hangs_or_is_not_legal_is_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = make(rows(), tmp_path, runner := Runner(lambda p: 1.0))
    candidate = strategy.fast.candidate
    key, schedules = only_key(strategy.space), strategy.space.knobs(candidate, 0)
    decode = strategy.space.decode

    def checked(genome: Genome) -> Candidate:
        if genome.knobs.get(key) == schedules[2]:
            raise CompileError("too wide")
        return decode(genome)

    monkeypatch.setattr(strategy.space, "decode", checked)
    slow = decode(Genome().with_tuned({key: schedules[1]})).program.kernels[0]
    runner.hangs = lambda p: to_text(p.kernels[0]) == to_text(slow)
    (*_, ranked) = strategy.measurements.ranked(candidate, {key: schedules})
    assert ranked == {key: [schedules[0], *schedules[3:]]}
    reasons = [row.reason for row in strategy.log.rejected()]
    assert reasons == ["schedule not legal", "took longer than 10 s"]


def test_a_kernel_of_the_prologue_takes_no_part_of_a_run(tmp_path: Path) -> None:
    cx = lm.Graph()
    x, w = cx.tensor((16, 32), name="x"), cx.weight((32, 32), name="w")
    (x @ w.exp()).output("y")
    strategy = make(cx, tmp_path, Runner(lambda p: 1.0))
    candidate = strategy.fast.candidate
    (launch,) = walk(candidate.program.prologue)
    name = candidate.stages.origins[launch.kernel].name
    assert name not in strategy.untuned()
    assert list(strategy.measurements.price(candidate, [{name: ()}])) == [(0, {name: 0.0})]


def test_what_a_price_depends_on(tmp_path: Path) -> None:
    """The text of the kernel, how it is launched, and the machine; other kernels do not count."""
    strategy = make(layers(), tmp_path, Runner(lambda p: 1.0))
    candidate, measurements = strategy.fast.candidate, strategy.measurements
    (first, second, *rest) = candidate.program.launches
    assert isinstance(first, KernelLaunch)
    assert isinstance(second, KernelLaunch)

    def key(kernel: int, *launches: Launch) -> str:
        program = replace(candidate.program, launches=launches)
        stages = replace(candidate.stages, program=program)
        return measurements.price_key(replace(candidate, stages=stages), kernel)

    known = key(0, first, second, *rest)
    assert known == measurements.price_key(candidate, 0)
    assert known == key(0, first, replace(second, chunks=const(7)), *rest)
    assert known != key(0, replace(first, chunks=const(7)), second, *rest)
    assert known != key(0, replace(first, params=(*first.params, const(7))), second, *rest)
    assert known != key(0, first, first, second, *rest)
    assert known != key(1, first, second, *rest)
    measurements.context = "another machine"
    assert known != key(0, first, second, *rest)
