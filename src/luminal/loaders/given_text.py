"""Texts of others inside of a text of one's own: they are never taken for special tokens.

What a user says becomes part of a chat's text, where `<|im_end|>` would end his turn and begin
another's. So each place in what he says that reads as a special token, or could be part of one
together with what stands beside it, gets a mark before the template sees it. Text without such
places, nearly all, is what it was; where there are marks a second tokenizer reads the text: it
cuts special tokens out first, which a marked one is not, then drops the marks. (A template that
writes the beginning of a special token before what a user says and its end behind it makes one;
and a token of one character that is a piece of the model's vocabulary too is its own text.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import tokenizers

MARK = "\U0010fffe"
"""No character: Unicode keeps it for use inside of programs."""
PRIVATE = 0xF0000
"""A plane for private use: behind a MARK, its characters stand for those of the first plane."""


# Escaping what users say would change what they said. A mark that no text has is put into every
# place that reads as a special token, and taken out once special tokens have been found.
class GivenTexts:
    """Those that a tokenizer of the library must take for no special tokens."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner
        special = [token for token in inner.get_added_tokens_decoder().values() if token.special]
        names = {token.content.lower() for token in special if token.content}
        self._cuts = {name[:count] for name in names for count in range(1, len(name))}
        self._ends = {name[count:] for name in names for count in range(1, len(name))}
        self._longest = max(map(len, names), default=0)
        # A pattern takes the first alternative that fits: of tokens that begin alike the longest
        # counts.
        longest_first = sorted(names, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)
        self._single = {
            character: MARK + chr(PRIVATE + ord(character))
            for name in names
            if len(name) == 1
            for character in {name, name.upper()}
            if len(character) == 1
        }
        self._normalizes = any(token.normalized for token in special)
        self._second: tokenizers.Tokenizer | None = None

    def marked(self, value: Any) -> Any:
        """A value with marks in its texts, which may lie in dicts and lists."""
        if not self._longest:
            return value
        if isinstance(value, str):
            return self._marked(value)
        if isinstance(value, Mapping):
            pairs = {self.marked(key): self.marked(member) for key, member in value.items()}
            return value if pairs == value else pairs
        if isinstance(value, list | tuple):
            items = [self.marked(member) for member in value]
            return value if all(map(_is_same, items, value)) else type(value)(items)
        return value

    def _marked(self, text: str) -> str:
        marked = self._special.sub(self._apart, text)
        sizes = range(1, min(self._longest, len(text) + 1))
        if any(text[:size].lower() in self._ends for size in sizes):
            marked = MARK + marked
        if any(text[-size:].lower() in self._cuts for size in sizes) or self._is_made_special(text):
            marked += MARK
        return marked

    # A mark keeps the characters of a token apart. One that is a single character has no room for
    # it, so another one stands in its place until special tokens have been found.
    def _apart(self, match: re.Match[str]) -> str:
        """What a special token in a text of others becomes."""
        token = match[0]
        return self._single[token] if len(token) == 1 else token[:1] + MARK + token[1:]

    def _is_made_special(self, text: str) -> bool:
        """Whether the normalizer makes a special token of what is none."""
        normalizer = self._inner.normalizer
        if not self._normalizes or normalizer is None:
            return False
        return self._special.search(normalizer.normalize_str(text)) is not None

    def encoded(self, text: str, bare: bool) -> list[int]:
        """The ids of a text with marks."""
        if self._second is None:
            self._second = _second(self._inner, self._single)
        ids: list[int] = self._second.encode(text, add_special_tokens=not bare).ids
        return ids


def _is_same(a: Any, b: Any) -> bool:
    return a is b or a == b


def _second(inner: tokenizers.Tokenizer, single: Mapping[str, str]) -> tokenizers.Tokenizer:
    """One that drops marks, and puts back what stands for a `single` character, once special tokens
    are cut out, all of them before it normalizes.
    """
    settings = json.loads(inner.to_str())
    for token in settings["added_tokens"]:
        token["normalized"] = token["normalized"] and not token["special"]
    replaced = [*((stand_in, character) for character, stand_in in single.items()), (MARK, "")]
    drops = [{"type": "Replace", "pattern": {"String": a}, "content": b} for a, b in replaced]
    normalizer = settings["normalizer"]
    settings["normalizer"] = {
        "type": "Sequence",
        "normalizers": [*drops, *([normalizer] if normalizer else [])],
    }
    return tokenizers.Tokenizer.from_str(json.dumps(settings))
