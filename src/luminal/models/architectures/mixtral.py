"""Mixtral: a Mistral whose feed-forward parts are experts. Jiang et al., arXiv 2401.04088."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, later, layers_of, rotary_of, same_windows
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    layers = layers_of(fields, same_windows(fields), rotary_of(fields, theta=1e6))
    return decoder(
        fields,
        later(layers, 0, experts=True),
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        experts=ExpertsConfig(
            fields.integer("num_local_experts", 8),
            fields.integer("num_experts_per_tok", 2),
            fields.integer("intermediate_size"),
        ),
    )


MIXTRAL = Architecture(
    config,
    {
        ".block_sparse_moe.": ".mlp.",
        ".w1.": ".gate_proj.",
        ".w2.": ".down_proj.",
        ".w3.": ".up_proj.",
    },
)
