"""Decoders of Hugging Face's folders: logits as transformers', with caches and without."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import luminal as lm
from luminal.base.errors import DimError, InputError, LoadError
from luminal.models import load
from luminal.models.architectures import read_decoder
from luminal.models.decoder import Decoder
from tests.long_share import Share, long_but
from tests.models.tiny_architectures import RECURRENT, TINY, VARIANTS, VOCABULARY, Tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LONGEST = 48
LENGTHS = (1, 7, 19)
SHARES = 6  # of the architectures that a day's short tests run with caches


def saved(name: str, folder: Path) -> Any:
    """A random model of transformers, also written to the folder.

    Weights are wide enough for attention to choose, and none is left at 0 or 1.
    """
    return made((TINY | VARIANTS)[name], folder)


def made(tiny: Tiny, folder: Path) -> Any:
    """The same of a configuration."""
    torch.manual_seed(0)
    config = getattr(transformers, tiny.config)(**tiny.options)
    model = getattr(transformers, tiny.model)(config).eval()
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(torch.randn_like(value) * 0.2)
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


def check_one_length(theirs: Any, model: Any, length: int) -> None:
    """Of three texts at once; a model of theirs is only run."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (3, length)).astype(np.int32)
    found = expected(theirs, ids)
    if isinstance(model, Decoder):
        close(whole(model).compile("reference")(ids=ids)["logits"], found)


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


def check_texts_in_step(theirs: Any, model: Decoder, backend: str) -> None:
    """Three texts of one length, read together; then each has a position of its own."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, VOCABULARY, (3, 12)).astype(np.int32)
    logits = expected(theirs, ids)
    graph = lm.Graph()
    first = graph.tensor((3, graph.dim("s", 1, LONGEST)), lm.int32, "ids")
    caches = model.make_caches(LONGEST, batch=3)
    model(first, caches, graph.dim("past", 0, LONGEST)).output("logits")
    exe = graph.compile(backend)
    close(exe(ids=ids[:, :7], dims={"past": 0})["logits"], logits[:, :7])
    close(exe(ids=ids[:, 7:9], dims={"past": 7})["logits"], logits[:, 7:9])
    graph = lm.Graph()
    rows = graph.dim("rows", 1, 3)
    one = graph.tensor((rows, 1), lm.int32, "ids")
    places = graph.tensor((rows, 1), lm.int32, "positions")
    model(one, caches, places).output("logits")
    exe = graph.compile(backend)
    found = exe(ids=ids[:, 9:10], positions=np.full((3, 1), 9, np.int32))["logits"]
    close(found, logits[:, 9:10])
    beginning = np.array([[10], [0]], np.int32)  # the second text starts again
    found = exe(ids=np.array([ids[0, 10:11], ids[1, :1]]), positions=beginning)["logits"]
    close(found, np.array([logits[0, 10:11], logits[1, :1]]))
    found = exe(ids=ids[2:, 10:11][[0, 0, 0]], positions=np.full((3, 1), 10, np.int32))["logits"]
    close(found[2], logits[2, 10:11])  # the third was not touched


def check_greedy_tokens(theirs: Any, folder: Path, backend: str) -> None:
    """The 30 likeliest tokens after five, then eight after prompts of three lengths at once.

    Two programs are compiled for a text alone, and two for a batch.
    """
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
    prompts = [prompt, prompt[:2], [*prompt, *found[:6]]]
    batch = language_model.complete(prompts, 8)
    for ids, completion in zip(prompts, batch, strict=True):
        logits = expected(theirs, np.array([[*ids, *completion.tokens]]))[0]
        wanted = logits[len(ids) - 1 : -1].argmax(-1)
        np.testing.assert_array_equal(completion.tokens, wanted)
    assert lm.compile_count() - before <= 4


def write_tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are single letters."""
    letters = {chr(0x4E00 + number): number for number in range(VOCABULARY)}
    Tokenizer(WordLevel(letters, unk_token=next(iter(letters)))).save(
        str(folder / "tokenizer.json")
    )


def check(theirs: Any, model: Decoder, name: str, backend: str) -> None:
    """All of the above but greedy tokens."""
    check_logits(theirs, model, backend)
    batched = check_texts_in_step if name in RECURRENT else check_padded_texts
    batched(theirs, model, backend)


@pytest.mark.parametrize("name", long_but(TINY, [*TINY][::2]))
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


@pytest.mark.long
@pytest.mark.parametrize("name", TINY)
def test_weights_of_16_bits(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    theirs = type(model).from_pretrained(tmp_path, dtype=torch.float32).eval()
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
        ("Qwen2AudioForCausalLM", "there are Qwen2ForCausalLM, Qwen2MoeForCausalLM, Qwen3"),
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
        ({"quant_method": "gptq", "bits": 4}, "GPTQ"),
        ({"quant_method": "awq"}, "AWQ"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
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
