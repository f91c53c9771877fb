"""Hunyuan's dense models: queries and keys turn before their norms. Tencent 2025."""

from __future__ import annotations

from dataclasses import replace

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rope_section, rotary_of
from luminal.models.architectures.settings import attention_biases, epsilon, head_dim
from luminal.models.decoder_config import Layers
from luminal.models.gguf.form import GGUF


def _layers(fields: Fields) -> Layers:
    """A "dynamic" scaling with an `alpha` is one of the base, whatever a text's length."""
    rope = rope_section(fields)
    dims = head_dim(fields)
    kind = rope.values.get("rope_type") or rope.values.get("type")
    if kind == "dynamic" and rope.values.get("alpha") and dims > 2:
        # As of a scaling that is not dynamic, theta is stretched once for all.
        theta = rope.number("rope_theta", fields.number("rope_theta", 10000.0))
        stretched = theta * rope.number("alpha") ** (dims / (dims - 2))
        values = {**rope.values, "rope_type": "default", "rope_theta": stretched}
        rope = replace(rope, values=values)
    return layers_of(fields, rotary=rotary_of(fields, rope))


HUNYUAN = Architecture(
    "HunYuanDenseV1ForCausalLM",
    {
        **attention_biases(),
        "norm_eps": epsilon(1e-5),
        "qk_norm": "head",
        "turned_first": True,
    },
    {".query_layernorm.": ".q_norm.", ".key_layernorm.": ".k_norm."},
    layers=_layers,
    only={"mlp_bias": False},
    gguf=GGUF("hunyuan-dense", "hunyuan_v1_dense"),
)
