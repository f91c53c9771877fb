"""Drawn cases against PyTorch: right values, and how fast in kinds that no table lists.

`python -m bench fuzz` is the command (`command.py`); `rows` is the short share of `bench-check`.
"""

from __future__ import annotations

import statistics

from bench.fuzz.draw import drawn
from bench.fuzz.kinds import LONG_SECONDS, again, share
from bench.fuzz.measure import run
from bench.row import Row, Rows

SEED = 36  # always the same cases: thresholds are of them
CASES = 120


def rows() -> Rows:
    """The mean, the share that is slower than eager PyTorch, the slowest.

    Raises AssertionError where a value is wrong.
    """
    timed = []
    for number in range(CASES):
        outcome = run(drawn(SEED, number))
        if outcome.wrong:
            raise AssertionError(f"fuzz {again(outcome.case)}: {outcome.wrong}")
        if outcome.seconds:
            timed.append(outcome)
    ratios = [each.ratio for each in timed]
    long = [each for each in timed if each.seconds["eager"] >= LONG_SECONDS]
    spread = (min(ratios), max(ratios))
    mean = statistics.geometric_mean(ratios)
    yield Row("fuzz: drawn cases", mean, 2.3, "x", spread, f"geometric mean of {len(ratios)}")
    yield Row("fuzz: slower than eager", share(ratios, 1.0), 8, "%", spread)
    for name, target, cases in (("50 us or more", 0.6, long), ("all", 0.4, timed)):
        worst = min(cases, key=lambda each: each.ratio)
        detail = f"{worst.case.id}: {worst.case}"
        yield Row(f"fuzz: the slowest of {name}", worst.ratio, target, "x", spread, detail)
