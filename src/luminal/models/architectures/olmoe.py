"""OLMoE: experts, and norms over queries and keys. Muennighoff et al., arXiv 2409.02060."""

from __future__ import annotations

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import later, layers_of
from luminal.models.architectures.settings import (
    attention_biases,
    epsilon,
    flag,
    integer,
    number_or_none,
)
from luminal.models.gguf.form import GGUF

OLMOE = Architecture(
    "OlmoeForCausalLM",
    {
        **attention_biases(),
        "norm_eps": epsilon(1e-5),
        "qk_norm": "projection",
        "projection_limit": number_or_none("clip_qkv"),
    },
    layers=lambda fields: later(layers_of(fields), 0, experts=True),
    experts={
        "count": integer("num_experts", 64),
        "top_k": integer("num_experts_per_tok", 8),
        "intermediate_size": integer("intermediate_size"),
        "normalize": flag("norm_topk_prob", False),
    },
    gguf=GGUF("olmoe", keys={"attention.clamp_kqv": None}),  # readers clamp those of OLMo alone
)
