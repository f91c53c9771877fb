"""Bytes of tokens, of both kinds of vocabularies: side by side they are the text's."""

from __future__ import annotations

import pytest

from luminal.loaders.token_bytes import bytes_of, text_of
from tests.unit.loaders.vocabularies import byte_fallback, byte_level

TEXT = "a é 日本 😀 ~"


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_bytes_of_tokens_make_up_the_text(make) -> None:  # type: ignore[no-untyped-def]
    tokenizer = make()
    ids = tokenizer.encode(TEXT)
    assert b"".join(bytes_of(tokenizer, token) for token in ids).decode().lstrip(" ") == TEXT
    assert len(ids) > len(TEXT)  # some are parts of characters


def test_a_space_in_front_counts() -> None:
    tokenizer = byte_fallback()
    assert tokenizer.decode([3]) == "a"
    assert text_of(tokenizer, 3) == " a"
