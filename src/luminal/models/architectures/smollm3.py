"""SmolLM3: a Llama with some layers that know no positions. Yang et al., arXiv 2501.18795."""

from __future__ import annotations

from dataclasses import replace

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of, windows_of
from luminal.models.architectures.settings import TIED, attention_biases, flag, layer_count
from luminal.models.decoder_config import Layers
from luminal.models.gguf.changes import INTERLEAVED
from luminal.models.gguf.form import GGUF


def _layers(fields: Fields) -> Layers:
    """By `no_rope_layers`, which has a 1 for every layer that is rotary."""
    count = layer_count(fields)
    interval = fields.integer("no_rope_layer_interval", 4)
    default = [int((number + 1) % interval != 0) for number in range(count)]
    rotary = fields.listed("no_rope_layers", int, default)
    if len(rotary) != count:
        raise LoadError(f"{fields.path}: no_rope_layers has {len(rotary)} of {count} layers")
    windowed = fields.flag("use_sliding_window", False)
    windowed = windowed and fields.values.get("sliding_window") is not None
    windows = windows_of(fields, lambda number: windowed and not rotary[number])
    layers = layers_of(fields, windows, rotary_of(fields, theta=2e6))
    return tuple(
        layer if turned else replace(layer, rotary=None)
        for layer, turned in zip(layers, rotary, strict=True)
    )


SMOLLM3 = Architecture(
    "SmolLM3ForCausalLM",
    {**attention_biases(), **TIED, "mlp_bias": flag("mlp_bias", False)},
    layers=_layers,
    gguf=GGUF("smollm3", changes=INTERLEAVED),
)
