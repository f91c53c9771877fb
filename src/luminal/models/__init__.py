"""Models built from `luminal.nn`, and text generation with them."""

from typing import TYPE_CHECKING, Any

from luminal.base import garbage, lazy

with garbage.held():  # modules stay, and there are many: a fifth of their time
    from luminal.models.chat_template import ChatTemplate
    from luminal.models.generate import LanguageModel
    from luminal.models.loading import load
    from luminal.models.sampling import Sampling
    from luminal.models.shipped import SHIPPED
    from luminal.models.speculative import ModelDraft, PromptLookup

if TYPE_CHECKING:
    from luminal.models.beam import beam_search
    from luminal.models.constraints import json_schema, regex
    from luminal.models.conversion import convert
    from luminal.models.llama import Llama, LlamaConfig

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

_LATE = {
    "Llama": "llama:Llama",
    "LlamaConfig": "llama:LlamaConfig",
    "beam_search": "beam:beam_search",
    "convert": "conversion:convert",
    "json_schema": "constraints:json_schema",
    "regex": "constraints:regex",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return lazy.found(f"{__name__}.{_LATE[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
