"""Vectors of texts as `/v1/embeddings` gives them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from luminal.frontend.handle import Array


def encoded(vector: Array, form: str) -> Any:
    """Numbers, or with "base64" those of float32, the least byte first."""
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


def listed(vectors: Sequence[Array], form: str, model: str, tokens: int) -> dict[str, Any]:
    """The answer of `/v1/embeddings`."""
    data = [
        {"object": "embedding", "index": number, "embedding": encoded(vector, form)}
        for number, vector in enumerate(vectors)
    ]
    used = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": used}
