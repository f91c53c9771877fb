"""Beam search: the likeliest texts found by following several at a time.

As transformers' generate does it, token for token: a beam ends at an end token or where the room
does, and counts as its log-probability over its length to the power of a penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.base.errors import InputError
from luminal.base.number_kinds import is_number
from luminal.loaders.shown import shown
from luminal.models.choice import TOP_LOGPROBS
from luminal.models.sampling import checked_count
from luminal.models.text import Text
from luminal.runtime.results import Results

if TYPE_CHECKING:
    from luminal.models.generate import LanguageModel

MOST_PENALTY = 32  # a length of 31 bits to its power is a float
_FEATURES = ("top_logprobs",)


class Beam(NamedTuple):
    """A text, its new tokens (an end token included), and its score."""

    text: str
    tokens: tuple[int, ...]
    score: float


class _Step(NamedTuple):
    """A continuation by one token: the row that it continues, and its log-probability so far."""

    logprob: float
    parent: int
    tokens: tuple[int, ...]


def beam_search(
    model: LanguageModel,
    prompt: str | Sequence[int],
    width: int = 4,
    max_tokens: int = 200,
    length_penalty: float = 1.0,
) -> list[Beam]:
    """The `width` best texts that were found, the best first.

    A `length_penalty` above 0 favours long texts. Raises InputError for a width beyond what the
    programs rank.
    """
    penalty: Any = length_penalty
    if not is_number(penalty, Real) or not abs(penalty) <= MOST_PENALTY:
        raise InputError(
            f"length_penalty: {shown(penalty)} is no number from {-MOST_PENALTY} to {MOST_PENALTY}"
        )
    ends = model.tokenizer.eos_ids
    # Each beam can end in this step by each end token, and `width` others must still be left, as
    # transformers counts them.
    spare = max(2, 1 + len(ends)) * checked_count("width", width, 1)  # some may end in this step
    if spare > min(TOP_LOGPROBS, model.model.config.vocab_size):
        raise InputError(
            f"width: {width} beams and {len(ends)} end tokens need {spare} ranked tokens; "
            f"{TOP_LOGPROBS} are ranked"
        )
    ids = model.encode(prompt)
    room = model.room(ids, max_tokens)
    rows = [_Step(0.0, number, ()) for number in range(width)]
    finished: list[tuple[float, tuple[int, ...]]] = []
    read, states = 0, model.programs.begin()
    for length in range(1, room + 1):
        texts = [_text(model, ids, row.tokens, read) for row in rows]
        with model.programs.turn(states):
            results = model.programs.read(texts, _FEATURES)
        read = texts[0].read
        # Equal rows would give each continuation `width` times, and all beams would be one text.
        first = rows[:1] if length == 1 else rows  # all rows are the prompt at first
        # More than the width: where the likeliest continuations end their texts, enough others must
        # be left.
        steps = sorted(_continued(first, results), key=lambda step: -step.logprob)[:spare]
        done = [step for step in steps if step.tokens[-1] in ends or length == room]
        finished += [
            (step.logprob / length**length_penalty, step.tokens)
            for step in steps[:width]
            if step in done
        ]
        finished = sorted(finished, key=lambda each: -each[0])[:width]
        rows = [step for step in steps if step not in done][:width]
        if not rows or (
            len(finished) == width and rows[0].logprob / length**length_penalty <= finished[-1][0]
        ):
            break
        with model.programs.turn(states):
            # Rows change places with their texts; the caches follow, since a row's keys are those
            # of its past.
            model.programs.reorder([row.parent for row in rows])
    return [Beam(_written(model, ids, tokens), tokens, score) for score, tokens in finished]


def _continued(rows: Sequence[_Step], results: Results) -> list[_Step]:
    """Every row by each of its likeliest tokens."""
    return [
        _Step(row.logprob + float(logprob), number, (*row.tokens, int(token)))
        for number, row in enumerate(rows)
        for token, logprob in zip(
            results["top_tokens"][number], results["top_logprobs"][number], strict=True
        )
    ]


def _text(model: LanguageModel, ids: list[int], tokens: tuple[int, ...], read: int) -> Text:
    text = Text(model.tokenizer, [*ids, *tokens], 1)
    text.read = read
    return text


def _written(model: LanguageModel, ids: list[int], tokens: tuple[int, ...]) -> str:
    text = Text(model.tokenizer, ids, len(tokens))
    return "".join(text.push(token) for token in tokens)
