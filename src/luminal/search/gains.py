"""What the choices of a search's program gain: it is timed in turns with programs without them."""

from __future__ import annotations

import statistics
import time

import numpy as np

from luminal.runtime.report import Change, Dispatched
from luminal.search.differences import differences
from luminal.search.process import Lost, Refused
from luminal.search.space import Candidate
from luminal.search.strategy import Strategy, Timed

SHARE = 0.1  # of a search's time: what is not timed by then is told without a gain


def dispatches(strategy: Strategy, chosen: Timed) -> tuple[Dispatched, ...]:
    """The ways of giving the launches of a program to the device, its own first: each but the
    first is timed in turns with that. Nothing where there is one way.
    """
    space = strategy.space
    if len(space.dispatches) < 2:
        return ()
    now = chosen.candidate.genome.dispatch or space.dispatches[0]
    timed = [Dispatched(now, chosen.seconds)]
    for move in space.dispatched(chosen.candidate):
        ratio = _ratio(strategy, chosen, space.decode(move.of(chosen.candidate.genome)), move.note)
        if ratio is not None:
            # As far from the time above as the two were from each other: the machine has changed.
            way = move.choices[0][2] or space.dispatches[0]
            timed.append(Dispatched(way, ratio * chosen.seconds))
    return tuple(timed)


def changes(strategy: Strategy, chosen: Timed) -> tuple[Change, ...]:
    """The choices that make a program another one, each with what it gains beside the others."""
    genome = chosen.candidate.genome
    end = time.monotonic() + SHARE * strategy.log.seconds
    told: list[Change] = []
    for taken_back, text in differences(strategy.space, genome):
        without = strategy.space.decode(genome.with_choice(*taken_back))
        if without.text != chosen.candidate.text:
            is_late = bool(told) and time.monotonic() > end
            ratio = None if is_late else _ratio(strategy, chosen, without, f"without: {text}")
            told.append(Change(text, ratio))
    return tuple(told)


def _ratio(strategy: Strategy, chosen: Timed, other: Candidate, note: str) -> float | None:
    """How many times as long as the chosen program another one takes; None where it does not
    run.
    """
    strategy.measurements.build([other])
    if strategy.measurements.broken(other) is not None:
        return None
    number = strategy.runner.add(other.program)
    try:
        pairs = strategy.pairs(number, chosen)
    except (Lost, Refused) as error:
        strategy.log.reject(str(error), note)
        return None
    strategy.runner.drop(number)
    return float(statistics.median(np.divide(*pairs)))
