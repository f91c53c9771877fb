"""InternLM3: a Llama whose biases have keys of their own. Shanghai AI Laboratory 2025."""

from __future__ import annotations

from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import epsilon, flag

_OLDER = {"qkv_bias": "attention_bias", "bias": "mlp_bias"}
"""Keys of published files, and what transformers calls them."""


def _read(fields: Fields) -> Fields:
    renamed = {
        new: fields.values[old] for old, new in _OLDER.items() if fields.values.get(old) is not None
    }
    values = {"head_dim": 128, **fields.values, **renamed}
    return replace(fields, values=values)


INTERNLM3 = Architecture(
    "InternLM3ForCausalLM",
    {
        "attention_bias": flag("attention_bias", False),
        **dict.fromkeys(("output_bias", "mlp_bias"), flag("mlp_bias", False)),
        "norm_eps": epsilon(1e-5),
    },
    read=_read,
)
