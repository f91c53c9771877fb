"""A model from files, ready to be served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.dtypes import DType, bfloat16, dtype_of, float32
from luminal.base.errors import DTypeError, InputError
from luminal.loaders.shown import shown
from luminal.models import loading
from luminal.models.decoder import Decoder
from luminal.models.generate import LanguageModel
from luminal.models.speculative import PromptLookup
from luminal.models.transcribe import Transcriber
from luminal.nn.cache import KVCache
from luminal.serve.drafts import check_vocabulary
from luminal.serve.engine import EngineOptions
from luminal.serve.ranks import ALONE, Ranks
from luminal.serve.readers import Readable, Reading
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
    draft: str | None = None,
    cache_dtype: Any = None,
    adapter: str | None = None,
    adapters: Mapping[str, str] | None = None,
    projector: str | None = None,
    ranks: Ranks = ALONE,
) -> Served | Reading:
    """The model in a folder or file, or of a Hugging Face id; its programs are compiled.

    `cache`: how many tokens' keys and values are kept; by default 1 GiB of them, and enough for one
    text. `backend`: the device; by default that of `lm.device`. `keep_quantized`,
    `compute_dtype`, `adapter`, `adapters`, `projector`: as of `lm.models.load`. `template`: a chat
    template instead of the model's. `draft`: a smaller model that proposes tokens, or "lookup":
    from the text itself.
    `cache_dtype`: of keys and values that are kept; by default what the model's products multiply.
    `ranks`: who runs the model; each keeps its part of it, and all must call this.
    Raises LoadError, and InputError for a draft of another vocabulary, a model that the ranks
    cannot be given in equal parts, or a name that cannot be printed.
    """
    called = name or path.rstrip("/").rsplit("/", 1)[-1]
    for client_name in (called, *(adapters or ())):
        if not client_name.isprintable():
            raise InputError(
                f"serve: the name {shown(client_name)} has characters that clients cannot send; "
                "give another, by --name or --adapter NAME=FOLDER"
            )
    if adapters:
        _check_adapters(called, adapters, ranks)
    loaded = loading.load(
        path,
        tokenizer,
        backend=backend,
        context=context,
        keep_quantized=keep_quantized,
        compute_dtype=compute_dtype,
        ahead=ranks.have_all,
        adapter=adapter,
        adapters=adapters,
        projector=projector,
    )
    if isinstance(loaded, Readable):
        return _reading(called, loaded, ranks, template=template, draft=draft, cache=cache)
    if not isinstance(loaded, LanguageModel):
        raise InputError(f"serve: {path} is a {type(loaded).__name__}, which is not served")
    if template is not None:
        loaded.use_template(template)
    ranks.cut(loaded.model)
    proposes = None if draft is None or not ranks.is_first else _draft(draft, loaded)
    models = [held for held in (loaded.model, proposes) if isinstance(held, Decoder)]
    dtype = kept_dtype(loaded.model, cache_dtype)
    most = CACHE_BYTES // sum(bytes_per_token(model, dtype) for model in models)
    most = ranks.same(most)  # a draft lies on the first rank alone
    if cache is None:
        cache = min(rows * loaded.context, max(loaded.context, most))
    size = EngineOptions().size
    options = EngineOptions(
        rows, chunk, size, -(-cache // size) * size, loaded.backend, dtype, ranks
    )
    return Served(called, loaded, options, proposes)


def _check_adapters(name: str, adapters: Mapping[str, str], ranks: Ranks) -> None:
    """Raises InputError for a name that is the model's, and for ranks that have it in parts."""
    if name in adapters:
        raise InputError(
            f"serve: --adapter {name}={adapters[name]}: {name!r} is the model's own name; give the "
            "adapter another one, or the model, by --name"
        )
    if ranks is not ALONE:
        raise InputError(
            "serve: --adapter NAME=FOLDER is for a model that one rank has alone, or --replicas; "
            "with --tensor merge one adapter: --adapter FOLDER"
        )


def _reading(name: str, model: Readable, ranks: Ranks, **options: Any) -> Reading:
    """A model that writes no text, compiled. Raises InputError for options of those that do."""
    if not ranks.is_first or ranks is not ALONE:
        raise InputError(f"serve: {name} is a {type(model).__name__}, which one rank runs alone")
    for option, value in options.items():
        if value is not None:
            raise InputError(
                f"serve: --{option} is for language models; {name} is a {type(model).__name__}"
            )
    if isinstance(model, Transcriber):
        model.writer.compile()
    else:
        model.compile()
    return Reading(name, model)


def _draft(path: str, loaded: LanguageModel) -> Decoder | PromptLookup:
    if path == "lookup":
        return PromptLookup()
    smaller = loading.load(path, backend=loaded.backend)
    if not isinstance(smaller, LanguageModel):
        raise InputError(f"draft: {path} is no language model of the kind that is served")
    check_vocabulary(smaller.tokenizer, loaded.tokenizer)
    return smaller.model


def kept_dtype(model: Decoder, wanted: Any = None) -> DType:
    """The dtype of keys and values that are kept: what is wanted, else bfloat16 where the model's
    products multiply that, and float32 elsewhere. Raises DTypeError for one that keeps no floats.
    """
    if wanted is None:
        return bfloat16 if model.compute_dtype is bfloat16 else float32
    dtype = dtype_of(wanted)
    if dtype not in (bfloat16, float32):
        raise DTypeError(f"cache_dtype: {dtype} is neither float32 nor bfloat16; give one of them")
    return dtype


def bytes_per_token(model: Decoder, dtype: DType = float32) -> int:
    """What the keys and values of one token take. Raises InputError where layers keep others."""
    # Some layers share one cache, which takes its room once.
    caches = dict.fromkeys(model.make_caches(1, dtype))
    for cache in caches:
        if not isinstance(cache, KVCache):
            raise InputError(
                f"serve: the model has layers that keep a {type(cache).__name__}, which has no "
                "blocks; use `luminal generate`"
            )
    states = [state for cache in caches for state in (cache.keys, cache.values)]
    return sum(state.numel() * state.dtype.size for state in states)
