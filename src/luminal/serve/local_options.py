"""How tokens are chosen, as programs that run models at home ask for it: the names and defaults of
Ollama and of llama.cpp's server.

https://github.com/ollama/ollama/blob/main/docs/modelfile.mdx and
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md have the options.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from luminal.models.sampling import Sampling
from luminal.serve.errors import ApiError, refused
from luminal.serve.fields import Fields
from luminal.serve.orders import Limits, Vocabulary

MOST = 2**31 - 1
MISSING: Mapping[str, Any] = {
    "typical_p": 1,
    "tfs_z": 1,
    "mirostat": 0,
    "dynatemp_range": 0,
    "xtc_probability": 0,
    "dry_multiplier": 0,
    "top_n_sigma": -1,
}
"""Options that change texts and are not there, with the value that switches each off."""


def sampling_of(options: Fields, words: Vocabulary, top_p: float, min_p: float) -> Sampling:
    """How each token is chosen, with these of the program's own defaults. Raises ApiError."""
    refuse(options, MISSING)
    top_k = options.integer("top_k", -1, MOST, 40)
    seed = options.integer("seed", -(2**63), 2**63 - 1, -1)
    return Sampling(
        temperature=options.number("temperature", 0, 100, 0.8),
        top_k=min(top_k, words.vocab_size) if top_k > 0 else None,  # 0 and -1 stand for all
        top_p=max(options.number("top_p", 0, 1, top_p), 1e-9),  # 0 leaves the likeliest
        min_p=options.number("min_p", 0, 1, min_p),
        repetition_penalty=options.number("repeat_penalty", 0.01, 10, 1.0),
        presence_penalty=options.number("presence_penalty", -2, 2, 0.0),
        frequency_penalty=options.number("frequency_penalty", -2, 2, 0.0),
        seed=secrets.randbits(63) if seed == -1 else seed % 2**63,
    )


def refuse(fields: Fields, off: Mapping[str, Any]) -> None:
    """Raises ApiError for a field that is there, and has another value than the one that means
    nothing.
    """
    for name, value in off.items():
        if fields.get(name) not in (None, value):
            raise refused(
                fields.name(name), f"it is not supported; leave it out, or give {value!r}"
            )


def room_of(
    options: Fields, name: str, ids: Sequence[int], words: Vocabulary, limits: Limits
) -> int:
    """How many new tokens there may be: what is asked for, and no more than the context has.

    -1, -2 and nothing stand for all. Raises ApiError where the prompt leaves no room.
    """
    left = words.context - len(ids)
    if left < 1:
        raise ApiError(
            400,
            f"This model's maximum context length is {words.context} tokens; the prompt has "
            f"{len(ids)}. Shorten it.",
            "prompt",
            "context_length_exceeded",
        )
    wanted: int = options.integer(name, -2, MOST, -1)
    most = min(left, limits.new_tokens)
    return min(wanted, most) if wanted >= 0 else most
