"""Apertus: an activation with weights of its own, without gates. arXiv 2509.14233."""

from __future__ import annotations

from dataclasses import replace

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture, Tensors
from luminal.models.architectures.layers import layers_of, rope_section, rotary_of
from luminal.models.architectures.settings import attention_biases, epsilon, text
from luminal.models.decoder_config import Layers
from luminal.models.gguf.changes import Change, Heads
from luminal.models.gguf.form import GGUF

_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 12e6,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
"""Where a file says nothing of positions."""


_NUMBERS = ("alpha_p", "alpha_n", "beta", "eps")
"""What an activation of a layer holds."""


def _layers(fields: Fields) -> Layers:
    rope = rope_section(fields) or replace(fields, values=_ROPE)
    return layers_of(fields, rotary=rotary_of(fields, rope, theta=12e6))


def _as_vectors(tensors: Tensors) -> Tensors:
    """The numbers of an activation, some of which have no dims, with one."""
    return {
        name: array.reshape(1) if ".act_fn." in name else array for name, array in tensors.items()
    }


def _as_number(array: Array, heads: Heads) -> Array:
    return array.reshape(())


def _as_vector(array: Array, heads: Heads) -> Array:
    return array.reshape(1)


APERTUS = Architecture(
    "ApertusForCausalLM",
    {
        **attention_biases(),
        "activation": text("hidden_act", "xielu"),
        "gated": False,
        "norm_eps": epsilon(1e-5),
        "qk_norm": "head",
    },
    {
        ".attention_layernorm.": ".input_layernorm.",
        ".feedforward_layernorm.": ".post_attention_layernorm.",
        ".act_fn.": ".activation.",
    },
    layers=_layers,
    only={"mlp_bias": False},
    unpacked=_as_vectors,
    gguf=GGUF(
        "apertus",
        names={f"mlp.activation.{name}": f"xielu.{name}" for name in _NUMBERS},
        listed=tuple(f"xielu.{name}" for name in _NUMBERS),
        changes=dict.fromkeys(("xielu.beta", "xielu.eps"), Change(_as_number, _as_vector)),
    ),
)
