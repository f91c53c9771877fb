"""The decoder of a model that also sees or hears: its text part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture


def text_part(name: str, decoder: Architecture, sees: str = "", **defaults: Any) -> Architecture:
    """The architecture `name`, whose `text_config` is one of `decoder`; `defaults` are of keys that
    it may lack. `sees`: see `Architecture`. The whole `config.json` says whether the head is tied.

    Weights of the other parts are left out.
    """

    def read(fields: Fields) -> Fields:
        tied = fields.values.get("tie_word_embeddings")
        # The whole model's value wins: transformers ties by it, and the part's is often a default
        # that nobody set.
        outer = {} if tied is None else {"tie_word_embeddings": tied}
        section = fields.section("text_config")
        return decoder.read(replace(section, values={**defaults, **section.values, **outer}))

    names = {
        "model.language_model.": "model.",
        "model.text_model.": "model.",
        "language_model.model.": "model.",
        "language_model.lm_head.": "lm_head.",
    }
    return replace(
        decoder,
        name=name,
        read=read,
        names={**names, **decoder.names},
        parts=(*names, "lm_head."),
        gguf=None,
        sees=sees,
    )
