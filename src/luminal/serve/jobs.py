"""Texts that are to be written, and what a step has added to them."""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from luminal.base.records import dataclass
from luminal.models.sampling import features_of
from luminal.models.text import Ranked, Text
from luminal.serve import scheduler
from luminal.serve.program import Choices


@dataclass(slots=True, eq=False)
class Job:
    """One text to be written, and how many of the likeliest tokens come with each (None: none)."""

    text: Text
    place: scheduler.Text
    logprobs: int | None = None
    features: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        asked = () if self.logprobs is None else ("top_logprobs",)
        self.features = frozenset((*features_of([self.text.draw]), *asked))

    @property
    def cached(self) -> int:
        """How many tokens of the prompt were found in the cache."""
        return self.place.cached


class Event(NamedTuple):
    """What a step added to a job: characters that are certain, and the token.

    `reason`: set by the last event. `error`: what went wrong instead, and whether what was asked
    for `is_fault` of it.
    """

    job: Job
    piece: str = ""
    token: int | None = None
    logprob: float | None = None
    top: tuple[Ranked, ...] = ()
    reason: str | None = None
    error: str | None = None
    is_fault: bool = False


class New(NamedTuple):
    """A token that a step has chosen for a text, with what was asked of it."""

    token: int
    logprob: float | None = None
    top: tuple[Ranked, ...] = ()


def new_of(job: Job, token: int, chosen: Choices, number: int) -> New:
    """A token of a job, chosen by row `number`, with what is told of it."""
    if job.logprobs is None or chosen.logprobs is None:
        return New(token)
    return New(token, float(chosen.logprobs[number]), _likeliest(chosen, number, job.logprobs))


def _likeliest(chosen: Choices, number: int, count: int) -> tuple[Ranked, ...]:
    assert chosen.top_tokens is not None
    assert chosen.top_logprobs is not None
    tokens, logprobs = (
        array[number, :count].tolist() for array in (chosen.top_tokens, chosen.top_logprobs)
    )
    return tuple(zip(tokens, logprobs, strict=True))
