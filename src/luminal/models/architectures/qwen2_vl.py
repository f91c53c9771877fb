"""The text parts of Qwen2-VL and Qwen2.5-VL: Qwen2, whose positions may have rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rope_section, rotary_of, windows_of
from luminal.models.architectures.qwen2 import QWEN2
from luminal.models.architectures.settings import head_dim
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder_config import DecoderConfig, Layers
from luminal.models.gguf.form import ANY_LAYER, GGUF

_SECTIONS = [16, 24, 24]
_NEWER = "model.language_model."
_OLDER = ("model.layers.", "model.embed_tokens.", "model.norm.")
"""How the names of the text part's weights begin in files from before transformers 4.52."""
_COUNTS = "rope.dimension_sections"


def _layers(fields: Fields) -> Layers:
    """The frequencies are dealt out to time, rows and columns."""
    rope = rope_section(fields)
    values: dict[str, Any] = dict(rope.values)
    if (values.get("rope_type") or values.get("type")) == "mrope":
        values["rope_type"] = "default"
    sections = rope.listed("mrope_section", int, _SECTIONS)
    if len(sections) != 3 or min(sections) < 0 or sum(sections) * 2 != head_dim(fields):
        raise LoadError(
            f"{rope.path}: mrope_section is {shown(sections)}; it must be three numbers, together "
            f"half of a head's {head_dim(fields)} features"
        )
    rotary = replace(rotary_of(fields, replace(rope, values=values), 1e6), sections=(*sections,))
    first = fields.integer("max_window_layers", 80, least=0)
    used = fields.flag("use_sliding_window", False)
    windows = windows_of(fields, lambda layer: used and layer >= first)
    return layers_of(fields, windows, rotary)


def _read(reader: Any) -> Mapping[str, Any]:
    """The frequencies of time, rows and columns; files have a fourth number, for what has more."""
    key = reader.key(_COUNTS)
    sections = reader.fields.listed(key, int)
    if len(sections) not in (3, 4) or sections[3:] not in ([], [0]):
        raise LoadError(
            f"{reader.fields.path}: {key} is {shown(sections)}; it must be three numbers, for "
            "time, rows and columns, and a 0; download the file again"
        )
    rope = {**reader.rope(), "mrope_section": sections[:3]}
    return {"rope_parameters": rope, **reader.further_layers()}


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    rotary = config.layers[0].rotary
    assert rotary is not None
    assert rotary.sections is not None
    return {_COUNTS: [*rotary.sections, 0]}


# The files' text parts are the same in both, and so are their names: that of the first is told.
_FORM = GGUF("qwen2vl", "qwen2_vl", windowed=ANY_LAYER, read=_read, written=_written)


def _part(name: str, sees: str) -> Architecture:
    """Older files have the text part's settings beside the whole model's."""
    part = text_part(name, replace(QWEN2, layers=_layers), sees)

    def read(fields: Fields) -> Fields:
        if not fields.section("text_config"):
            fields = replace(fields, values={**fields.values, "text_config": fields.values})
        return part.read(fields)

    return replace(
        part,
        read=read,
        names={_NEWER: "model.", **QWEN2.names},
        parts=(_NEWER, *_OLDER, "lm_head."),
        gguf=_FORM,
    )


QWEN2_VL_TEXT = _part("Qwen2VLForConditionalGeneration", "qwen2_vl:QWEN2_VL")
QWEN2_5_VL_TEXT = _part("Qwen2_5_VLForConditionalGeneration", "qwen2_vl:QWEN2_5_VL")
