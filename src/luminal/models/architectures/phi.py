"""Phi-1, 1.5 and 2: parallel layers with one norm, partly rotary. arXiv 2306.11644, 2309.05463."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layer_count, plain, refuse, rotary_of
from luminal.models.decoder_config import DecoderConfig, LayerConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    refuse(fields, qk_layernorm=False, tie_word_embeddings=False)
    layer = LayerConfig(rotary=rotary_of(fields, share=0.5))
    return decoder(
        fields,
        (layer,) * layer_count(fields),
        activation=fields.text("hidden_act", "gelu_new"),
        norm_eps=fields.number("layer_norm_eps", 1e-5, most=1),
        parallel="shared",
        **plain(True),
        head_bias=True,
    )


PHI = Architecture(
    config,
    {
        ".self_attn.dense.": ".self_attn.o_proj.",
        ".final_layernorm.": ".norm.",
        ".fc1.": ".up_proj.",
        ".fc2.": ".down_proj.",
    },
)
