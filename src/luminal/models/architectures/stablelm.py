"""StableLM: layer norms, partly rotary, gated. Bellagente et al., arXiv 2402.17834."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of, refuse, rotary_of
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    refuse(fields, qk_layernorm=False)
    return decoder(
        fields,
        layers_of(fields, rotary=rotary_of(fields, share=0.25)),
        norm="layer",
        norm_eps=fields.number("layer_norm_eps", 1e-5, most=1),
        parallel="shared" if fields.flag("use_parallel_residual", False) else None,
        attention_bias=fields.flag("use_qkv_bias", False),
    )


STABLELM = Architecture(config)
