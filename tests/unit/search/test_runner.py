"""The runner, with pretended processes: what it sends, when it begins anew, how long it waits."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from luminal.search import runner as runner_module
from luminal.search.messages import unpack
from luminal.search.process import START_SECONDS, Died
from luminal.search.runner import MOST_LOADS, Pairs, Runner


class Shared:
    """A file of operands."""

    operands = "the operands"

    def fileno(self) -> int:
        return 7


class Process:
    """Records what it is asked; `dying`: so many calls of it end with its death."""

    made: ClassVar[list[Process]] = []
    dying = 0
    times: ClassVar[list[list[float]]] = [[1.0, 9.0, 2.0], [4.0, 4.0, 4.0]]

    def __init__(self, backend: str, descriptor: int | None = None) -> None:
        assert (backend, descriptor) == ("cpu", 7)
        self.asked: list[tuple[Any, ...]] = []
        self.waited: dict[str, float] = {}
        self.is_dead = False
        self.is_asked = False  # an answer waits
        Process.made.append(self)

    def start(self, data: bytes) -> None:
        assert not self.is_asked
        self.is_asked = True
        operation, arguments = unpack(data, lambda reference: reference)
        self.asked.append((operation, *arguments))

    def answer(self, seconds: float) -> None:
        assert seconds == START_SECONDS
        self.is_asked = False

    def call(self, operation: str, *arguments: Any, seconds: float) -> Any:
        assert not self.is_asked
        self.asked.append((operation, *arguments))
        self.waited[operation] = seconds
        if operation != "open" and Process.dying:
            Process.dying -= 1
            self.is_dead = True
            raise Died("died of signal 9")
        match operation:
            case "time":
                return Process.times[: len(arguments[0])]
            case "profile":
                return [[1.0, 5.0], [3.0, 4.0], [2.0, 9.0]]
        return {}

    def kill(self) -> None:
        self.is_dead = True


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr(runner_module, "Process", Process)
    Process.made, Process.dying = [], 0
    return Runner("cpu", Shared(), 10.0)  # type: ignore[arg-type]


def operations() -> list[list[Any]]:
    """Of each process, what it was asked for."""
    return [[asked[0] for asked in process.asked] for process in Process.made]


def test_programs_are_loaded_once_when_they_are_first_run(runner: Runner) -> None:
    first, second = runner.add("one"), runner.add("two")  # type: ignore[arg-type]
    assert (first, second) == (1, 2)
    assert not Process.made
    runner.pairs(first, second, 5)
    runner.pairs(first, second, 5)
    (process,) = Process.made
    assert process.asked[:3] == [("open", "the operands"), ("load", 1, "one"), ("load", 2, "two")]
    assert operations() == [["open", "load", "load", "time", "time"]]
    assert process.asked[3] == ("time", [1, 2], 5, 2.0)  # no more seconds than that


def test_a_dropped_program_is_gone(runner: Runner) -> None:
    number = runner.add("one")  # type: ignore[arg-type]
    runner.seconds(number, 3)
    runner.drop(number)
    runner.drop(number)
    assert Process.made[0].asked[-1] == ("drop", number)
    assert operations()[0].count("drop") == 1
    with pytest.raises(KeyError):
        runner.seconds(number, 3)
    other = runner.add("two")  # type: ignore[arg-type]
    runner.drop(other)  # it was never loaded
    assert operations()[0].count("drop") == 1


def test_a_program_may_be_dropped_after_the_process(runner: Runner) -> None:
    runner.seconds(number := runner.add("one"), 3)  # type: ignore[arg-type]
    runner.close()
    runner.close()
    runner.drop(number)
    assert operations() == [["open", "load", "time", "time"]]
    with pytest.raises(KeyError):
        runner.seconds(number, 3)


def test_times_are_medians_of_warm_runs(runner: Runner) -> None:
    number = runner.add("one")  # type: ignore[arg-type]
    assert runner.seconds(number, 3) == 2.0
    assert operations() == [["open", "load", "time", "time"]]  # the first ones warm up
    assert runner.pairs(number, runner.add("two"), 3) == tuple(Process.times)  # type: ignore[arg-type]
    assert runner.profile(number, 0.5) == [2.0, 5.0]
    assert Process.made[0].asked[-1] == ("profile", number, runner_module.PROFILE_RUNS, 0.5)


def test_a_process_of_many_loads_is_replaced(runner: Runner) -> None:
    for _ in range(MOST_LOADS + 1):
        runner.profile(runner.add("one"))  # type: ignore[arg-type]
    assert len(Process.made) == 1
    runner.profile(runner.add("one"))  # type: ignore[arg-type]
    assert len(Process.made) == 2
    assert Process.made[0].is_dead
    loads = [each.count("load") for each in operations()]
    assert loads == [2001, 1]
    for _ in range(MOST_LOADS):
        runner.profile(runner.add("one"))  # type: ignore[arg-type]
    assert len(Process.made) == 2  # counted from its start
    runner.close()
    assert Process.made[1].is_dead


@pytest.mark.parametrize(("deaths", "raises"), [(1, False), (2, True)])
def test_a_request_is_made_again_once(runner: Runner, deaths: int, raises: bool) -> None:
    numbers = runner.add("one"), runner.add("two")  # type: ignore[arg-type]
    Process.dying = deaths
    if raises:
        with pytest.raises(Died):
            runner.pairs(*numbers, 3)
    else:
        runner.pairs(*numbers, 3)
    assert operations() == [["open", "load", "load", "time"]] * 2


def test_how_long_each_request_may_take(runner: Runner) -> None:
    numbers = runner.add("one"), runner.add("two")  # type: ignore[arg-type]
    runner.pairs(*numbers, 5)
    runner.profile(numbers[0])
    runner.distance(*numbers)
    runner.elements(numbers[0], {})
    runner.drop(numbers[0])
    assert Process.made[0].waited == {
        "open": START_SECONDS,
        "time": (5 + 3) * 2 * 10.0,  # three runs come before the rounds
        "profile": (5 + 2) * 10.0,
        "distance": 4 * 10.0 + START_SECONDS,
        "run_once": 2 * 10.0,
        "elements": 10.0,
        "drop": 10.0,
    }
    assert operations()[0][-3:] == ["run_once", "elements", "drop"]


@pytest.mark.parametrize(
    ("ratios", "wins"),
    [
        ([1.25, 1.25], False),  # no more than the share
        ([1.26, 1.26], True),
        ([1.3, 1.3, 0.9], True),  # the median counts
        ([1.3, 0.9, 0.9], False),
        ([1.5, 1.0, 1.0, 2.25, 2.25], False),  # quartiles as many times apart as it is ahead twice
        ([1.5, 1.0, 1.01, 2.25, 2.25], True),
        ([1.5, 0.1, 1.0, 2.25, 2.25], False),
        ([1.5, 1.0, 1.0, 2.24, 9.0], True),
        ([1.0, 1.5, 1.5], False),  # no faster in its quietest round
        ([1.01, 1.5, 1.5], True),
    ],
)
def test_a_program_wins_by_a_share_and_beyond_the_spread(ratios: list[float], wins: bool) -> None:
    """`ratios`: how much faster it is in each round; every round is slower than the one before."""
    first = [2.0**k for k in range(len(ratios))]
    second = [ratio * seconds for ratio, seconds in zip(ratios, first, strict=True)]
    assert Pairs(first, second).wins(0.25) is wins
