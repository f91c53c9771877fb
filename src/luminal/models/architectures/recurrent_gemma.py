"""RecurrentGemma: two layers of a gated recurrence to one of local attention. arXiv 2404.07839."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from luminal.base.dtypes import bfloat16
from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import rotary_of
from luminal.models.architectures.settings import (
    MAX_HEADS,
    TIED,
    Setting,
    flag,
    layer_count,
    number_or_none,
    text,
)
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Layers
from luminal.nn import RotaryEmbedding
from luminal.nn.gated_recurrence import GatedRecurrence

_TRAINED_LENGTH = 8192  # files do not say it; the report's texts were so long


@dataclass(frozen=True, slots=True)
class RecurrenceConfig:
    """The sizes of a `GatedRecurrence`, which is a layer's mixer."""

    width: int
    taps: int

    def make(
        self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any
    ) -> GatedRecurrence:
        """The mixer of one layer."""
        sizes = config.hidden_size, self.width, config.num_attention_heads, self.taps
        return GatedRecurrence(*sizes, config.activation, dtype)


def _layers(fields: Fields) -> Layers:
    """`block_types` are repeated to the last layer; attention sees a window."""
    heads = fields.integer("num_attention_heads", 10, most=MAX_HEADS)
    hidden = fields.integer("hidden_size")
    kinds = fields.listed("block_types", str, ["recurrent", "recurrent", "attention"])
    if not kinds or not set(kinds) <= {"recurrent", "attention"}:
        raise LoadError(
            f"{fields.path}: block_types is {shown(kinds)}; it must list 'recurrent' or 'attention'"
        )
    width = fields.integer("lru_width", hidden)
    if width % heads:
        raise LoadError(f"{fields.path}: lru_width is {width}, no multiple of {heads} heads")
    recurrent = LayerConfig(mixer=RecurrenceConfig(width, fields.integer("conv1d_width", 4)))
    # Two keys for one number; transformers prefers its own where a file has both.
    older = fields.integer("attention_window_size", 2048)
    attention = LayerConfig(
        fields.integer("sliding_window", older),
        rotary_of(fields, share=0.5, width=hidden // heads),
    )
    return tuple(
        recurrent if kinds[number % len(kinds)] == "recurrent" else attention
        for number in range(layer_count(fields))
    )


def _scale(fields: Fields) -> float:
    """The root of the width as the published weights were trained with it, in 16 bits."""
    return float(np.asarray(math.sqrt(fields.integer("hidden_size"))).astype(bfloat16.numpy))


RECURRENT_GEMMA = Architecture(
    "RecurrentGemmaForCausalLM",
    {
        **TIED,
        "attention_bias": flag("attention_bias", False),
        "output_bias": True,
        "mlp_bias": True,
        "intermediate_size": Setting(
            "intermediate_size", lambda fields: fields.integer("intermediate_size", 7680) // 2
        ),
        "head_dim": None,
        "max_position_embeddings": _TRAINED_LENGTH,
        "activation": text("hidden_activation", "gelu_pytorch_tanh"),
        "norm": "zero_centered_rms",
        "embedding_scale": _scale,
        "logit_softcap": number_or_none("logits_soft_cap", 30.0),
    },
    {
        "model.final_norm.": "model.norm.",
        ".temporal_pre_norm.": ".input_layernorm.",
        ".channel_pre_norm.": ".post_attention_layernorm.",
        ".mlp_block.": ".mlp.",
        ".temporal_block.conv_1d.": ".temporal_block.conv1d.",
        ".rg_lru.input_gate_": ".input_gate.",
        ".rg_lru.recurrent_gate_": ".recurrent_gate.",
        ".rg_lru.recurrent_param": ".recurrent_param",
        ".temporal_block.": ".self_attn.",
    },
    layers=_layers,
)
