"""gpt-oss: every other layer slides, sinks take weight, experts are clamped. arXiv 2508.10925."""

from __future__ import annotations

import numpy as np

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, later, layers_of, refuse
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    refuse(fields, hidden_act="silu")
    bias = fields.flag("attention_bias", True)
    return decoder(
        fields,
        later(layers_of(fields, lambda layer: layer % 2 == 0), 0, experts=True),
        norm_eps=fields.number("rms_norm_eps", 1e-5, most=1),
        attention_bias=bias,
        output_bias=bias,
        sinks=True,
        experts=ExpertsConfig(
            fields.integer("num_local_experts"),
            fields.integer("num_experts_per_tok", 4),
            fields.integer("intermediate_size"),
            bias=True,
            swiglu_limit=fields.number("swiglu_limit", 7.0),
            swiglu_slope=fields.number("swiglu_alpha", 1.702),
        ),
    )


def _gates_first(name: str, array: Array) -> Array:
    """Matrices of experts as (expert, out, in); rows of gates before what they let through."""
    if ".experts." in name and array.ndim == 3:
        array = array.transpose(0, 2, 1)
    if ".experts.gate_up_proj" in name:
        array = np.concatenate((array[:, ::2], array[:, 1::2]), 1)
    return array


GPT_OSS = Architecture(config, {".mlp.router.": ".mlp.gate."}, adapted=_gates_first)
