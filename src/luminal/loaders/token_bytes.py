"""What one token adds to a text: its characters, and its bytes where it is half a character."""

from __future__ import annotations

import re
from typing import NamedTuple

from luminal.loaders.tokenizer import Tokenizer

_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
_PRINTED = (*range(33, 127), *range(161, 173), *range(174, 256))
"""The bytes that byte-level vocabularies write as themselves, in Latin-1 (GPT-2's `encoder.py`)."""

_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {
    chr(256 + number): byte for number, byte in enumerate(_OTHERS)
}


def text_of(tokenizer: Tokenizer, token: int) -> str:
    """The characters that a token adds inside a text: a space in front counts."""
    # Decoders may drop a space in front of a text: the second of two tokens is inside of one.
    once = tokenizer.decode([token])
    return tokenizer.decode([token, token])[len(once) :]


def bytes_of(tokenizer: Tokenizer, token: int) -> bytes:
    """The token's own bytes, which with those of its neighbours make up the characters."""
    text = text_of(tokenizer, token)
    if "\N{REPLACEMENT CHARACTER}" not in text:
        return text.encode()
    name = tokenizer.name_of(token)
    if match := _FALLBACK.fullmatch(name):
        return bytes.fromhex(match[1])
    if all(letter in _BYTES for letter in name):
        return bytes(_BYTES[letter] for letter in name)
    return text.encode()


class Spelling(NamedTuple):
    """How a token is told on its own: see `text_of`, `bytes_of`, `TokenTexts.__getitem__`."""

    text: str
    own: bytes
    shown: str


class TokenTexts:
    """The spellings of a tokenizer's tokens, each found when it is first asked for and then kept:
    answers with log-probabilities tell twenty tokens for each one that was written.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, Spelling] = {}

    def __getitem__(self, token: int) -> Spelling:
        """A token's; `shown` is never empty: a special token has its name, part of a character its
        bytes.
        """
        token_bytes = self._known.get(token)
        if token_bytes is None:
            token_bytes = self._known[token] = self._found(token)
        return token_bytes

    def _found(self, token: int) -> Spelling:
        text, raw = text_of(self._tokenizer, token), bytes_of(self._tokenizer, token)
        if "\N{REPLACEMENT CHARACTER}" in text:
            return Spelling(text, raw, "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw))
        return Spelling(text, raw, text or self._tokenizer.name_of(token))
