"""gpt-oss: every other layer slides, sinks take weight, experts are clamped. arXiv 2508.10925."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture, Tensors
from luminal.models.architectures.settings import (
    decoder,
    later,
    layers_of,
    refuse,
    rope_section,
    rotary_of,
    windows_of,
)
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig

_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}
"""Where a file says nothing of positions."""


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`; experts may be packed."""
    refuse(fields, hidden_act="silu")
    refuse(fields.section("quantization_config"), quant_method="mxfp4")
    fields = replace(fields, values={**fields.values, "quantization_config": None})
    bias = fields.flag("attention_bias", True)
    windows = windows_of(fields, lambda layer: layer % 2 == 0)
    rope = rope_section(fields) or replace(fields, values=_YARN, what="rope_parameters")
    return decoder(
        fields,
        later(layers_of(fields, windows, rotary_of(fields, rope, 1.5e5)), 0, experts=True),
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


_POSITIVE = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], ml_dtypes.bfloat16)
_VALUES = np.concatenate((_POSITIVE, -_POSITIVE))
_SCALES = np.append(np.exp2(np.arange(255) - 127.0), np.nan).astype(ml_dtypes.bfloat16)
_LOW_BITS = 15


def _unpacked(tensors: Tensors) -> dict[str, Array]:
    """MXFP4 (OCP, "Microscaling Formats", 2023) as bfloat16, which has all of its values.

    "_blocks" (expert, out, in / 32, 16) holds two numbers a byte, the first in the low bits;
    "_scales" (expert, out, in / 32) their power of two. They become (expert, in, out).
    """
    found: dict[str, Array] = {}
    for name, array in tensors.items():
        if name.endswith("_blocks"):
            plain = name.removesuffix("_blocks")
            scales = tensors.get(f"{plain}_scales")
            if scales is None or scales.shape != array.shape[:-1] or array.ndim != 4:
                shape = None if scales is None else scales.shape
                raise LoadError(
                    f"weights: {name!r} has shape {array.shape}, its scales have {shape}; they "
                    "must be (expert, out, blocks, 16) and the same without the last"
                )
            if array.dtype != np.uint8 or scales.dtype != np.uint8:
                raise LoadError(f"weights: {name!r} or its scales are {array.dtype}, not uint8")
            both = np.empty((*array.shape, 2), ml_dtypes.bfloat16)
            both[..., 0], both[..., 1] = _VALUES[array & _LOW_BITS], _VALUES[array >> 4]
            both *= _SCALES[scales][..., None, None]
            found[plain] = both.reshape(*array.shape[:2], -1).transpose(0, 2, 1)
        elif not name.endswith("_scales"):
            found[name] = array
    return found


GPT_OSS = Architecture(
    config, {".mlp.router.": ".mlp.gate."}, adapted=_gates_first, unpacked=_unpacked
)
