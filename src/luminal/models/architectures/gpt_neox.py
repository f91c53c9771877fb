"""GPT-NeoX and Pythia: attention and feed-forward in parallel. Black et al., arXiv 2204.06745."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layer_count, rotary_of
from luminal.models.decoder_config import DecoderConfig, LayerConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`; before `rope_parameters`, it had `rotary_pct` and `rotary_emb_base`."""
    rotary = rotary_of(
        fields,
        theta=fields.number("rotary_emb_base", 10000.0),
        share=fields.number("rotary_pct", 0.25),
    )
    bias = fields.flag("attention_bias", True)
    return decoder(
        fields,
        (LayerConfig(rotary=rotary),) * layer_count(fields),
        activation=fields.text("hidden_act", "gelu"),
        gated=False,
        norm="layer",
        norm_eps=fields.number("layer_norm_eps", 1e-5, most=1),
        parallel="separate" if fields.flag("use_parallel_residual", True) else None,
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=True,
    )


GPT_NEOX = Architecture(
    config,
    {
        "gpt_neox.": "model.",
        ".embed_in.": ".embed_tokens.",
        ".final_layer_norm.": ".norm.",
        "embed_out.": "lm_head.",
        ".attention.query_key_value.": ".self_attn.qkv_proj.",
        ".attention.dense.": ".self_attn.o_proj.",
        ".dense_h_to_4h.": ".up_proj.",
        ".dense_4h_to_h.": ".down_proj.",
    },
    grouped=True,
)
