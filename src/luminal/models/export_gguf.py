"""A model as what a GGUF file says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from luminal.base.errors import InputError
from luminal.loaders.checkpoint import Checkpoint
from luminal.loaders.fields import Fields
from luminal.loaders.gguf import GGUFFile, StoredTensor
from luminal.loaders.gguf_models.architecture import GGUFArchitecture
from luminal.loaders.gguf_models.config import architecture_of as gguf_architecture_of
from luminal.loaders.gguf_models.config import config_of
from luminal.loaders.gguf_models.rearranged import Heads
from luminal.loaders.gguf_models.table import ARCHITECTURES
from luminal.loaders.gguf_models.weights import gguf_tensors, has_names
from luminal.loaders.mapped import Array
from luminal.loaders.shown import shown
from luminal.loaders.write_gguf import NAMES
from luminal.models.architectures import architecture_of
from luminal.models.architectures.architecture import DERIVED, tie
from luminal.models.gguf_metadata import check_same, metadata_of, rotary_tensors


def gguf_model(checkpoint: Checkpoint) -> tuple[dict[str, Any], dict[str, Array]]:
    """The metadata and tensors of a GGUF file of the model, without its tokenizer.

    Raises InputError for what such files have no word for.
    """
    path = checkpoint.path
    read_config = architecture_of(checkpoint.config, path)
    config = read_config.config(Fields(checkpoint.config, path))
    to = _gguf_architecture(checkpoint)
    heads = Heads(config.num_attention_heads, config.num_key_value_heads)
    plain = read_config.unpacked(checkpoint.tensors)
    sources = {name: each for name, each in plain.items() if not DERIVED.fullmatch(name)}
    tensors = gguf_tensors(sources, to, heads) | rotary_tensors(config)
    if config.tie_word_embeddings and "output.weight" in tensors:
        tie(tensors, "token_embd.weight", "output.weight")
        config = replace(config, tie_word_embeddings="output.weight" not in tensors)
    metadata = {
        "general.architecture": to.name,
        **{f"{to.name}.{key}": value for key, value in metadata_of(config, to).items()},
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if type(checkpoint.config.get(f"{role}_token_id")) is int:
            metadata[f"tokenizer.ggml.{key}_token_id"] = checkpoint.config[f"{role}_token_id"]
    file = GGUFFile(
        metadata, {n: StoredTensor(NAMES[a.dtype], a.shape, a) for n, a in tensors.items()}
    )
    again = gguf_architecture_of(file, path)
    read = config_of(file, again, path)
    check_same(config, architecture_of(read, path).config(Fields(read, path)), to.name)
    return metadata, tensors


def _gguf_architecture(checkpoint: Checkpoint) -> GGUFArchitecture:
    """That of the class, with names for all tensors where a class has several."""
    name = checkpoint.config["architectures"][0]
    found = [each for each in ARCHITECTURES if each.hugging_face == name]
    if not found:
        known = ", ".join(dict.fromkeys(each.hugging_face for each in ARCHITECTURES))
        raise InputError(
            f"{checkpoint.path}: {shown(name)} has no place in GGUF files; these have {known}"
        )
    for each in found[:-1]:
        if has_names(checkpoint.tensors, each):
            return each
    return found[-1]
