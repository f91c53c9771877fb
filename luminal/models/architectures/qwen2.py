"""Qwen2 and Qwen2.5: queries, keys and values have biases. arXiv 2407.10671."""

from __future__ import annotations

from collections.abc import Callable

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of
from luminal.models.decoder import DecoderConfig


def later_layers(fields: Fields) -> Callable[[int], bool]:
    """Layers from `max_window_layers` on slide, where `use_sliding_window` says so."""
    used = fields.flag("use_sliding_window", False)
    used = used and fields.values.get("sliding_window") is not None
    first = fields.integer("max_window_layers", 28, least=0)
    return lambda layer: used and layer >= first


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    return decoder(fields, layers_of(fields, later_layers(fields)), attention_bias=True)


QWEN2 = Architecture(config)
