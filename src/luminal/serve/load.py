"""A model from files, ready to be served."""

from __future__ import annotations

from typing import Any

from luminal.base.errors import InputError
from luminal.models import generate
from luminal.models.decoder import Decoder
from luminal.nn.cache import KVCache
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
    backend: str | None = None,
    keep_quantized: bool = False,
    compute_dtype: Any = None,
    template: str | None = None,
) -> Served:
    """The model in a folder or file, or of a Hugging Face id; its programs are compiled.

    `cache`: how many tokens' keys and values are kept; by default 1 GiB of them, and enough for one
    text. `backend`: the device; by default that of `lm.device`. `keep_quantized`,
    `compute_dtype`: as of `lm.models.load`. `template`: a chat template instead of the model's.
    Raises LoadError.
    """
    loaded = generate.load(
        path,
        tokenizer,
        backend=backend,
        context=context,
        keep_quantized=keep_quantized,
        compute_dtype=compute_dtype,
    )
    if not isinstance(loaded, generate.LanguageModel):
        raise InputError(f"serve: {path} is no language model of the kind that is served")
    if template is not None:
        loaded.use_template(template)
    most = CACHE_BYTES // bytes_per_token(loaded.model)
    if cache is None:
        cache = min(rows * loaded.context, max(loaded.context, most))
    size = EngineOptions().size
    options = EngineOptions(rows, chunk, size, -(-cache // size) * size, loaded.backend)
    return Served(name or path.rstrip("/").rsplit("/", 1)[-1], loaded, options)


def bytes_per_token(model: Decoder) -> int:
    """What the keys and values of one token take. Raises InputError where layers keep others."""
    # Some layers share one cache, which takes its room once.
    caches = dict.fromkeys(model.make_caches(1))
    for cache in caches:
        if not isinstance(cache, KVCache):
            raise InputError(
                f"serve: the model has layers that keep a {type(cache).__name__}, which has no "
                "blocks; use `luminal generate`"
            )
    states = [state for cache in caches for state in (cache.keys, cache.values)]
    return sum(state.numel() * state.dtype.size for state in states)
