"""The scheduler on a machine that keeps, for every place of the cache, the text it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.base.errors import InputError
from luminal.models.seen import Images, Span
from luminal.serve.blocks import BlockPool
from luminal.serve.scheduler import Row, Scheduler, Step, Text

END = 3


def next_token(tokens: Sequence[int]) -> int:
    """What the machine's model says: a function of the whole text."""
    return hash(tuple(tokens)) % 4


def alone(text: Text) -> list[int]:
    """The same text on a machine of its own."""
    tokens = text.tokens[: text.prompt]
    while len(tokens) < text.limit and not (len(tokens) > text.prompt and tokens[-1] in text.ends):
        tokens.append(next_token(tokens))
    return tokens


def computed(tokens: Sequence[int], prompt: int, position: int) -> tuple[int, ...]:
    """All tokens up to a position, those that are run one at a time as `~token`."""
    reached = enumerate(tokens[: position + 1])
    return tuple(token if place < prompt else ~token for place, token in reached)


def with_proposed(step: Step) -> list[list[int]]:
    """The tokens that each row is computed with: those of its text, and what is proposed."""
    found: list[list[int]] = []
    for row in step.rows:
        before = row.text.tokens if row.proposed is None else found[-1]
        found.append([*before, *([] if row.proposed is None else [row.proposed])])
    return found


class Machine:
    """Runs steps; a place of the cache holds all tokens up to its own, and how they were run."""

    def __init__(
        self,
        blocks: int = 8,
        size: int = 2,
        rows: int = 3,
        pieces: int = 3,
        piece: int = 1,
        drafted: int = 0,
    ) -> None:
        self.drafted = drafted  # tokens that are proposed, of which each third is wrong
        self.accepted = 0
        self.pool = BlockPool(blocks, size)
        self.scheduler = Scheduler(self.pool, rows, pieces, piece)
        self.memory: dict[tuple[int, int], tuple[int, ...]] = {}
        self.computed = 0
        self.plans: list[Any] = []

    def run(self, step: Step) -> list[int]:
        """Writes and reads as attention does; the chosen tokens."""
        size = self.pool.size
        copied = [
            (new, place, self.memory.get((old, place)))
            for old, new in step.copies
            for place in range(size)
        ]
        for new, place, held in copied:
            self.memory[new, place] = held or ()
        written = []
        texts = with_proposed(step)
        for row, tokens in zip(step.rows, texts, strict=True):
            for position in range(row.start, row.start + row.count):
                where = row.text.blocks[position // size], position % size
                written.append(where)
                before = computed(tokens, row.text.prompt, position)[:-1]
                token = tokens[position]
                self.memory[where] = (*before, token if row in step.chunks else ~token)
                self.computed += 1
        assert len(set(written)) == len(written), "two texts write to one place"
        for row, tokens in zip(step.rows, texts, strict=True):
            for position in range(row.start + row.count):
                held = self.memory[row.text.blocks[position // size], position % size]
                assert held == computed(tokens, row.text.prompt, position)
        return [next_token(tokens) for tokens in texts]

    def propose(self, step: Step) -> Step:
        """The step with guesses, of which each third is wrong."""
        proposals: dict[Text, list[int]] = {}
        for text, room in self.scheduler.room(step, self.drafted).items():
            tokens = list(text.tokens)
            while len(tokens) < len(text.tokens) + room:
                right = next_token(tokens)
                tokens.append(right if len(tokens) % 3 else (right + 1) % 4)
            proposals[text] = tokens[len(text.tokens) :]
        return self.scheduler.proposed(step, proposals)

    def step(self) -> Step | None:
        """One step, if there is one."""
        step = self.scheduler.step()
        if step is not None:
            step = self.propose(step)
            self.plans.append(
                (
                    [
                        (row.text.number, row.start, row.count, *row.text.blocks)
                        for row in step.rows
                    ],
                    step.copies,
                )
            )
            assert len(step.decodes) <= self.scheduler.max_rows
            following = {row.text for row in step.rows if row.text.follows}
            assert len(following) <= self.scheduler.followers
            own = [row for row in step.rows if row.proposed is None]
            assert sum(row.text.further for row in own) <= self.scheduler.further
            pieces = sum(len(row.pieces(self.scheduler.piece)) for row in step.chunks)
            assert pieces <= self.scheduler.pieces
            assert all(row.start + row.count < row.text.limit for row in step.rows)
            taken = self.scheduler.done(step, self.run(step))
            assert len(taken) == len(step.rows)
            own = [row.proposed is not None for row in step.rows]
            self.accepted += sum(mine and row for mine, row in zip(own, taken, strict=True))
        return step

    def steps_until_done(self, texts: Sequence[Text]) -> int:
        """Steps until these have ended, whatever others do; how many it took."""
        steps = 0
        while any(text.finish is None for text in texts):
            self.step()
            steps += 1
        return steps

    def finish(self, texts: Sequence[Text]) -> None:
        """Steps until all have ended, which they must in time."""
        steps = 0
        while any(text.finish is None for text in texts):
            assert self.step() is not None, "texts wait, and nothing runs"
            steps += 1
            assert steps <= 40 * sum(text.limit for text in texts), "somebody starves"
        assert self.step() is None
        assert self.pool.free == self.pool.count, "blocks leaked"


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 6),  # steps before it arrives
        st.lists(st.integers(0, 1), min_size=1, max_size=9),
        st.integers(1, 7),  # new tokens
        st.integers(1, 3),  # texts of this prompt
        st.one_of(st.none(), st.integers(0, 12)),  # steps after which it is cancelled
        st.booleans(),  # it follows a matcher
    ),
    min_size=1,
    max_size=7,
)


def served(machine: Machine, requests: list[Any]) -> list[Text]:
    """All texts of the requests, ended."""
    texts: list[Text] = []
    leaving: list[tuple[int, Text]] = []
    for wait, prompt, new, count, patience, follows in requests:
        for _ in range(wait):
            machine.step()
            leaving = [(steps - 1, text) for steps, text in leaving]
            for steps, text in leaving:
                if steps < 0:
                    machine.scheduler.cancel(text)
        sibling = None
        for _ in range(count):
            text = Text(
                list(prompt),
                len(prompt) + new,
                frozenset([END]),
                sibling,
                follows,
                sibling is not None,
            )
            machine.scheduler.add(text)
            sibling = sibling or text
            texts.append(text)
            if patience is not None:
                leaving.append((patience, text))
    machine.finish(texts)
    return texts


@settings(max_examples=60)
@given(
    REQUESTS, st.integers(8, 20), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3),
    st.integers(0, 4),
)  # fmt: skip
def test_texts_are_those_of_a_machine_of_their_own(
    requests: list[Any], blocks: int, rows: int, pieces: int, piece: int, drafted: int
) -> None:
    """All end, no block leaks, and the same inputs give the same plans, whatever is proposed."""
    machine = Machine(blocks, 2, rows, pieces, piece, drafted)
    texts = served(machine, requests)
    for text in texts:
        expected = alone(text)
        if text.finish == "cancelled":
            expected = expected[: len(text.tokens)]
        assert text.tokens == expected
        assert (text.finish == "stop") == (text.finish != "cancelled" and text.tokens[-1] == END)
    again = Machine(blocks, 2, rows, pieces, piece, drafted)
    served(again, requests)
    assert again.plans == machine.plans


def test_what_is_proposed_and_right_takes_fewer_steps() -> None:
    steps = []
    for drafted in (0, 2):
        machine = Machine(blocks=64, rows=8, drafted=drafted)
        text = Text([1, 0, 1], 40)
        machine.scheduler.add(text)
        steps.append(machine.steps_until_done([text]))
        assert text.tokens == alone(text)
    assert machine.accepted == 24  # of 36 new ones behind the first, two of three
    assert steps[1] == steps[0] - machine.accepted


def test_proposals_take_no_row_and_no_block_that_others_need() -> None:
    machine = Machine(blocks=9, size=2, rows=4, pieces=6)
    texts = [Text([k] * 3, 9) for k in range(2)]
    for text in texts:
        machine.scheduler.add(text)
    machine.step()
    step = machine.scheduler.step()
    assert step is not None
    assert len(step.decodes) == 2
    # Two of four rows are free, one for each; all may have a block more, and one is left for each.
    assert [*machine.scheduler.room(step, 5).values()] == [1, 1]
    assert machine.pool.free >= len(texts)
    machine.scheduler.done(step, machine.run(step))
    machine.finish(texts)


def test_a_shared_prefix_is_computed_once() -> None:
    machine = Machine(blocks=64, size=4, rows=4, pieces=16)
    prefix = [0, 1] * 20
    first = Text([*prefix, 1], 42)
    machine.scheduler.add(first)
    machine.finish([first])
    before = machine.computed
    others = [Text([*prefix, number], 42) for number in range(2, 6)]
    for text in others:
        machine.scheduler.add(text)
    machine.finish(others)
    assert machine.computed - before == len(others)
    assert [text.cached for text in others] == [40] * 4


def test_siblings_read_their_prompt_once_and_write_into_copies() -> None:
    machine = Machine(blocks=64, size=4, rows=4, pieces=16)
    texts: list[Text] = []
    for _ in range(3):
        texts.append(Text([0] * 7, 9, sibling=texts[0] if texts else None))
        machine.scheduler.add(texts[-1])
    machine.finish(texts)
    assert machine.computed == 7 + 1 + 2 * 2  # the prompt's last token again for each sibling
    assert sum(len(copies) for _, copies in machine.plans) == 2


def test_few_blocks_make_the_youngest_start_again() -> None:
    machine = Machine(blocks=8, size=2, rows=4, pieces=4)
    texts = [Text([number, 1], 12) for number in range(4)]
    for text in texts:
        machine.scheduler.add(text)
    machine.finish(texts)
    assert machine.scheduler.preemptions > 0
    assert all(text.tokens == alone(text) for text in texts)


def test_texts_that_follow_a_matcher_leave_rows_to_others() -> None:
    machine = Machine(blocks=64, size=4, rows=8, pieces=16)
    following = [Text([0, 1], 8, follows=True) for _ in range(9)]
    for text in following:
        machine.scheduler.add(text)
    machine.step()
    for text in following:
        text.held = bool(text.blocks)  # their matchers do not answer
    assert sum(text.held for text in following) == 2
    others = [Text([1, number], 6) for number in range(6)]
    for text in others:
        machine.scheduler.add(text)
    assert machine.steps_until_done(others) == 4
    for text in following:
        text.held = False
    machine.finish(following)


def test_who_asks_for_many_texts_leaves_rows_to_others() -> None:
    machine = Machine(blocks=64, size=4, rows=8, pieces=16)
    many = [Text([0, number], 30, further=number > 0) for number in range(12)]
    for text in many:
        machine.scheduler.add(text)
    machine.step()
    assert machine.scheduler.running == 1 + 2
    others = [Text([1, number], 6) for number in range(3)]
    for text in others:
        machine.scheduler.add(text)
    assert machine.steps_until_done(others) == 4
    machine.finish(many)


def test_short_prompts_pass_a_long_one_in_turns() -> None:
    machine = Machine(blocks=64, size=4, rows=4, pieces=4)
    long, short = Text([0] * 100, 101), Text([1] * 8, 9)
    machine.scheduler.add(long)
    machine.scheduler.add(short)
    assert machine.steps_until_done([short]) == 4
    assert long.finish is None
    machine.finish([long])


def test_short_prompts_are_read_side_by_side() -> None:
    """Of three pieces of 4 tokens one and two are the first texts'; the last text waits."""
    machine = Machine(blocks=64, size=4, rows=4, pieces=3, piece=4)
    texts = [Text([0] * count, count + 1) for count in (3, 5, 4)]
    for text in texts:
        machine.scheduler.add(text)
    first = machine.scheduler.step()
    assert first is not None
    assert [row.text for row in first.chunks] == texts[:2]
    machine.scheduler.done(first, [0, 0])
    second = machine.scheduler.step()
    assert second is not None
    assert [row.text for row in second.chunks] == texts[2:]


def test_a_chunk_is_of_whole_pieces_but_the_last() -> None:
    assert Row(Text([0] * 9, 10), 2, 7).pieces(3) == [range(2, 5), range(5, 8), range(8, 9)]


def test_what_is_cancelled_within_a_step_is_left_aside() -> None:
    machine = Machine()
    text = Text([0, 1], 6)
    machine.scheduler.add(text)
    step = machine.scheduler.step()
    assert step is not None
    machine.scheduler.cancel(text)
    machine.scheduler.cancel(text)  # nothing more
    machine.scheduler.done(step, [0])
    assert (text.tokens, text.finish) == ([0, 1], "cancelled")
    assert machine.pool.free == machine.pool.count
    waiting = Text([0, 1], 6)
    machine.scheduler.add(waiting)
    machine.scheduler.cancel(waiting)
    assert (machine.scheduler.waiting, machine.step()) == (0, None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: Text([], 4), "0 tokens of 4; give a prompt", id="empty"),
        pytest.param(lambda: Text([1, 2], 2), "2 tokens of 2", id="no room"),
        pytest.param(
            lambda: Machine(4, 2).scheduler.add(Text([1], 9)),
            "9 tokens; the cache holds 8",
            id="long",
        ),
        pytest.param(lambda: Machine(rows=0), "max_rows 0; it must be at least 1", id="no rows"),
    ],
)
def test_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_what_sees_all_of_its_image_is_read_with_it() -> None:
    spans = [Span(first, first + 6, bytes(16), (0, 0)) for first in (3, 9, 20)]
    images = Images(np.zeros((18, 1), np.float32), (*spans,), whole=True)
    scheduler = Scheduler(BlockPool(40, 2), 3, 4, 2)
    texts = [Text([1] * 30, 31, images=images), Text([1] * 29, 30)]
    read: list[list[range]] = [[] for _ in texts]
    for text in texts:
        scheduler.add(text)
    while any(text.finish is None for text in texts):
        step = scheduler.step()
        assert step is not None
        for row in step.chunks:
            read[texts.index(row.text)].append(range(row.start, row.start + row.count))
        scheduler.done(step, [0] * len(step.rows))
    for held in read[0]:
        assert not any(span.first < held.stop < span.end for span in spans), held
    assert [place for held in read[0] for place in held] == [*range(30)]
    assert [texts[0].reach(end) for end in (3, 4, 8, 9, 15, 16)] == [3, 9, 9, 9, 15, 16]
    assert texts[1].reach(4) == 4
