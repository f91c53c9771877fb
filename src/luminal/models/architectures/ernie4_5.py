"""ERNIE 4.5 and its experts: a Llama that turns neighbouring features. Baidu 2025."""

from __future__ import annotations

from dataclasses import replace

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of
from luminal.models.architectures.settings import TIED, epsilon, flag, integer
from luminal.models.decoder_config import Layers
from luminal.models.gguf.changes import ONE_ROW
from luminal.models.gguf.form import GGUF

_SETTINGS = {
    **dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), flag("use_bias", False)),
    **TIED,
    "norm_eps": epsilon(1e-5),
}


def _layers(fields: Fields) -> Layers:
    return layers_of(fields, rotary=rotary_of(fields, theta=5e5, interleaved=True))


def _sparse_layers(fields: Fields) -> Layers:
    """Every `moe_layer_interval`-th layer from a first one to a last has experts."""
    layers = _layers(fields)
    first = fields.integer("moe_layer_start_index", 1, least=0)
    last = fields.integer("moe_layer_end_index", -1, least=-1)
    interval = fields.integer("moe_layer_interval", 1)
    # Minus one stands for the last layer, as an index of Python would.
    last = len(layers) - 1 if last == -1 else last
    return tuple(
        replace(layer, experts=first <= number <= last and (number + 1) % interval == 0)
        for number, layer in enumerate(layers)
    )


def _shared_size(fields: Fields) -> int:
    width = fields.integer("moe_intermediate_size")
    return width * fields.integer("moe_num_shared_experts", 2, least=0)


def _flat_correction(name: str, array: Array) -> Array:
    """One number for each expert."""
    return array.reshape(-1) if name.endswith(".e_score_correction_bias") else array


ERNIE4_5 = Architecture("Ernie4_5ForCausalLM", _SETTINGS, layers=_layers, gguf=GGUF("ernie4_5"))
ERNIE4_5_MOE = Architecture(
    "Ernie4_5_MoeForCausalLM",
    _SETTINGS,
    {".mlp.moe_statics.e_score_correction_bias": ".mlp.gate.e_score_correction_bias"},
    layers=_sparse_layers,
    experts={
        "count": integer("moe_num_experts"),
        "top_k": integer("moe_k", 6),
        "intermediate_size": integer("moe_intermediate_size"),
        "correction": True,
        "shared_size": _shared_size,
    },
    only={"use_bias": False},
    adapted=_flat_correction,
    gguf=GGUF(
        "ernie4_5-moe",
        "ernie4_5_moe",
        keys={
            "expert_shared_count": "moe_num_shared_experts",
            "leading_dense_block_count": "moe_layer_start_index",
            "interleave_moe_layer_step": "moe_layer_interval",
        },
        changes={"exp_probs_b.bias": ONE_ROW},
    ),
)
