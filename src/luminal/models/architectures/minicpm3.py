"""MiniCPM3: latent attention, and three scales. Hu et al., arXiv 2404.06395."""

from __future__ import annotations

import math

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.deepseek import LATENT, latent_layers
from luminal.models.architectures.settings import TIED, epsilon, layer_count, number


def _residual_scale(fields: Fields) -> float:
    # Null stands for a scale of 1 here, so the default is what cancels the division.
    depth = math.sqrt(layer_count(fields))
    return (fields.number_or_none("scale_depth", 1.4) or depth) / depth


def _logit_scale(fields: Fields) -> float:
    hidden = fields.integer("hidden_size")
    return (fields.number_or_none("dim_model_base", 256) or hidden) / hidden


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
)
