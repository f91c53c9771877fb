"""Models built from `luminal.nn`, and text generation with them."""

from luminal.models.generate import LanguageModel, load
from luminal.models.llama import Llama, LlamaConfig
from luminal.models.shipped import SHIPPED

__all__ = ["SHIPPED", "LanguageModel", "Llama", "LlamaConfig", "load"]
