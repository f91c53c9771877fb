"""The decoder of a model that also sees or hears: its text part alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.decoder_config import DecoderConfig


def text_part(decoder: Architecture, **defaults: Any) -> Architecture:
    """Of files whose `text_config` is one of `decoder`; `defaults` are of keys that it may lack.

    Weights of the other parts are left out.
    """

    def config(fields: Fields) -> DecoderConfig:
        """Of a whole `config.json`, which says whether the head is tied."""
        tied = fields.values.get("tie_word_embeddings")
        outer = {} if tied is None else {"tie_word_embeddings": tied}
        text = fields.section("text_config")
        return decoder.config(replace(text, values={**defaults, **text.values, **outer}))

    names = {
        "model.language_model.": "model.",
        "language_model.model.": "model.",
        "language_model.lm_head.": "lm_head.",
    }
    return replace(
        decoder, config=config, names={**names, **decoder.names}, parts=(*names, "lm_head.")
    )
