"""Qwen2 and Qwen2.5, and Qwen2-MoE: queries, keys and values have biases. arXiv 2407.10671."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, windows_of
from luminal.models.architectures.settings import flag, integer
from luminal.models.decoder_config import Layers
from luminal.models.gguf.changes import ONE_ROW
from luminal.models.gguf.form import ANY_LAYER, GGUF


def later_sliding_layers(fields: Fields) -> Layers:
    """Layers from `max_window_layers` on slide, where `use_sliding_window` says so."""
    used = fields.flag("use_sliding_window", False)
    # Most files state a window and say that it is not used.
    used = used and fields.values.get("sliding_window") is not None
    first = fields.integer("max_window_layers", 28, least=0)
    return layers_of(fields, windows_of(fields, lambda layer: used and layer >= first))


def sparse_layers(fields: Fields, layers: Layers) -> Layers:
    """Every `decoder_sparse_step`-th layer has experts, but for some listed."""
    dense = fields.listed("mlp_only_layers", int, [])
    step = fields.integer("decoder_sparse_step", 1)
    return tuple(
        replace(layer, experts=number not in dense and (number + 1) % step == 0)
        for number, layer in enumerate(layers)
    )


def dense_layers(reader: Any) -> Mapping[str, Any]:
    """The layers of a GGUF file without experts, which no key of its metadata lists."""
    count = reader.integer("block_count")
    dense = [n for n in range(count) if not reader.has_tensor("ffn_gate_inp.weight", n)]
    return {"mlp_only_layers": dense}


def shared_experts(top_k: int, normalize: bool) -> Mapping[str, Any]:
    """Experts beside a gated one that all tokens see; `top_k`, `normalize`: by default."""
    return {
        "count": integer("num_experts"),
        "top_k": integer("num_experts_per_tok", top_k),
        "intermediate_size": integer("moe_intermediate_size"),
        "normalize": flag("norm_topk_prob", normalize),
        "shared_size": integer("shared_expert_intermediate_size"),
        "shared_gate": True,
    }


def _sparse_layers(fields: Fields) -> Layers:
    """Every other one of the first `max_window_layers` slides."""
    used = fields.flag("use_sliding_window", False)
    last = fields.integer("max_window_layers", 28, least=0)
    windows = windows_of(fields, lambda layer: used and layer < last and (layer + 1) % 2 != 0)
    return sparse_layers(fields, layers_of(fields, windows))


QWEN2 = Architecture(
    "Qwen2ForCausalLM",
    {"attention_bias": True},
    layers=later_sliding_layers,
    gguf=GGUF("qwen2", windowed=ANY_LAYER),
)
QWEN2_MOE = Architecture(
    "Qwen2MoeForCausalLM",
    {"attention_bias": flag("qkv_bias", True)},
    {".shared_expert.": ".shared_experts."},
    layers=_sparse_layers,
    experts=shared_experts(4, False),
    gguf=GGUF(
        "qwen2moe",
        "qwen2_moe",
        changes={"ffn_gate_inp_shexp": ONE_ROW},
        windowed=ANY_LAYER,
        read=dense_layers,
    ),
)
