"""Mistral, a Llama with a sliding window, Ministral, Ministral 3. arXiv 2310.06825, 2601.08584."""

from __future__ import annotations

from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import (
    later,
    layers_of,
    original_positions,
    rope_section,
    rotary_of,
    same_windows,
    windows_of,
)
from luminal.models.architectures.settings import Setting
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import Layers
from luminal.models.gguf.changes import INTERLEAVED
from luminal.models.gguf.form import ALL_LAYERS, ANY_LAYER, GGUF
from luminal.nn.attention import Temperature

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
"""Where a file of Ministral 3 says nothing of positions."""


def _is_third(fields: Fields) -> bool:
    """Is it Ministral 3, also as a part of Mistral 3?"""
    return fields.values.get("model_type") == "ministral3"


def _layers(fields: Fields) -> Layers:
    """Ministral 3 has a temperature of queries among its rotary parameters."""
    rope = rope_section(fields)
    if _is_third(fields) and not rope:
        rope = replace(fields, values=_YARN, what="rope_parameters")
    layers = layers_of(fields, same_windows(fields), rotary_of(fields, rope))
    scale = rope.number_or_none("llama_4_scaling_beta")
    if scale is None:
        return layers
    return later(layers, 0, temperature=Temperature(scale, original_positions(fields, rope)))


def _epsilon(fields: Fields) -> float:
    # Both are the defaults of transformers for their models, which files may leave out.
    return fields.number("rms_norm_eps", 1e-5 if _is_third(fields) else 1e-6, most=1)


def _layers_of_kinds(fields: Fields) -> Layers:
    """Some layers of Ministral may see all; by default none does."""
    windowed = fields.values.get("sliding_window") is not None
    return layers_of(fields, windows_of(fields, lambda layer: windowed))


MINISTRAL = Architecture(
    "MinistralForCausalLM",
    layers=_layers_of_kinds,
    gguf=GGUF(
        "llama",
        "ministral",
        changes=INTERLEAVED,
        windowed=ANY_LAYER,
        only_with=("attention.sliding_window_pattern",),
        only_without=("expert_count",),
    ),
)
MISTRAL = Architecture(
    "MistralForCausalLM",
    {"norm_eps": Setting("rms_norm_eps", _epsilon)},
    layers=_layers,
    gguf=GGUF(
        "llama",
        "mistral",
        changes=INTERLEAVED,
        windowed=ALL_LAYERS,
        only_with=("attention.sliding_window",),
        only_without=("expert_count", "attention.sliding_window_pattern"),
    ),
)
MINISTRAL3 = replace(MISTRAL, name="Ministral3ForCausalLM", gguf=None)
MISTRAL_TEXT = text_part("Mistral3ForConditionalGeneration", MISTRAL)
