"""Mixtral: a Mistral whose feed-forward parts are experts. Jiang et al., arXiv 2401.04088."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import later, layers_of, rotary_of, same_windows
from luminal.models.architectures.settings import epsilon, integer
from luminal.models.decoder_config import Layers
from luminal.models.gguf.changes import INTERLEAVED
from luminal.models.gguf.form import ALL_LAYERS, GGUF


def _sparse_layers(fields: Fields) -> Layers:
    layers = layers_of(fields, same_windows(fields), rotary_of(fields, theta=1e6))
    return later(layers, 0, experts=True)


MIXTRAL = Architecture(
    "MixtralForCausalLM",
    {"norm_eps": epsilon(1e-5)},
    {
        ".block_sparse_moe.": ".mlp.",
        ".w1.": ".gate_proj.",
        ".w2.": ".down_proj.",
        ".w3.": ".up_proj.",
    },
    layers=_sparse_layers,
    experts={
        "count": integer("num_local_experts", 8),
        "top_k": integer("num_experts_per_tok", 2),
        "intermediate_size": integer("intermediate_size"),
    },
    gguf=GGUF(
        "llama",
        "mixtral",
        changes=INTERLEAVED,
        windowed=ALL_LAYERS,
        only_with=("expert_count",),
    ),
)
