"""How a device is given launches, as a choice of a search: tried, kept, told, or forced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import luminal as lm
from luminal.base import config
from luminal.program import launch_text
from luminal.program.launch_list import Program, kernel_launches
from luminal.search import gains
from luminal.search.genome import Genome
from luminal.search.space import Space
from tests.machines import usual
from tests.unit.search.invented_machine import Runner, make, rows

WAYS = ("graph", "list", "one")
DEVICE = replace(usual(), dispatches=WAYS)


def test_the_fastest_way_is_found_and_what_others_took_is_told(tmp_path: Path) -> None:
    """On a machine where one kernel hides a launch, and a list starts each by itself."""
    taken = {None: 4.0, "graph": 4.0, "list": 9.0, "one": 3.0}

    def speed(program: Program) -> float:
        return taken[program.dispatch] + len([*kernel_launches(program.launches)])

    strategy = make(rows(), tmp_path, Runner(speed), backend=DEVICE)
    strategy.run()
    best = strategy.best
    assert best.candidate.genome.dispatch == best.candidate.program.dispatch == "one"
    assert "\n  dispatch one\n" in launch_text.to_text(best.candidate.program)
    launches = best.seconds - taken["one"]
    told = [(row.dispatch, row.seconds - launches) for row in gains.dispatches(strategy, best)]
    assert told == [("one", 3.0), ("graph", 4.0), ("list", 9.0)]


def test_a_way_that_cannot_run_is_left_out(tmp_path: Path) -> None:
    runner = Runner(lambda p: 1.0, hangs=lambda program: program.dispatch == "one")
    strategy = make(rows(), tmp_path, runner, backend=DEVICE)
    strategy.run()
    assert strategy.best is strategy.fast
    assert [row.dispatch for row in gains.dispatches(strategy, strategy.best)] == ["graph", "list"]


def ways(space: Space) -> set[str | None]:
    """The ways in which the space's moves give the fast program's launches."""
    moves = space.moves(space.decode(Genome()))
    changes = (choice for move in moves for choice in move.choices)
    return {value for kind, _, value in changes if kind == "dispatch"}


def test_a_way_that_is_forced_is_no_choice() -> None:
    graph = rows().graph()
    space = Space(graph, DEVICE)
    assert ways(space) == {"list", "one"}
    assert ways(Space(graph, usual())) == set()
    forced = Space(graph, DEVICE, dispatch="list")
    assert ways(forced) == set()
    for genome in (Genome(), Genome(dispatch="one")):
        assert forced.decode(genome).program.dispatch == "list"
    with config.override(LUMINAL_DISPATCH="one"):
        assert ways(space) == set()


def test_a_way_that_means_nothing_here_is_passed_over() -> None:
    space = Space(rows().graph(), DEVICE)
    assert space.decode(Genome(dispatch="by post")).text == space.decode(Genome()).text
    assert space.decode(Genome(dispatch="one")).text != space.decode(Genome()).text


@pytest.mark.long
def test_a_search_keeps_and_tells_the_way(tmp_path: Path) -> None:
    options = lm.SearchOptions(stop_below_us=0, max_candidates=2, workers=1, progress=False)
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        first, second = (
            lm.compile(rows(), "interpreted", mode="optimal", search=options).report()
            for _ in range(2)
        )
    assert first.search is not None
    assert second.search is not None
    assert second.search.from_database
    assert second.search.dispatches == first.search.dispatches
    assert {row.dispatch for row in first.search.dispatches} == {"graph", "list"}
    assert first.dispatch == second.dispatch == first.search.dispatches[0].dispatch
