"""StarCoder2: grouped queries, layer norms, biases. Lozhkov et al., arXiv 2402.19173."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layers_of, plain, same_windows
from luminal.models.decoder_config import DecoderConfig


def config(fields: Fields) -> DecoderConfig:
    """Of a `config.json`."""
    bias = fields.flag("use_bias", True)
    return decoder(
        fields,
        layers_of(fields, same_windows(fields)),
        activation=fields.text("hidden_act", "gelu_pytorch_tanh"),
        norm_eps=fields.number("norm_epsilon", 1e-5, most=1),
        **plain(bias),
        tie_word_embeddings=fields.flag("tie_word_embeddings", True),
    )


STARCODER2 = Architecture(config, {".c_fc.": ".up_proj.", ".c_proj.": ".down_proj."})
