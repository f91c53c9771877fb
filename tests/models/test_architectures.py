"""Decoders of Hugging Face's folders: logits as transformers', with caches and without."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import DimError, InputError, LoadError
from luminal.models.architectures import read_decoder
from luminal.models.decoder import Decoder
from tests.close import close_to_greatest
from tests.long_share import Share, long_but
from tests.models.decoder_checks import (
    LENGTHS,
    LONGEST,
    cached,
    check_greedy_tokens,
    check_logits,
    check_one_length,
    check_texts_in_step,
    expected,
    saved,
    torch,
    write,
)
from tests.models.tiny_architectures import RECURRENT, TINY, VARIANTS, VOCABULARY

SHARES = 6  # of the architectures that a day's short tests run with caches


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
                close_to_greatest(found[row, :count], logits[row, done[row] : done[row] + count])
        done += counts


def check(theirs: Any, model: Decoder, name: str, backend: str) -> None:
    """All of the above but greedy tokens."""
    check_logits(theirs, model, backend)
    batched = check_texts_in_step if name in RECURRENT else check_padded_texts
    batched(theirs, model, backend)


@pytest.mark.parametrize("name", long_but(TINY, [*TINY][::3]))
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Of one length; today's share of the architectures with caches as well."""
    theirs = saved(name, tmp_path)
    model = read_decoder(tmp_path)
    if Share(date.today().toordinal() % SHARES, SHARES).has(name):
        check(theirs, model, name, "reference")
    else:
        check_one_length(theirs, model, LENGTHS[1])


@pytest.mark.long
@pytest.mark.parametrize("name", TINY | VARIANTS)
def test_logits_with_and_without_caches(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    check(theirs, read_decoder(tmp_path), name, "reference")


# transformers reads from MiniMax's files, rounded, what follows from the number of a layer.
@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*TINY} - {"minimax"}))
def test_weights_of_16_bits(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    write(model.to(torch.bfloat16), TINY[name], tmp_path)
    options = {"config": model.config, "dtype": torch.float32}
    theirs = type(model).from_pretrained(tmp_path, **options).eval()
    check_logits(theirs, read_decoder(tmp_path, "float32"), "reference")


def test_recurrent_layers_read_no_padding(tmp_path: Path) -> None:
    saved("mamba", tmp_path)
    with pytest.raises(InputError, match="read each text alone, then step them together"):
        batched(read_decoder(tmp_path))


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
    check(theirs, model, name, "cpu")
    check_greedy_tokens(theirs, tmp_path, "cpu")


def test_an_architecture_that_is_not_known(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    path = tmp_path / "config.json"
    said = path.read_text()
    for name, family in (
        ("RwkvForCausalLM", "of its family there are RWKV7ForCausalLM$"),
        (
            "Qwen2AudioForCausalLM",
            "there are Qwen2ForCausalLM, Qwen2MoeForCausalLM, Qwen2VL.*, Qwen3",
        ),
        (
            "MistralNextForCausalLM",
            "there are Mistral3ForConditionalGeneration, MistralForCausalLM$",
        ),
        ("ViTMSNModel", "there are ViTForImageClassification, ViTModel$"),
        ("DbrxForCausalLM", "; none is of the family Dbrx$"),
    ):
        path.write_text(said.replace("LlamaForCausalLM", name))
        with pytest.raises(LoadError, match=rf"'{name}' is not supported .*{family}"):
            read_decoder(tmp_path)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"quant_method": "hqq", "bits": 4}, "HQQ"),
        ({"quant_method": "aqlm"}, "AQLM"),
        ({"quant_method": "quanto"}, "quanto"),
        ({"quant_method": "torchao"}, "torchao"),
        ({"quant_method": "other"}, "'other'"),
    ],
)
def test_packed_weights_are_refused_by_name(said: Any, name: str, tmp_path: Path) -> None:
    saved("llama", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": said}))
    (tmp_path / "model.safetensors").unlink()  # said before the weights are looked at
    with pytest.raises(LoadError, match=f"the weights are quantized: {name}.*, which is not read"):
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
    "quantised": ({"quantization_config": {"bits": 4}}, "the weights are quantized: packed"),
    "partly_rotary": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 is not supported"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_a_configuration_must_not_say(name: str, tmp_path: Path) -> None:
    saved("llama", tmp_path)
    change, message = DAMAGED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LoadError, match=message):
        read_decoder(tmp_path)
