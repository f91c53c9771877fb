"""A text in the making: why it ends, and what it gives out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import luminal as lm
from luminal.models.choice import NOT_A_NUMBER
from luminal.models.text import Text
from tests.models.small_models import Letters


class Halves(Letters):
    """Token 1 is the first half of a character, 2 the second one."""

    def decode(self, ids: Sequence[int]) -> str:
        text = super().decode(ids).replace(chr(49) + chr(50), "é")
        return text.replace(chr(49), "\ufffd")


def test_characters_come_when_they_are_whole() -> None:
    text = Text(Halves(), [5], 4)
    assert [text.push(token) for token in (20, 1, 2, 1)] == ["D", "", "é", "\ufffd"]
    assert (text.reason, text.characters, text.tokens) == ("length", "Dé\ufffd", [20, 1, 2, 1])
    assert text.completion() == ("Dé\ufffd", (20, 1, 2, 1), "length", (), ())


def test_why_a_text_ends() -> None:
    for tokens, stop, reason, characters in (
        ((20, 0), (), "stop", "D"),
        ((20, 21), ("E",), "stop", "D"),
        ((20, 21, 22), ("EG",), "length", "DEF"),
        ((20, 21, 1), ("\ufffd",), "stop", "DE"),  # what is left at the end is a stop string
    ):
        text = Text(Halves(), [5], 3, stop=stop)
        for token in tokens:
            assert text.reason is None
            text.push(token)
        assert (text.reason, text.characters) == (reason, characters)
    assert Text(Halves(), [5], 0).reason == "length"


def test_what_is_not_read_yet() -> None:
    text = Text(Letters(), [5, 6, 7], 3)
    np.testing.assert_array_equal(text.unread, [5, 6, 7])
    text.read = 3
    text.push(9)
    np.testing.assert_array_equal(text.unread, [9])
    assert text.unread.dtype == np.int32
    assert text.draw.tokens[: text.draw.prompt] == [5, 6, 7]


def test_a_logit_that_is_no_number() -> None:
    with pytest.raises(lm.InputError, match="logits: the model computes NaN; its weights are"):
        Text(Letters(), [5], 3).push(NOT_A_NUMBER)
