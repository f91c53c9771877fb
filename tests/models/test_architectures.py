"""Decoders of Hugging Face's folders: logits as transformers', with caches and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import luminal as lm
from luminal.models.architectures import read_decoder
from luminal.models.decoder import Decoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY = 64
LONGEST = 48
LENGTHS = (1, 7, 19)
SPECIAL = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    **SPECIAL,
}
UNGROUPED = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}


class Tiny(NamedTuple):
    """A small configuration: the classes of transformers, and its options."""

    config: str
    model: str
    options: dict[str, Any]


TINY = {
    "llama": Tiny("LlamaConfig", "LlamaForCausalLM", SIZES),
    "mistral": Tiny("MistralConfig", "MistralForCausalLM", {**SIZES, "sliding_window": 6}),
    "qwen2": Tiny(
        "Qwen2Config",
        "Qwen2ForCausalLM",
        {**SIZES, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": Tiny("Qwen3Config", "Qwen3ForCausalLM", {**SIZES, "head_dim": 16}),
    "gemma": Tiny("GemmaConfig", "GemmaForCausalLM", {**SIZES, "head_dim": 16}),
    "gemma2": Tiny(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "sliding_window": 6,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": Tiny(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "sliding_window": 6,
            "query_pre_attn_scalar": 24,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "phi3": Tiny("Phi3Config", "Phi3ForCausalLM", {**SIZES, "sliding_window": 9}),
    "gpt2": Tiny(
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            **SPECIAL,
        },
    ),
    "gpt_neox": Tiny("GPTNeoXConfig", "GPTNeoXForCausalLM", UNGROUPED),
    "opt": Tiny(
        "OPTConfig", "OPTForCausalLM", {**UNGROUPED, "ffn_dim": 48, "word_embed_proj_dim": 32}
    ),
    "falcon": Tiny("FalconConfig", "FalconForCausalLM", UNGROUPED),
    "falcon_of_two_norms": Tiny(
        "FalconConfig",
        "FalconForCausalLM",
        {**UNGROUPED, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "starcoder2": Tiny("Starcoder2Config", "Starcoder2ForCausalLM", {**SIZES, "sliding_window": 8}),
    "olmo2": Tiny("Olmo2Config", "Olmo2ForCausalLM", SIZES),
    "mixtral": Tiny("MixtralConfig", "MixtralForCausalLM", {**SIZES, "num_local_experts": 4}),
    "qwen3_moe": Tiny(
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {
            **SIZES,
            "head_dim": 16,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "mlp_only_layers": [0],
        },
    ),
    "phi": Tiny("PhiConfig", "PhiForCausalLM", {**UNGROUPED}),
    "bloom": Tiny(
        "BloomConfig",
        "BloomForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 48, "n_layer": 2, "n_head": 6, **SPECIAL},
    ),
    "smollm3": Tiny("SmolLM3Config", "SmolLM3ForCausalLM", {**SIZES, "no_rope_layers": [1, 0]}),
}


def saved(name: str, folder: Path) -> Any:
    """A random model of transformers, also written to the folder.

    Weights are wide enough for attention to choose, and none is left at 0 or 1.
    """
    tiny = TINY[name]
    torch.manual_seed(0)
    config = getattr(transformers, tiny.config)(**tiny.options)
    model = getattr(transformers, tiny.model)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return model


def whole(model: Decoder) -> lm.Graph:
    """Logits of three texts of one length."""
    graph = lm.Graph()
    ids = graph.tensor((3, graph.dim("s", 1, LONGEST)), lm.int32, "ids")
    model(ids).output("logits")
    return graph


def cached(model: Decoder) -> lm.Graph:
    """Logits of further tokens of one text."""
    graph = lm.Graph()
    past = graph.dim("past", 0, LONGEST - 1)
    ids = graph.tensor((graph.dim("s", 1, LONGEST),), lm.int32, "ids")
    model(ids, model.make_caches(LONGEST), past).output("logits")
    return graph


def expected(model: Any, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Theirs, with `ids` (batch, s)."""
    with torch.no_grad():
        return model(torch.from_numpy(ids).long()).logits.numpy()  # type: ignore[no-any-return]


def close(found: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> None:
    """Within 1e-4 of the greatest logit: float32 over two layers, with a margin of ten."""
    np.testing.assert_allclose(found, theirs, rtol=0, atol=1e-4 * np.abs(theirs).max())


@pytest.mark.parametrize("name", TINY)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    model = read_decoder(tmp_path)
    rng = np.random.default_rng(0)
    exe = whole(model).compile("reference")
    for length in LENGTHS:
        ids = rng.integers(0, VOCABULARY, (3, length)).astype(np.int32)
        close(exe(ids=ids)["logits"], expected(theirs, ids))
    ids = rng.integers(0, VOCABULARY, 14).astype(np.int32)
    exe = cached(model).compile("reference")
    logits = expected(theirs, ids[None])[0]
    past = 0
    for count in (9, 1, 1, 3):
        part = slice(past, past + count)
        close(exe(ids=ids[part], dims={"past": past})["logits"], logits[part])
        past += count
