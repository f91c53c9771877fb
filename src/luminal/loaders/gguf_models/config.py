"""The metadata of a GGUF file as Hugging Face's `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.gguf import GGUFFile, decimal
from luminal.loaders.gguf_models.architecture import ANY_LAYER, GGUFArchitecture, sliding
from luminal.loaders.gguf_models.rearranged import Heads
from luminal.loaders.gguf_models.table import ARCHITECTURES
from luminal.loaders.shown import shown

_NUMBERS = (
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
    "attention.clamp_kqv",
    "attention.scale",
    "embedding_scale",
    "residual_scale",
    "logit_scale",
    "expert_weights_scale",
)
_FLAGS = ("use_parallel_residual", "expert_weights_norm")
_NEEDED = ("context_length", "embedding_length", "block_count", "attention.head_count")
_SCALING_NUMBERS = {
    "factor": "factor",
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_THETA = 10000.0
_FLAG_TEXTS = {"True", "False", "0", "1"}


def architecture_of(file: GGUFFile, path: Path) -> GGUFArchitecture:
    """What the file is of. Raises LoadError for an architecture that is not known."""
    name = file.metadata.get("general.architecture")
    for each in ARCHITECTURES:
        if each.name == name and _is_of(file, each):
            return each
    known = ", ".join(dict.fromkeys(each.name for each in ARCHITECTURES))
    raise LoadError(f"{path}: architecture {shown(name)} is not supported; supported are {known}")


def _is_of(file: GGUFFile, architecture: GGUFArchitecture) -> bool:
    """Whether the file has what only this class of its name has."""
    needs = architecture.only_with
    if needs is None or f"blk.0.{needs}" in file.tensors:
        return True
    key, _, number = needs.partition("=")
    value = file.metadata.get(f"{architecture.name}.{key}")
    return str(value) == number if number else bool(value)


def heads_of(file: GGUFFile, architecture: GGUFArchitecture, path: Path) -> Heads:
    """As the metadata says, where there is attention."""
    if "attention.head_count" not in architecture.keys:
        return Heads(1, 1)
    fields = _fields(file, architecture, path)
    queries = fields.integer(f"{architecture.name}.attention.head_count")
    return Heads(queries, fields.integer(f"{architecture.name}.attention.head_count_kv", queries))


def _fields(file: GGUFFile, architecture: GGUFArchitecture, path: Path) -> Fields:
    """The metadata; what it lists for each layer, and is the same in all, as one value."""
    values = dict(file.metadata)
    count = values.get(f"{architecture.name}.block_count")
    for key in (f"{architecture.name}.{each}" for each in architecture.keys):
        listed = values.get(key)
        if isinstance(listed, list) and len(listed) == count and listed == listed[:1] * count:
            values[key] = listed[0]
    return Fields(values, path, "the metadata")


def config_of(file: GGUFFile, architecture: GGUFArchitecture, path: Path) -> dict[str, Any]:
    """The configuration. Raises LoadError for keys that are missing or of another type."""
    return _Reader(file, architecture, path).config()


class _Reader:
    def __init__(self, file: GGUFFile, architecture: GGUFArchitecture, path: Path) -> None:
        self.tensors = file.tensors
        self.architecture = architecture
        self.fields = _fields(file, architecture, path)

    def config(self) -> dict[str, Any]:
        architecture = self.architecture
        embedding = self.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise LoadError(
                f"{self.fields.path}: tensor 'token_embd.weight' is missing or no matrix"
            )
        for key in _NEEDED:
            if key in architecture.keys:
                self.fields.integer(self.key(key))
        given = {name: self.value(key) for key, name in architecture.keys.items()}
        found: dict[str, Any] = {
            "architectures": [architecture.hugging_face],
            "model_type": architecture.model_type,
            **dict.fromkeys(architecture.keys.values()),
            **architecture.defaults,
            **{name: value for name, value in given.items() if value is not None},
            "vocab_size": embedding.shape[0],
            "tie_word_embeddings": "output.weight" not in self.tensors,
            **{name: f"blk.0.{part}" in self.tensors for name, part in architecture.flags.items()},
        }
        if architecture.rotary:
            found["rope_parameters"] = self.rope()
        found |= self.windows()
        found |= self.more()
        for role in ("bos", "eos"):
            found[f"{role}_token_id"] = self.fields.id_or_none(
                f"tokenizer.ggml.{role}_token_id", embedding.shape[0]
            )
        padding = self.fields.values.get("tokenizer.ggml.padding_token_id")
        if type(padding) is int and 0 <= padding < embedding.shape[0]:  # else there is none
            found["pad_token_id"] = padding
        return {
            name: value
            for name, value in found.items()
            if value is not None or name == "q_lora_rank"  # whose null means that there is none
        }

    def key(self, name: str) -> str:
        return f"{self.architecture.name}.{name}"

    def value(self, name: str) -> int | float | bool | None:
        """None where the file does not have it."""
        key = self.key(name)
        if key not in self.fields.values:
            return None
        if name in _FLAGS:
            return self.fields.flag(key, True)
        if name in _NUMBERS:
            return self.fields.number(key)
        return self.fields.integer(key, least=0)

    def number(self, name: str) -> float | None:
        key = self.key(name)
        return self.fields.number(key) if key in self.fields.values else None

    # --- positions

    def rope(self) -> dict[str, Any]:
        """`rope_parameters`, those of two kinds of layers where they differ."""
        heads = self.fields.integer(self.key("attention.head_count"))
        width = self.fields.integer(self.key("embedding_length")) // heads
        width = self.fields.integer(self.key("attention.key_length"), width)
        if self.architecture.name == "deepseek2":  # its rotated features are no part of others
            width = self.fields.integer(self.key("rope.dimension_count"))
        dims = self.fields.integer(self.key("rope.dimension_count"), width)
        theta = self.number("rope.freq_base") or _THETA
        fixed = self.architecture.rope
        found = {"rope_type": "default", "rope_theta": theta, **self.scaling(), **fixed}
        if dims != width:
            found["partial_rotary_factor"] = dims / width
        if self.architecture.local_theta is None:
            return found
        local = self.number("rope.freq_base_swa") or self.architecture.local_theta or theta
        near = {"rope_type": "default", "rope_theta": local}
        return {"full_attention": found, "sliding_attention": near}

    def scaling(self) -> dict[str, Any]:
        """The scaling of long texts; factors of each frequency are tensors."""
        original = self.value("rope.scaling.original_context_length")
        short, long = (self.factors(f"rope_factors_{each}.weight") for each in ("short", "long"))
        if short is None or long is None:
            short = long = self.factors("rope_freqs.weight")
        found: dict[str, Any]
        if short is not None:
            found = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
            attention = self.number("rope.scaling.attn_factor")
            if short == long and attention is None:
                attention = 1.0
            found["attention_factor"] = attention
        else:
            kind = self.fields.text(self.key("rope.scaling.type"), "none")
            if kind == "none":
                return {}
            numbers = {
                name: self.number(f"rope.scaling.{key}") for key, name in _SCALING_NUMBERS.items()
            }
            found = {"rope_type": kind, **numbers}
            sharper = self.number("rope.scaling.yarn_log_multiplier")
            if sharper is not None:  # a tenth of it
                found["mscale"] = found["mscale_all_dim"] = round(10 * sharper, 6)
        found["original_max_position_embeddings"] = original
        return {name: value for name, value in found.items() if value is not None}

    def factors(self, name: str) -> list[float] | None:
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        return [decimal(each) for each in tensor.array().astype(np.float32).ravel().tolist()]

    # --- what only some have

    def windows(self) -> dict[str, Any]:
        """Which layers slide."""
        if not self.value("attention.sliding_window"):
            return {"sliding_window": None}
        architecture, key = self.architecture, self.key("attention.sliding_window_pattern")
        slide = self.slides(key)
        if not any(slide) and architecture.windowed != ANY_LAYER:
            return {"sliding_window": None}
        if key in self.fields.values and not architecture.may_slide(slide):
            raise LoadError(
                f"{self.fields.path}: {key} is {shown(self.fields.values[key])}; in a "
                f"{architecture.hugging_face} {architecture.windowed} may have a window"
            )
        kinds = ["sliding_attention" if each else "full_attention" for each in slide]
        return {"layer_types": kinds, "use_sliding_window": True}

    def slides(self, key: str) -> list[bool]:
        """The same as flags, from a list of them or the period of the pattern."""
        count = self.fields.integer(self.key("block_count"))
        given = self.fields.values.get(key)
        if not isinstance(given, list):
            return sliding(count, self.fields.integer(key, self.architecture.windows, least=0))
        if len(given) != count or not {*map(repr, given)} <= _FLAG_TEXTS:
            raise LoadError(
                f"{self.fields.path}: {key} is {shown(given)}; it must be a flag for each of "
                f"{count} layers"
            )
        return [bool(each) for each in given]

    def more(self) -> Mapping[str, Any]:
        name = self.architecture.name
        if name in ("gemma2", "gemma3"):
            scale = self.number("attention.scale")
            return {
                "attn_logit_softcapping": self.number("attn_logit_softcapping"),
                "final_logit_softcapping": self.number("final_logit_softcapping"),
                "query_pre_attn_scalar": self.query_scalar() if scale is None else round(scale**-2),
            }
        if name in ("qwen2moe", "qwen3moe"):
            count = self.fields.integer(self.key("block_count"))
            dense = [n for n in range(count) if f"blk.{n}.ffn_gate_inp.weight" not in self.tensors]
            return {"mlp_only_layers": dense}
        if name == "deepseek2":
            return self.latent()
        further = self.value("nextn_predict_layers")
        if further:  # layers behind the last one, which guess further tokens
            count = self.fields.integer(self.key("block_count"))
            return {"num_hidden_layers": count - further}
        return {}

    def latent(self) -> dict[str, Any]:
        """Sizes of latent attention; newer files describe what they keep of a token as a head."""
        suffix = "_mla" if self.key("attention.key_length_mla") in self.fields.values else ""
        whole, values = (
            self.fields.integer(self.key(f"attention.{each}_length{suffix}"))
            for each in ("key", "value")
        )
        turned = self.fields.integer(self.key("rope.dimension_count"))
        groups = self.value("expert_group_count") or 1
        found: dict[str, Any] = {
            "num_key_value_heads": self.value("attention.head_count"),
            "qk_nope_head_dim": whole - turned,
            "v_head_dim": values,
        }
        if self.architecture.hugging_face == "DeepseekV2ForCausalLM":
            found["topk_method"] = "group_limited_greedy" if groups != 1 else "greedy"
        return found

    def query_scalar(self) -> int:
        """That of Gemma's models: of all but the largest, a head's width."""
        hidden, heads, layers = (
            self.fields.integer(self.key(key))
            for key in ("embedding_length", "attention.head_count", "block_count")
        )
        largest = {"gemma2": 46, "gemma3": 62}[self.architecture.name]
        if layers == largest:
            return hidden // heads
        return self.fields.integer(self.key("attention.key_length"), hidden // heads)
