"""The sides of a search, each by itself: what it tries, in which order, and when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import luminal as lm
from luminal.base.errors import CompileError
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import Program, walk
from luminal.search import log as search_log
from luminal.search import strategy as search_strategy
from luminal.search.cost_model import Cost
from luminal.search.genome import Genome
from luminal.search.measure import Measurements
from luminal.search.options import SearchOptions, TimeBudget
from luminal.search.process import Refused
from luminal.search.space import Candidate
from luminal.search.strategy import (
    PREDICTED_SLOW,
    Side,
    Strategy,
    in_turns,
)
from tests.unit.search.invented_machine import Builders, Clock, Runner, layers, make, product, rows


def launches(program: Program) -> int:
    return len(list(walk(program.launches)))


def test_the_fast_program_is_built_and_comes_first(tmp_path: Path) -> None:
    strategy = make(layers(), tmp_path, Runner(lambda p: 2.0), builders := Builders())
    assert builders.requests == [origin.text for origin in strategy.fast.candidate.stages.origins]
    assert strategy.best is strategy.fast
    assert strategy.fast.seconds == 2.0
    assert strategy.runner.clock.now == pytest.approx(0.07)  # type: ignore[attr-defined]
    assert [best.best_seconds for best in strategy.log.history] == [2.0]
    assert strategy.measurements.slow == 3.0
    assert strategy.most_flops == 4 * strategy.cost(strategy.fast.candidate).flops
    assert strategy.decode(Genome(), "the same") is None  # it is known
    with pytest.raises(Refused, match="refused"):
        make(layers(), tmp_path, Runner(lambda p: 2.0), Builders(lambda text: True))


def test_a_kernel_is_built_once(tmp_path: Path) -> None:
    strategy = make(layers(), tmp_path, Runner(lambda p: 1.0), builders := Builders())
    candidate, measurements = strategy.fast.candidate, strategy.measurements
    texts = [origin.text for origin in candidate.stages.origins]
    move = next(m for m in strategy.space.moves(candidate) if "stored" in m.note)
    other = strategy.space.decode(move.of(Genome()))
    new = [origin.text for origin in other.stages.origins if origin.text not in texts]
    builders.refuses = lambda text: text == new[0]
    measurements.build([other, candidate, other])
    measurements.build([other])
    assert builders.requests == texts + new
    assert measurements.log.kernels_built == len(texts + new) - 1
    assert measurements.broken(candidate) is None
    assert measurements.broken(other) == "refused"


# --- limits


def test_work_has_a_limit(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))
    move = next(m for m in strategy.space.moves(strategy.fast.candidate) if "stored" in m.note)
    candidate = strategy.space.decode(move.of(Genome()))
    strategy.most_flops = strategy.cost(candidate).flops
    assert strategy.decode(candidate.genome, "as much") == candidate
    assert not strategy.log.rejected()
    strategy.most_flops -= 1
    assert strategy.decode(candidate.genome, "more") is None
    assert [row.reason for row in strategy.log.rejected()] == ["more than 4 times the work"]


def test_the_length_of_a_kernel_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))
    move = next(m for m in strategy.space.moves(strategy.fast.candidate) if "stored" in m.note)
    candidate = strategy.space.decode(move.of(Genome()))
    shortest, *_, longest = sorted(o.text.count("\n") for o in candidate.stages.origins)
    assert shortest < longest
    monkeypatch.setattr(search_strategy, "MOST_LINES", longest)
    assert strategy.decode(candidate.genome, "as long") == candidate
    assert not strategy.log.rejected()
    monkeypatch.setattr(search_strategy, "MOST_LINES", longest - 1)
    assert strategy.decode(candidate.genome, "longer") is None
    assert [row.reason for row in strategy.log.rejected()] == ["a kernel is too long"]


def test_a_batch_ends_at_a_limit(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, runner := Runner(lambda p: 1.0), max_candidates=2)
    moves = strategy.space.moves(strategy.fast.candidate)
    strategy.challenge([(move.of(Genome()), move.note) for move in moves], "structure")
    assert len(runner.programs) == 1 + 2


def test_a_program_that_copies_may_get_some_work(tmp_path: Path) -> None:
    cx = lm.Graph()
    cx.tensor((16, 32), name="x").permute(1, 0).output("y")
    strategy = make(cx, tmp_path, Runner(lambda p: 1.0))
    assert strategy.cost(strategy.fast.candidate).flops == 0
    assert strategy.most_flops == 4


def test_a_genome_without_a_program_is_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))

    def decode(genome: Genome) -> Candidate:
        raise CompileError("no place for it")

    monkeypatch.setattr(strategy.space, "decode", decode)
    assert strategy.decode(Genome(unrolled=True), "a move") is None
    (row,) = strategy.log.rejected()
    assert (row.reason, row.example) == ("does not compile", "a move: no place for it")


def test_a_search_is_over_at_any_of_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for module in (search_log, search_strategy):
        monkeypatch.setattr(module, "time", clock)
    runner = Runner(lambda p: 1.0)
    timed = make(rows(), tmp_path / "timed", runner, mode=TimeBudget(3))
    moves = timed.space.moves(timed.fast.candidate)
    clock.now = 2.9
    assert not timed.is_over()
    assert timed.judged(moves, range(len(moves)))
    clock.now = 3.0
    assert timed.is_over()
    assert not timed.judged(moves, range(len(moves)))
    counted = make(rows(), tmp_path / "counted", runner, max_candidates=3)
    counted.log.tried("structure", 2)
    assert not counted.is_over()
    counted.log.tried("schedules")
    assert counted.is_over()
    fast = make(rows(), tmp_path / "fast", runner)
    fast.options = SearchOptions(stop_below_us=1e6)
    assert not fast.is_over()
    fast.options = SearchOptions(stop_below_us=1.1e6)
    assert fast.is_over()


# --- structure


def test_single_moves_find_a_gain(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 10.0 - launches(p)))
    before = launches(strategy.fast.candidate.program)
    list(strategy.climb())
    assert launches(strategy.best.candidate.program) > before


def test_single_moves_are_all_tried_once(tmp_path: Path) -> None:
    strategy = make(layers(), tmp_path, Runner(lambda p: 1.0))
    moves = in_turns(strategy.space.moves(strategy.fast.candidate))
    kept = strategy.judged(moves, range(len(moves)))
    list(strategy.climb())
    programs = {strategy.space.decode(move.of(Genome())).text for _, _, move in kept}
    assert strategy.log.side("structure").candidates == len(programs)
    assert programs <= strategy.seen


def test_what_is_predicted_to_be_slow_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = make(layers(), tmp_path, Runner(lambda p: 1.0))
    moves = strategy.space.moves(strategy.fast.candidate)
    monkeypatch.setattr("luminal.search.strategy.PREDICTED_SLOW", 1.0)
    limit = strategy.cost(strategy.fast.candidate).seconds
    kept = {number: seconds for seconds, number, _ in strategy.judged(moves, range(len(moves)))}
    assert PREDICTED_SLOW > 1.0
    assert 0 < len(kept) < len(moves)
    for number, move in enumerate(moves):
        candidate = strategy.space.decode(move.of(Genome()))
        seconds = strategy.cost(candidate).seconds
        if number in kept:
            assert kept[number] == seconds <= limit
        elif candidate.text not in strategy.seen:
            assert seconds > limit
    assert {row.reason for row in strategy.log.rejected()} == {"predicted to be slow"}


def test_what_is_predicted_to_take_little_longer_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))
    moves = strategy.space.moves(strategy.fast.candidate)[:1]
    for seconds, count in ((2.5, 1), (2.6, 0)):
        costs = {strategy.fast.candidate.text: Cost(1.0, 0.0, 1.0)}
        other = Cost(seconds, 0.0, seconds)
        monkeypatch.setattr(
            strategy, "cost", lambda c, costs=costs, other=other: costs.get(c.text, other)
        )
        assert len(strategy.judged(moves, range(1))) == count


def test_the_most_promising_moves_come_first(tmp_path: Path) -> None:
    strategy = make(layers(), tmp_path, runner := Runner(lambda p: 1.0))
    moves = in_turns(strategy.space.moves(strategy.fast.candidate))[:16]
    known = sorted(strategy.judged(moves, range(16)))
    steps = strategy.climb()
    for _ in range(3):  # it lists, looks, and tries
        next(steps)
    expected = [strategy.space.decode(move.of(Genome())).text for _, _, move in known[:4]]
    tried = [strategy.space.decode(Genome()).text, *dict.fromkeys(expected)]
    assert len(runner.programs) == len(tried)
    assert strategy.seen == set(tried)


def test_a_few_moves_are_looked_at_before_some_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = make(layers(), tmp_path, Runner(lambda p: 1.0))
    looked: list[range] = []
    monkeypatch.setattr(strategy, "judged", lambda moves, numbers: looked.append(numbers) or [])
    list(strategy.climb())
    assert looked == [range(16), range(16, len(strategy.space.moves(strategy.fast.candidate)))]


def test_pairs_of_moves_are_drawn_until_many_gain_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))
    assert len(list(strategy.wander())) == 10  # four pairs each
    assert strategy.log.side("structure").candidates > 2
    monkeypatch.setattr(search_strategy, "STALE_DRAWS", 5)
    assert len(list(strategy.wander())) == 2
    assert strategy.log.side("structure").candidates > 2


def test_a_pair_takes_two_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))
    moves = strategy.space.moves(strategy.fast.candidate)
    for count, steps in ((0, 0), (1, 0), (2, 10)):
        monkeypatch.setattr(strategy.space, "moves", lambda each, count=count: moves[:count])
        assert len(list(strategy.wander())) == steps


# --- schedules


class Uneven(Runner):
    """The k-th launch takes k + 1 parts."""

    def profile(self, number: int, slow: float) -> list[float]:
        return [1.0 + k for k in range(launches(self.programs[number]))]


def test_the_slowest_kernels_come_first(tmp_path: Path) -> None:
    strategy = make(layers(), tmp_path, Uneven(lambda p: 1.0))
    names = [origin.name for origin in strategy.fast.candidate.stages.origins]
    sites = [site.kernel for site in walk(strategy.fast.candidate.program.launches)]
    assert sites == list(range(len(names)))
    assert list(strategy.untuned()) == names[::-1]
    strategy.tuned.add(names[0])
    assert list(strategy.untuned()) == names[:0:-1]


def liking(strategy: Strategy, share: float, together: float) -> tuple[list[str], list[str]]:
    """A machine that likes one other schedule of either of two kernels, and both less or more."""
    candidate = strategy.fast.candidate
    names = [origin.name for origin in candidate.stages.origins][:2]
    likes = []
    for kernel, name in enumerate(names):
        tuned = Genome().with_tuned({name: strategy.space.knobs(candidate, kernel)[1]})
        likes.append(strategy.space.decode(tuned).stages.origins[kernel].text)

    def speed(program: Program) -> float:
        found = sum(to_text(kernel) in likes for kernel in program.kernels)
        return (1.0, share, together)[found]

    strategy.runner.speed = speed  # type: ignore[attr-defined]
    return names, likes


@pytest.mark.parametrize(
    ("alone", "together", "kernels"), [(0.8, 0.5, 2), (0.8, 2.0, 1), (1.0, 0.5, 2)]
)
def test_schedules_are_taken_together_or_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: float, together: float, kernels: int
) -> None:
    strategy = make(layers(), tmp_path, Runner(lambda p: 1.0))
    names, likes = liking(strategy, alone, together)
    candidate = strategy.fast.candidate
    ranked = {
        name: [strategy.space.knobs(candidate, kernel)[1]] for kernel, name in enumerate(names)
    }
    confirmed = {name: found[0] for name, found in ranked.items()}
    monkeypatch.setattr(Measurements, "confirmed", lambda *_: confirmed)
    strategy.take_leading(ranked, {})
    assert sum(to_text(k) in likes for k in strategy.best.candidate.program.kernels) == kernels
    assert strategy.best.seconds == (together if kernels == 2 else alone)
    assert strategy.log.side("schedules").candidates == (1 if kernels == 2 else 2)


def test_leading_schedules_are_confirmed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = make(product(), tmp_path, Runner(lambda p: 1.0))
    (name,) = (origin.name for origin in strategy.fast.candidate.stages.origins)
    default, one, other, *_ = strategy.space.knobs(strategy.fast.candidate, 0)
    asked: list[list[str]] = []

    def confirmed(self: object, candidate: object, ranked: dict[str, object]) -> dict[str, object]:
        asked.append(list(ranked))
        return {}

    monkeypatch.setattr(Measurements, "confirmed", confirmed)
    monkeypatch.setattr(strategy, "challenge", lambda *_: pytest.fail("nothing was chosen"))
    leading: dict[str, object] = {}
    for ranked in ([], [default, one], [one, default], [one, other], [other, one]):
        strategy.take_leading({name: ranked}, leading)  # type: ignore[arg-type]
    # None has code, the present one is in front, a new one, the same, a new one.
    assert asked == [[], [], [name], [], [name]]
    assert leading == {name: other}


def test_a_new_structure_ends_the_tuning_of_the_old_one(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))
    steps = strategy.tune()
    next(steps)
    old = {origin.name for origin in strategy.fast.candidate.stages.origins}
    move = next(m for m in strategy.space.moves(strategy.fast.candidate) if "stored" in m.note)
    strategy.runner.speed = lambda p: 1.0 / launches(p)  # type: ignore[attr-defined]
    assert strategy.challenge([(move.of(Genome()), "more kernels")], "structure")
    list(steps)
    new = {origin.name for origin in strategy.best.candidate.stages.origins}
    assert strategy.tuned == new
    assert old - new


# --- both


def test_what_a_step_uses_is_candidates_or_one(tmp_path: Path) -> None:
    strategy = make(rows(), tmp_path, Runner(lambda p: 1.0))

    def steps() -> object:
        for count in (0, 3, 0):
            strategy.log.tried("structure", count)
            yield

    side = Side("structure", steps)  # type: ignore[arg-type]
    used = []
    for _ in range(4):
        strategy.step(side)
        used.append(side.used)
    assert used == [1, 4, 5, 6]
    assert side.ended == strategy.structure
    assert side.steps is None


def test_a_side_that_has_ended_begins_anew_for_another_structure(tmp_path: Path) -> None:
    runner = Runner(lambda p: 10.0 - launches(p))
    strategy = make(rows(), tmp_path, runner)
    strategy.run()
    new = {origin.name for origin in strategy.best.candidate.stages.origins}
    assert new <= strategy.tuned
    assert strategy.structure != Genome()
