"""Phi-3 and Phi-4: a Llama with fused projections. arXiv 2404.14219, 2412.08905."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of, same_windows
from luminal.models.architectures.settings import epsilon
from luminal.models.decoder_config import Layers
from luminal.models.gguf.form import ALL_LAYERS, GGUF
from luminal.models.gguf.names import FUSED_GATE


def _layers(fields: Fields) -> Layers:
    return layers_of(fields, same_windows(fields), rotary_of(fields, share=1.0))


PHI3 = Architecture(
    "Phi3ForCausalLM",
    {"norm_eps": epsilon(1e-5)},
    layers=_layers,
    gguf=GGUF(
        "phi3",
        keys={"rope.scaling.original_context_length": "original_max_position_embeddings"},
        names=FUSED_GATE,
        windowed=ALL_LAYERS,
    ),
)
