"""MiniCPM3: latent attention, and three scales. Hu et al., arXiv 2404.06395."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.deepseek import (
    LATENT,
    LATENT_KEYS,
    LATENT_NAMES,
    latent_layers,
    read_latent,
    written_latent,
)
from luminal.models.architectures.settings import TIED, epsilon, layer_count, number
from luminal.models.decoder_config import DecoderConfig
from luminal.models.gguf.form import GGUF


def _residual_scale(fields: Fields) -> float:
    # Null stands for a scale of 1 here, so the default is what cancels the division.
    depth = math.sqrt(layer_count(fields))
    return (fields.number_or_none("scale_depth", 1.4) or depth) / depth


def _logit_scale(fields: Fields) -> float:
    hidden = fields.integer("hidden_size")
    return (fields.number_or_none("dim_model_base", 256) or hidden) / hidden


def _read(reader: Any) -> Mapping[str, Any]:
    """Converters leave out how wide a head of values is; readers then divide the features."""
    width = reader.integer("embedding_length") // reader.integer("attention.head_count")
    return read_latent(reader, width)


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    # Readers know the scales of the one published model; files have no key for another.
    return {**written_latent(config), "residual_scale": None, "logit_scale": None}


MINICPM3 = Architecture(
    "MiniCPM3ForCausalLM",
    {
        **LATENT,
        **TIED,
        "norm_eps": epsilon(1e-5),
        "embedding_scale": number("scale_emb", 12),
        "residual_scale": _residual_scale,
        "logit_scale": _logit_scale,
    },
    layers=lambda fields: latent_layers(fields, interleaved=False),
    only={"mlp_bias": False},
    gguf=GGUF(
        "minicpm3",
        keys={**LATENT_KEYS, "embedding_scale": None},
        names=LATENT_NAMES,
        read=_read,
        written=_written,
    ),
)
