"""Decoders of Hugging Face's folders: logits as transformers', with caches and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import luminal as lm
from luminal.errors import DimError, LoadError
from luminal.models import load
from luminal.models.architectures import read_decoder
from luminal.models.decoder import Decoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY = 64
LONGEST = 48
LENGTHS = (1, 7, 19)
SPECIAL = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
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


ROPE = {"rope_theta": 10000.0, "factor": 4.0}
VARIANTS = {
    "llama_with_biases": TINY["llama"]._replace(
        options={**SIZES, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "llama_3": TINY["llama"]._replace(
        options={
            **SIZES,
            "rope_parameters": {
                **ROPE,
                "rope_type": "llama3",
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        }
    ),
    "llama_yarn": TINY["llama"]._replace(
        options={
            **SIZES,
            "rope_parameters": {
                **ROPE,
                "rope_type": "yarn",
                "original_max_position_embeddings": 16,
            },
        }
    ),
    "llama_dynamic": TINY["llama"]._replace(
        options={
            **SIZES,
            "max_position_embeddings": 16,
            "rope_parameters": {**ROPE, "rope_type": "dynamic"},
        }
    ),
    "phi3_longrope": TINY["phi3"]._replace(
        options={
            **SIZES,
            "head_dim": 8,
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_theta": 10000.0,
                "rope_type": "longrope",
                "short_factor": [1.0, 1.5],
                "long_factor": [2.0, 5.0],
                "partial_rotary_factor": 0.5,
                "original_max_position_embeddings": 16,
            },
        }
    ),
    "gpt_neox_in_sequence": TINY["gpt_neox"]._replace(
        options={**UNGROUPED, "use_parallel_residual": False, "attention_bias": False}
    ),
    "falcon_in_sequence": TINY["falcon"]._replace(
        options={**UNGROUPED, "parallel_attn": False, "multi_query": False, "bias": True}
    ),
    "qwen3_moe_normalised": TINY["qwen3_moe"]._replace(
        options={
            **TINY["qwen3_moe"].options,
            "norm_topk_prob": True,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [],
        }
    ),
}


def saved(name: str, folder: Path) -> Any:
    """A random model of transformers, also written to the folder.

    Weights are wide enough for attention to choose, and none is left at 0 or 1.
    """
    tiny = (TINY | VARIANTS)[name]
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


def batched(model: Decoder) -> lm.Graph:
    """Logits of further tokens of up to three texts, each at positions of its own."""
    graph = lm.Graph()
    shape = graph.dim("b", 1, 3), graph.dim("s", 1, LONGEST)
    ids = graph.tensor(shape, lm.int32, "ids")
    positions = graph.tensor(shape, lm.int32, "positions")
    reach = graph.dim("reach", 1, LONGEST)
    caches = [each.within(reach) for each in model.make_caches(LONGEST, batch=3)]
    model(ids, caches, positions).output("logits")
    return graph


def expected(model: Any, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Theirs, with `ids` (batch, s)."""
    with torch.no_grad():
        return model(torch.from_numpy(ids).long()).logits.numpy()  # type: ignore[no-any-return]


def close(found: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> None:
    """Within 1e-4 of the greatest logit: float32 over two layers, with a margin of ten."""
    np.testing.assert_allclose(found, theirs, rtol=0, atol=1e-4 * np.abs(theirs).max())


def check_logits(theirs: Any, model: Decoder, backend: str) -> None:
    """Of three texts at once, of three lengths; then of one text in steps, with caches."""
    rng = np.random.default_rng(0)
    exe = whole(model).compile(backend)
    for length in LENGTHS:
        ids = rng.integers(0, VOCABULARY, (3, length)).astype(np.int32)
        close(exe(ids=ids)["logits"], expected(theirs, ids))
    ids = rng.integers(0, VOCABULARY, 14).astype(np.int32)
    exe = cached(model).compile(backend)
    logits = expected(theirs, ids[None])[0]
    past = 0
    for count in (9, 1, 1, 3):
        part = slice(past, past + count)
        close(exe(ids=ids[part], dims={"past": past})["logits"], logits[part])
        past += count


def check_padded_texts(theirs: Any, model: Decoder, backend: str) -> None:
    """Three texts of three lengths, padded on the right: their starts, then some steps of all."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, VOCABULARY, (3, 14)).astype(np.int32)
    logits = expected(theirs, ids)
    exe = batched(model).compile(backend)
    done = np.zeros(3, np.int64)
    for counts in ((9, 4, 1), (1, 1, 1), (1, 2, 3), (2, 0, 1)):
        places = done[:, None] + np.arange(max(counts))
        part = np.take_along_axis(ids, places, 1)
        inputs = {"ids": part, "positions": places.astype(np.int32)}
        found = exe(inputs, dims={"reach": int(places.max()) + 1})["logits"]
        for row, count in enumerate(counts):
            if count:
                close(found[row, :count], logits[row, done[row] : done[row] + count])
        done += counts


def check_greedy_tokens(theirs: Any, folder: Path, backend: str) -> None:
    """The 30 likeliest tokens after five, one after the other; two programs are compiled."""
    write_tokenizer(folder)
    language_model = load(folder, backend=backend, context=LONGEST)
    prompt = [3, 14, 15, 9, 26]
    before = lm.compile_count()
    found = list(language_model.tokens(prompt, 30))
    assert lm.compile_count() - before <= 2
    for count, token in enumerate(found):
        logits = expected(theirs, np.array([prompt + found[:count]]))[0, -1]
        assert token == logits.argmax(), f"token {count} of {found}"
    assert len(found) == 30


def write_tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are single letters."""
    letters = {chr(0x4E00 + number): number for number in range(VOCABULARY)}
    Tokenizer(WordLevel(letters, unk_token=next(iter(letters)))).save(
        str(folder / "tokenizer.json")
    )


@pytest.mark.parametrize("name", TINY)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    model = read_decoder(tmp_path)
    check_logits(theirs, model, "reference")
    check_padded_texts(theirs, model, "reference")


@pytest.mark.long
@pytest.mark.parametrize("name", VARIANTS)
def test_logits_of_options(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    model = read_decoder(tmp_path)
    check_logits(theirs, model, "reference")
    check_padded_texts(theirs, model, "reference")


def test_a_cache_ends_where_rotary_frequencies_change(tmp_path: Path) -> None:
    saved("llama_dynamic", tmp_path)
    model = read_decoder(tmp_path)
    assert model.longest_text == 16
    exe = cached(model).compile("reference")
    exe(ids=np.zeros(16, np.int32), dims={"past": 0})
    with pytest.raises(DimError, match=r"past \+ s <= 16 does not hold"):
        exe(ids=np.zeros(1, np.int32), dims={"past": 16})


@pytest.mark.parametrize("name", ["mistral"])
def test_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    check_greedy_tokens(saved(name, tmp_path), tmp_path, "cpu")


@pytest.mark.long
@pytest.mark.parametrize("name", TINY)
def test_compiled_logits_and_greedy_tokens(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    model = read_decoder(tmp_path)
    check_logits(theirs, model, "cpu")
    check_padded_texts(theirs, model, "cpu")
    check_greedy_tokens(theirs, tmp_path, "cpu")


def test_an_architecture_that_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["RwkvForCausalLM"]}')
    with pytest.raises(LoadError, match="'RwkvForCausalLM' is not supported; supported are Bloom"):
        read_decoder(tmp_path)


DAMAGED = {
    "rope_kind": ({"rope_parameters": {"rope_type": "ntk"}}, "rope_type 'ntk' is not supported"),
    "no_kind": ({"rope_parameters": {"rope_type": ["yarn"]}}, "rope_type .* is not supported"),
    "layers": ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, it must be at most"),
    "width": ({"head_dim": 16}, "q_proj.weight: expected shape"),
    "head": ({"head_dim": 10**8}, "head_dim is 100000000, it must be at most 65536"),
    "heads": ({"num_key_value_heads": 3}, "4 heads do not divide among 3 of keys"),
    "activation": ({"hidden_act": "sine"}, "activation 'sine' is not known"),
    "bias": ({"attention_bias": True}, "missing: model.layers.0.self_attn.q_proj.bias"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantization_config is not supported"),
    "odd_rotary": ({"partial_rotary_factor": 0.7}, "rotary: 5 features of head_dim 8"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_a_configuration_must_not_say(name: str, tmp_path: Path) -> None:
    saved("llama", tmp_path)
    change, message = DAMAGED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LoadError, match=message):
        read_decoder(tmp_path)
