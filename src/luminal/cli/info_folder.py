"""What `luminal info` shows of a folder of a model: its architecture, sizes and parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.base.errors import LoadError
from luminal.cli.console import console, table
from luminal.loaders.ggml.types import BLOCKS, kind_of
from luminal.loaders.mapped import Array, is_there
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import read_tokenizer_json
from luminal.models.architectures import architecture_of
from luminal.models.checkpoint import folder_chat_template, folder_config, folder_tensors
from luminal.models.families import family_of

Row = tuple[str, str, tuple[int, ...], int]
"""A tensor's name, type, dims and bytes."""

FLOATS = "fV"
"""NumPy's kinds of what is trained: V are bfloat16 and packed blocks, not positions or counts."""


def show_folder(folder: Path) -> list[Row]:
    """Print what the folder says of its model, and return its tensors. Raises LoadError."""
    config = folder_config(folder)
    tensors = folder_tensors(folder, keep_quantized=True)
    out = console()
    weights = sum(math.prod(_dims(a)) for a in tensors.values() if a.dtype.kind in FLOATS)
    out.print(f"{folder}: {_architecture(config, folder)}, {weights:,} weights")
    sizes = table("config.json", "")
    for name, value in config.items():
        # Models of several parts keep a section for each: "text_config", "vision_config".
        section = value if isinstance(value, Mapping) else {"": value}
        for key, entry in section.items():
            if isinstance(entry, int | float | str):
                sizes.add_row(f"{name}.{key}" if key else name, shown(entry))
    out.print(sizes)
    out.print(f"tokenizer: {_tokenizer(folder)}")
    template = folder_chat_template(folder)
    out.print(f"chat template: {'none' if template is None else f'{len(template):,} characters'}")
    return [_row(name, array) for name, array in tensors.items()]


def _architecture(config: Mapping[str, Any], folder: Path) -> str:
    """The name of an architecture, or the reason why Luminal does not read it."""
    if family := family_of(config):
        return f"{config['architectures'][0]} ({type(family).__name__})"
    try:
        return architecture_of(config, folder / "config.json").name
    except LoadError as error:
        return f"not a model that can be read ({error})"


def _tokenizer(folder: Path) -> str:
    path = folder / "tokenizer.json"
    return f"{read_tokenizer_json(path).vocab_size:,} tokens" if is_there(path) else "none"


def _row(name: str, array: Array) -> Row:
    """A tensor as it is stored, with the dims of the weights that it stands for."""
    kind = str(array.dtype) if array.dtype.names is None else kind_of(array)
    return name, kind, _dims(array), array.nbytes


def _dims(array: Array) -> tuple[int, ...]:
    if array.dtype.names is None:
        return array.shape
    return *array.shape[:-1], array.shape[-1] * BLOCKS[kind_of(array)].size
