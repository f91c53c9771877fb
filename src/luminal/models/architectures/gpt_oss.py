"""gpt-oss: every other layer slides, sinks take weight, experts are clamped. arXiv 2508.10925."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture, Tensors
from luminal.models.architectures.layers import (
    later,
    layers_of,
    rope_section,
    rotary_of,
    windows_of,
)
from luminal.models.architectures.settings import attention_biases, epsilon, integer, number, refuse
from luminal.models.decoder_config import Layers
from luminal.models.gguf.changes import TRANSPOSED, Heads, Joined
from luminal.models.gguf.form import ANY_LAYER, GGUF

_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}
"""Where a file says nothing of positions."""


def _read(fields: Fields) -> Fields:
    """Without what says that the experts are packed in MXFP4, which is read."""
    # The section is taken out once it is read: other code refuses any that is still there.
    refuse(fields.section("quantization_config"), quant_method="mxfp4")
    return replace(fields, values={**fields.values, "quantization_config": None})


def _layers(fields: Fields) -> Layers:
    """Layers 0, 2, ... slide, and all have experts."""
    windows = windows_of(fields, lambda layer: layer % 2 == 0)
    rope = rope_section(fields) or replace(fields, values=_YARN, what="rope_parameters")
    return later(layers_of(fields, windows, rotary_of(fields, rope, 1.5e5)), 0, experts=True)


def _gates_first(name: str, array: Array) -> Array:
    """Matrices of experts as (expert, out, in); rows of gates before what they let through."""
    if ".experts." in name and array.ndim == 3:
        array = array.transpose(0, 2, 1)
    if ".experts.gate_up_proj" in name:
        # In the file gates and values take turns; ours are two halves, as all other gated layers
        # have them.
        array = np.concatenate((array[:, ::2], array[:, 1::2]), 1)
    return array


# Both tables are exact in bfloat16: one bit of fraction, and a power of two.
_POSITIVE = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], ml_dtypes.bfloat16)
_VALUES = np.concatenate((_POSITIVE, -_POSITIVE))
_SCALES = np.append(np.exp2(np.arange(255) - 127.0), np.nan).astype(ml_dtypes.bfloat16)
_LOW_BITS = 15


def _unpacked(tensors: Tensors) -> dict[str, Array]:
    """MXFP4 (OCP, "Microscaling Formats", 2023) as bfloat16, which has all of its values.

    "_blocks" (expert, out, in / 32, 16) holds two numbers a byte, the first in the low bits;
    "_scales" (expert, out, in / 32) their power of two. They become (expert, in, out).
    """
    unpacked: dict[str, Array] = {}
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
            if (scales == len(_SCALES) - 1).any():
                raise LoadError(
                    f"weights: '{plain}_scales' holds 255, which is NaN; powers of two are 0 to "
                    "254; download the file again"
                )
            # By tables of all sixteen numbers and all scales: products of powers of two are exact,
            # so nothing is rounded on the way.
            both = np.empty((*array.shape, 2), ml_dtypes.bfloat16)
            both[..., 0], both[..., 1] = _VALUES[array & _LOW_BITS], _VALUES[array >> 4]
            both *= _SCALES[scales][..., None, None]
            unpacked[plain] = both.reshape(*array.shape[:2], -1).transpose(0, 2, 1)
        elif not name.endswith("_scales"):
            unpacked[name] = array
    return unpacked


def _rows_in_turn(gates: Array, others: Array, heads: Heads) -> Array:
    """(experts, out, in) twice to (experts, in, 2 out), gates in the even places."""
    both = np.stack((gates, others), 2)
    return both.reshape(len(gates), -1, gates.shape[2]).swapaxes(1, 2)


def _numbers_in_turn(gates: Array, others: Array, heads: Heads) -> Array:
    return np.stack((gates, others), 2).reshape(len(gates), -1)


GPT_OSS = Architecture(
    "GptOssForCausalLM",
    {**attention_biases(default=True), "norm_eps": epsilon(1e-5), "sinks": True},
    {".mlp.router.": ".mlp.gate."},
    layers=_layers,
    experts={
        "count": integer("num_local_experts"),
        "top_k": integer("num_experts_per_tok", 4),
        "intermediate_size": integer("intermediate_size"),
        "bias": True,
        "swiglu_limit": number("swiglu_limit", 7.0),
        "swiglu_slope": number("swiglu_alpha", 1.702),
    },
    only={"hidden_act": "silu"},
    read=_read,
    adapted=_gates_first,
    unpacked=_unpacked,
    gguf=GGUF(
        "gpt-oss",
        "gpt_oss",
        names={
            # Named like a norm after attention, though it is the one before the experts.
            "post_attention_layernorm": "post_attention_norm",
            "self_attn.sinks": "attn_sinks.weight",
            "mlp.experts.down_proj": "ffn_down_exps.weight",
            "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
        },
        changes={"ffn_down_exps.weight": TRANSPOSED},
        joined={
            "mlp.experts.gate_up_proj": Joined(
                ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
                _rows_in_turn,
                lambda both, heads: (both[..., ::2].swapaxes(1, 2), both[..., 1::2].swapaxes(1, 2)),
            ),
            "mlp.experts.gate_up_proj_bias": Joined(
                ("ffn_gate_exps.bias", "ffn_up_exps.bias"),
                _numbers_in_turn,
                lambda both, heads: (both[:, ::2], both[:, 1::2]),
            ),
        },
        rope={"truncate": False},  # all published models say it, and the files cannot
        windowed=ANY_LAYER,
        windows=2,
    ),
)
