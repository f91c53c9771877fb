"""What becomes of a window of speech at one temperature, and whether a higher one should be tried.

A model that is lost repeats itself, or writes what it thinks unlikely. Such a text is written again
at a higher temperature, which leads out of the loop: Radford et al., arXiv 2212.04356, section 4.5.
"""

from __future__ import annotations

import zlib

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.models.sampling import checked_count


@dataclass(frozen=True, slots=True)
class Attempt:
    """Tokens at a temperature. `logprob`: the mean of their log-probabilities and the end's;
    `compression`: how many times smaller zlib makes the text; `silence`: the probability that
    nobody speaks; `language`: its code, where the model knows several.
    """

    tokens: list[int]
    temperature: float
    logprob: float
    compression: float
    silence: float
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Fallback:
    """Temperatures that are tried one after the other until a text is good enough: it is none of
    more `compression`, or less `logprob`. Where the model is surer than `silence` that nobody
    speaks, and its text has less `logprob`, there is none. `seed` decides on what is drawn.
    """

    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    compression: float = 2.4
    logprob: float = -1.0
    silence: float = 0.6
    seed: int = 0

    def __post_init__(self) -> None:
        checked_count("seed", self.seed, 0)
        right = [0 <= number <= 2 for number in self.temperatures]
        if not right or not all(right):
            raise InputError(
                f"temperatures: {self.temperatures!r} must be numbers of 0 to 2, at least one"
            )

    def is_silence(self, attempt: Attempt) -> bool:
        """Whether there is nothing to hear."""
        return attempt.silence > self.silence and attempt.logprob < self.logprob

    def is_good(self, attempt: Attempt) -> bool:
        """Whether no other temperature need be tried."""
        if self.is_silence(attempt):
            return True
        return attempt.compression <= self.compression and attempt.logprob >= self.logprob


ONCE = Fallback((0.0,), float("inf"), float("-inf"), 1.0)
"""The likeliest text, whatever it is."""


def compression_of(text: str) -> float:
    """How many times smaller zlib makes a text, which is much where it repeats itself."""
    data = text.encode("utf-8", "replace")
    return len(data) / len(zlib.compress(data))
