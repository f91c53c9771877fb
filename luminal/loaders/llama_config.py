"""The configuration of a Llama, whatever file it comes from, and the weights it calls for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

import ml_dtypes
import numpy as np

from luminal.errors import LoadError
from luminal.loaders.fields import MAX_SIZE, Fields
from luminal.loaders.mapped import Array
from luminal.loaders.shown import shown

ARCHITECTURE = "LlamaForCausalLM"
_LISTED = 3  # names in a message
_EMBEDDING, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
WEIGHT_DTYPES = tuple(map(np.dtype, (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)))


class LlamaConfig(TypedDict):
    """Hugging Face's names for a Llama's sizes.

    `rope_scaling` is None or Llama 3's: rope_type "llama3", factor, low_freq_factor,
    high_freq_factor, original_max_position_embeddings. `rope_interleaved`: the q and k weights
    pair rows (2i, 2i+1), as llama2.c and GGUF do, instead of (i, i + head_dim/2).
    """

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: dict[str, Any] | None
    rope_interleaved: bool
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool


def from_hugging_face(raw: Mapping[str, Any], path: Path) -> LlamaConfig:
    """The configuration in a `config.json`; `path` is for messages.

    Raises LoadError for another architecture, a missing key, or an option Luminal does not have.
    """
    architectures = raw.get("architectures") or [raw.get("model_type")]
    if architectures != [ARCHITECTURE]:
        is_one = isinstance(architectures, list) and len(architectures) == 1
        found = shown(architectures[0] if is_one else architectures)
        raise LoadError(
            f"{path}: architecture {found} is not supported; supported is {ARCHITECTURE}"
        )
    fields = Fields(raw, path)
    _refuse_options(fields)
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    rope = fields.section("rope_parameters") or fields.section("rope_scaling")
    has_theta = rope.values.get("rope_theta") is not None
    config = LlamaConfig(
        architecture=ARCHITECTURE,
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=fields.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=fields.integer("num_key_value_heads", heads),
        head_dim=fields.integer("head_dim", hidden // heads),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6, most=1),
        rope_theta=(rope if has_theta else fields).number("rope_theta", 10000.0, least=1),
        rope_scaling=_rope_scaling(rope),
        rope_interleaved=False,
        vocab_size=fields.integer("vocab_size"),
        max_position_embeddings=fields.integer("max_position_embeddings", 2048),
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
    )
    check_sizes(config, path)
    return config


def _refuse_options(fields: Fields) -> None:
    raw, path = fields.values, fields.path
    for key in ("attention_bias", "mlp_bias", "quantization_config"):
        if raw.get(key):
            raise LoadError(
                f"{path}: {key}={shown(raw[key])} is not supported; only its absence is"
            )
    if raw.get("hidden_act", "silu") != "silu":
        raise LoadError(
            f"{path}: hidden_act={shown(raw['hidden_act'])} is not supported; 'silu' is"
        )


def _rope_scaling(rope: Fields) -> dict[str, Any] | None:
    kind = rope.values.get("rope_type") or rope.values.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise LoadError(
            f"{rope.path}: rope_type {shown(kind)} is not supported; 'default' and 'llama3' are"
        )
    low, high = (rope.number(f"{name}_freq_factor", least=1e-3) for name in ("low", "high"))
    if not low < high:
        raise LoadError(f"{rope.path}: low_freq_factor {low} must be below high_freq_factor {high}")
    return {
        "rope_type": kind,
        "factor": rope.number("factor", least=1e-3),
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": rope.integer("original_max_position_embeddings"),
    }


def check_sizes(config: LlamaConfig, path: Path) -> None:
    """Raise LoadError where a size is no 31-bit integer above 0 or the heads do not divide."""
    for name, value in config.items():
        if type(value) is int and value < 1:
            raise LoadError(f"{path}: {name} is {value}, it must be at least 1")
        if type(value) is int and value > MAX_SIZE:
            raise LoadError(f"{path}: {name} is {value}, it must be at most {MAX_SIZE}")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    if heads % kv_heads:
        raise LoadError(
            f"{path}: num_attention_heads {heads} is not a multiple of num_key_value_heads "
            f"{kv_heads}"
        )
    if config["head_dim"] % 2:
        raise LoadError(f"{path}: head_dim {config['head_dim']} must be even to be rotated")


def expected_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every weight the configuration calls for, under Hugging Face's names."""
    return dict(_shapes(config))


def _shapes(config: LlamaConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Those names and shapes one by one: a damaged file may speak of any number of layers."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q_rows = config["num_attention_heads"] * config["head_dim"]
    kv_rows = config["num_key_value_heads"] * config["head_dim"]
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (q_rows, hidden),
        "self_attn.k_proj": (kv_rows, hidden),
        "self_attn.v_proj": (kv_rows, hidden),
        "self_attn.o_proj": (hidden, q_rows),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    yield _EMBEDDING, (config["vocab_size"], hidden)
    for index in range(config["num_hidden_layers"]):
        for name, shape in layer.items():
            yield f"model.layers.{index}.{name}.weight", shape
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield _OUTPUT, (config["vocab_size"], hidden)


def pick_weights(config: LlamaConfig, tensors: Mapping[str, Array], path: Path) -> dict[str, Array]:
    """The weights the configuration calls for, checked; tensors that follow from others are left.

    Raises LoadError for a missing or unexpected name, a wrong shape, or a dtype that is no float.
    """
    if config["tie_word_embeddings"] and _EMBEDDING not in tensors and _OUTPUT in tensors:
        tensors = {_EMBEDDING: tensors[_OUTPUT], **tensors}  # one name of the two was saved
    missing = (name for name, _ in _shapes(config) if name not in tensors)
    first = list(itertools.islice(missing, _LISTED + 1))  # the others may be very many
    if first:
        raise LoadError(f"{path}: {_listed(first)} missing from the weights")
    shapes = expected_shapes(config)
    unexpected = [name for name in tensors if name not in shapes and not _derived(name)]
    if unexpected:
        raise LoadError(f"{path}: {_listed(unexpected)} not part of a {ARCHITECTURE}")
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tensor.shape != shape:
            raise LoadError(
                f"{path}: tensor {name!r} has shape {tensor.shape}, the configuration asks for "
                f"{shape}"
            )
        if tensor.dtype not in WEIGHT_DTYPES:
            raise LoadError(f"{path}: tensor {name!r} has dtype {tensor.dtype}, not a float")
    return {name: tensors[name] for name in shapes}


def _derived(name: str) -> bool:
    """A tied output matrix, or the rotary frequencies old checkpoints carry."""
    return name == _OUTPUT or name.endswith(".rotary_emb.inv_freq")


def _listed(names: list[str]) -> str:
    text = ", ".join(map(shown, names[:_LISTED]))
    more = " and more" if len(names) > _LISTED else ""
    return f"{text}{more} {'is' if len(names) == 1 else 'are'}"
