"""The metadata of a GGUF file as Hugging Face's `config.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.gguf import GGUFFile, decimal
from luminal.loaders.shown import shown
from luminal.models.architectures import records
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import Setting, layer_count
from luminal.models.gguf.changes import Heads
from luminal.models.gguf.form import ANY_LAYER, GGUF, sliding
from luminal.models.gguf.names import (
    BOOLEANS,
    EXPERT_KEYS,
    FLAGS,
    KEYS,
    LAYER_EPSILON,
    NUMBERS,
    RMS_EPSILON,
)
from luminal.models.gguf.tensors import form_of

_NEEDED = ("context_length", "embedding_length", "block_count", "attention.head_count")
_SCALING_NUMBERS = {
    "factor": "factor",
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_THETA = 10000.0  # what readers of such files assume where they do not say it
_FLAG_TEXTS = {"True", "False", "0", "1"}


def architecture_of_file(file: GGUFFile, path: Path) -> Architecture:
    """The record of a GGUF file. Raises LoadError for one not known."""
    name = file.metadata.get("general.architecture")
    # The format names an implementation of llama.cpp, not a class of Hugging Face, so one name may
    # be several classes.
    for record in records(str(name)):
        if record.gguf is not None and is_of(file, record.gguf):
            return record
    if name == "clip":
        raise LoadError(
            f"{path}: is an mmproj file, which has what sees and no text model; load the text "
            "model's file, and give this one as projector= (--mmproj)"
        )
    supported = ", ".join(sorted({record.gguf.name for record in records() if record.gguf}))
    raise LoadError(
        f"{path}: architecture {shown(name)} is not supported; supported are {supported}"
    )


def is_of(file: GGUFFile, form: GGUF) -> bool:
    """Is the file of this form, which may share its name with others?"""

    def has(sign: str) -> bool:
        key, _, number = sign.partition("=")
        value = file.metadata.get(f"{form.name}.{key}")
        return f"blk.0.{sign}" in file.tensors or (str(value) == number if number else bool(value))

    named = file.metadata.get("general.architecture") == form.name
    return named and all(map(has, form.only_with)) and not any(map(has, form.only_without))


def keys_of(architecture: Architecture) -> dict[str, str]:
    """Keys of the metadata, without the architecture's name, and those of `config.json`."""
    settings, experts = architecture.all_settings, architecture.experts or {}
    epsilon = RMS_EPSILON if "rms" in settings.get("norm", "rms") else LAYER_EPSILON
    keys_here: dict[str, str] = {}
    for keys, fields in (({**KEYS, epsilon: "norm_eps"}, settings), (EXPERT_KEYS, experts)):
        for key, name in keys.items():
            setting = fields.get(name)
            # The first key wins: `config.json` may use one for what the metadata says twice.
            if isinstance(setting, Setting) and setting.key not in keys_here.values():
                keys_here[key] = setting.key
    further = form_of(architecture).keys
    keys_here |= {"attention.sliding_window": "sliding_window"}
    return {key: name for key, name in {**keys_here, **further}.items() if name is not None}


def flags_of(architecture: Architecture) -> dict[str, tuple[str, ...]]:
    """Keys of `config.json` that are true where a layer has one of some tensors."""
    flags: dict[str, tuple[str, ...]] = {}
    for name, tensors in FLAGS.items():
        setting = architecture.all_settings.get(name)
        if isinstance(setting, Setting):  # one key may be that of all biases
            flags.setdefault(setting.key, tensors)
    return flags | {key: (tensor,) for key, tensor in form_of(architecture).flags.items()}


def heads_of(file: GGUFFile, architecture: Architecture, path: Path) -> Heads:
    """The heads that the metadata speaks of; where there is no attention those of a memory as
    RWKV's, else one. Of keys as many as of queries where no key says their number for all layers.
    """
    name, keys = form_of(architecture).name, keys_of(architecture)
    fields = _fields(file, architecture, path)
    if "attention.head_count" not in keys:
        width = fields.integer(f"{name}.embedding_length")
        return Heads(width // fields.integer(f"{name}.wkv.head_size", width), 1)
    queries = fields.integer(f"{name}.attention.head_count")
    groups = fields.integer(f"{name}.ssm.group_count", 1)
    members = fields.integer(f"{name}.ssm.time_step_rank", groups) // groups
    states = fields.integer(f"{name}.ssm.state_size", 1)
    listed = "attention.head_count_kv" not in keys
    of_keys = queries if listed else fields.integer(f"{name}.attention.head_count_kv", queries)
    return Heads(queries, of_keys, groups, members, states)


def _fields(file: GGUFFile, architecture: Architecture, path: Path) -> Fields:
    """The metadata; what it lists for each layer, and is the same in all, as one value."""
    name, values = form_of(architecture).name, dict(file.metadata)
    count = values.get(f"{name}.block_count")
    hybrid = form_of(architecture).hybrid
    for key in (f"{name}.{key}" for key in keys_of(architecture)):
        listed = values.get(key)
        # Newer files list per layer what older ones give once. Only where all layers agree do the
        # two mean the same; else the list stays, and whoever reads a number refuses it.
        if not isinstance(listed, list) or len(listed) != count:
            continue
        said = [number for number in listed if number or not hybrid]
        if said and said == said[:1] * len(said):
            values[key] = said[0]
    return Fields(values, path, "the metadata")


def config_of(file: GGUFFile, architecture: Architecture, path: Path) -> dict[str, Any]:
    """The configuration. Raises LoadError for keys that are missing or of another type."""
    return Reader(file, architecture, path).config()


class Reader:
    """The metadata of a file, by keys without the architecture's name."""

    def __init__(self, file: GGUFFile, architecture: Architecture, path: Path) -> None:
        self.tensors = file.tensors
        self._kinds = {name.split(".", 2)[-1] for name in file.tensors if name.startswith("blk.")}
        self.architecture, self.form = architecture, form_of(architecture)
        self.fields = _fields(file, architecture, path)
        self._heads = file.metadata.get(self.key("attention.head_count_kv"))

    def attends(self) -> list[bool]:
        """Which layers have attention."""
        count, heads = self.layers, self._heads
        if not isinstance(heads, list):
            return [True] * count
        if len(heads) != count:
            raise LoadError(
                f"{self.fields.path}: {self.key('attention.head_count_kv')} has {len(heads)} "
                f"numbers for {count} layers"
            )
        return [bool(number) for number in heads]

    def config(self) -> dict[str, Any]:
        """All that a `config.json` would say."""
        embedding = self.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise LoadError(
                f"{self.fields.path}: tensor 'token_embd.weight' is missing or no matrix"
            )
        # The same record reads both formats: a field of a DecoderConfig says where it stands in
        # config.json, a table where in the metadata, and nothing has to be said twice.
        keys = keys_of(self.architecture)
        for key in _NEEDED:
            if key in keys:
                self.integer(key)
        said = {name: self.value(key) for key, name in keys.items()}
        flags = flags_of(self.architecture)
        config: dict[str, Any] = {
            "architectures": [self.architecture.name],
            "model_type": self.form.model_type or self.form.name,
            **self.form.defaults,
            **{name: value for name, value in said.items() if value is not None},
            "vocab_size": embedding.shape[0],
            # The format has no key for it: a file that ties them leaves the output out.
            "tie_word_embeddings": "output.weight" not in self.tensors,
            **{name: any(map(self.has_tensor, parts)) for name, parts in flags.items()},
        }
        if "attention.head_count" in keys and self.architecture.layers is not None:
            config["rope_parameters"] = self.rope()
        config |= self.windows()
        for role in ("bos", "eos"):
            config[f"{role}_token_id"] = self.fields.id_or_none(
                f"tokenizer.ggml.{role}_token_id", embedding.shape[0]
            )
        padding = self.fields.values.get("tokenizer.ggml.padding_token_id")
        if type(padding) is int and 0 <= padding < embedding.shape[0]:  # else there is none
            config["pad_token_id"] = padding
        config = {name: value for name, value in config.items() if value is not None}
        more = self.form.read(self) if self.form.read is not None else self.further_layers()
        return {**config, **more}

    def has_tensor(self, name: str, layer: int | None = None) -> bool:
        """Does a layer have a tensor; does any, where none is named?"""
        return name in self._kinds if layer is None else f"blk.{layer}.{name}" in self.tensors

    @property
    def layers(self) -> int:
        """How many there are, which is bounded."""
        return layer_count(self.fields, self.key("block_count"))

    def key(self, name: str) -> str:
        """The key with the architecture's name before it."""
        return f"{self.form.name}.{name}"

    def integer(self, name: str, *default: int) -> int:
        """An integer that must be there, or have a default."""
        return self.fields.integer(self.key(name), *default)

    def value(self, name: str) -> int | float | bool | None:
        """None where the file does not have it."""
        key = self.key(name)
        if key not in self.fields.values:
            return None
        if name in BOOLEANS:
            return self.fields.flag(key, True)
        if name in NUMBERS:
            return self.fields.number(key)
        return self.fields.integer(key, least=0)

    def number(self, name: str) -> float | None:
        key = self.key(name)
        return self.fields.number(key) if key in self.fields.values else None

    # --- positions

    def rope(self) -> dict[str, Any]:
        """`rope_parameters`, those of two kinds of layers where they differ."""
        heads = self.integer("attention.head_count")
        width = self.integer("embedding_length") // heads
        width = self.integer("attention.key_length", width)
        dims = self.integer("rope.dimension_count", width)
        theta = self.number("rope.freq_base") or _THETA
        fixed = self.form.rope
        parameters = {"rope_type": "default", "rope_theta": theta, **self.scaling(), **fixed}
        # How many features turn is written as a count here and as a share there.
        if dims != width:
            parameters["partial_rotary_factor"] = dims / width
        if self.form.local_theta is None:
            return parameters
        local = self.number("rope.freq_base_swa") or self.form.local_theta or theta
        near = {"rope_type": "default", "rope_theta": local}
        return {"full_attention": parameters, "sliding_attention": near}

    def scaling(self) -> dict[str, Any]:
        """The scaling of long texts; factors of each frequency are tensors."""
        original = self.value("rope.scaling.original_context_length")
        short, long = (
            self.factors(f"rope_factors_{length}.weight") for length in ("short", "long")
        )
        # Two kinds of tensors say it: factors for short and long texts (Phi), or one for all (Llama
        # 3.1), whose formula whoever converted the file has evaluated.
        if short is None or long is None:
            short = long = self.factors("rope_freqs.weight")
        scaling: dict[str, Any]
        if short is not None:
            scaling = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
            attention = self.number("rope.scaling.attn_factor")
            if short == long and attention is None:
                attention = 1.0
            scaling["attention_factor"] = attention
        else:
            kind = self.fields.text(self.key("rope.scaling.type"), "none")
            if kind == "none":
                return {}
            numbers = {
                name: self.number(f"rope.scaling.{key}") for key, name in _SCALING_NUMBERS.items()
            }
            scaling = {"rope_type": kind, **numbers}
            sharper = self.number("rope.scaling.yarn_log_multiplier")
            if sharper is not None:  # converters write a tenth of mscale_all_dim
                scaling["mscale"] = scaling["mscale_all_dim"] = round(10 * sharper, 6)
        scaling["original_max_position_embeddings"] = original
        return {name: value for name, value in scaling.items() if value is not None}

    def factors(self, name: str) -> list[float] | None:
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        return [decimal(factor) for factor in tensor.array().astype(np.float32).ravel().tolist()]

    # --- what only some have

    def windows(self) -> dict[str, Any]:
        """The settings that say which layers have a window."""
        if not self.value("attention.sliding_window"):
            return {"sliding_window": None}
        form, key = self.form, self.key("attention.sliding_window_pattern")
        slide = self.slides(key)
        if not any(slide) and form.windowed != ANY_LAYER:
            return {"sliding_window": None}
        if key in self.fields.values and not form.may_slide(slide):
            raise LoadError(
                f"{self.fields.path}: {key} is {shown(self.fields.values[key])}; in a "
                f"{self.architecture.name} {form.windowed} may have a window"
            )
        kinds = ["sliding_attention" if slides else "full_attention" for slides in slide]
        return {"layer_types": kinds, "use_sliding_window": True}

    def slides(self, key: str) -> list[bool]:
        """A flag for each layer, from a list of them or the period of the pattern."""
        count = self.layers
        pattern = self.fields.values.get(key)
        if not isinstance(pattern, list):
            return sliding(count, self.fields.integer(key, self.form.windows, least=0))
        if len(pattern) != count or not {*map(repr, pattern)} <= _FLAG_TEXTS:
            raise LoadError(
                f"{self.fields.path}: {key} is {shown(pattern)}; it must be a flag for each of "
                f"{count} layers"
            )
        return [bool(flag) for flag in pattern]

    def further_layers(self) -> dict[str, int]:
        """The number of layers without those behind the last one, which guess further tokens."""
        further = self.value("nextn_predict_layers")
        return {"num_hidden_layers": self.integer("block_count") - int(further)} if further else {}
