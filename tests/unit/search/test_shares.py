"""Where a search's time goes: to kernels by their share of a run, to schedules that may be fast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import luminal as lm
from luminal.kernel.knobs import Knobs, as_knobs
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import walk
from luminal.schedule.vectors import space as cpu_space
from luminal.search import log as search_log
from luminal.search import strategy as search_strategy
from luminal.search.cost_model import PREDICTED_SLOW, CostModel
from luminal.search.genome import Genome, library_of
from luminal.search.measure import batches
from luminal.search.options import TimeBudget
from tests.unit.search.invented_machine import Builders, Clock, Runner, layers, make, only_key

MOST = 60  # schedules of a kernel that a search may time
NEAR = 1.1  # times the best of all


def test_batches_name_every_schedule_once() -> None:
    sizes = {"a": 30, "b": 7, "c": 1}
    found = [
        (key, k)
        for batch in batches(sizes, {"a": 0.7, "b": 0.2, "c": 0.1})
        for numbers in batch
        for key, k in numbers.items()
    ]
    assert len(found) == len(set(found)) == 38
    for key, size in sizes.items():
        assert [k for name, k in found if name == key] == [*range(size)]


def test_batches_follow_shares() -> None:
    first, second, *_ = batches({"a": 40, "b": 40}, {"a": 0.9, "b": 0.1})
    assert {key for numbers in first for key in numbers} == {"a", "b"}  # the present ones of all
    counts = [sum(key in numbers for numbers in [*first, *second]) for key in "ab"]
    assert sum(counts) == 24
    assert counts[0] >= 6 * counts[1]  # the first of the other came early


def test_batches_of_equal_kernels_are_even() -> None:
    assert next(batches({"a": 40})) == [{"a": k} for k in range(6)]
    assert next(batches({"a": 3, "b": 3})) == [{"a": k, "b": k} for k in range(3)]


class Predicted(Runner):
    """A machine whose clock is the cost model, a second for a microsecond."""

    model: CostModel | None = None

    def seconds(self, number: int, rounds: int) -> float:
        return sum(self.profile(number, 0.0))

    def profile(self, number: int, slow: float) -> list[float]:
        program = self.programs[number]
        if self.model is None:
            return [1.0 for _ in walk(program.launches)]
        return [1e6 * self.model.kernel(program, each.kernel) for each in walk(program.launches)]


class Uneven(Runner):
    """One launch takes nearly all of the time."""

    def profile(self, number: int, slow: float) -> list[float]:
        super().profile(number, slow)
        sites = len([*walk(self.programs[number].launches)])
        return [0.9] + [0.1 / (sites - 1)] * (sites - 1)


def test_the_time_goes_to_slow_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a search that ends long before it has timed everything."""
    clock = Clock()
    for module in (search_log, search_strategy):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr("luminal.search.measure.PREDICTED_SLOW", float("inf"))
    runner = Uneven(lambda p: 1.0, clock=clock)
    strategy = make(layers(), tmp_path, runner, Builders(clock=clock), TimeBudget(3))
    names = [origin.name for origin in strategy.fast.candidate.stages.origins]
    sizes = [len(strategy.space.knobs(strategy.fast.candidate, k)) for k in range(len(names))]
    strategy.run()
    built: dict[str, set[str]] = {name: set() for name in names}
    for program in runner.programs:
        for name, kernel in zip(names, program.kernels, strict=False):
            built[name].add(to_text(kernel))
    slow, *rest = (len(built[name]) for name in names)
    assert slow < sizes[0]  # the time ended before
    assert slow >= 2 * max(rest)


def test_what_is_predicted_to_be_slow_is_not_built(tmp_path: Path) -> None:
    builders = Builders()
    strategy = make(products(), tmp_path, Runner(lambda p: 1.0), builders)
    space, fast = strategy.space, strategy.fast.candidate
    strategy.run()
    model = CostModel(strategy.measurements.dims, space.backend)
    (name,) = (origin.name for origin in fast.stages.origins)
    least = model.kernel(fast.program, 0)
    slow = quick = 0
    for knobs in space.knobs(fast, 0):
        variant = space.decode(Genome().with_tuned({name: knobs}))
        if model.kernel(variant.program, 0) > PREDICTED_SLOW * least:
            assert variant.stages.origins[0].text not in builders.requests
            slow += 1
        else:
            assert variant.stages.origins[0].text in builders.requests
            quick += 1
    assert slow > 3
    assert quick > 20
    (row,) = (row for row in strategy.log.rejected() if row.reason == "predicted to be slow")
    assert row.candidates >= slow


def products() -> lm.Graph:
    cx = lm.Graph()
    (cx.tensor((256, 192), name="a") @ cx.tensor((192, 224), name="b")).output("y")
    return cx


def window() -> lm.Graph:
    cx = lm.Graph()
    x, w = cx.tensor((1, 32, 20, 20), name="x"), cx.weight((32, 32, 3, 3), name="w")
    x.conv2d(w).output("y")
    return cx


def columns() -> lm.Graph:
    cx = lm.Graph()
    cx.tensor((300, 700), name="x").exp().sum(0).output("y")
    return cx


def test_gains_of_two_choices_add_up(tmp_path: Path) -> None:
    """On a machine that likes two, of which the space names no schedule with both."""
    strategy = make(products(), tmp_path, runner := Runner(lambda p: 2.0))
    space = strategy.space
    name = only_key(space)

    def text(knobs: Knobs) -> str:
        return to_text(space.decode(Genome().with_tuned({name: knobs})).program.kernels[0])

    known = space.knobs(strategy.fast.candidate, 0)
    known = tuple(knobs for knobs in known if not library_of(knobs))
    texts = {text(knobs) for knobs in known}
    single = {knobs[0][0]: knobs for knobs in reversed(known) if len(knobs) == 1}
    chunk, outer = single["chunk"], single["outer"]
    both = text(as_knobs(dict(chunk) | dict(outer)))
    assert both not in texts
    times = {text(chunk): 1.5, text(outer): 1.6, both: 1.0}
    runner.speed = lambda p: times.get(to_text(p.kernels[0]), 2.0)
    strategy.run()
    assert strategy.best.seconds == 1.0


ALL_CHOICES = (
    "vector", "rows", "tile", "pack", "outer", "columns", "chunk", "row_block", "streams",
    "store_streams", "lines", "width",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("graph", [products, columns, window])
def test_few_schedules_come_near_the_best_of_all(
    graph: Callable[[], lm.Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every combination of choices, on a machine whose clock is the cost model."""
    strategy = make(graph(), tmp_path, runner := Predicted(lambda p: 0.0))
    space, fast = strategy.space, strategy.fast.candidate
    model = runner.model = strategy.measurements.model
    kernel = max(range(len(fast.program.kernels)), key=lambda k: model.kernel(fast.program, k))
    name, steps, _ = fast.stages.origins[kernel]

    def seconds(knobs: Knobs) -> float:
        return model.kernel(space.decode(Genome().with_tuned({name: knobs})).program, kernel)

    list(strategy.tune())
    timed = {to_text(p.kernels[kernel]) for p in runner.programs}
    assert len(timed) <= MOST
    found = strategy.best.candidate.genome.knobs.get(name, ())
    monkeypatch.setattr(cpu_space, "MOST", 300)
    monkeypatch.setattr(cpu_space, "COMBINED", ALL_CHOICES)
    everything = space.backend.schedules.space(steps[0])
    assert len(everything) > len(space.knobs(fast, kernel))
    assert seconds(found) <= NEAR * min(map(seconds, everything))
