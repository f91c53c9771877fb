"""Mixtral: a Mistral whose feed-forward parts are experts. Jiang et al., arXiv 2401.04088."""

from __future__ import annotations

from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import always, decoder, layers_of, refuse
from luminal.models.decoder import DecoderConfig, ExpertsConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    refuse(fields, hidden_act="silu")
    layers = layers_of(fields, always(fields))
    return decoder(
        fields,
        tuple(replace(layer, experts=True) for layer in layers),
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
