"""Models opened: what is in a folder or a file, with its tokenizer, and what runs it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.backends import registry
from luminal.base import garbage, lazy
from luminal.base.errors import InputError, LoadError
from luminal.base.near_names import suggesting
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.adapters import read_adapter
from luminal.models.architectures import architecture_of, decoder_of
from luminal.models.chat_template import ChatTemplate, special_tokens
from luminal.models.checkpoint import Checkpoint, load_checkpoint, locate, tokenizers_beside
from luminal.models.families import is_family, read_family
from luminal.models.generate import LanguageModel
from luminal.models.named_adapters import keep_apart
from luminal.models.quantized.told import told
from luminal.search.options import CompilationMode, mode_of
from luminal.session.device_choice import chosen_device


@suggesting
@garbage.held()  # nearly all that is made stays
def load(
    path: str | Path,
    tokenizer: str | Path | None = None,
    mode: CompilationMode | str = "fast",
    backend: str | None = None,
    context: int | None = None,
    keep_quantized: bool = False,
    compute_dtype: Any = None,
    ahead: bool = True,
    adapter: str | Path | None = None,
    adapters: Mapping[str, str | Path] | None = None,
    projector: str | Path | None = None,
) -> Any:
    """The model in a folder, a `.gguf`, a llama2.c `.bin`, or of a Hugging Face id.

    A LanguageModel, or for `luminal.models.families` what runs them.

    `backend`: the device; by default that of `lm.device`. `ahead`: a thread begins to read the
    weights; not for a rank, which reads a part of them. The other options are for language models
    alone. `tokenizer`: a tokenizer file, where the model has none; `context`: see LanguageModel;
    `compute_dtype`: what its products multiply, by default bfloat16 where the matrices are, else
    float32 (docs/models.md). `keep_quantized`: packed matrices stay as in the file, which is
    mapped, and are decoded wherever they are read; else they become float32. `adapter`: a folder
    of PEFT (LoRA, DoRA), which is merged into the weights; `adapters`: folders of LoRA by name,
    which are kept apart: a server chooses one for each request, and all else is the model without
    them. `projector`: the mmproj file of a text model in GGUF, by which it sees; by default one
    that lies beside it and fits. Raises LoadError, CompileError for a mode or backend that is not
    here, and InputError for an option that the model does not take, or a file that has none.
    """
    start = time.perf_counter()
    # First of all: a misspelt mode or a missing device is said before gigabytes are read.
    mode, backend = mode_of(mode), registry.find(chosen_device(backend)).name
    place = locate(path)
    if place.is_dir() and is_family(place):
        _refuse(
            path,
            tokenizer=tokenizer,
            context=context,
            compute_dtype=compute_dtype,
            keep_quantized=keep_quantized or None,
            adapter=adapter,
            adapters=adapters or None,
            projector=projector,
        )
        return read_family(place, mode, backend)
    apart = {name: read_adapter(folder) for name, folder in (adapters or {}).items()}
    checkpoint = load_checkpoint(
        place, tokenizer, keep_quantized, keep_order=True, ahead=ahead, adapter=adapter
    )
    model = decoder_of(checkpoint, compute_dtype)
    if apart:
        keep_apart(model, checkpoint, apart)
    tokenizer_of_model = _tokenizer_of(checkpoint, model.config.vocab_size, path)
    loaded = LanguageModel(model, tokenizer_of_model, mode, backend, context)
    if checkpoint.chat_template is not None:
        names = special_tokens(place, tokenizer_of_model)
        loaded.chat_template = ChatTemplate(checkpoint.chat_template, names)
    sees = architecture_of(checkpoint.config, checkpoint.path).sees
    if sees or projector is not None or place.suffix == ".gguf":
        sight_of = lazy.found("luminal.models.seeing:sight_of")
        runs = mode, backend, compute_dtype
        loaded.sight = sight_of(sees, checkpoint, projector, model, *runs) or loaded.sight
    loaded.stats.weights = told(checkpoint, model, keep_quantized)
    loaded.stats.load = time.perf_counter() - start
    return loaded


def _refuse(path: str | Path, **options: Any) -> None:
    """Raises InputError for an option that was given to what is no language model."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{path}: no language model, which alone takes {name}=; leave it out")


def _tokenizer_of(checkpoint: Checkpoint, count: int, path: str | Path) -> Tokenizer:
    """The tokenizer of a model of `count` ids. Raises LoadError where there is none."""
    tokenizer = checkpoint.tokenizer_for(count)
    if tokenizer is not None:
        return tokenizer
    absent = ""
    if checkpoint.path.suffix == ".bin":
        beside = tokenizers_beside(checkpoint.path, count)
        absent = f", and beside it there is no {' or '.join(file.name for file in beside)}"
    raise LoadError(
        f"{path}: the model has no tokenizer{absent}; name one, with --tokenizer or tokenizer=..."
    )
