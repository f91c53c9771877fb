"""The team's code where memory has a weak order: nothing is missing; what is needed is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends.cpu.team_machine import explore
from tests.backends.cpu.team_setting import Launch, Setting, module
from tests.backends.cpu.weak_memory import BrokenRuleError
from tests.long_share import long_but

ONE = (Launch(1),)
SETTINGS = {
    "one chunk": Setting(ONE),
    "serial": Setting((Launch(1), Launch(1, serial=True))),
    "timed": Setting(ONE, timed=True),
    "only who is awake": Setting(ONE, wakes=False),
    "two runs": Setting(ONE, runs=2),
    "two launches": Setting((Launch(1), Launch(1))),
    "no barrier": Setting((Launch(2), Launch(1, barrier=False))),
    "first use": Setting(ONE, grows=True),
    "two callers": Setting((), callers=2),
}
# Too many states to try them all: a bug is found early.
LARGE = {
    "two callers, awake": Setting((), callers=2, wakes=False),
    "two callers, first use": Setting((), callers=2, grows=True),
}


@pytest.mark.parametrize("name", long_but(SETTINGS, {"one chunk"}))
def test_no_order_of_accesses_breaks_a_rule(name: str) -> None:
    assert explore(SETTINGS[name]) > 500


# An access, a weaker order, the setting that shows what is missing then, and what that is.
MISSING = [
    ("wake.count", "acquire", "one chunk", "nobody can act"),
    ("step_out.before", "acq_rel", "one chunk", "nobody can act"),
    ("report.before", "acq_rel", "one chunk", "nobody can act"),
    ("run_shared.before", "acquire", "one chunk", "a race"),
    ("run_shared.swap", "monotonic", "two callers", "a race"),
    ("run_shared.store state", "monotonic", "two callers, awake", "a race"),
    ("grow.claim", "monotonic", "two callers, first use", "a race"),
]


@pytest.mark.parametrize(("site", "order", "setting", "broken"), MISSING)
def test_an_order_that_is_missing_is_found(
    site: str, order: str, setting: str, broken: str
) -> None:
    assert module().sites[site][1] != order
    with pytest.raises(BrokenRuleError, match=broken):
        explore(replace((SETTINGS | LARGE)[setting], orders={site: order}))


# The weakest orders that suffice together for one caller; what two callers and the first use need
# beside these (whoever leases, returns or starts a worker) stands in MISSING. The code is stronger
# where one of two suffices (an offer is seen by a load, then taken by a swap), where a later access
# of the same word acquires (who peeks whether a launch is done, or steps in again), and around
# sleeping, which is a fence of Linux and need not be one of other systems. It costs nothing: such
# an access is one instruction on AArch64 either way.
WEAKEST = {
    "linger.before": "monotonic",
    "linger.after": "monotonic",
    "wake.count": "seq_cst",
    "step_out.before": "seq_cst",
    "meet.done.first": "acquire",
    "meet.done": "acquire",
    "meet.swap": "monotonic",
    "join_timed.before": "seq_cst",
    "gather.entered": "monotonic",
    "report.before": "seq_cst",
    "walk.done": "monotonic",
    "worker.state": "monotonic",
    "worker.swap": "acquire",
    "run_shared.before": "seq_cst",
    "release.state": "monotonic",
    "release.swap": "acquire",
}
ENOUGH = ["serial", "timed", "only who is awake", "two runs", "two launches"]
BELOW = {"seq_cst": ["acq_rel", "acquire", "release"], "acquire": ["monotonic"], "monotonic": []}


def explore_enough(orders: dict[str, str]) -> None:
    for name in ENOUGH:
        explore(replace(SETTINGS[name], orders=orders))


@pytest.mark.long
@pytest.mark.parametrize("name", ENOUGH)
def test_the_weakest_orders_suffice(name: str) -> None:
    assert explore(replace(SETTINGS[name], orders=WEAKEST)) > 500


@pytest.mark.long
@pytest.mark.parametrize(
    ("site", "order"), [(site, order) for site, least in WEAKEST.items() for order in BELOW[least]]
)
def test_no_weaker_order_suffices(site: str, order: str) -> None:
    if module().sites[site][0] == "load" and order != "monotonic":
        order = "acquire"
    with pytest.raises(BrokenRuleError):
        explore_enough({**WEAKEST, site: order})


def test_who_enters_a_run_fetches_its_code_anew() -> None:
    """Code may lie where other code lay that this processor has fetched already."""
    first, *_ = module().functions["walk"].blocks["entry"]
    assert first.args[0] == "@llvm.aarch64.isb"
