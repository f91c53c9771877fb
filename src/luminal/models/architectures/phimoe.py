"""Phi-3.5-MoE: layer norms, and two experts chosen one after the other.

arXiv 2404.14219, 2409.12136.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from luminal.base.dtypes import int32
from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat
from luminal.frontend.pointwise.binary import maximum, where
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import (
    later,
    layers_of,
    rope_section,
    rotary_of,
    same_windows,
)
from luminal.models.architectures.settings import attention_biases, epsilon, flag, refuse
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, Layers
from luminal.models.gguf.form import ALL_LAYERS, GGUF
from luminal.models.gguf.names import LAYER_EPSILON, NO_HEAD_DIM, RMS_EPSILON
from luminal.nn.moe import Router, Routes


class SparseMixer(Router):
    """Each choice is weighted by a softmax of the scores not much below it (Liu et al.).

    `jitter`: scores lower by more than twice that share of the best one count for nothing.
    """

    jitter = 0.01

    def forward(self, x: Tensor) -> Routes:
        """The chosen experts of each token of x (tokens, hidden), and their weights."""
        scores = x @ self.read(self.weight, x).mT
        experts, weights, left = [], [], scores
        for _ in range(self.top_k):
            best = left.amax(-1, keepdim=True)
            far = (best - scores) / maximum(scores.abs(), best) > 2 * self.jitter
            # As the training's gradient estimator saw them: rivals far below the best were masked
            # there too.
            near = where(far, -math.inf, left).softmax(-1)
            chosen = left.argmax(-1, keepdim=True)
            experts.append(chosen)
            weights.append(near.gather(-1, chosen))
            # What was chosen counts no more among what is left, but still among the scores that
            # "far" is measured by.
            numbers = scores.graph.arange(scores.extents[-1])
            left = where(numbers == chosen, -math.inf, left)
        return Routes(concat(experts, -1).cast(int32), concat(weights, -1))


@dataclass(frozen=True, slots=True)
class MixedExperts(ExpertsConfig):
    """Experts that a SparseMixer chooses."""

    jitter: float = 0.01

    def make_router(self, hidden: int, dtype: Any) -> SparseMixer:
        """The router that chooses a token's experts one after the other."""
        router = SparseMixer(hidden, self.count, self.top_k, dtype=dtype)
        router.jitter = self.jitter
        return router


def _experts(fields: Fields) -> MixedExperts:
    return MixedExperts(
        fields.integer("num_local_experts", 16),
        2,
        fields.integer("intermediate_size"),
        jitter=fields.number("router_jitter_noise", 0.01),
    )


_FACTORS = "short_mscale", "long_mscale"
"""What cos and sin of short and of long texts are times, under longrope."""


def _layers(fields: Fields) -> Layers:
    """Longrope (arXiv 2402.13753) with one factor of cos and sin for texts of all lengths."""
    rope = rope_section(fields)
    if (rope.values.get("rope_type") or rope.values.get("type")) in ("longrope", "su"):
        short, long = (rope.number_or_none(key) for key in _FACTORS)
        if short != long:
            raise LoadError(
                f"{rope.path}: short_mscale is {short} and long_mscale {long}; only the same for "
                "both is supported, as published models have it"
            )
        rope = replace(rope, values={"attention_factor": short, **rope.values})
    else:
        refuse(rope, rope_type="default", type="default")
    layers = layers_of(fields, same_windows(fields), rotary_of(fields, rope, theta=1e6))
    return later(layers, 0, experts=True)


def _read(reader: Any) -> Mapping[str, Any]:
    """The factor of cos and sin as folders have it, and whether the head has a bias."""
    rope = reader.rope()
    factor = rope.pop("attention_factor", None)
    factors = {} if factor is None else dict.fromkeys(_FACTORS, factor)
    return {"rope_parameters": rope | factors, "lm_head_bias": "output.bias" in reader.tensors}


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    # Converters take the key of `config.json`, which is that of another kind of norm, for the word.
    return {RMS_EPSILON: config.norm_eps, LAYER_EPSILON: None}


PHIMOE = Architecture(
    "PhimoeForCausalLM",
    {
        **attention_biases(),
        "norm": "layer",
        "norm_eps": epsilon(1e-5),
        "head_bias": flag("lm_head_bias", False),
        "experts": _experts,
    },
    {
        ".mlp.router.": ".mlp.gate.",
        ".block_sparse_moe.": ".mlp.",
        ".w1.": ".gate_proj.",
        ".w2.": ".down_proj.",
        ".w3.": ".up_proj.",
    },
    layers=_layers,
    only={"num_experts_per_tok": 2},
    gguf=GGUF(
        "phimoe",
        keys={
            **NO_HEAD_DIM,
            RMS_EPSILON: "rms_norm_eps",
            LAYER_EPSILON: None,
            "expert_count": "num_local_experts",
            "expert_used_count": "num_experts_per_tok",
            "rope.scaling.original_context_length": "original_max_position_embeddings",
        },
        windowed=ALL_LAYERS,
        read=_read,
        written=_written,
    ),
)
# As the published model calls itself.
PHI_MOE = replace(PHIMOE, name="PhiMoEForCausalLM")
