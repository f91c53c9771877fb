"""The text part of LLaVA, which is one of several decoders. arXiv 2304.08485."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.llama import LLAMA
from luminal.models.architectures.mistral import MISTRAL
from luminal.models.architectures.qwen2 import QWEN2
from luminal.models.architectures.text_part import text_part


def _part(decoder: Architecture, **defaults: Any) -> Architecture:
    """The head is tied where the whole model's file or the part says so."""
    part = text_part("LlavaForConditionalGeneration", decoder, "llava:LLAVA", **defaults)

    def read(fields: Fields) -> Fields:
        inner = fields.section("text_config").flag("tie_word_embeddings", False)
        tied = inner or fields.flag("tie_word_embeddings", False)
        return part.read(replace(fields, values={**fields.values, "tie_word_embeddings": tied}))

    return replace(part, read=read)


# Files say of Llama's only where it is not the smallest one.
_TEXTS = {
    "llama": _part(
        LLAMA,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        vocab_size=32000,
    ),
    "mistral": _part(MISTRAL),
    "qwen2": _part(QWEN2),
}
LLAVA_TEXT = replace(_TEXTS["llama"], texts=_TEXTS)
