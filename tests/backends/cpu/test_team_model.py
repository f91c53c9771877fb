"""Every interleaving of small runs on a team: chunks once and in order, nobody sleeps for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends.cpu.team_model import Launch, Setting, explore
from tests.backends.cpu.weak_memory import BrokenRuleError
from tests.long_share import long_but

CHAIN = (Launch(2), Launch(2))
LOOSE = (Launch(2), Launch(1, barrier=False), Launch(1))
SERIAL = (Launch(1), Launch(1, barrier=False, serial=True), Launch(2, barrier=False), Launch(1))

SETTINGS = {
    "chain": Setting(CHAIN, runs=2),
    "without a barrier": Setting(LOOSE, runs=2),
    "serial": Setting(SERIAL, runs=2),
    "two workers": Setting((Launch(2),), workers=2),
    "two callers": Setting((Launch(1),), callers=2),
    "absent": Setting(CHAIN, runs=2, absent=True),
}


@pytest.mark.parametrize("name", long_but(SETTINGS, SETTINGS.keys() - {"two workers"}))
def test_no_order_of_actions_breaks_a_rule(name: str) -> None:
    assert explore(SETTINGS[name]) > 100


@pytest.mark.parametrize(
    ("bug", "setting"),
    [
        ("no barrier", "chain"),
        ("only its own share", "absent"),
        ("claims without comparing", "chain"),
        ("takes what is in", "chain"),
        ("steps in unasked", "chain"),
        ("serial launches are peeked at", "serial"),
        ("sleeps uncounted", "chain"),
        ("no wake of DONE_SLEEPERS", "chain"),
        ("no wake of JOIN_SLEEPERS", "chain"),
    ],
)
def test_planted_bugs_are_found(bug: str, setting: str) -> None:
    with pytest.raises(BrokenRuleError):
        explore(replace(SETTINGS[setting], bug=bug))
