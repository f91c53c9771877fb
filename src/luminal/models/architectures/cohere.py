"""Command R and R7B: parallel layers with one norm, whose logits are scaled. Cohere 2024.

R7B: windows; layers without one know no positions. arXiv 2504.00698.
"""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of, windows_of
from luminal.models.architectures.settings import TIED, attention_biases, choice, epsilon, number
from luminal.models.decoder_config import LayerConfig, Layers
from luminal.models.gguf.form import ANY_LAYER, GGUF

_SETTINGS = {
    **attention_biases(),
    **TIED,
    "norm": "layer_without_bias",
    "norm_eps": epsilon(1e-5, "layer_norm_eps"),
    "parallel": "shared",
    "logit_scale": number("logit_scale", 0.0625),
}


def _layers_of_r7b(fields: Fields) -> Layers:
    """Three layers of four slide, and the fourth knows no positions."""
    pattern = fields.integer("sliding_window_pattern", 4)
    windows = windows_of(fields, lambda layer: (layer + 1) % pattern != 0)
    layers = layers_of(fields, windows, rotary_of(fields, interleaved=True))
    # Layers that see the whole text turn nothing (arXiv 2504.00698): far positions are then no
    # angles that training never saw.
    return tuple(layer if layer.window is not None else LayerConfig() for layer in layers)


COHERE = Architecture(
    "CohereForCausalLM",
    {**_SETTINGS, "qk_norm": choice("use_qk_norm", False, "unlike_heads")},
    layers=lambda fields: layers_of(fields, rotary=rotary_of(fields, theta=5e5, interleaved=True)),
    gguf=GGUF("command-r", "cohere"),
)
COHERE2 = Architecture(
    "Cohere2ForCausalLM",
    _SETTINGS,
    layers=_layers_of_r7b,
    only={"use_qk_norm": False},
    gguf=GGUF("cohere2", windowed=ANY_LAYER, windows=4),
)
