"""OLMo: a Llama whose norms have no weights. Groeneveld et al., arXiv 2402.00838."""

from __future__ import annotations

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import attention_biases, number_or_none
from luminal.models.gguf.changes import INTERLEAVED
from luminal.models.gguf.form import GGUF

OLMO = Architecture(
    "OlmoForCausalLM",
    {
        **attention_biases(),
        "norm": "layer_without_weight",
        "norm_eps": 1e-5,  # transformers has it as a constant
        "projection_limit": number_or_none("clip_qkv"),
    },
    gguf=GGUF("olmo", changes=INTERLEAVED),
)
