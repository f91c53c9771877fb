"""Models built from `luminal.nn`, and text generation with them."""

from luminal.models.generate import LanguageModel, load
from luminal.models.llama import Llama, LlamaConfig

__all__ = ["LanguageModel", "Llama", "LlamaConfig", "load"]
