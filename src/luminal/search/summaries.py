"""What is told of a search that timed nothing, or that an earlier one decided; and what is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace

from luminal.base.origins import described
from luminal.runtime.report import Dispatched, SearchSummary, search_facts, search_of
from luminal.search import database
from luminal.search.database import Decision, Searched
from luminal.search.genome import Genome
from luminal.search.options import CompilationMode, SearchOptions
from luminal.search.space import Space

MOST_NOTED = 200  # trials of a search that are kept: those that gained, and the first others


def untimed(mode: CompilationMode, options: SearchOptions, decision: str) -> SearchSummary:
    """The summary of a search that timed nothing, not even `fast`."""
    return SearchSummary(
        mode=str(mode),
        seed=options.seed,
        candidates=0,
        kernels_built=0,
        rejected=(),
        history=(),
        fast_seconds=0.0,
        best_seconds=0.0,
        decision=decision,
        genome=Genome().to_json(),
    )


def repeated(
    mode: CompilationMode, options: SearchOptions, decision: str, key: str, earlier: Decision
) -> SearchSummary:
    """The summary of a search that an earlier one decided: with what that one tried, as far as
    this is known.
    """
    return replace(
        _remembered(key, earlier) or untimed(mode, options, decision),
        mode=str(mode),
        fast_seconds=earlier.fast_seconds,
        best_seconds=earlier.best_seconds,
        decision=decision,
        from_database=True,
        dispatches=dispatches_of(earlier),
        genome=earlier.genome,
    )


def _remembered(key: str, decision: Decision) -> SearchSummary | None:
    """What the search that made a decision did; None where no database has it."""
    for searched in database.default().searches(key):
        try:
            summary = search_of(searched.facts)
        except (KeyError, TypeError, AttributeError):  # of another version
            continue
        if summary.genome == decision.genome and not summary.interrupted:
            return summary
    return None


def note(
    space: Space, dims: Mapping[str, int], key: str, title: str, summary: SearchSummary
) -> None:
    """Keeps what a search did, for those who look at searches, and for those that it decides."""
    backend, first = space.backend, sorted(summary.trials, key=lambda row: row.outcome != "kept")
    trials = tuple(sorted(first[:MOST_NOTED], key=lambda row: row.seconds))
    facts = {
        "title": title,
        "of": described(node.recorded for node in space.graph.nodes()),
        "machine": f"{backend.name}: {backend.hardware}",
        "dims": dict(dims),
        **search_facts(replace(summary, trials=trials)),
    }
    database.default().add_search(Searched(key, time.time(), facts))


def dispatches_of(decision: Decision) -> tuple[Dispatched, ...]:
    """What each way of giving a decision's launches to the device took."""
    return tuple(Dispatched(*row) for row in json.loads(decision.dispatches))
