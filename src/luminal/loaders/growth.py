"""How many times as long a tokenizer's settings may make a text, before it is cut into tokens.

A `tokenizer.json` comes from others, and each of its steps sees what the one before it made: forty
that double would take all memory of the smallest text. The library knows no bound.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from luminal.base.errors import LoadError

MAX_GROWTH = 10_000
MAX_STEPS = 100
"""Of a part; each reads the whole text. Known ones have at most a dozen."""
_BY_KIND = {"ByteLevel": 2}
"""A byte beyond ASCII becomes a letter of two."""


def check_growth(part: Any, what: str) -> None:
    """Raises LoadError, which names `what`, where a part of the settings does too much."""
    steps = [step for step in _objects(part) if "type" in step]
    if len(steps) > MAX_STEPS:
        raise LoadError(f"{what} has {len(steps)} steps; at most {MAX_STEPS} are supported")
    growth = 1
    for step in _objects(part):
        # Each step sees what the one before it made, so what they may do multiplies.
        growth *= _growth(step)
    if growth > MAX_GROWTH:
        raise LoadError(
            f"{what} may make a text {growth} times as long; at most {MAX_GROWTH} times is "
            "supported: the library would take all memory"
        )


def _objects(part: Any) -> Iterator[dict[str, Any]]:
    waiting = [part]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            yield value
            waiting += value.values()


def _growth(step: dict[str, Any]) -> int:
    """By what a step puts in."""
    put = [step[name] for name in ("content", "prepend") if isinstance(step.get(name), str)]
    longest = max([1, *map(len, put)])
    table = step.get("precompiled_charsmap")
    if isinstance(table, str):
        longest = max(longest, _longest(table))
    kind = step.get("type")
    return longest * (_BY_KIND.get(kind, 1) if isinstance(kind, str) else 1)


def _longest(table: str) -> int:
    """The longest text that SentencePiece's table puts in for characters: behind the trie of what
    is replaced, whose size comes first, they lie one after the other, each ended by a zero.
    """
    try:
        data = base64.b64decode(table)
    except binascii.Error:  # the library has read it otherwise
        return len(table)
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    return max((len(replacement) for replacement in texts.split(b"\0")), default=1)
