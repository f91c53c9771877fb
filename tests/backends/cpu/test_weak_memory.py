"""The small programs by which memory models are told apart, on the machine of `weak_memory`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.backends.cpu.weak_memory import BrokenRuleError, Events, Memory

Step = Callable[[Memory, int, Events], Iterator[tuple[int | None, Memory]]]
"""What a thread does: what it saw, and the memory after it."""


def load(word: int, order: str) -> Step:
    return lambda memory, thread, _: iter(memory.loads(thread, word, order))


def store(word: int, value: int, order: str) -> Step:
    return lambda memory, thread, _: iter([(None, memory.store(thread, word, value, order))])


def swap(word: int, value: int, order: str) -> Step:
    return lambda memory, thread, _: iter([(None, memory.update(thread, word, value, order))])


def fence(memory: Memory, thread: int, events: Events) -> Iterator[tuple[None, Memory]]:
    after = memory.copy()
    after.fence(thread)
    yield None, after


def touch(kind: str) -> Step:
    def touched(memory: Memory, thread: int, events: Events) -> Iterator[tuple[None, Memory]]:
        after = memory.copy()
        (after.write if kind == "write" else after.read)(thread, "data", events)
        yield None, after

    return touched


def seen(*threads: list[Step]) -> set[tuple[int, ...]]:
    """What the loads of all threads may give together, over all orders of their steps."""
    events, results = Events(), set()
    memory = Memory.fresh([0, 0], len(threads))
    open_states: list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...], Memory]]
    open_states = [((0,) * len(threads), ((),) * len(threads), memory)]
    while open_states:
        places, values, memory = open_states.pop()
        if all(place == len(steps) for place, steps in zip(places, threads, strict=True)):
            results.add(sum(values, ()))
        for k, steps in enumerate(threads):
            if places[k] == len(steps):
                continue
            on = (*places[:k], places[k] + 1, *places[k + 1 :])
            for value, after in steps[places[k]](memory, k, events):
                more = list(values)
                more[k] += () if value is None else (value,)
                open_states.append((on, tuple(more), after))
    return results


@pytest.mark.parametrize(
    ("release", "acquire", "stale"),
    [
        ("release", "acquire", False),
        ("monotonic", "acquire", True),
        ("release", "monotonic", True),
        ("seq_cst", "seq_cst", False),
    ],
)
def test_a_message_brings_what_was_stored_before_it(
    release: str, acquire: str, stale: bool
) -> None:
    sender = [store(0, 1, "monotonic"), store(1, 1, release)]
    reader = [load(1, acquire), load(0, "monotonic")]
    assert ((1, 0) in seen(sender, reader)) == stale
    assert seen(sender, reader) >= {(0, 0), (0, 1), (1, 1)}


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("seq_cst", "seq_cst", False),
        ("seq_cst", "acquire", True),
        ("acq_rel", "seq_cst", True),
        ("acq_rel", "acquire", True),
    ],
)
def test_of_two_that_store_and_look_one_sees_the_other(one: str, other: str, both: bool) -> None:
    first = [swap(0, 1, one), load(1, other)]
    second = [swap(1, 1, one), load(0, other)]
    assert ((0, 0) in seen(first, second)) == both


def test_a_fence_is_as_good_as_an_order_among_all() -> None:
    """What a sleeper does beside what a waker does."""
    sleeper = [swap(0, 1, "monotonic"), fence, load(1, "monotonic")]
    waker = [swap(1, 1, "seq_cst"), load(0, "seq_cst")]
    assert (0, 0) not in seen(sleeper, waker)
    assert (0, 0) in seen(sleeper, [swap(1, 1, "acq_rel"), load(0, "seq_cst")])


def test_values_of_a_word_are_seen_in_one_order() -> None:
    writer = [store(0, 1, "monotonic"), store(0, 2, "monotonic")]
    reader = [load(0, "monotonic"), load(0, "monotonic")]
    assert seen(writer, reader) == {(x, y) for x in range(3) for y in range(x, 3)}


def test_an_update_passes_on_what_a_release_sent() -> None:
    sender = [store(0, 1, "monotonic"), swap(1, 1, "release")]
    reader = [load(1, "acquire"), load(0, "monotonic")]
    assert (2, 0) in seen(sender, [swap(1, 2, "monotonic")], reader)  # before the release
    passed = [load(1, "monotonic"), swap(1, 2, "monotonic")]
    results = seen(sender, passed, reader)
    assert (1, 2, 0) not in results
    assert (1, 2, 1) in results


@pytest.mark.parametrize("kinds", [("write", "read"), ("read", "write"), ("write", "write")])
@pytest.mark.parametrize("order", ["release", "monotonic"])
def test_plain_data_needs_a_message(kinds: tuple[str, str], order: str) -> None:
    first = [touch(kinds[0]), swap(0, 1, order)]

    def if_told(memory: Memory, thread: int, events: Events) -> Iterator[tuple[int | None, Memory]]:
        for value, after in memory.loads(thread, 0, "acquire"):
            yield from touch(kinds[1])(after, thread, events) if value else [(None, after)]

    if order == "release":
        assert seen(first, [if_told]) == {()}
    else:
        with pytest.raises(BrokenRuleError, match="a race"):
            seen(first, [if_told])
