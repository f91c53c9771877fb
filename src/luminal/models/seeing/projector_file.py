"""A vision tower and its projector from an mmproj file, the GGUF file beside that of a text model.

Names of tensors: https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.base import lazy
from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.gguf import StoredTensor, read_gguf
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import HuggingFaceTokenizer
from luminal.models.seeing.record import ProjectorFile, Seeing, Sees

RECORDS = {
    "gemma3": "gemma3:GEMMA3",
    "idefics3": "idefics3:IDEFICS3",
    "mlp": "llava:LLAVA",
    "qwen2vl_merger": "qwen2_vl:QWEN2_VL",
    "qwen2.5vl_merger": "qwen2_vl:QWEN2_5_VL",
}
"""Of `clip.projector_type`, in this package."""

_TOWER = {
    "v.class_embd": "embeddings.class_embedding",
    "v.patch_embd": "embeddings.patch_embedding",
    "v.position_embd": "embeddings.position_embedding",
    "v.pre_ln": "pre_layrnorm",
    "v.post_ln": "post_layernorm",
}
_IN_LAYER = re.compile(r"v\.blk\.(\d+)\.(\w+)(\.weight|\.bias)")
_OUTSIDE = re.compile(r"(v\.\w+?)(\.weight|\.bias|)")


def projectors_beside(path: Path) -> list[Path]:
    """Files in the folder of a text model that are called as mmproj files are."""
    return sorted(
        file for file in path.parent.glob("*.gguf") if "mmproj" in file.name and file != path
    )


def read_projector(
    path: Path, text_width: int, vocab_size: int, tokenizer: HuggingFaceTokenizer
) -> Sees:
    """What sees for a text model of so many features and tokens.

    Raises LoadError for another kind of file, for a projector that is not known or of another
    model, and for what is missing.
    """
    file = read_gguf(path)
    metadata = Fields(file.metadata, path, "the metadata")
    record = RECORDS[_type_of(metadata)]
    seeing: Seeing = lazy.found(f"{__package__}.{record}")
    form = seeing.file
    assert form is not None
    _check_width(file.tensors, form, text_width, path)
    said = form.read(metadata)
    ids = _ids(form, tokenizer, vocab_size, path)
    tensors = _named(file.tensors, form, said.config)
    return Sees(
        record,
        path,
        Fields({**said.config, **ids}, path),
        Fields(said.settings, path),
        tensors,
        form.placeholder,
    )


def _type_of(metadata: Fields) -> str:
    """The type of a projector for images. Raises LoadError for another file or type."""
    path, name = metadata.path, metadata.values.get("general.architecture")
    if name != "clip":
        raise LoadError(
            f"{path}: general.architecture is {shown(name)}; that of an mmproj file is 'clip'; "
            "give the one that is published with the text model, as mmproj-F16.gguf"
        )
    if not metadata.flag("clip.has_vision_encoder", False):
        raise LoadError(
            f"{path}: clip.has_vision_encoder is not true: the file has no tower for images; give "
            "one that has"
        )
    # Files of several towers say it for each.
    kind = metadata.text("clip.vision.projector_type", "")
    kind = kind or metadata.text("clip.projector_type", "mlp")
    if kind not in RECORDS:
        raise LoadError(
            f"{path}: clip.projector_type {shown(kind)} is not supported; "
            f"{', '.join(RECORDS)} are; a folder of Hugging Face's may be (docs/models.md)"
        )
    return kind


def _check_width(
    tensors: Mapping[str, StoredTensor], form: ProjectorFile, width: int, path: Path
) -> None:
    """Raises LoadError where vectors have not the features of the text model's."""
    name, axis = form.output
    if name not in tensors:
        raise LoadError(f"{path}: tensor {name!r} is missing; download the file again")
    shape = tensors[name].shape
    if len(shape) != 2 or shape[axis] != width:
        raise LoadError(
            f"{path}: tensor {name!r} has the shape {shown(list(shape))}, and dim {axis} must be "
            f"{width}, the features of the text model; take the mmproj file of this model"
        )


def _ids(
    form: ProjectorFile, tokenizer: HuggingFaceTokenizer, count: int, path: Path
) -> dict[str, int]:
    """The ids of tokens, which the metadata of text models has no keys for."""
    ids = {}
    for key, names in form.tokens.items():
        numbers = (tokenizer.id_of(name) for name in names)
        # A tokenizer may have names that the model has no rows for.
        number = next((n for n in numbers if n is not None and n < count), None)
        if number is None:
            raise LoadError(
                f"{path}: the tokenizer has no token {' or '.join(map(repr, names))}, which its "
                "images need; take the mmproj file of this model"
            )
        ids[key] = number
    return ids


def _named(
    tensors: Mapping[str, StoredTensor], form: ProjectorFile, config: Mapping[str, Any]
) -> dict[str, Any]:
    """The arrays under Hugging Face's names; one that is not known keeps its own."""
    swapped = _layers_swapped(tensors, config)
    arrays = {}
    for name, tensor in tensors.items():
        array = tensor.array()
        if name in form.changes:
            array = form.changes[name](array)
        arrays[_name(name, form, swapped)] = array
    return arrays


def _layers_swapped(
    tensors: Mapping[str, StoredTensor], config: Mapping[str, Any]
) -> frozenset[str]:
    """Numbers of the layers whose two products have each other's names."""
    # The first converters called the first product the way down. The widths tell; where both are
    # equal nothing does, and such files are taken for old ones, as llama.cpp takes them.
    vision = config["vision_config"]
    width = vision.get("embed_dim") or vision["hidden_size"]
    matches = ((_IN_LAYER.fullmatch(name), tensor) for name, tensor in tensors.items())
    return frozenset(
        match[1]
        for match, tensor in matches
        if match
        and match[2] == "ffn_down"
        and match[3] == ".weight"
        and tensor.shape[-1:] == (width,)
    )


_SWAPPED = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}


def _name(name: str, form: ProjectorFile, swapped: frozenset[str]) -> str:
    """Hugging Face's name, or the same where there is none."""
    if name in form.names:
        return form.projector + form.names[name]
    match = _IN_LAYER.fullmatch(name)
    if match is not None:
        part = _SWAPPED.get(match[2], match[2]) if match[1] in swapped else match[2]
        if part in form.parts:
            return f"{form.tower}{form.layers}{match[1]}.{form.parts[part]}{match[3]}"
    match = _OUTSIDE.fullmatch(name)
    if match is not None and match[1] in _TOWER:
        return f"{form.tower}{_TOWER[match[1]]}{match[2]}"
    return name
