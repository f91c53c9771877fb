"""Mistral, a Llama with a sliding window, Ministral, Ministral 3. arXiv 2310.06825, 2601.08584."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
from luminal.models.decoder_config import DecoderConfig, Layers
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


def _read_third(reader: Any) -> Mapping[str, Any]:
    """What sharpens scores of long texts, and what scales queries by their positions."""
    rope = reader.rope()
    sharper = reader.number("rope.scaling.yarn_log_multiplier")
    if sharper is not None:  # itself here, a tenth of it in files of DeepSeek
        rope |= {"mscale": sharper, "mscale_all_dim": sharper}
    beta = reader.number("attention.temperature_scale")
    return {"rope_parameters": rope | {"llama_4_scaling_beta": beta}}


def _written_third(config: DecoderConfig) -> Mapping[str, Any]:
    layer = config.layers[0]
    assert layer.rotary is not None
    assert layer.temperature is not None
    said = {"attention.temperature_scale": layer.temperature.scale}
    sharper = (layer.rotary.scaling or {}).get("mscale_all_dim")
    if sharper:
        said["rope.scaling.yarn_log_multiplier"] = sharper
    return said


_THIRD = GGUF(
    "mistral3",
    "ministral3",
    changes=INTERLEAVED,
    only_with=("attention.temperature_scale",),
    only_for=lambda config: config.layers[0].temperature is not None,
    read=_read_third,
    written=_written_third,
)
MINISTRAL3 = replace(MISTRAL, name="Ministral3ForCausalLM", gguf=_THIRD)
# Newer converters call the text part of Mistral Small 3.1 so too; it is a Mistral.
MISTRAL_SMALL = replace(
    MISTRAL,
    gguf=GGUF(
        "mistral3",
        "mistral",
        changes=INTERLEAVED,
        only_without=("attention.temperature_scale",),
        only_for=lambda config: False,
    ),
)
MISTRAL_TEXT = text_part("Mistral3ForConditionalGeneration", MISTRAL)
