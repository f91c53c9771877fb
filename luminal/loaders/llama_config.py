"""The configuration of a Llama, whatever file it comes from, and the weights it calls for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import ml_dtypes
import numpy as np

from luminal.errors import LoadError
from luminal.loaders.mapped import Array

ARCHITECTURE = "LlamaForCausalLM"
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
        raise LoadError(
            f"{path}: architecture {', '.join(map(str, architectures))} is not supported; "
            f"supported is {ARCHITECTURE}"
        )
    _refuse_options(raw, path)
    try:
        hidden, heads = int(raw["hidden_size"]), int(raw["num_attention_heads"])
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        config = LlamaConfig(
            architecture=ARCHITECTURE,
            hidden_size=hidden,
            intermediate_size=int(raw["intermediate_size"]),
            num_hidden_layers=int(raw["num_hidden_layers"]),
            num_attention_heads=heads,
            num_key_value_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // max(heads, 1)),
            rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
            rope_scaling=_rope_scaling(rope, path),
            rope_interleaved=False,
            vocab_size=int(raw["vocab_size"]),
            max_position_embeddings=int(raw.get("max_position_embeddings", 2048)),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        )
    except KeyError as error:
        raise LoadError(f"{path}: the configuration has no {error.args[0]!r}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise LoadError(f"{path}: a value has the wrong type: {error}") from error
    check_sizes(config, path)
    return config


def _refuse_options(raw: Mapping[str, Any], path: Path) -> None:
    for key in ("attention_bias", "mlp_bias", "quantization_config"):
        if raw.get(key):
            raise LoadError(f"{path}: {key}={raw[key]!r} is not supported; only its absence is")
    if raw.get("hidden_act", "silu") != "silu":
        raise LoadError(f"{path}: hidden_act={raw['hidden_act']!r} is not supported; 'silu' is")


def _rope_scaling(rope: Mapping[str, Any], path: Path) -> dict[str, Any] | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise LoadError(f"{path}: rope_type {kind!r} is not supported; 'default' and 'llama3' are")
    keys = (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    )
    return {"rope_type": kind} | {key: rope[key] for key in keys}


def check_sizes(config: LlamaConfig, path: Path) -> None:
    """Raise LoadError where a size is not positive or the heads do not divide."""
    for name, value in config.items():
        if type(value) is int and value < 1:
            raise LoadError(f"{path}: {name} is {value}, it must be at least 1")
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
    shapes: dict[str, tuple[int, ...]] = {_EMBEDDING: (config["vocab_size"], hidden)}
    for index in range(config["num_hidden_layers"]):
        for name, shape in layer.items():
            shapes[f"model.layers.{index}.{name}.weight"] = shape
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes[_OUTPUT] = (config["vocab_size"], hidden)
    return shapes


def pick_weights(config: LlamaConfig, tensors: Mapping[str, Array], path: Path) -> dict[str, Array]:
    """The weights the configuration calls for, checked; tensors that follow from others are left.

    Raises LoadError for a missing or unexpected name, a wrong shape, or a dtype that is no float.
    """
    shapes = expected_shapes(config)
    if config["tie_word_embeddings"] and _EMBEDDING not in tensors and _OUTPUT in tensors:
        tensors = {_EMBEDDING: tensors[_OUTPUT], **tensors}  # one name of the two was saved
    missing = [name for name in shapes if name not in tensors]
    if missing:
        raise LoadError(f"{path}: {_listed(missing)} missing from the weights")
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
    shown = ", ".join(map(repr, names[:3]))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"
