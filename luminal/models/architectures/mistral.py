"""Mistral: a Llama with a sliding window. Jiang et al., arXiv 2310.06825."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import always, decoder, layers_of
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    return decoder(fields, layers_of(fields, always(fields)))


MISTRAL = Architecture(config)
