"""Schedules of pipelines: idle shares by formulas, what ranks keep, what the verifier refuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from luminal.base.errors import InputError
from luminal.distribute.pipeline.schedule import SCHEDULES, Orders, Piece, Schedule, schedule_of
from luminal.distribute.pipeline.search import found
from luminal.distribute.pipeline.simulate import simulated, verified
from luminal.distribute.pipeline.steps import Edges, Plan

FEW = ((1, 1), (2, 1), (2, 4), (3, 5), (4, 8), (16, 5))
ALL = [(ranks, count) for ranks in range(1, 17) for count in range(1, 65)]


def idle(name: str, ranks: int, stages: int, microbatches: int) -> float:
    """The share of time without work where F, I and W take equally long."""
    chunks = stages // ranks
    if name == "zero_bubble":
        # Where there are fewer microbatches than ranks the last one's way there and back, and the W
        # pieces that are left behind it, bound the step.
        seconds = max(3 * microbatches + ranks - 1, 2 * ranks + 2 * microbatches - 1)
        return 1 - 3 * microbatches / seconds
    return (ranks - 1) / (chunks * microbatches + ranks - 1)


def check_formulas(pairs: Iterable[tuple[int, int]]) -> None:
    for ranks, count in pairs:
        for name in SCHEDULES:
            for chunks in (1, 2, 3) if name == "interleaved" else (1,):
                if name == "interleaved" and count % ranks:
                    continue
                stages = chunks * ranks
                timeline = verified(Plan.of(schedule_of(name, ranks, stages, count)))
                assert round(timeline.idle - idle(name, ranks, stages, count), 9) == 0
                if name in ("1f1b", "zero_bubble"):
                    assert max(timeline.at_most) <= min(ranks, count), (name, ranks, count)


def test_idle_shares_are_those_of_the_formulas() -> None:
    check_formulas(FEW)


@pytest.mark.long
def test_idle_shares_are_those_of_the_formulas_up_to_16_ranks_and_64_microbatches() -> None:
    check_formulas(ALL)


def test_gpipe_keeps_all_microbatches_and_1f1b_as_many_as_ranks() -> None:
    kept = {
        name: simulated(Plan.of(schedule_of(name, 4, 4, 9))).at_most
        for name in ("gpipe", "1f1b", "zero_bubble")
    }
    assert kept["gpipe"] == (9, 9, 9, 9)
    assert kept["1f1b"] == (4, 3, 2, 1)
    assert kept["zero_bubble"] == (4, 4, 4, 4)


def test_what_a_search_finds_is_no_slower_and_within_its_limit() -> None:
    seconds = {"F": 1.0, "I": 1.3, "W": 0.8}
    named = [
        simulated(Plan.of(schedule_of(name, 4, 4, 8)), seconds, 0.1).seconds
        for name in ("gpipe", "1f1b", "zero_bubble")
    ]
    free = simulated(Plan.of(found(4, 4, 8, seconds, 0.1)), seconds, 0.1)
    tight = simulated(Plan.of(found(4, 4, 8, seconds, 0.1, live=4)), seconds, 0.1)
    assert free.seconds < 0.95 * min(named)
    assert tight.seconds <= min(named)
    assert max(tight.at_most) <= 4 < max(free.at_most)
    with pytest.raises(
        InputError, match=r"live=1 leaves no order of 4 stages on 2 ranks.*at least 2"
    ):
        found(2, 4, 4, live=1)


def mine(*orders: str) -> Schedule:
    """A schedule of two ranks from text: "F0.1" is F of stage 0 of microbatch 1."""
    made: Orders = tuple(
        tuple(
            Piece(word[0], int(word[1:].split(".")[0]), int(f"{word}.0".split(".")[1]))  # type: ignore[arg-type]
            for word in order.split()
        )
        for order in orders
    )
    return Schedule("mine", 2, 2, made)


GOOD = ("F0.0 F0.1 B0.0 B0.1 U0", "F1.0 B1.0 F1.1 B1.1 U1")


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        (("F0.0 B0.0 F0.1 B0.1 U0", "F1.0 F1.1 B1.0 B1.1 U1"),
         "rank 0 waits for the gradients of stage 1 for stage 0, microbatch 0, which rank 1 sends; "
         "rank 1 waits for the values of stage 0 for stage 1, microbatch 1, which rank 0 sends"),
        (("F0.1 F0.0 B0.0 B0.1 U0", GOOD[1]),
         "rank 0 runs F of stage 0 of microbatch 0 behind that of microbatch 1"),
        (("F0.0 F0.1 B0.0 U0", GOOD[1]), "I of stage 0 of microbatch 1 never runs"),
        ((GOOD[0], "F1.0 B1.0 F1.1 B1.1 B1.1 U1"), "I of stage 1 of microbatch 1 runs 2 times"),
        (("F0.0 F1.1 B0.0 B0.1 U0", GOOD[1]), "rank 0 runs F of stage 1.*lies on rank 1"),
        (("F0.0 F0.1 B0.0 B0.1 U0", "B1.0 F1.0 F1.1 B1.1 U1"),
         "rank 1 waits with B of stage 1 of microbatch 0 for F of stage 1 of microbatch 0, which "
         "comes later on rank 1"),
        (("F0.0 F0.1 I0.0 W0.0 W0.1 I0.1 U0", GOOD[1]),
         "rank 0 waits with W of stage 0 of microbatch 1 for I of stage 0 of microbatch 1"),
        (("F0.0 F0.1 B0.0 U0 B0.1", GOOD[1]),
         "rank 0 waits with U of stage 0 for W of stage 0 of microbatch 1"),
    ],
)  # fmt: skip
def test_the_verifier_refuses(orders: tuple[str, str], words: str) -> None:
    verified(Plan.of(mine(*GOOD)))
    with pytest.raises(InputError, match=words):
        verified(Plan.of(mine(*orders)))


def test_a_message_that_is_not_sent_or_waited_for_is_refused() -> None:
    plan = Plan.of(mine(*GOOD))
    for rank, action, words in (
        (
            0,
            "send",
            "rank 0 sends the values of stage 0 for stage 1, microbatch 0 never, and rank 1",
        ),
        (
            1,
            "receive",
            "rank 0 sends the values .* microbatch 0 once, and rank 1 waits for it never",
        ),
    ):
        (number, *_) = (k for k, step in enumerate(plan.steps[rank]) if step.action == action)
        steps = [*plan.steps]
        steps[rank] = steps[rank][:number] + steps[rank][number + 1 :]
        with pytest.raises(InputError, match=words):
            verified(replace(plan, steps=tuple(steps)))


def test_sends_that_block_make_1f1b_wait_for_ever() -> None:
    for name in ("gpipe", "1f1b"):
        plan = Plan.of(schedule_of(name, 2, 2, 4))
        verified(plan)
        if name == "gpipe":
            assert round(verified(plan, blocking=True).idle, 9) == 0.2
            continue
        with pytest.raises(
            InputError,
            match="rank 0 waits until rank 1 takes the values of stage 0 for stage 1, microbatch 1;"
            " rank 1 waits until rank 0 takes the gradients of stage 1 for stage 0, microbatch 0",
        ):
            verified(plan, blocking=True)


def test_skips_make_stages_wait_for_ever_if_nothing_is_sent_along_them() -> None:
    edges = Edges.of([("F", 0, 1), ("F", 1, 2), ("F", 0, 2), ("I", 2, 1), ("I", 1, 0)])
    plan = Plan.of(schedule_of("1f1b", 3, 3, 3), edges)
    assert sum(step.action == "send" for step in plan.steps[0]) == 6
    verified(plan)
    without = Plan.of(plan.schedule)
    with pytest.raises(InputError, match="rank 0 sends the values of stage 0 for stage 2"):
        verified(replace(plan, steps=without.steps))


def test_numbers_that_no_schedule_has() -> None:
    for arguments, words in (
        (("1f1", 2, 2, 4), "schedule '1f1': the schedules are gpipe, 1f1b.*did you mean '1f1b'"),
        (("1f1b", 2, 4, 4), "4 stages on 2 ranks; give as many stages as ranks"),
        (("gpipe", 2, 3, 4), "3 stages do not divide by 2 ranks; give 4"),
        (("interleaved", 4, 8, 6), "6 microbatches do not divide by the 4 ranks; give 8"),
        (("gpipe", 2, 2, 0), "microbatches is 0"),
    ):
        with pytest.raises(InputError, match=words):
            schedule_of(*arguments)
