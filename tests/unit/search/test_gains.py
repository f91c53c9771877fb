"""What each choice of a search's program gains, on a machine that is a formula."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from luminal.program import launch_text
from luminal.program.launch_list import Program
from luminal.search import gains
from luminal.search.genome import Genome
from luminal.search.strategy import Strategy, Timed
from tests.machines import usual
from tests.unit.search.invented_machine import Runner, make, rows

DEVICE = replace(usual(), dispatches=("list", "one"))


@pytest.fixture(autouse=True)
def _has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is a formula no time passes but that of the test."""
    monkeypatch.setattr(gains, "SHARE", math.inf)


class Factors:
    """Another schedule than the rules' halves the time, launches as one kernel take a third."""

    def __init__(self) -> None:
        self.slow = ""

    def __call__(self, program: Program) -> float:
        kernels = launch_text.to_text(replace(program, dispatch=None), kernels=True)
        return (2.0 if kernels == self.slow else 1.0) * (1.0 if program.dispatch else 3.0)


def chosen(strategy: Strategy, speed: Factors) -> Timed:
    """The program of two choices that gain, and of one that means nothing."""
    fast = strategy.fast.candidate
    speed.slow = launch_text.to_text(fast.program, kernels=True)
    knobs = strategy.space.knobs(fast, 0)[1]
    genome = Genome(residences=(("of another program", "stored"),), dispatch="one")
    candidate = strategy.space.decode(genome.with_tuned({fast.stages.origins[0].name: knobs}))
    number = strategy.runner.add(candidate.program)
    return Timed(candidate, number, speed(candidate.program))


def test_each_choice_is_taken_back_alone(tmp_path: Path) -> None:
    speed = Factors()
    strategy = make(rows(), tmp_path, Runner(speed), backend=DEVICE)
    schedule, way = gains.changes(strategy, chosen(strategy, speed))
    assert schedule.text.startswith("kernel k0 (")
    assert "has another schedule: " in schedule.text
    assert "test_gains.py" not in schedule.text  # recorded in another file, which is named
    assert "invented_machine.py:" in schedule.text
    assert way.text == "launches are given to the device as one"
    assert (schedule.without, way.without) == (2.0, 3.0)


def test_the_fast_program_differs_in_nothing(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda program: 1.0), backend=DEVICE)
    assert gains.changes(strategy, strategy.fast) == ()


def test_what_does_not_run_without_a_choice_is_told_without_a_gain(tmp_path: Path) -> None:
    speed = Factors()
    runner = Runner(speed, hangs=lambda program: not program.dispatch and bool(speed.slow))
    strategy = make(rows(), tmp_path, runner, backend=DEVICE)
    _, way = gains.changes(strategy, chosen(strategy, speed))
    assert way.without is None


def test_a_long_telling_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first choice is timed in any case."""
    monkeypatch.setattr(gains, "SHARE", 0.0)
    speed = Factors()
    strategy = make(rows(), tmp_path, Runner(speed), backend=DEVICE)
    assert [row.without for row in gains.changes(strategy, chosen(strategy, speed))] == [2.0, None]
