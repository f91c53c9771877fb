"""Blocks of a paged cache against a model that keeps whole prefixes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from luminal.base.errors import InputError
from luminal.models.seen import Images, Span
from luminal.serve.blocks import BlockPool, Content, contents_of

COUNT, SIZE = 6, 2
TEXTS = st.lists(st.integers(0, 1), max_size=3 * SIZE + 1)


def contents(tokens: list[int]) -> list[Content]:
    return contents_of(tokens, len(tokens), SIZE)


class Pool(RuleBasedStateMachine):
    """Texts that hold blocks; the model knows each block's whole prefix."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(COUNT, SIZE)
        self.texts: list[tuple[list[int], list[int]]] = []  # tokens, blocks
        self.prefixes: dict[int, tuple[int, ...]] = {}
        self.given_back: list[int] = []  # free blocks with content, oldest first

    def held(self) -> list[int]:
        return [block for _, blocks in self.texts for block in blocks]

    @rule(tokens=TEXTS)
    def begin(self, tokens: list[int]) -> None:
        known = {prefix: block for block, prefix in self.prefixes.items()}
        expected = []
        for end in range(SIZE, len(tokens) + 1, SIZE):
            if tuple(tokens[:end]) not in known:
                break
            expected.append(known[tuple(tokens[:end])])
        blocks = self.pool.find(contents(tokens))
        assert blocks == expected
        self.given_back = [block for block in self.given_back if block not in blocks]
        missing = self.pool.needed(len(tokens)) - len(blocks)
        if missing > self.pool.free:
            with pytest.raises(InputError, match="ask `free` before"):
                self.pool.take(missing)
            self.pool.give_back(blocks)
            self.note_free(blocks)
            return
        taken = self.pool.take(missing)
        assert not set(taken) & {*self.held(), *blocks}
        lost = [block for block in taken if block in self.prefixes]
        assert lost == self.given_back[: len(lost)], "the oldest go first"
        del self.given_back[: len(lost)]
        for block in lost:
            del self.prefixes[block]
        self.texts.append((tokens, blocks + taken))

    def note_free(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            if block not in self.held() and block in self.prefixes:
                self.given_back.append(block)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        tokens, blocks = data.draw(st.sampled_from(self.texts))
        for number, content in enumerate(contents(tokens)):
            self.pool.name(blocks[number], content)
            prefix = tuple(tokens[: (number + 1) * SIZE])
            if prefix not in self.prefixes.values() and blocks[number] not in self.prefixes:
                self.prefixes[blocks[number]] = prefix

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        tokens, blocks = data.draw(st.sampled_from(self.texts))
        self.pool.hold(blocks)
        self.texts.append((tokens, list(blocks)))

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        _, blocks = self.texts.pop(data.draw(st.integers(0, len(self.texts) - 1)))
        self.pool.give_back(blocks)
        self.note_free(blocks)

    @invariant()
    def counts_agree(self) -> None:
        held = self.held()
        assert [self.pool._holders[block] for block in range(COUNT)] == [
            held.count(block) for block in range(COUNT)
        ]
        assert self.pool.free == COUNT - len(set(held))
        for block in set(held):
            alone = held.count(block) == 1 and block not in self.prefixes
            assert self.pool.writable(block) == alone


Pool.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
test_pool = Pool.TestCase


def test_a_prefix_counts_with_all_before_it() -> None:
    pool = BlockPool(4, 2)
    blocks = pool.take(2)
    for block, content in zip(blocks, contents([1, 2, 3, 4]), strict=True):
        pool.name(block, content)
    assert pool.find(contents([1, 2, 3, 4, 5])) == blocks
    assert pool.find(contents([1, 2, 9, 9])) == blocks[:1]
    assert pool.find(contents([3, 4])) == []  # the same tokens, at another place


def test_generated_tokens_are_not_those_of_a_prompt() -> None:
    pool = BlockPool(4, 2)
    blocks = pool.take(2)
    for block, content in zip(blocks, contents_of([1, 2, 3, 4], 3, 2), strict=True):
        pool.name(block, content)
    assert pool.find(contents([1, 2, 3, 4])) == blocks[:1]
    assert pool.find(contents_of([1, 2, 3, 4], 3, 2)) == blocks


def test_a_digest_alone_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Content, "name", b"the same of all")
    pool = BlockPool(2, 2)
    (block,) = pool.take()
    pool.name(block, Content(b"", (1, 2)))
    assert pool.find(contents([1, 2])) == [block]
    assert pool.find(contents([3, 4])) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: BlockPool(0, 2), "count 0; there must be", id="no blocks"),
        pytest.param(lambda: BlockPool(2, 2).give_back([1]), "1 is given back, but", id="free"),
        pytest.param(
            lambda: BlockPool(2, 2).name(0, Content(b"", (1,))), "1 tokens are no", id="half"
        ),
    ],
)
def test_errors(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        call()


def test_images_of_equal_tokens_have_other_names() -> None:
    def names(*digests: bytes) -> list[bytes]:
        spans = [Span(1 + 4 * k, 4 + 4 * k, each, (0, 0)) for k, each in enumerate(digests)]
        images = Images(np.zeros((0, 1), np.float32), (*spans,))
        return [content.name for content in contents_of([7] * 12, 12, 2, images=images)]

    plain = [content.name for content in contents_of([7] * 12, 12, 2)]
    assert names() == plain
    one, other, third = names(b"a" * 16, b"b" * 16), names(b"a" * 16, b"c" * 16), names(b"d" * 16)
    assert one[:2] == other[:2]
    assert one[1] != plain[1]
    for left, right in ((one, other), (one, third), (one, plain)):
        assert set(left[2:]).isdisjoint(right[2:])
