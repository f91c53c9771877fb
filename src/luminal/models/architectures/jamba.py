"""Jamba: layers of Mamba with norms, one of eight of attention, and experts. arXiv 2403.19887."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.mamba import MambaConfig, rank_of
from luminal.models.architectures.settings import integer, layer_count
from luminal.models.decoder_config import LayerConfig, Layers


def _chosen(fields: Fields, what: str, period: int, offset: int) -> list[bool]:
    """Which layers are one of so many, by two keys."""
    period = fields.integer(f"{what}_layer_period", period)
    offset = fields.integer(f"{what}_layer_offset", offset, least=0)
    return [layer % period == offset for layer in range(layer_count(fields))]


def _layers(fields: Fields) -> Layers:
    """No layer knows positions: those of Mamba read in order."""
    hidden = fields.integer("hidden_size")
    mamba = MambaConfig(
        fields.integer("mamba_expand", 2) * hidden,
        fields.integer("mamba_d_state", 16),
        rank_of(fields, "mamba_dt_rank"),
        fields.integer("mamba_d_conv", 4),
        fields.flag("mamba_proj_bias", False),
        fields.flag("mamba_conv_bias", True),
        fields.number("rms_norm_eps", 1e-6, most=1),
        norm_weights=True,
    )
    attends, sparse = _chosen(fields, "attn", 8, 4), _chosen(fields, "expert", 2, 1)
    several = fields.integer("num_experts", 16) > 1
    return tuple(
        LayerConfig(mixer=None if attention else mamba, experts=several and experts)
        for attention, experts in zip(attends, sparse, strict=True)
    )


JAMBA = Architecture(
    "JambaForCausalLM",
    {"max_position_embeddings": integer("max_position_embeddings", 262144)},
    {
        "model.final_layernorm.": "model.norm.",
        ".pre_ff_layernorm.": ".post_attention_layernorm.",
        ".feed_forward.router.": ".mlp.gate.",
        ".feed_forward.": ".mlp.",
        **{f".mamba.{part}_layernorm.": f".self_attn.{part}_norm." for part in ("dt", "b", "c")},
        **{
            f".mamba.{part}": f".self_attn.{part}"
            for part in ("in_proj.", "conv1d.", "x_proj.", "dt_proj.", "A_log", "D", "out_proj.")
        },
    },
    layers=_layers,
    experts={
        "count": integer("num_experts", 16),
        "top_k": integer("num_experts_per_tok", 2),
        "intermediate_size": integer("intermediate_size"),
        "normalize": False,
    },
    only={"hidden_act": "silu"},
)
