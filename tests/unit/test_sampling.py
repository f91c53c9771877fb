"""Choosing the next token: which ones may be drawn, and how often."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from luminal.errors import InputError
from luminal.models.sampling import Sampler

LOGITS = np.log([1.0, 4.0, 2.0, 1.0])  # probabilities 1/8, 1/2, 1/4, 1/8: exact in binary
DRAWS = 1000


def shares(sampler: Sampler, logits: np.ndarray = LOGITS, draws: int = DRAWS) -> dict[int, float]:
    """How often each token was drawn."""
    rng = np.random.default_rng(0)
    drawn = [sampler.choose(logits, rng) for _ in range(draws)]
    return {token: drawn.count(token) / draws for token in sorted(set(drawn))}


def near(found: dict[int, float], expected: dict[int, float]) -> bool:
    """Four standard deviations of a share over DRAWS draws."""
    return found.keys() == expected.keys() and all(
        abs(found[t] - p) <= 4 * math.sqrt(p * (1 - p) / DRAWS) for t, p in expected.items()
    )


def test_without_temperature_the_likeliest_is_taken() -> None:
    assert shares(Sampler(), draws=20) == {1: 1.0}
    assert shares(Sampler(), np.array([0.0, 7.0, 7.0]), 20) == {1: 1.0}  # the first of equals


def test_the_temperature_flattens() -> None:
    assert near(shares(Sampler(temperature=1.0)), {0: 1 / 8, 1: 1 / 2, 2: 1 / 4, 3: 1 / 8})
    weights = np.exp(LOGITS / 2)
    assert near(shares(Sampler(temperature=2.0)), dict(enumerate(weights / weights.sum())))


def test_top_k_keeps_the_k_likeliest() -> None:
    assert near(shares(Sampler(1.0, top_k=2)), {1: 2 / 3, 2: 1 / 3})
    assert near(shares(Sampler(1.0, top_k=3)), {0: 1 / 7, 1: 4 / 7, 2: 2 / 7})  # first of equals
    assert shares(Sampler(1.0, top_k=1)) == {1: 1.0}
    assert shares(Sampler(1.0, top_k=9)).keys() == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [
        (0.01, {1: 1.0}),
        (0.5, {1: 1.0}),  # one token reaches it
        (0.51, {1: 2 / 3, 2: 1 / 3}),
        (0.75, {1: 2 / 3, 2: 1 / 3}),
        (0.76, {0: 1 / 7, 1: 4 / 7, 2: 2 / 7}),
        (0.875, {0: 1 / 7, 1: 4 / 7, 2: 2 / 7}),
        (0.88, {0: 1 / 8, 1: 1 / 2, 2: 1 / 4, 3: 1 / 8}),
        (1.0, {0: 1 / 8, 1: 1 / 2, 2: 1 / 4, 3: 1 / 8}),
    ],
)
def test_top_p_keeps_the_fewest_that_reach_it(top_p: float, expected: dict[int, float]) -> None:
    assert near(shares(Sampler(1.0, top_p=top_p)), expected)


def test_top_p_counts_what_top_k_has_left() -> None:
    # Of 2/3 and 1/3 the first one reaches 0.6, which is more than its 1/2 of all.
    assert shares(Sampler(1.0, top_k=2, top_p=0.6)) == {1: 1.0}


def test_large_logits_do_not_overflow() -> None:
    assert near(
        shares(Sampler(1.0), 1e4 + LOGITS.astype(np.float32)),
        {0: 1 / 8, 1: 1 / 2, 2: 1 / 4, 3: 1 / 8},
    )


def test_half_precision_is_widened() -> None:
    logits = np.array([0.0, 11.0, 11.0], np.float16)
    assert shares(Sampler(1.0), logits).keys() == {1, 2}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"temperature": -1.0}, "temperature: -1.0 is not 0 or above"),
        ({"temperature": math.nan}, "temperature: nan is not 0 or above"),
        ({"temperature": None}, "temperature: None is not 0 or above"),
        ({"temperature": "hot"}, "temperature: 'hot' is not 0 or above"),
        ({"top_k": 0}, "top_k: 0 is not 1 or above"),
        ({"top_k": 1.5}, "top_k: 1.5 is no int; leave it out"),
        ({"top_p": None}, "top_p: None is not above 0"),
        ({"top_p": 0.0}, "top_p: 0.0 is not above 0"),
        ({"top_p": 1.5}, "top_p: 1.5 is not above 0 and at most 1"),
        ({"top_p": math.nan}, "top_p: nan is not above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Sampler(**options)


def test_the_ends_are_allowed() -> None:
    assert Sampler(temperature=0.0, top_k=1, top_p=1.0).top_k == 1
