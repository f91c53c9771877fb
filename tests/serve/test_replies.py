"""Log-probabilities of tokens that are parts of characters, or read alike."""

from __future__ import annotations

from luminal.serve.replies import Completions, shown
from tests.unit.test_token_bytes import byte_fallback, byte_level


def test_parts_of_characters_are_named_by_their_bytes() -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode("aé")
    assert [shown(tokenizer, token) for token in ids] == ["a", "bytes:\\xc3", "bytes:\\xa9"]
    assert shown(byte_fallback(), 3) == " a"


def test_tokens_that_read_alike_do_not_replace_each_other() -> None:
    tokenizer = byte_fallback()
    letter, byte = 2, 6 + ord("a")
    found = Completions("m", 0, tokenizer)._by_text([(letter, -1.0), (byte, -2.0), (4, -3.0)])
    assert found == {"a": -1.0, f"token_id:{byte}": -2.0, "~": -3.0}
