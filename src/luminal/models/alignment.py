"""When each token was said, by what a decoder looked at while it wrote it.

The attention of some heads to the sound moves on with the text. Its rows, a token each, are scaled
by what all tokens look at, smoothed along the time, and joined; the way through them that is never
earlier than before and adds up to the most is the alignment. It is that of Whisper's authors
(Radford et al., arXiv 2212.04356; timing.py of their repository), by dynamic time warping
(Sakoe and Chiba, 1978).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
FILTER = 7  # positions whose median smooths a row
BEFORE, AFTER = "\"'“¿([{-¡", "\"'.。,，!！?？:：”)]}、"
"""Punctuation that belongs to the word behind it, and to the one before it."""
UNSPACED = frozenset(("zh", "ja", "th", "lo", "my", "yue"))
"""Codes of languages that write no spaces between words: each character is one here."""


class Word(NamedTuple):
    """A word, its space in front, and when it was said, in seconds."""

    text: str
    start: float
    end: float


def token_positions(weights: Array) -> Array:
    """The position of the sound at which each token begins, (tokens,), of weights (heads, tokens,
    positions).
    """
    wide = weights.astype(np.float32)
    spread = wide.std(1, keepdims=True)
    # A position that all tokens look at alike says nothing of when one was said.
    scaled = (wide - wide.mean(1, keepdims=True)) / np.where(spread == 0, 1, spread)
    return _first_positions(-_smoothed(scaled).mean(0).astype(np.float64))


def _smoothed(rows: Array) -> Array:
    """The median of each value and its neighbours, which at the ends are mirrored."""
    half = FILTER // 2
    if rows.shape[-1] <= half:
        return rows
    padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(half, half)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, FILTER, axis=-1)
    smoothed: Array = np.median(windows, axis=-1)
    return smoothed


def _first_positions(costs: Array) -> Array:
    """Where the cheapest way through costs (tokens, positions) reaches each token."""
    tokens, positions = costs.shape
    total = np.full((tokens + 1, positions + 1), np.inf, np.float32)
    came = np.zeros(total.shape, np.int8)  # 0: from both before, 1: the token, 2: the position
    total[0, 0] = 0
    # Cells of a diagonal do not depend on each other, so they are computed together.
    for diagonal in range(2, tokens + positions + 1):
        i = np.arange(max(1, diagonal - positions), min(tokens, diagonal - 1) + 1)
        j = diagonal - i
        both, token, position = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        way = np.where((both < token) & (both < position), 0, 2)
        way = np.where((token < both) & (token < position), 1, way)
        best = np.choose(way, (both, token, position))
        total[i, j] = (costs[i - 1, j - 1] + best).astype(np.float32)
        came[i, j] = way
    came[0, :], came[:, 0] = 2, 1
    firsts = np.zeros(tokens, np.int64)
    i, j = tokens, positions
    while i > 0:
        firsts[i - 1] = max(j - 1, 0)  # the last that is written is the earliest
        way_back = came[i, j]
        i, j = i - (way_back != 2), j - (way_back != 1)
    return firsts


def words_of(
    tokens: Sequence[int],
    times: Sequence[float],
    decode: Callable[[Sequence[int]], str],
    unspaced: bool = False,
) -> list[Word]:
    """The words of tokens, of which each was said between its time and the next one in `times`,
    which has one more.
    """
    parts: list[Word] = []
    begin, before = 0, ""
    for end in range(1, len(tokens) + 1):
        whole = decode(tokens[:end])
        piece = whole[len(before) :] if whole.startswith(before) else decode(tokens[begin:end])
        if piece.endswith("\N{REPLACEMENT CHARACTER}") and end < len(tokens):
            continue  # half a character
        joins = bool(parts) and not unspaced and not piece.startswith(" ")
        text = parts.pop() if joins else Word("", times[begin], 0.0)
        parts.append(Word(text.text + piece, text.start, times[end]))
        begin, before = end, whole
    return _with_punctuation([part for part in parts if part.text])


def _with_punctuation(parts: Sequence[Word]) -> list[Word]:
    words: list[Word] = []
    for part in parts:
        stripped = words[-1].text.strip() if words else ""
        opens = bool(stripped) and all(character in BEFORE for character in stripped)
        closes = bool(words) and all(character in AFTER for character in part.text.strip())
        if opens or closes:
            last = words.pop()
            part = Word(last.text + part.text, last.start, part.end)
        words.append(part)
    return words
