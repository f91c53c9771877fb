"""A model from files, ready to be served."""

from __future__ import annotations

from luminal.models import generate
from luminal.models.decoder import Decoder
from luminal.serve.engine import EngineOptions
from luminal.serve.served import Served

CACHE_BYTES = 1 << 30
"""Of keys and values, by default."""


def load(
    path: str,
    tokenizer: str | None = None,
    name: str = "",
    context: int | None = None,
    cache: int | None = None,
    *,
    rows: int = 64,
    chunk: int = 128,
    backend: str = "cpu",
) -> Served:
    """The model in a folder or file, or of a Hugging Face id; its programs are compiled.

    `cache`: how many tokens' keys and values are kept; by default 1 GiB of them, and enough for one
    text. Raises LoadError.
    """
    loaded = generate.load(path, tokenizer, backend=backend, context=context)
    if cache is None:
        most = rows * loaded.context
        cache = min(most, max(loaded.context, CACHE_BYTES // bytes_per_token(loaded.model)))
    size = EngineOptions().size
    options = EngineOptions(rows, chunk, size, -(-cache // size) * size, backend)
    return Served(
        name or path.rstrip("/").rsplit("/", 1)[-1],
        loaded.model,
        loaded.tokenizer,
        loaded.context,
        options,
    )


def bytes_per_token(model: Decoder) -> int:
    """What the keys and values of one token take, in float32."""
    config = model.config
    heads: int = config.num_key_value_heads
    return 2 * 4 * heads * int(config.head_dim) * int(config.num_hidden_layers)
