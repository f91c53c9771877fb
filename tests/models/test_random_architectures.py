"""Other legal configurations of every architecture: logits as transformers', or refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luminal.base.errors import LoadError
from luminal.models.architectures import read_decoder
from tests.long_share import mostly_long
from tests.models.decoder_checks import check_logits, check_one_length, saved
from tests.models.tiny_architectures import TINY, VARIANTS, Tiny

transformers = pytest.importorskip("transformers")

FLAGS = (
    "alibi",
    "altup_correct_scale",
    "attention_bias",
    "attention_k_eq_v",
    "attn_temperature_tuning",
    "bias",
    "block_auto_adjust_ff_dim",
    "conv_bias",
    "mamba_conv_bias",
    "mamba_proj_bias",
    "mlp_bias",
    "multi_query",
    "norm_topk_prob",
    "parallel_attn",
    "qkv_bias",
    "rope_interleave",
    "tie_word_embeddings",
    "use_bias",
    "use_conv_bias",
    "use_double_wide_mlp",
    "use_expert_bias",
    "use_parallel_residual",
    "use_qk_norm",
    "use_qkv_bias",
)
UNSUPPORTED = {
    ("deepseek_v2", "mlp_bias"),
    ("deepseek_v2", "norm_topk_prob"),
    ("ernie4_5_moe", "use_bias"),
    ("falcon", "alibi"),
    ("falcon_of_two_norms", "alibi"),
    ("falcon_of_two_norms", "parallel_attn"),
    ("gemma4", "attention_bias"),
    ("gemma4_moe", "attention_bias"),
    ("gptj", "tie_word_embeddings"),
    ("internlm3", "attention_bias"),
    ("internlm3", "mlp_bias"),
    ("minicpm3", "mlp_bias"),
    ("phi", "tie_word_embeddings"),
}
"""They are refused by name, or transformers takes no notice of them."""
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": {
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}
OWN_POSITIONS = ("gemma3", "gemma4", "gemma4_moe", "ministral3", "olmo3", "phi3", "phimoe")
"""Parameters by kind of layer, or for one kind of scaling."""


def drawn(name: str, rng: np.random.Generator) -> Tiny:
    """The architecture's small configuration with other sizes, flags, layers and positions."""
    tiny = TINY[name]
    known = {field.name for field in dataclasses.fields(getattr(transformers, tiny.config))}
    options = dict(tiny.options)

    def pick(*choices: Any) -> Any:
        return choices[rng.integers(len(choices))]

    for flag in FLAGS:
        if flag in known and (name, flag) not in UNSUPPORTED:
            options[flag] = bool(rng.integers(2))
    heads = options.get("num_attention_heads")
    if heads is not None:
        heads = options["num_attention_heads"] = pick(2, 4, 6)
        options["hidden_size"] = heads * pick(8, 12)
        if "num_key_value_heads" in options and "kv_lora_rank" not in options:
            options["num_key_value_heads"] = pick(*(n for n in (1, 2, 3, 6) if heads % n == 0))
        if "word_embed_proj_dim" in options:
            options["word_embed_proj_dim"] = options["hidden_size"]
    for key, choices in {
        "head_dim": (8, 16, 24),
        "intermediate_size": (20, 48),
        "sliding_window": (1, 4, 11),
        "attention_chunk_size": (2, 7),
        "num_experts_per_tok": (1, 2, 3),
        "max_position_embeddings": (48, 64),
        "state_size": (1, 5),
        "q_lora_rank": (None, 9),
    }.items():
        if key in tiny.options and "num_heads" not in tiny.options:
            options[key] = pick(*choices)
    if name == "helium":  # its output projection is square
        options["head_dim"] = options["hidden_size"] // heads
    if "layer_types" in options and "num_kv_shared_layers" not in options:
        kinds = tiny.options["layer_types"]
        count = options["num_hidden_layers"] = pick(2, 3)
        options["layer_types"] = [*(pick(*kinds) for _ in range(count - 1)), kinds[-1]]
    if options.items() >= {"max_position_embeddings": 64}.items() and name not in OWN_POSITIONS:
        kind = pick(*(kind for kind in KINDS if (name, kind) != ("mixtral", "dynamic")))
        options["rope_parameters"] = {"rope_type": kind, "rope_theta": 10000.0, **KINDS[kind]}
    return tiny._replace(options=options)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", TINY)
def test_random_configuration(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = drawn(name, np.random.default_rng(seed))
    monkeypatch.setitem(VARIANTS, "random", tiny)
    print(tiny.options)
    theirs = saved("random", tmp_path)
    check_logits(theirs, read_decoder(tmp_path), "reference")


WITHOUT_EFFECT = (
    "add_cross_attention",
    "architectures",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "initializer_range",
    "is_decoder",
    "model_type",
    "pad_token_id",
    "per_layer_config",
    "transformers_version",
    "use_cache",
    "vocab_size",
)
"""Keys that change no logits, or cannot be changed alone."""
ACTIVATIONS = ("relu", "gelu", "gelu_pytorch_tanh", "quick_gelu", "mish", "tanh", "leaky_relu")


def others(key: str, value: Any) -> list[Any]:
    """Values of another kind or size, legal or not."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value] if value else [1, 2]
    if isinstance(value, float):
        return [value / 2] if 1e-2 < value <= 1 else [1.7 * value + 0.1]
    if isinstance(value, str):
        return list(ACTIVATIONS) if "act" in key else []
    return [True, 3, 0.5] if value is None else []


@pytest.mark.long
@pytest.mark.parametrize("name", TINY)
def test_every_key_alone(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key of the saved `config.json` with other values: the same logits, or refused."""
    saved(name, tmp_path)
    keys = json.loads((tmp_path / "config.json").read_text())
    wrong = []
    for key, value in keys.items():
        for other in [] if key in WITHOUT_EFFECT else others(key, value):
            changed = TINY[name]._replace(options={**TINY[name].options, key: other})
            monkeypatch.setitem(VARIANTS, "changed", changed)
            folder = tmp_path / f"{key}-{other}"
            try:
                theirs = saved("changed", folder)
                check_one_length(theirs, theirs, 5)
            except Exception:
                continue
            try:
                with contextlib.suppress(LoadError):
                    check_one_length(theirs, read_decoder(folder), 17)
            except Exception as error:
                wrong.append(f"{key}={other!r}: {type(error).__name__} {str(error)[:80]}")
    assert not wrong, "\n".join(wrong)


LAYER_TYPES = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3}
FOREIGN: dict[str, dict[str, Any]] = {
    "layer_types": LAYER_TYPES,
    "partial_rotary_factor": {"partial_rotary_factor": 0.5},
    "rope_parameters": {"rope_parameters": {"partial_rotary_factor": 0.5}},
    "rope_scaling": {"rope_scaling": {"rope_type": "linear", "factor": 3.0}},
    "tie_word_embeddings": {"tie_word_embeddings": True},
    "hidden_activation": {"hidden_activation": "relu"},
}
MORE_FOREIGN: dict[str, Any] = {
    "activation": "relu",
    "attention_bias": True,
    "attention_chunk_size": 3,
    "attention_multiplier": 3.0,
    "attn_logit_softcapping": 1.0,
    "clip_qkv": 0.1,
    "embedding_multiplier": 3.0,
    "final_logit_softcapping": 1.0,
    "floor_scale": 3,
    "head_dim": 4,
    "hidden_act": "gelu",
    "layer_norm_eps": 0.3,
    "layer_norm_epsilon": 0.3,
    "lm_head_bias": True,
    "logit_scale": 0.5,
    "logits_scaling": 3.0,
    "max_window_layers": 0,
    "mlp_bias": True,
    "no_rope_layer_interval": 2,
    "no_rope_layers": [0, 1],
    "norm_topk_prob": True,
    "num_key_value_heads": 1,
    "original_max_position_embeddings": 8,
    "qk_layernorm": True,
    "query_pre_attn_scalar": 3,
    "residual_multiplier": 3.0,
    "rms_norm_eps": 0.3,
    "rope_local_base_freq": 33.0,
    "rope_theta": 77.0,
    "rotary_emb_base": 100.0,
    "rotary_pct": 0.5,
    "routed_scaling_factor": 3.0,
    "scale_emb": 3.0,
    "sliding_window": 3,
    "sliding_window_pattern": 2,
    "use_bias": True,
    "use_qk_norm": True,
    "use_sliding_window": True,
}


def check_foreign_keys(name: str, folder: Path, foreign: dict[str, dict[str, Any]]) -> None:
    """A `config.json` with a key that other architectures have."""
    theirs = saved(name, folder)
    plain = json.loads((folder / "config.json").read_text())
    changed = {key: {**plain, **change} for key, change in foreign.items()}
    if "rope_parameters" in foreign:
        both = {**(plain.get("rope_parameters") or {}), **foreign["rope_parameters"]}
        changed["rope_parameters"] = {**plain, "rope_parameters": both}
    check_changed(theirs, folder, changed)


def read_again(theirs: Any, folder: Path, **options: Any) -> Any:
    """What transformers reads from a folder, and which weights did not fit; of the model's own kind
    of configuration, which may be another class's than the model's.
    """
    config = type(theirs.config).from_pretrained(folder)
    options = {"config": config, "output_loading_info": True, **options}
    return type(theirs).from_pretrained(folder, **options)


def check_changed(theirs: Any, folder: Path, changed: dict[str, dict[str, Any]]) -> None:
    """Each of these as the `config.json` of saved weights: as transformers reads it, or refused."""
    wrong = []
    for key, config in changed.items():
        (folder / "config.json").write_text(json.dumps(config))
        try:
            model, info = read_again(theirs, folder)
            check_one_length(model.eval(), model, 13)
        except Exception:
            continue
        if any(info.values()):
            continue  # it has or lacks weights then
        try:
            with contextlib.suppress(LoadError):
                check_one_length(model, read_decoder(folder), 13)
        except Exception as error:
            wrong.append(f"{key}: {type(error).__name__} {str(error)[:80]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", mostly_long(["llama", "gemma"], 1))
def test_keys_that_other_architectures_have(name: str, tmp_path: Path) -> None:
    check_foreign_keys(name, tmp_path, FOREIGN)


@pytest.mark.long
@pytest.mark.parametrize("name", TINY)
def test_all_keys_that_other_architectures_have(name: str, tmp_path: Path) -> None:
    more = {key: {key: value} for key, value in MORE_FOREIGN.items()}
    check_foreign_keys(name, tmp_path, FOREIGN | more)


SCALINGS: tuple[dict[str, Any], ...] = (
    {"type": "linear", "factor": 3.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
)


def older(plain: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The configuration with positions as they were written before `rope_parameters`."""
    rest = {key: value for key, value in plain.items() if not key.startswith("rope_")}
    found = {"theta beside": {**plain, "rope_theta": 77.0}}
    for theta in ({}, {"rope_theta": 77.0}, {"rope_theta": 5e5}):
        for scaling in ({}, {"rope_scaling": None}, *({"rope_scaling": x} for x in SCALINGS)):
            found[f"{theta}, {scaling}"] = rest | theta | scaling
    return found


def lacking(plain: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The configuration with each of its keys missing, or null."""
    kept = ("architectures", "model_type", "dtype", "vocab_size")
    keys = [key for key in plain if key not in kept]  # in one order, whatever strings hash to
    missing = {f"no {key}": {k: v for k, v in plain.items() if k != key} for key in keys}
    nulls: dict[str, dict[str, Any]] = {f"null {key}": {**plain, key: None} for key in keys}
    return missing | nulls


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("gemma2", r"no \w+_softcapping"),
        ("gemma4", r"(no|null) rope_parameters"),
        ("ministral3", r"no (rope_parameters|rms_norm_eps)"),
        ("olmo3", r"{'rope_theta': 77.*"),
    ],
)
def test_older_configurations(name: str, some: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    plain = json.loads((tmp_path / "config.json").read_text())
    every = older(plain) | lacking(plain)
    chosen = {key: config for key, config in every.items() if re.fullmatch(some, key)}
    assert chosen
    check_changed(theirs, tmp_path, chosen)


@pytest.mark.long
@pytest.mark.parametrize("name", TINY)
def test_configurations_that_lack_keys(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    plain = json.loads((tmp_path / "config.json").read_text())
    check_changed(theirs, tmp_path, older(plain) | lacking(plain))
