"""Choosing the next token from logits."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from luminal.errors import InputError

Array = np.ndarray[Any, Any]


def checked_count(name: str, value: Any, least: int, fix: str = "") -> int:
    """An int of at least so many; raises InputError that names the option."""
    if not _is_number(value, Integral):
        raise InputError(f"{name}: {value!r} is no int{fix}")
    if value < least:
        raise InputError(f"{name}: {value} is not {least} or above{fix}")
    return int(value)


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Sampler:
    """`temperature` 0 takes the likeliest token; else one is drawn, from the k likeliest if `top_k`
    is given, and from the fewest whose probability reaches `top_p` (arXiv 1904.09751).
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not _is_number(self.temperature, Real) or not self.temperature >= 0:
            raise InputError(f"temperature: {self.temperature!r} is not 0 or above")
        if self.top_k is not None:
            checked_count("top_k", self.top_k, 1, "; leave it out to allow all")
        if not _is_number(self.top_p, Real) or not 0 < self.top_p <= 1:
            raise InputError(f"top_p: {self.top_p!r} is not above 0 and at most 1")

    def choose(self, logits: Array, rng: np.random.Generator) -> int:
        """A token id, for logits (vocab_size,). Raises InputError where one is NaN."""
        if np.isnan(logits).any():
            raise InputError(
                "logits: the model computes NaN; its weights are damaged, or overflow in their "
                "dtype: load the model's original file"
            )
        if self.temperature == 0:
            return int(np.argmax(logits))
        wide = logits.astype(np.float64)
        order = np.argsort(-wide, kind="stable")[: self.top_k]
        scaled = (wide[order] - wide[order[0]]) / self.temperature
        probabilities = np.exp(scaled)
        probabilities /= probabilities.sum()
        reached = np.cumsum(probabilities) - probabilities  # before each token
        kept = probabilities[reached < self.top_p]
        return int(order[rng.choice(len(kept), p=kept / kept.sum())])
