"""Granite 3: a Llama with four scales, and its experts. IBM, arXiv 2405.04324."""

from __future__ import annotations

import numpy as np

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import later, layers_of
from luminal.models.architectures.settings import (
    Setting,
    attention_biases,
    flag,
    integer,
    number,
    number_or_none,
)
from luminal.models.gguf.changes import INTERLEAVED, Joined
from luminal.models.gguf.form import GGUF


# The file has what logits are divided by, in GGUF as well.
def _logit_scale(fields: Fields) -> float:
    return 1 / fields.number("logits_scaling", 1.0)


_SETTINGS = {
    **attention_biases(),
    "embedding_scale": number("embedding_multiplier", 1.0),
    "query_scale": number_or_none("attention_multiplier", 1.0),
    "residual_scale": number("residual_multiplier", 1.0),
    "logit_scale": Setting("logits_scaling", _logit_scale),
}
GATES_FIRST = Joined(
    ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
    lambda gates, others, heads: np.concatenate((gates, others), 1),
    lambda both, heads: tuple(np.split(both, 2, 1)),  # type: ignore[arg-type, return-value]
)

GRANITE = Architecture(
    "GraniteForCausalLM",
    {**_SETTINGS, "mlp_bias": flag("mlp_bias", False)},
    gguf=GGUF("granite", changes=INTERLEAVED),
)
GRANITE_MOE = Architecture(
    "GraniteMoeForCausalLM",
    _SETTINGS,
    {
        ".block_sparse_moe.input_linear.weight": ".mlp.experts.gate_up_proj",
        ".block_sparse_moe.output_linear.weight": ".mlp.experts.down_proj",
        ".block_sparse_moe.router.layer.": ".mlp.gate.",
    },
    layers=lambda fields: later(layers_of(fields), 0, experts=True),
    experts={
        "count": integer("num_local_experts", 8),
        "top_k": integer("num_experts_per_tok", 2),
        "intermediate_size": integer("intermediate_size"),
    },
    gguf=GGUF(
        "granitemoe",
        names={"mlp.experts.down_proj": "ffn_down_exps.weight"},
        changes=INTERLEAVED,
        joined={"mlp.experts.gate_up_proj": GATES_FIRST},
    ),
)
