"""Choosing the next token from logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from luminal.errors import InputError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Sampler:
    """`temperature` 0 takes the likeliest token; else one is drawn, from the k likeliest if `top_k`
    is given, and from the fewest whose probability reaches `top_p` (arXiv 1904.09751).
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise InputError(f"temperature: {self.temperature} is not 0 or above")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k: {self.top_k} is not 1 or above; leave it out to allow all")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p: {self.top_p} is not above 0 and at most 1")

    def choose(self, logits: Array, rng: np.random.Generator) -> int:
        """A token id, for logits (vocab_size,)."""
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
