"""Models built from `luminal.nn`, and text generation with them."""

from luminal import garbage

with garbage.held():  # modules stay, and there are many: a fifth of their time
    from luminal.models.beam import beam_search
    from luminal.models.chat_template import ChatTemplate
    from luminal.models.constraints import json_schema, regex
    from luminal.models.conversion import convert
    from luminal.models.generate import LanguageModel, load
    from luminal.models.llama import Llama, LlamaConfig
    from luminal.models.sampling import Sampling
    from luminal.models.shipped import SHIPPED
    from luminal.models.speculative import ModelDraft, PromptLookup

__all__ = [
    "SHIPPED",
    "ChatTemplate",
    "LanguageModel",
    "Llama",
    "LlamaConfig",
    "ModelDraft",
    "PromptLookup",
    "Sampling",
    "beam_search",
    "convert",
    "json_schema",
    "load",
    "regex",
]
