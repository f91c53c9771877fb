"""Mamba, Falcon Mamba and Mamba 2: layers of a state space alone.

arXiv 2312.00752, 2410.05355, 2405.21060.
"""

from __future__ import annotations

import math
from typing import Any

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import MAX_SIZE, Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import decoder, layer_count, refuse
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Mixer
from luminal.nn import RotaryEmbedding
from luminal.nn.state_space import Mamba, Mamba2


@dataclass(frozen=True, slots=True)
class MambaConfig:
    """Arguments of `Mamba`."""

    inner: int
    states: int
    rank: int
    width: int
    bias: bool
    convolution_bias: bool
    norm_eps: float | None

    def make(self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any) -> Mamba:
        """The mixer of one layer."""
        sizes = self.inner, self.states, self.rank, self.width
        biases = self.bias, self.convolution_bias
        return Mamba(config.hidden_size, *sizes, *biases, self.norm_eps, dtype)


@dataclass(frozen=True, slots=True)
class Mamba2Config:
    """Arguments of `Mamba2`."""

    heads: int
    head_dim: int
    states: int
    groups: int
    width: int
    bias: bool
    convolution_bias: bool

    def make(self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any) -> Mamba2:
        """The mixer of one layer."""
        sizes = self.heads, self.head_dim, self.states, self.groups, self.width
        biases = self.bias, self.convolution_bias
        return Mamba2(config.hidden_size, *sizes, *biases, config.norm_eps, dtype)


def config(fields: Fields, norm_eps: float | None = None) -> DecoderConfig:
    """Of a `config.json` of Mamba."""
    hidden = fields.integer("hidden_size")
    rank = math.ceil(hidden / 16)
    if fields.values.get("time_step_rank") != "auto":
        rank = fields.integer("time_step_rank", rank)
    mixer = MambaConfig(
        fields.integer("intermediate_size", int(fields.number("expand", 2) * hidden)),
        fields.integer("state_size", 16),
        rank,
        fields.integer("conv_kernel", 4),
        fields.flag("use_bias", False),
        fields.flag("use_conv_bias", True),
        norm_eps,
    )
    return _decoder(fields, mixer, True)


def config_of_norms(fields: Fields) -> DecoderConfig:
    """Of Falcon Mamba."""
    return config(fields, fields.number("mixer_rms_eps", 1e-6, most=1))


def config2(fields: Fields) -> DecoderConfig:
    """Of Mamba 2."""
    limit = fields.values.get("time_step_limit")
    if limit not in (None, [0.0, math.inf], [0.0, {"__float__": "Infinity"}]):
        raise LoadError(f"{fields.path}: time_step_limit={shown(limit)} is not supported; none is")
    mixer = Mamba2Config(
        fields.integer("num_heads", 128),
        fields.integer("head_dim", 64),
        fields.integer("state_size", 128),
        fields.integer("n_groups", 8),
        fields.integer("conv_kernel", 4),
        fields.flag("use_bias", False),
        fields.flag("use_conv_bias", True),
    )
    return _decoder(fields, mixer, False)


def _decoder(fields: Fields, mixer: Mixer, tied: bool) -> DecoderConfig:
    """Layers of the mixer alone, for texts of any length."""
    refuse(fields, hidden_act="silu")
    return decoder(
        fields,
        (LayerConfig(mixer=mixer, feed_forward=False),) * layer_count(fields),
        intermediate_size=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=1,
        max_position_embeddings=MAX_SIZE,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, most=1),
        tie_word_embeddings=fields.flag("tie_word_embeddings", tied),
    )


_NAMES = {
    "backbone.": "model.",
    ".embeddings.": ".embed_tokens.",
    ".mixer.norm.weight": ".self_attn.gated_norm",
    ".mixer.": ".self_attn.",
    ".norm.": ".input_layernorm.",
    ".norm_f.": ".norm.",
}

MAMBA = Architecture(config, _NAMES)
FALCON_MAMBA = Architecture(config_of_norms, _NAMES)
MAMBA2 = Architecture(config2, _NAMES)
