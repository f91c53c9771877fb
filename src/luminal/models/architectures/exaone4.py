"""EXAONE 4: norms after both parts; layers without a window know no positions. arXiv 2507.11407."""

from __future__ import annotations

from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import NORMS_AFTER, Architecture
from luminal.models.architectures.layers import layers_of, windows_of
from luminal.models.architectures.settings import epsilon
from luminal.models.decoder_config import Layers
from luminal.models.gguf.form import ANY_LAYER, GGUF


def _layers(fields: Fields) -> Layers:
    """Every layer is rotary where none has a window."""
    if fields.values.get("sliding_window") is None:
        return layers_of(fields, windows_of(fields, lambda layer: False))
    pattern = fields.integer("sliding_window_pattern", 4)
    layers = layers_of(fields, windows_of(fields, lambda layer: (layer + 1) % pattern != 0))
    return tuple(
        layer if layer.window is not None else replace(layer, rotary=None) for layer in layers
    )


EXAONE4 = Architecture(
    "Exaone4ForCausalLM",
    {"norm_eps": epsilon(1e-5), "norm_place": "after", "qk_norm": "head"},
    NORMS_AFTER,
    layers=_layers,
    gguf=GGUF("exaone4", windowed=ANY_LAYER, windows=4),
)
