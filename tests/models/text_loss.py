"""The loss of a text, of which the perplexity is made."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def loss_of(logits: Array, ids: Array) -> float:
    """The mean of -log p(next token), whose exponential is the perplexity."""
    wide = logits[:, :-1].astype(np.float64)
    total = np.log(np.exp(wide - wide.max(-1, keepdims=True)).sum(-1)) + wide.max(-1)
    return float((total - np.take_along_axis(wide, ids[:, 1:, None], -1)[..., 0]).mean())
