"""Llama and generation on the reference backend, against transformers and a NumPy Llama."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import GraphError, InputError
from luminal.models import LanguageModel, load
from luminal.models.architectures import decoder_of
from luminal.models.checkpoint import load_checkpoint
from tests.close import close
from tests.models.numpy_llama import forward
from tests.models.stories import PROMPT


@pytest.fixture(scope="module")
def model(shared_data: Path) -> LanguageModel:
    return load(shared_data / "tinystories-656k", backend="reference", context=64)


FILES = ["tinystories-656k", "stories-260k/stories260K.bin", "stories-260k/stories260K.gguf"]


@pytest.mark.parametrize("file", FILES)
def test_logits_of_all_positions(shared_data: Path, file: str) -> None:
    """Both orders of rotated rows; tied and untied output."""
    tokenizer = shared_data / "stories-260k/tok512.bin" if file.endswith(".bin") else None
    checkpoint = load_checkpoint(shared_data / file, tokenizer)
    llama = decoder_of(checkpoint)
    ids = checkpoint.tokenizer.encode(PROMPT)  # type: ignore[union-attr]
    cx = lm.Graph()
    logits = llama(cx.tensor((1, cx.dim("s", 1, 64)), lm.int32, "ids")).output("logits")
    exe = lm.compile(cx, backend="reference")
    found = exe({"ids": np.array([ids], np.int32)})[logits]
    # 1e-4 is the distance between f32 and f64 over the layers, with a margin of ten
    expected = forward(checkpoint.config, llama.state_dict(), ids)
    close(found[0], expected, ulp=16)


def test_prefill_and_decode_give_transformers_log_probabilities(
    shared_data: Path, model: LanguageModel
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.LlamaForCausalLM.from_pretrained(
        shared_data / "tinystories-656k", dtype=torch.float32
    )
    ids = model.tokenizer.encode(PROMPT)
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    logprobs = torch.from_numpy(expected).log_softmax(-1)
    prefill, decode = model.compile(("top_logprobs",))
    split = len(ids) - 2
    ours = [prefill({"ids": np.array(ids[:split], np.int32)}, dims={"past": 0})]
    for past in range(split, len(ids)):
        ours.append(decode({"ids": np.array([ids[past]], np.int32)}, dims={"past": past}))
    for found, wanted in zip(ours, logprobs[split - 1 :], strict=True):
        top = wanted.topk(20)
        np.testing.assert_array_equal(found["top_tokens"][0], top.indices.numpy())
        # 1e-4 as above
        np.testing.assert_allclose(found["top_logprobs"][0], top.values.numpy(), atol=1e-4)
        assert found["tokens"][0] == wanted.argmax()


def test_greedy_tokens_are_those_of_transformers(shared_data: Path, model: LanguageModel) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.LlamaForCausalLM.from_pretrained(
        shared_data / "tinystories-656k", dtype=torch.float32
    )
    ids = model.tokenizer.encode(PROMPT)
    expected = theirs.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False)
    before = lm.compile_count()
    assert list(model.tokens(ids, 20)) == expected[0, len(ids) :].tolist()
    assert list(model.tokens(ids[:3], 2))  # another length: nothing is compiled
    assert lm.compile_count() - before in (0, 2)


def test_streaming(model: LanguageModel) -> None:
    pieces = list(model.stream(PROMPT, max_tokens=8))
    assert "".join(pieces) == model.generate(PROMPT, max_tokens=8)
    assert len(pieces) > 3
    assert (model.stats.prompt_tokens, model.stats.new_tokens) == (len(model.encode(PROMPT)), 8)
    assert "tokens/s" in model.stats.text()
    assert model.generate(PROMPT, max_tokens=0) == ""
    sampled = [model.generate(PROMPT, 8, temperature=1.0, top_k=50, seed=s) for s in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]


def test_wrong_options_raise_before_the_first_piece(model: LanguageModel) -> None:
    for options in ({"top_p": 0.0}, {"top_k": 0}, {"temperature": -1.0}, {"seed": -1}):
        with pytest.raises(InputError, match=f"{next(iter(options))}[:=]"):
            model.stream(PROMPT, **options)


def test_the_context_ends_generation(shared_data: Path) -> None:
    small = load(shared_data / "tinystories-656k", backend="reference", context=16)
    ids = small.tokenizer.encode("Once upon a time")
    assert len(list(small.tokens(ids, 100))) == 16 - len(ids) + 1
    with pytest.raises(InputError, match=r"prompt: \d+ tokens, but the context is 16; shorten"):
        small.generate(PROMPT * 3)


def test_one_text_at_a_time(model: LanguageModel) -> None:
    first = model.stream(PROMPT, max_tokens=5)
    next(first)
    next(model.stream(PROMPT, max_tokens=5))
    with pytest.raises(GraphError, match="another text was started on this model"):
        list(first)
