"""A model as what a GGUF file says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from luminal.base.errors import InputError, LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.gguf import GGUFFile, StoredTensor
from luminal.loaders.mapped import Array
from luminal.loaders.shown import shown
from luminal.loaders.write_gguf import NAMES
from luminal.models.architectures import architecture_of, records
from luminal.models.architectures.architecture import DERIVED, Architecture, tie
from luminal.models.checkpoint import Checkpoint
from luminal.models.decoder_config import DecoderConfig
from luminal.models.gguf.changes import Heads
from luminal.models.gguf.metadata import check_same, metadata_of, rotary_tensors
from luminal.models.gguf.read import architecture_of_file, config_of
from luminal.models.gguf.tensors import form_of, gguf_tensors, take_listed


def gguf_model(checkpoint: Checkpoint) -> tuple[dict[str, Any], dict[str, Array]]:
    """The metadata and tensors of a GGUF file of the model, without its tokenizer.

    Raises InputError for what such files have no word for.
    """
    path = checkpoint.path
    source = architecture_of(checkpoint.config, path)
    config = source.config(Fields(checkpoint.config, path))
    to = _written_as(config, checkpoint)
    name = form_of(to).name
    heads = Heads(config.num_attention_heads, config.num_key_value_heads, *_grouping(config))
    plain = source.unpacked(checkpoint.tensors)
    sources = {  # of a model that sees the text part
        name: array
        for name, array in plain.items()
        if name.startswith(source.parts or "") and not DERIVED.fullmatch(name)
    }
    tensors = gguf_tensors(sources, to, heads) | rotary_tensors(config)
    listed = take_listed(tensors, form_of(to))
    # Some checkpoints hold both although they say that they are tied.
    if config.tie_word_embeddings and "output.weight" in tensors:
        tie(tensors, "token_embd.weight", "output.weight")
        config = replace(config, tie_word_embeddings="output.weight" not in tensors)
    metadata = {
        "general.architecture": name,
        **{f"{name}.{key}": value for key, value in metadata_of(config, to).items()},
        **listed,
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if type(checkpoint.config.get(f"{role}_token_id")) is int:
            metadata[f"tokenizer.ggml.{key}_token_id"] = checkpoint.config[f"{role}_token_id"]
    file = GGUFFile(
        metadata, {n: StoredTensor(NAMES[a.dtype], a.shape, a) for n, a in tensors.items()}
    )
    # Nothing checks a writer better than the reader: the metadata is read back, and must give the
    # configuration that it was made from. A setting without a key in the format shows here, instead
    # of as another model in another program.
    again = architecture_of_file(file, path)
    try:
        read = config_of(file, again, path)
    except LoadError as error:
        raise InputError(f"convert: GGUF files of {name} cannot say it: {error}") from error
    check_same(config, architecture_of(read, path).config(Fields(read, path)), name)
    return metadata, tensors


def _grouping(config: DecoderConfig) -> tuple[int, int, int]:
    """The groups of heads of a state space, those of a group, and its states; see `Heads`."""
    mixers = [layer.mixer or getattr(layer.block, "mixer", None) for layer in config.layers]
    groupings = (getattr(mixer, "grouping", None) for mixer in mixers)
    return next((grouping for grouping in groupings if grouping is not None), (1, 1, 1))


def _written_as(config: DecoderConfig, checkpoint: Checkpoint) -> Architecture:
    """The record that says how models of the class, and of this configuration, are written."""
    name = checkpoint.config["architectures"][0]
    written = [record for record in records() if record.gguf is not None]
    for record in written:
        if record.name == name and form_of(record).only_for(config):
            return record
    classes = ", ".join(sorted({record.name for record in written}))
    raise InputError(
        f"{checkpoint.path}: {shown(name)} has no place in GGUF files; these have {classes}"
    )
