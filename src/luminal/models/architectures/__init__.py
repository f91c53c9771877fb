"""Architectures that are a `Decoder`: a file of this folder has the records of one family.

A record says all of an architecture, so a new one is one more file; nothing lists them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np

from luminal.base import lazy
from luminal.base.errors import InputError, LoadError, ShapeError
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.fields import Fields, naming
from luminal.loaders.ggml.packed import packed
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import Architecture
from luminal.models.checkpoint import OUTPUT, Checkpoint, is_packed, load_checkpoint
from luminal.models.decoder import Decoder, compute_dtype_of


def records(name: str = "") -> Iterator[Architecture]:
    """Every record, those first whose file is called most like `name`.

    Files are imported as they are asked for: a process that finds its model in the first one does
    not wait for the others.
    """
    files = [module.name for module in iter_modules(__path__)]
    # Importing all files would cost more than reading a small model's configuration, and mostly the
    # first one is right: files are called as their architectures are.
    yielded: set[int] = set()  # a file may import a record of another one
    for file in sorted(files, key=lambda file: -_letters_in_common(file, name)):
        for value in vars(import_module(f"{__name__}.{file}")).values():
            if isinstance(value, Architecture) and id(value) not in yielded:
                yielded.add(id(value))
                yield value


def _letters_in_common(file: str, name: str) -> int:
    """The number of letters with which both begin: all of gpt_oss for "GptOssForCausalLM"."""
    pairs = zip(*(re.sub("[-_]", "", text.lower()) for text in (file, name)), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def architecture_of(raw: Mapping[str, Any], path: Path) -> Architecture:
    """The record of a `config.json`; `path` is for messages. Raises LoadError for one not known."""
    name = raw.get("architectures")
    match name:
        case [str(name)]:
            for record in records(name):
                if record.name == name:
                    return record.chosen(Fields(raw, path))
        case [name]:
            pass
    raise LoadError(
        f"{path}: architecture {shown(name)} is not supported (docs/models.md and "
        f"docs/families.md have those that are){_relatives(str(name))}"
    )


def _relatives(name: str) -> str:
    """The supported names of one family, which begin with the same word: "Qwen" or "Mistral"."""
    supported = (
        *sorted({record.name for record in records()}),
        *lazy.found("luminal.models.families:FAMILIES"),
    )
    family = _family(name)
    words = {_family(other).lower() for other in supported}
    near = get_close_matches(family.lower(), words, 1, 0.75)
    same = [other for other in supported if near and _family(other).lower() == near[0]]
    if same:
        return f"; of its family there are {', '.join(same)}"
    return f"; none is of the family {family}" if family else ""


def _family(name: str) -> str:
    """The first word of a name, without what counts versions: "Qwen" of Qwen3MoeForCausalLM."""
    word = re.match(r"[A-Z]*[a-z]*", name)
    return "" if word is None else word[0]


def read_decoder(path: Path, compute_dtype: Any = None) -> Decoder:
    """The model of a folder with a `config.json` and safetensors, or of another kind of file."""
    return decoder_of(load_checkpoint(path, keep_order=True), compute_dtype)


def _without_needless_biases(weights: dict[str, Any], model: Decoder) -> dict[str, Any]:
    """The weights but for biases of zeros that the model does not have: AutoGPTQ wrote one for
    every matrix.
    """
    wanted = {name for name, _ in model.named_parameters()}
    return {
        name: a
        for name, a in weights.items()
        if name in wanted or not name.endswith(".bias") or not _is_zero(a)
    }


def _is_zero(weight: Any) -> bool:
    return isinstance(weight, np.ndarray) and not weight.dtype.names and not weight.any()


def decoder_of(checkpoint: Checkpoint, compute_dtype: Any = None) -> Decoder:
    """The model of a checkpoint, weights in its dtypes.

    `compute_dtype`: see `compute_dtype_of`. Raises LoadError for an architecture or option that
    Luminal does not have, and for weights that do not fit the configuration.
    """
    path = checkpoint.path
    architecture = architecture_of(checkpoint.config, path)
    with naming(checkpoint.place):
        try:
            config = architecture.config(Fields(checkpoint.config, path))
            weights = architecture.weights(checkpoint.tensors, config)
            # The weights decide and not the configuration: a head that differs from the embedding
            # must be kept, whatever a default says of tying.
            if OUTPUT in weights:
                config = replace(config, tie_word_embeddings=False)
            model = Decoder(config)
        except (InputError, ShapeError) as error:
            raise LoadError(f"{path}: {error}") from error
        kept = {
            name: a if isinstance(a, Packed) or not is_packed(a) else packed(a, name)
            for name, a in weights.items()
        }
        model.load_state_dict(_without_needless_biases(kept, model), adopt_dtypes=True)
    model.eval()
    model.computing(compute_dtype_of(model, compute_dtype))
    return model
