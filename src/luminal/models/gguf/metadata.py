"""A decoder's configuration as the metadata of a GGUF file, which `read.py` reads.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.loaders.gguf import decimal
from luminal.loaders.mapped import Array
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import Architecture
from luminal.models.decoder_config import DecoderConfig, ExpertsConfig, LayerConfig, Rotary
from luminal.models.gguf.form import GGUF, sliding
from luminal.models.gguf.names import LAYER_EPSILON, RMS_EPSILON
from luminal.models.gguf.read import keys_of
from luminal.models.gguf.tensors import form_of
from luminal.nn.rotary_scaling import Scaled, scaled_frequencies

_SCALING_NUMBERS = {
    "factor": "factor",
    "attention_factor": "attn_factor",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}
_CLOSE = 1e-6  # of numbers that went through 32-bit floats


def metadata_of(config: DecoderConfig, architecture: Architecture) -> dict[str, Any]:
    """What the configuration says, by keys without the architecture's name."""
    keys, form = keys_of(architecture), form_of(architecture)
    found: dict[str, Any] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        RMS_EPSILON if "rms" in config.norm else LAYER_EPSILON: decimal(config.norm_eps),
        "use_parallel_residual": config.parallel is not None,
    }
    for key, number in (
        ("attention.scale", config.query_scale),
        ("attention.clamp_kqv", config.projection_limit),
        ("residual_scale", config.residual_scale),
        ("embedding_scale", config.embedding_scale if "embedding_scale" in keys else None),
        ("logit_scale", _logit_scale(config.logit_scale, keys)),
        ("attn_logit_softcapping", config.attention_softcap),
        ("final_logit_softcapping", config.logit_softcap),
    ):
        if number is not None:
            found[key] = decimal(number)
    if config.experts is not None:
        found["expert_count"] = config.experts.count
        found["expert_used_count"] = config.experts.top_k
        found["expert_feed_forward_length"] = config.experts.intermediate_size
        found["expert_weights_norm"] = config.experts.normalize
        found |= _experts(config, config.experts)
    found |= _windows(config.layers, form) | _rope(config.layers)
    return found | dict(form.written(config) if form.written else {})


def _experts(config: DecoderConfig, experts: ExpertsConfig) -> dict[str, Any]:
    """What only some routers have."""
    found: dict[str, Any] = {}
    if experts.shared_size:
        found["expert_shared_feed_forward_length"] = experts.shared_size
        found["expert_shared_count"] = experts.shared_size // experts.intermediate_size
    if experts.scoring == "sigmoid":
        found["expert_gating_func"] = 2
    if experts.scale != 1:
        found["expert_weights_scale"] = decimal(experts.scale)
    if experts.groups is not None:
        found["expert_group_count"] = experts.groups.count
        found["expert_group_used_count"] = experts.groups.kept
    dense = next((n for n, layer in enumerate(config.layers) if layer.experts), 0)
    return found | {"leading_dense_block_count": dense}


def _logit_scale(scale: float | None, keys: Mapping[str, str]) -> float | None:
    """What logits are times, or in some files divided by."""
    return 1 / scale if scale and keys.get("logit_scale") == "logits_scaling" else scale


def _windows(layers: tuple[LayerConfig, ...], form: GGUF) -> dict[str, Any]:
    slide = [layer.window is not None for layer in layers]
    if not any(slide):
        return {}
    window = next(layer.window for layer in layers if layer.window is not None)
    found: dict[str, Any] = {"attention.sliding_window": window}
    if slide != sliding(len(slide), form.windows):
        found["attention.sliding_window_pattern"] = slide
    return found


def _rope(layers: tuple[LayerConfig, ...]) -> dict[str, Any]:
    """Of layers that see all positions; of those with a window, if they turn by other angles."""
    rotary = _global_rotary(layers)
    if rotary is None:
        return {}
    found: dict[str, Any] = {"rope.freq_base": decimal(rotary.theta)}
    if rotary.dims is not None:
        found["rope.dimension_count"] = rotary.dims
    for layer in layers:
        if layer.rotary is not None and layer.rotary is not rotary:
            found["rope.freq_base_swa"] = decimal(layer.rotary.theta)
    scaling = rotary.scaling or {}
    kind = scaling.get("rope_type", "default")
    if kind in ("linear", "yarn", "longrope"):
        found["rope.scaling.type"] = kind
        if kind == "longrope":
            scaling = {**scaling, "attention_factor": _scaled(rotary, scaling).attention_factor}
        for name, key in _SCALING_NUMBERS.items():
            if scaling.get(name) is not None:
                found[f"rope.scaling.{key}"] = decimal(scaling[name])
        original = scaling["original_max_position_embeddings"]
        found["rope.scaling.original_context_length"] = original
    return found


def rotary_tensors(config: DecoderConfig) -> dict[str, Array]:
    """What each frequency is divided by, where the scaling is not one of a few numbers."""
    rotary = _global_rotary(config.layers)
    scaling = (rotary.scaling if rotary is not None else None) or {}
    kind = scaling.get("rope_type", "default")
    if kind == "longrope":
        return {
            f"rope_factors_{each}.weight": np.array(scaling[f"{each}_factor"], np.float32)
            for each in ("short", "long")
        }
    if kind != "llama3":
        return {}
    assert rotary is not None
    plain, scaled = (_scaled(rotary, each).frequencies for each in (None, scaling))
    return {"rope_freqs.weight": (plain / scaled).astype(np.float32)}


def _scaled(rotary: Rotary, scaling: Mapping[str, Any] | None) -> Scaled:
    assert rotary.dims is not None  # that of a file
    return scaled_frequencies(rotary.dims, rotary.theta, scaling)


def _global_rotary(layers: tuple[LayerConfig, ...]) -> Rotary | None:
    """That of a layer without a window if there is one."""
    ordered = sorted(layers, key=lambda layer: layer.window is not None)
    return next((layer.rotary for layer in ordered if layer.rotary is not None), None)


def check_same(config: DecoderConfig, read: DecoderConfig, name: str) -> None:
    """Raises InputError where a configuration reads back as another: GGUF has no word for it."""
    for each in fields(config):
        mine, theirs = getattr(config, each.name), getattr(read, each.name)
        if not _same(mine, theirs):
            raise InputError(
                f"convert: GGUF files of {name} cannot say {each.name}={shown(mine)}: it would be "
                f"read as {shown(theirs)}; keep the folder"
            )


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return bool(np.isclose(mine, theirs, rtol=_CLOSE, atol=0))
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        pairs = zip(mine, theirs, strict=False)
        return len(mine) == len(theirs) and all(_same(*pair) for pair in pairs)
    if isinstance(mine, Rotary) and isinstance(theirs, Rotary):
        return _same_rotary(mine, theirs)
    if is_dataclass(mine) and type(mine) is type(theirs):
        names = [each.name for each in fields(mine)]
        return all(_same(getattr(mine, n), getattr(theirs, n)) for n in names)
    return bool(mine == theirs)


def _same_rotary(mine: Rotary, theirs: Rotary) -> bool:
    if (mine.dims, mine.interleaved) != (theirs.dims, theirs.interleaved):
        return False
    a, b = (_scaled(each, each.scaling) for each in (mine, theirs))
    if (a.longer is None) != (b.longer is None):
        return False
    if not _same(a.attention_factor, b.attention_factor):
        return False
    if a.longer is not None and _plain(mine.scaling) != _plain(theirs.scaling):
        return False
    return np.allclose(a.frequencies, b.frequencies, rtol=_CLOSE, atol=0)


def _plain(scaling: Mapping[str, Any] | None) -> dict[str, Any]:
    """The numbers as 32-bit floats."""
    return {
        key: value if isinstance(value, str) else np.asarray(value, np.float32).tolist()
        for key, value in (scaling or {}).items()
        if key not in ("factor", "attention_factor", "truncate")
    }
