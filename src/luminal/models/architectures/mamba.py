"""Mamba, Falcon Mamba and Mamba 2: layers of a state space alone.

arXiv 2312.00752, 2410.05355, 2405.21060.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.loaders.fields import MAX_SIZE, Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import TIED, epsilon, flag, layer_count
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Layers
from luminal.models.gguf.changes import Change, Heads
from luminal.models.gguf.form import GGUF
from luminal.nn import RotaryEmbedding
from luminal.nn.state_space import Mamba, Mamba2


@dataclass(frozen=True, slots=True)
class MambaConfig:
    """The sizes of a `Mamba`, which is a layer's mixer."""

    inner: int
    states: int
    rank: int
    width: int
    bias: bool
    convolution_bias: bool
    norm_eps: float | None
    norm_weights: bool = False

    def make(self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any) -> Mamba:
        """The mixer of one layer."""
        sizes = self.inner, self.states, self.rank, self.width
        biases = self.bias, self.convolution_bias
        norms = self.norm_eps, dtype, self.norm_weights
        return Mamba(config.hidden_size, *sizes, *biases, *norms)


@dataclass(frozen=True, slots=True)
class Mamba2Config:
    """The sizes of a `Mamba2`, which is a layer's mixer."""

    heads: int
    head_dim: int
    states: int
    groups: int
    width: int
    bias: bool
    convolution_bias: bool
    output_bias: bool | None = None
    norm: str | None = "after"
    scales: tuple[float, ...] = (1, 1, 1, 1, 1)

    @property
    def grouping(self) -> tuple[int, int, int]:
        """Groups of heads, heads of a group, and states, as files in GGUF lay them out."""
        return self.groups, self.heads // self.groups, self.states

    def make(self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any) -> Mamba2:
        """The mixer of one layer."""
        return Mamba2(
            config.hidden_size,
            self.heads,
            self.head_dim,
            self.states,
            self.groups,
            self.width,
            self.bias,
            self.convolution_bias,
            config.norm_eps,
            dtype,
            output_bias=self.output_bias,
            norm=self.norm,
            scales=self.scales,
        )


def rank_of(fields: Fields, key: str) -> int:
    """How many features say the time step; files write the paper's default as "auto"."""
    rank = math.ceil(fields.integer("hidden_size") / 16)
    return rank if fields.values.get(key) == "auto" else fields.integer(key, rank)


def refuse_bounded_steps(fields: Fields) -> None:
    """Raises LoadError for time steps of a Mamba 2 that have a limit."""
    # No limit is written in two ways, since JSON has no infinity of its own.
    limit = fields.values.get("time_step_limit")
    if limit not in (None, [0.0, math.inf], [0.0, {"__float__": "Infinity"}]):
        raise LoadError(f"{fields.path}: time_step_limit={shown(limit)} is not supported; none is")


def _layers(fields: Fields, norm_eps: float | None = None) -> Layers:
    """Layers of Mamba's mixer alone."""
    hidden = fields.integer("hidden_size")
    mixer = MambaConfig(
        fields.integer("intermediate_size", int(fields.number("expand", 2) * hidden)),
        fields.integer("state_size", 16),
        rank_of(fields, "time_step_rank"),
        fields.integer("conv_kernel", 4),
        fields.flag("use_bias", False),
        fields.flag("use_conv_bias", True),
        norm_eps,
    )
    return (LayerConfig(mixer=mixer, feed_forward=False),) * layer_count(fields)


def _normed_layers(fields: Fields) -> Layers:
    """Falcon Mamba has norms of what steers its scan."""
    return _layers(fields, fields.number("mixer_rms_eps", 1e-6, most=1))


def _layers_of_mamba2(fields: Fields) -> Layers:
    refuse_bounded_steps(fields)
    mixer = Mamba2Config(
        fields.integer("num_heads", 128),
        fields.integer("head_dim", 64),
        fields.integer("state_size", 128),
        fields.integer("n_groups", 8),
        fields.integer("conv_kernel", 4),
        fields.flag("use_bias", False),
        fields.flag("use_conv_bias", True),
    )
    return (LayerConfig(mixer=mixer, feed_forward=False),) * layer_count(fields)


# Sizes of attention and of a feed-forward part are 1 where there is neither: a DecoderConfig has no
# case for their absence, and no module is made of them.
_SETTINGS: dict[str, Any] = {
    "intermediate_size": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 1,
    "max_position_embeddings": MAX_SIZE,  # a state takes no more room for a longer text
    "activation": "silu",
    "norm_eps": epsilon(1e-5, "layer_norm_epsilon"),
    **TIED,
}
_NAMES = {
    "backbone.": "model.",
    ".embeddings.": ".embed_tokens.",
    ".mixer.": ".self_attn.",
    ".self_attn.norm.weight": ".self_attn.gated_norm",
    ".norm.": ".input_layernorm.",
    ".norm_f.": ".norm.",
}


def _of_one_channel(array: Array, heads: Heads) -> Array:
    return array[:, None] if array.ndim == 2 else array


def _of_its_channel(array: Array, heads: Heads) -> Array:
    return array[:, 0] if array.ndim == 3 else array


def _logarithms(array: Array, heads: Heads) -> Array:
    with np.errstate(all="ignore"):  # a damaged file may hold anything
        return np.log(-array.astype(np.float32))


def _negative_powers(array: Array, heads: Heads) -> Array:
    return -np.exp(array.astype(np.float32))


def _written(config: DecoderConfig) -> dict[str, Any]:
    """The metadata of layers of a state space, which have no heads and no feed-forward part."""
    mixer = config.layers[0].mixer
    assert isinstance(mixer, MambaConfig)
    return {
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "feed_forward_length": 0,
        "ssm.conv_kernel": mixer.width,
        "ssm.inner_size": mixer.inner,
        "ssm.state_size": mixer.states,
        "ssm.time_step_rank": mixer.rank,
        "ssm.dt_b_c_rms": mixer.norm_eps is not None,
    }


def _form(model_type: str, **signs: Any) -> GGUF:
    return GGUF(
        "mamba",
        model_type,
        keys={
            "ssm.conv_kernel": "conv_kernel",
            "ssm.inner_size": "intermediate_size",
            "ssm.state_size": "state_size",
            "ssm.time_step_rank": "time_step_rank",
        },
        names={
            "self_attn.in_proj": "ssm_in",
            "self_attn.conv1d": "ssm_conv1d",
            "self_attn.x_proj": "ssm_x",
            "self_attn.dt_proj": "ssm_dt",
            "self_attn.A_log": "ssm_a",
            "self_attn.D": "ssm_d",
            "self_attn.out_proj": "ssm_out",
        },
        flags={"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"},
        changes={"ssm_conv1d": OF_ONE_CHANNEL, "ssm_a": LOGARITHMS},
        written=_written,
        **signs,
    )


def _as_column(array: Array, heads: Heads) -> Array:
    return array.reshape(-1, 1)


def _as_vector(array: Array, heads: Heads) -> Array:
    return array.reshape(-1)


def _by_groups(array: Array, heads: Heads) -> Array:
    return array.reshape(heads.groups, -1)


def _rates(array: Array, heads: Heads) -> Array:
    return _logarithms(array, heads).reshape(-1)


def _rate_column(array: Array, heads: Heads) -> Array:
    return _negative_powers(array, heads).reshape(-1, 1)


def mamba2_names(place: str) -> dict[str, str]:
    """Names in GGUF of the weights of a Mamba 2 at a place in a layer."""
    return {
        f"{place}.in_proj": "ssm_in",
        f"{place}.conv1d": "ssm_conv1d",
        f"{place}.dt_bias": "ssm_dt.bias",
        f"{place}.A_log": "ssm_a",
        f"{place}.D": "ssm_d",
        f"{place}.gated_norm": "ssm_norm.weight",
        f"{place}.out_proj": "ssm_out",
    }


OF_ONE_CHANNEL = Change(_of_one_channel, _of_its_channel)
"""Convolutions of a channel each, which files have as matrices."""
LOGARITHMS = Change(_logarithms, _negative_powers)
"""Rates of decay, of which files hold what the logarithms stand for, negative."""
MAMBA2_CHANGES = {
    "ssm_conv1d": OF_ONE_CHANNEL,
    "ssm_a": Change(_rates, _rate_column),
    "ssm_d": Change(_as_vector, _as_column),
    "ssm_norm.weight": Change(_as_vector, _by_groups),
}
"""What files store otherwise of a Mamba 2."""


def written_mamba2(mixer: Mamba2Config) -> dict[str, Any]:
    """The metadata of a Mamba 2."""
    return {
        "ssm.conv_kernel": mixer.width,
        "ssm.inner_size": mixer.heads * mixer.head_dim,
        "ssm.state_size": mixer.states,
        "ssm.time_step_rank": mixer.heads,
        "ssm.group_count": mixer.groups,
    }


def _written_alone(config: DecoderConfig) -> dict[str, Any]:
    mixer = config.layers[0].mixer
    assert isinstance(mixer, Mamba2Config)
    none = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    return {**dict.fromkeys(none, 0), **written_mamba2(mixer)}


def head_width(reader: Any) -> int:
    """The channels of a head, which files say by all channels and the number of heads.

    Raises LoadError where these do not divide.
    """
    inner, heads = reader.integer("ssm.inner_size"), reader.integer("ssm.time_step_rank")
    if inner % heads:
        raise LoadError(f"{reader.fields.path}: {inner} channels do not divide among {heads} heads")
    return int(inner // heads)


def _read_alone(reader: Any) -> dict[str, Any]:
    inner, hidden = reader.integer("ssm.inner_size"), reader.integer("embedding_length")
    whole = inner % hidden == 0  # as transformers wants it
    return {"head_dim": head_width(reader), "expand": inner // hidden if whole else inner / hidden}


_SILU = {"hidden_act": "silu"}

FALCON_MAMBA = Architecture(
    "FalconMambaForCausalLM",
    _SETTINGS,
    _NAMES,
    layers=_normed_layers,
    only=_SILU,
    gguf=_form("falcon_mamba", only_with=("ssm.dt_b_c_rms",)),
)
MAMBA = Architecture(
    "MambaForCausalLM",
    _SETTINGS,
    _NAMES,
    layers=_layers,
    only=_SILU,
    gguf=_form("mamba", only_without=("ssm.dt_b_c_rms",)),
)
MAMBA2 = Architecture(
    "Mamba2ForCausalLM",
    _SETTINGS | {"tie_word_embeddings": flag("tie_word_embeddings", False)},
    _NAMES,
    layers=_layers_of_mamba2,
    only=_SILU,
    gguf=GGUF(
        "mamba2",
        keys={
            "ssm.conv_kernel": "conv_kernel",
            "ssm.state_size": "state_size",
            "ssm.time_step_rank": "num_heads",
            "ssm.group_count": "n_groups",
        },
        names=mamba2_names("self_attn"),
        flags={"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"},
        changes=MAMBA2_CHANGES,
        read=_read_alone,
        written=_written_alone,
    ),
)
