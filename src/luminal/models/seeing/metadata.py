"""What the metadata of mmproj files says of a tower, in the terms of a `config.json`.

Keys: https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields

_CHANNELS = 3


def vision_config(metadata: Fields, gelu: str, epsilon: float = 1e-6) -> dict[str, Any]:
    """A `vision_config`. `gelu`: the function that the family's files mean by it."""
    sizes = {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "image_size": "image_size",
        "patch_size": "patch_size",
    }
    return {
        **{name: metadata.integer(f"clip.vision.{key}") for name, key in sizes.items()},
        "layer_norm_eps": metadata.number(
            "clip.vision.attention.layer_norm_epsilon", epsilon, most=1
        ),
        "hidden_act": activation_of(metadata, gelu),
    }


def activation_of(metadata: Fields, gelu: str) -> str:
    """Two flags say it; where neither is set, it is CLIP's own. `gelu`: see `vision_config`."""
    flags = {f"clip.use_{name}": metadata.flag(f"clip.use_{name}", False) for name in _GATES}
    if all(flags.values()):
        raise LoadError(
            f"{metadata.path}: {' and '.join(flags)} are both true; a tower has one activation, so "
            "the file is damaged"
        )
    if flags["clip.use_gelu"]:
        return gelu
    return "silu" if flags["clip.use_silu"] else "quick_gelu"


_GATES = ("gelu", "silu")


def image_values(metadata: Fields) -> Mapping[str, Any]:
    """The mean and deviation of channels. Raises LoadError where there are not three of each."""
    values = {}
    for name in ("image_mean", "image_std"):
        key = f"clip.vision.{name}"
        values[name] = metadata.listed(key, float)
        if len(values[name]) != _CHANNELS:
            raise LoadError(
                f"{metadata.path}: {key} has {len(values[name])} numbers; it must have one for "
                f"each of {_CHANNELS} channels"
            )
    return values
