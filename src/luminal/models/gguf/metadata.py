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
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Rotary
from luminal.models.gguf.form import GGUF, sliding
from luminal.models.gguf.names import EXPERT_KEYS, KEYS, LAYER_EPSILON, NEVER, RMS_EPSILON
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
    values = {key: getattr(config, name) for key, name in KEYS.items()}
    values |= {
        RMS_EPSILON if "rms" in config.norm else LAYER_EPSILON: config.norm_eps,
        "vocab_size": config.vocab_size,
        "attention.value_length": config.head_dim,
        "use_parallel_residual": config.parallel is not None,
        "logit_scale": _logit_scale(config.logit_scale, keys),
    }
    if "embedding_scale" not in keys:  # readers know that of the architecture
        del values["embedding_scale"]
    if form.hybrid:
        heads = config.num_key_value_heads
        values["attention.head_count_kv"] = [
            0 if layer.mixer is not None else heads for layer in config.layers
        ]
    values |= _experts(config) | _windows(config.layers, form) | _rope(config.layers)
    values |= form.written(config) if form.written else {}
    return {
        key: decimal(value) if isinstance(value, float) else value
        for key, value in values.items()
        if value is not None
    }


def _experts(config: DecoderConfig) -> dict[str, Any]:
    """The keys of experts, some of which only some routers have."""
    experts = config.experts
    if experts is None:
        return {}
    values = {key: getattr(experts, name) for key, name in EXPERT_KEYS.items()}
    sparse = [number for number, layer in enumerate(config.layers) if layer.experts]
    values["leading_dense_block_count"] = sparse[0] if sparse else 0
    if experts.shared_size:
        values["expert_shared_count"] = experts.shared_size // experts.intermediate_size
    else:
        del values["expert_shared_feed_forward_length"]
    if experts.scoring == "sigmoid":
        values["expert_gating_func"] = 2
    # Readers take a missing scale for 1, and some of them have no use for the key at all.
    if experts.scale == 1:
        del values["expert_weights_scale"]
    if experts.groups is not None:
        values["expert_group_count"] = experts.groups.count
        values["expert_group_used_count"] = experts.groups.kept
    return values


def _logit_scale(scale: float | None, keys: Mapping[str, str]) -> float | None:
    """What logits are times, or in some files divided by."""
    return 1 / scale if scale and keys.get("logit_scale") == "logits_scaling" else scale


def _windows(layers: tuple[LayerConfig, ...], form: GGUF) -> dict[str, Any]:
    slide = [layer.window is not None for layer in layers]
    if not any(slide):
        return {}
    window = next(layer.window for layer in layers if layer.window is not None)
    metadata: dict[str, Any] = {"attention.sliding_window": window}
    # Only where the layers differ from the pattern that readers assume: older readers do not know
    # the list.
    if slide != sliding(len(slide), form.windows):
        metadata["attention.sliding_window_pattern"] = slide
    return metadata


def _rope(layers: tuple[LayerConfig, ...]) -> dict[str, Any]:
    """The rotary keys of layers that see all positions, and the base of those with a window, if
    that is another.
    """
    rotary = _global_rotary(layers)
    if rotary is None:
        return {}
    metadata: dict[str, Any] = {"rope.freq_base": decimal(rotary.theta)}
    if rotary.dims is not None:
        metadata["rope.dimension_count"] = rotary.dims
    for layer in layers:
        if layer.rotary is not None and layer.rotary is not rotary:
            metadata["rope.freq_base_swa"] = decimal(layer.rotary.theta)
    scaling = rotary.scaling or {}
    kind = scaling.get("rope_type", "default")
    if kind in ("linear", "yarn", "longrope"):
        metadata["rope.scaling.type"] = kind
        if kind == "longrope":
            scaling = {**scaling, "attention_factor": _scaled(rotary, scaling).attention_factor}
        for name, key in _SCALING_NUMBERS.items():
            if scaling.get(name) is not None:
                metadata[f"rope.scaling.{key}"] = decimal(scaling[name])
        original = scaling["original_max_position_embeddings"]
        metadata["rope.scaling.original_context_length"] = original
    return metadata


def rotary_tensors(config: DecoderConfig) -> dict[str, Array]:
    """What each frequency is divided by, where the scaling is not one of a few numbers."""
    rotary = _global_rotary(config.layers)
    scaling = (rotary.scaling if rotary is not None else None) or {}
    kind = scaling.get("rope_type", "default")
    if kind == "longrope":
        return {
            f"rope_factors_{length}.weight": np.array(scaling[f"{length}_factor"], np.float32)
            for length in ("short", "long")
        }
    if kind not in ("llama3", "proportional"):
        return {}
    assert rotary is not None
    plain, scaled = (_scaled(rotary, length).frequencies for length in (None, scaling))
    factors = np.divide(plain, scaled, out=np.full_like(plain, NEVER), where=scaled != 0)
    return {"rope_freqs.weight": factors.astype(np.float32)}


def _scaled(rotary: Rotary, scaling: Mapping[str, Any] | None) -> Scaled:
    assert rotary.dims is not None  # that of a file
    return scaled_frequencies(rotary.dims, rotary.theta, scaling)


def _global_rotary(layers: tuple[LayerConfig, ...]) -> Rotary | None:
    """The rotary embedding of a layer without a window, if there is one, else of any."""
    ordered = sorted(layers, key=lambda layer: layer.window is not None)
    return next((layer.rotary for layer in ordered if layer.rotary is not None), None)


def check_same(config: DecoderConfig, read: DecoderConfig, name: str) -> None:
    """Raises InputError where a configuration reads back as another: GGUF has no word for it."""
    for member in fields(config):
        mine, theirs = getattr(config, member.name), getattr(read, member.name)
        if not _is_same(mine, theirs):
            raise InputError(
                f"convert: GGUF files of {name} cannot say {member.name}={shown(mine)}: "
                f"it would be read as {shown(theirs)}; keep the folder"
            )


def _is_same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) and isinstance(theirs, float):
        return bool(np.isclose(mine, theirs, rtol=_CLOSE, atol=0))
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        pairs = zip(mine, theirs, strict=False)
        return len(mine) == len(theirs) and all(_is_same(*pair) for pair in pairs)
    if isinstance(mine, Rotary) and isinstance(theirs, Rotary):
        return _is_same_rotary(mine, theirs)
    if is_dataclass(mine) and type(mine) is type(theirs):
        names = [member.name for member in fields(mine)]
        return all(_is_same(getattr(mine, n), getattr(theirs, n)) for n in names)
    return bool(mine == theirs)


def _is_same_rotary(mine: Rotary, theirs: Rotary) -> bool:
    if any(getattr(mine, n) != getattr(theirs, n) for n in ("dims", "interleaved", "sections")):
        return False
    # Compared by the frequencies that they give: a file says a scaling as factors for each
    # frequency where the configuration has a formula.
    a, b = (_scaled(rotary, rotary.scaling) for rotary in (mine, theirs))
    if (a.longer is None) != (b.longer is None):
        return False
    if not _is_same(a.attention_factor, b.attention_factor):
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
