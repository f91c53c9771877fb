"""MiniCPM3: latent attention, and three scales. Hu et al., arXiv 2404.06395."""

from __future__ import annotations

import math

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.deepseek import latent_decoder
from luminal.models.architectures.settings import layer_count, refuse
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    refuse(fields, mlp_bias=False)
    hidden, depth = fields.integer("hidden_size"), math.sqrt(layer_count(fields))
    return latent_decoder(
        fields,
        False,
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        embedding_scale=fields.number("scale_emb", 12),
        residual_scale=(fields.number_or_none("scale_depth", 1.4) or depth) / depth,
        logit_scale=(fields.number_or_none("dim_model_base", 256) or hidden) / hidden,
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
    )


MINICPM3 = Architecture(config)
