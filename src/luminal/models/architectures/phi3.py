"""Phi-3 and Phi-4: a Llama with fused projections. arXiv 2404.14219, 2412.08905."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of, rotary_of, same_windows
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    eps = fields.number("rms_norm_eps", 1e-5, most=1)
    layers = layers_of(fields, same_windows(fields), rotary_of(fields, share=1.0))
    return decoder(fields, layers, norm_eps=eps)


PHI3 = Architecture(config)
