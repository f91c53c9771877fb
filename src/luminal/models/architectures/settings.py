"""Settings of a `config.json`: how they become fields of a DecoderConfig, in all architectures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from luminal.base.errors import LoadError
from luminal.base.near_names import explained
from luminal.base.records import dataclass
from luminal.loaders.fields import MAX_SIZE, NEEDED, Fields
from luminal.loaders.shown import shown
from luminal.models.checkpoint import check_quantization
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig, Layers

Config = TypeVar("Config", DecoderConfig, ExpertsConfig)

MAX_LAYERS = 4096  # a damaged file may speak of any number
MAX_HEADS = 1 << 16  # as many features of a head: tables of that length are made at once


@dataclass(frozen=True, slots=True)
class Setting:
    """A key of `config.json`, and how its value is read. GGUF files have the same setting under a
    key of their own, so a record that says `Setting` says it for both kinds of files.
    """

    key: str
    read: Callable[[Fields], Any]


def integer(key: str, default: Any = NEEDED, least: int = 1, most: int = MAX_SIZE) -> Setting:
    """A setting that is an integer."""
    return Setting(key, lambda fields: fields.integer(key, default, least, most))


def number(key: str, default: Any = NEEDED) -> Setting:
    """A setting that is a number above 0."""
    return Setting(key, lambda fields: fields.number(key, default))


def number_or_none(key: str, missing: float | None = None) -> Setting:
    """A setting that is a number or null; `missing` is its value where the key is not there."""
    return Setting(key, lambda fields: fields.number_or_none(key, missing))


def epsilon(default: float, key: str = "rms_norm_eps") -> Setting:
    """The epsilon of the norms."""
    return Setting(key, lambda fields: fields.number(key, default, most=1))


def text(key: str, default: str) -> Setting:
    """A setting that is a name, as that of an activation."""
    return Setting(key, lambda fields: fields.text(key, default))


def flag(key: str, default: bool) -> Setting:
    """A setting that is true or false."""
    return Setting(key, lambda fields: fields.flag(key, default))


def choice(key: str, default: bool, chosen: str) -> Setting:
    """A setting that is `chosen` where a flag is true, else None."""
    return Setting(key, lambda fields: chosen if fields.flag(key, default) else None)


def attention_biases(key: str = "attention_bias", default: bool = False) -> dict[str, Setting]:
    """One flag for the biases of all four projections of attention."""
    return dict.fromkeys(("attention_bias", "output_bias"), flag(key, default))


def plain(bias: Setting | bool) -> dict[str, Any]:
    """What decoders before Llama have in common: layer norms, feed-forward parts without a gate,
    and biases in every projection, or in none.
    """
    biases = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), bias)
    return {"gated": False, "norm": "layer", **biases}


def head_dim(fields: Fields) -> int:
    """The width of a head: `head_dim`, else the features of the model divided by its heads."""
    heads = fields.integer("num_attention_heads", most=MAX_HEADS)
    return fields.integer("head_dim", fields.integer("hidden_size") // heads, most=MAX_HEADS)


def _key_heads(fields: Fields) -> int | None:
    """How many heads of keys `config.json` says, if it does."""
    missing = fields.values.get("num_key_value_heads") is None
    return None if missing else fields.integer("num_key_value_heads")


TIED = {"tie_word_embeddings": flag("tie_word_embeddings", True)}
"""The output is the embedding unless `config.json` says otherwise; the common default is false."""
COMMON: Mapping[str, Setting] = {
    "num_hidden_layers": integer("num_hidden_layers", most=MAX_LAYERS),
    "vocab_size": integer("vocab_size"),
    "hidden_size": integer("hidden_size"),
    "intermediate_size": integer("intermediate_size"),
    "num_attention_heads": integer("num_attention_heads", most=MAX_HEADS),
    "num_key_value_heads": Setting("num_key_value_heads", _key_heads),
    "head_dim": Setting("head_dim", head_dim),
    "max_position_embeddings": integer("max_position_embeddings", 2048),
    "activation": text("hidden_act", "silu"),
    "norm_eps": epsilon(1e-6),
    "tie_word_embeddings": flag("tie_word_embeddings", False),
}
"""Fields of a DecoderConfig as most files say them; a record overrides what its files say else."""


def layer_count(fields: Fields, key: str = "num_hidden_layers") -> int:
    """The number of layers, which is bounded: a damaged file may say any."""
    return fields.integer(key, most=MAX_LAYERS)


def refuse(fields: Fields, **supported: Any) -> None:
    """Raises LoadError for a key that has another value than the one supported; null is none."""
    for key, only in supported.items():
        value = fields.values.get(key)
        if value is not None and value != only:
            raise LoadError(f"{fields.path}: {key}={shown(value)} is not supported; {only!r} is")


def values_of(settings: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """The value of each field: what a Setting or a function reads, or a constant as it is."""
    read = {name: getattr(setting, "read", setting) for name, setting in settings.items()}
    return {
        name: setting(fields) if callable(setting) else setting for name, setting in read.items()
    }


def experts_of(settings: Mapping[str, Any], fields: Fields) -> ExpertsConfig:
    """The experts that a record's `experts` describe."""
    return _configured(ExpertsConfig, values_of(settings, fields))


def _configured(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """The configuration of these fields; a record's field that there is not is named."""
    try:
        return kind(**values)
    except TypeError as error:
        raise explained(error, kind, values) from None


def _with_common_sizes(fields: Fields, settings: Mapping[str, Any]) -> Fields:
    """The Fields of which other settings and the layers compute, under their common keys, where a
    file has other ones ("n_embd").
    """
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    renamed = {
        name: settings[name].read(fields)
        for name in sizes
        if isinstance(settings[name], Setting) and settings[name].key != name
    }
    return replace(fields, values={**fields.values, **renamed}) if renamed else fields


def decoder_config(
    fields: Fields, settings: Mapping[str, Any], layers: Callable[[Fields], Layers] | None
) -> DecoderConfig:
    """The configuration that these settings have in a `config.json`. Raises LoadError."""
    # First of all: packed weights have other names and shapes, and whatever is said later would be
    # about those.
    check_quantization(fields.values, fields.path)
    fields = _with_common_sizes(fields, settings)
    values = values_of(settings, fields)
    count, heads = values.pop("num_hidden_layers"), values["num_attention_heads"]
    # As many heads of keys as of queries is what attention had before groups, and what a missing
    # key means.
    if values["num_key_value_heads"] is None:
        values["num_key_value_heads"] = heads
    if values["head_dim"] is None:
        values["head_dim"] = values["hidden_size"] // heads
    described = layers(fields) if layers is not None else (LayerConfig(),) * count
    config = _configured(DecoderConfig, {"layers": described, **values})
    if heads % config.num_key_value_heads:
        raise LoadError(
            f"{fields.path}: {heads} heads do not divide among {config.num_key_value_heads} of keys"
        )
    if config.head_dim < 1:
        raise LoadError(
            f"{fields.path}: {config.hidden_size} features are fewer than {heads} heads"
        )
    return config
