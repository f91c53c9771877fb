"""OLMo 2 and 3: norms after attention and feed-forward, and over queries and keys.

arXiv 2501.00656, 2512.13961.
"""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import (
    decoder,
    layers_of,
    layers_of_two_rotaries,
    refuse,
)
from luminal.models.decoder_config import DecoderConfig, LayerConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json` of OLMo 2."""
    return _decoder(fields, layers_of(fields))


def config3(fields: Fields) -> DecoderConfig:
    """Of OLMo 3: of four layers three slide; a scaling of positions is the others'."""
    if not fields.section("rope_parameters"):
        refuse(fields, rope_theta=5e5)  # versions of transformers give another to other layers
    near = Fields({}, fields.path)
    layers = layers_of_two_rotaries(fields, lambda layer: (layer + 1) % 4 != 0, near, 5e5)
    return _decoder(fields, layers)


def _decoder(fields: Fields, layers: tuple[LayerConfig, ...]) -> DecoderConfig:
    bias = fields.flag("attention_bias", False)
    return decoder(
        fields,
        layers,
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        norm_place="after",
        qk_norm="projection",
        attention_bias=bias,
        output_bias=bias,
    )


_NAMES = {
    ".post_attention_layernorm.": ".attention_output_norm.",
    ".post_feedforward_layernorm.": ".mlp_output_norm.",
}

OLMO2 = Architecture(config, _NAMES)
OLMO3 = Architecture(config3, _NAMES)
