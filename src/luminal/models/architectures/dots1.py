"""dots.llm1: attention as Qwen3's, experts as DeepSeek-V3's. rednote 2025, arXiv 2506.05767."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.glm import ROUTED_KEYS, sigmoid_experts
from luminal.models.architectures.layers import later, layers_of, windows_of
from luminal.models.architectures.settings import attention_biases, flag
from luminal.models.decoder_config import Layers
from luminal.models.gguf.form import GGUF


def _layers(fields: Fields) -> Layers:
    """The first layers have no experts; windows are those of later ones, where a file has them."""
    first = fields.integer("max_window_layers", 62, least=0)
    slide = "sliding_window" not in fields.values or fields.values["sliding_window"] is not None
    layers = layers_of(fields, windows_of(fields, lambda layer: slide and layer >= first))
    return later(layers, fields.integer("first_k_dense_replace", 0, least=0), experts=True)


DOTS1 = Architecture(
    "Dots1ForCausalLM",
    {**attention_biases(), "qk_norm": "head"},
    layers=_layers,
    experts={**sigmoid_experts(), "normalize": flag("norm_topk_prob", False)},
    further_layers=True,
    gguf=GGUF("dots1", keys={**ROUTED_KEYS, "attention.key_length": None}),
)
