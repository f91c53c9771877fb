"""Models built from `luminal.nn`, and text generation with them."""

from luminal.models.generate import LanguageModel, load
from luminal.models.llama import Llama, LlamaConfig
from luminal.models.shipped import SHIPPED
from luminal.models.speculative import ModelDraft, PromptLookup

__all__ = ["SHIPPED", "LanguageModel", "Llama", "LlamaConfig", "ModelDraft", "PromptLookup", "load"]
