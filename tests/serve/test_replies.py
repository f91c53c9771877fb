"""Log-probabilities of tokens that are parts of characters, or read alike; calls of functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from luminal.loaders.token_bytes import TokenTexts
from luminal.loaders.tokenizer import StreamDecoder
from luminal.serve.jobs import Event
from luminal.serve.replies import Chats, Choice, Completions, in_pieces, to_json
from tests.unit.loaders.vocabularies import byte_fallback, byte_level


def test_parts_of_characters_are_named_by_their_bytes() -> None:
    tokenizer = byte_level()
    texts = TokenTexts(tokenizer)
    ids = tokenizer.encode("aé")
    for _ in range(2):  # found, then known
        assert [texts[token].shown for token in ids] == ["a", "bytes:\\xc3", "bytes:\\xa9"]
    assert TokenTexts(byte_fallback())[3].shown == " a"


def test_tokens_that_read_alike_do_not_replace_each_other() -> None:
    tokenizer = byte_fallback()
    letter, byte = 2, 6 + ord("a")
    found = Completions("m", 0, TokenTexts(tokenizer))._by_text(
        [(letter, -1.0), (byte, -2.0), (4, -3.0)]
    )
    assert found == {"a": -1.0, f"token_id:{byte}": -2.0, "~": -3.0}


@pytest.mark.parametrize("most", [None, 1], ids=["parallel", "one"])
def test_of_several_calls_all_or_one_are_told(most: int | None) -> None:
    """In a whole answer as in a stream."""
    job: Any = SimpleNamespace()
    end = Event(job, '<tool_call>{"name": "f"}</tool_call>' * 3, reason="stop")
    choice = Choice(job, 0, job, events=[end])
    chats = Chats("m", 0, TokenTexts(byte_level()), False, ("f",), most)
    whole = chats.whole([choice], {})["choices"][0]["message"]["tool_calls"]
    told = chats.chunks(choice, end, 0)[0]["choices"][0]["delta"]["tool_calls"]
    assert (len(whole), len(told)) == ((3, 3) if most is None else (1, 1))


def test_pieces_are_the_whole() -> None:
    value: Any = {"a": [1, {"b": [None] * 99}, "\u00e9"], "c": {}, "d": [], "e": [[1] * 70, []]}
    for depth in range(6):
        assert in_pieces(value, depth) == to_json(value)


def test_events_that_come_together_have_offsets_of_their_own() -> None:
    """A client that is slow gets several chunks at once; each says where its own token begins."""
    tokenizer, job = byte_level(), SimpleNamespace()
    given: Any = job
    choice = Choice(given, 0, StreamDecoder(tokenizer), True)
    events = [Event(given, "a", token, -1.0) for token in tokenizer.encode("aaaé")]
    noted = [(event, choice.add(event)) for event in events]
    found = [Completions("m", 0, TokenTexts(tokenizer)).chunks(choice, *each)[0] for each in noted]
    offsets = [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in found]
    assert offsets == [[each] for each in choice.offsets] == [[0], [1], [2], [3], [3]]
