"""Qwen3, and Qwen3-MoE: norms over each head of queries and keys. arXiv 2505.09388."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, same_windows
from luminal.models.architectures.qwen2 import dense_layers, later_sliding_layers, sparse_layers
from luminal.models.architectures.settings import Setting, attention_biases, flag, integer
from luminal.models.decoder_config import Layers
from luminal.models.gguf.form import ALL_LAYERS, ANY_LAYER, GGUF


def _sparse_layers(fields: Fields) -> Layers:
    windowed = fields.flag("use_sliding_window", False)
    return sparse_layers(fields, layers_of(fields, same_windows(fields) if windowed else None))


def _expert_count(fields: Fields) -> int:
    return fields.integer(
        "num_experts" if fields.values.get("num_experts") else "num_local_experts"
    )


_SETTINGS = {**attention_biases(), "qk_norm": "head"}

QWEN3 = Architecture(
    "Qwen3ForCausalLM",
    _SETTINGS,
    layers=later_sliding_layers,
    gguf=GGUF("qwen3", windowed=ANY_LAYER),
)
QWEN3_MOE = Architecture(
    "Qwen3MoeForCausalLM",
    _SETTINGS,
    layers=_sparse_layers,
    experts={
        "count": Setting("num_experts", _expert_count),
        "top_k": integer("num_experts_per_tok", 8),
        "intermediate_size": integer("moe_intermediate_size"),
        "normalize": flag("norm_topk_prob", False),
    },
    gguf=GGUF(
        "qwen3moe",
        "qwen3_moe",
        defaults={"norm_topk_prob": True},  # published files do not say it
        windowed=ALL_LAYERS,
        read=dense_layers,
    ),
)
