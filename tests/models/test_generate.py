"""Text generation on the CPU backend against transformers, token for token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base import config
from luminal.models import LanguageModel, load
from luminal.search.strategy import Strategy
from tests.long_share import mostly_long

STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the big "
    "garden. One day, she saw a small bird with a broken wing. The bird was very sad and could "
    "not fly. Lily wanted to help the bird, so she ran to her mom and told her about it. Her mom "
    "gave her a soft cloth and some water. They went back to the garden together and looked for "
    "the bird under the tall tree. The bird was still there. Lily put the cloth around the bird "
    "and gave it some water to drink. The bird looked at her and was not so sad any more. Her mom "
    "said that they should take the bird home and keep it warm."
)
TIE = 1e-4  # logits closer than this may come out in either order: f32 sums differ by as much


@pytest.fixture(scope="module")
def model(shared_data: Path) -> LanguageModel:
    return load(shared_data / "tinystories-656k")


@pytest.fixture(scope="module")
def theirs(shared_data: Path) -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    return transformers.LlamaForCausalLM.from_pretrained(
        shared_data / "tinystories-656k", dtype=torch.float32
    )


def greedy(theirs: Any, ids: list[int], count: int) -> tuple[list[int], np.ndarray[Any, Any]]:
    """transformers' continuation, and how far apart its two best logits were at each step."""
    import torch

    out = theirs.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False)[0].tolist()
    with torch.no_grad():
        best = theirs(torch.tensor([out])).logits[0, len(ids) - 1 : -1].topk(2).values
    return out[len(ids) :], (best[:, 0] - best[:, 1]).numpy()


@pytest.mark.parametrize("length", mostly_long([100, 3, 20], 1))
def test_200_greedy_tokens(model: LanguageModel, theirs: Any, length: int) -> None:
    ids = model.tokenizer.encode(STORY)[:length]
    assert len(ids) == length
    compiled = lm.compile_count()
    found = list(model.tokens(ids, 200))
    assert lm.compile_count() - compiled in (0, 2)  # prefill and decode, at the first length only
    expected, gaps = greedy(theirs, ids, 200)
    if expected[-1] in model.tokenizer.eos_ids:
        expected = expected[:-1]
    for step, (ours, wanted) in enumerate(zip(found, expected, strict=False)):
        if ours != wanted and gaps[step] < TIE:
            pytest.skip(f"PyTorch's two best logits are {gaps[step]:.1e} apart at token {step}")
        assert ours == wanted, f"token {step} of {length} + 200"
    assert len(found) == len(expected)


@pytest.mark.long
def test_backends_agree(shared_data: Path) -> None:
    path, prompt = shared_data / "stories-260k/stories260K.gguf", "Tom and his dog"
    texts = {
        b: load(path, backend=b, context=64).generate(prompt, 24) for b in ("cpu", "reference")
    }
    assert texts["cpu"] == texts["reference"]
    assert len(texts["cpu"]) > 20


def test_the_first_token_waits_for_one_program_only(shared_data: Path) -> None:
    model = load(shared_data / "tinystories-656k")
    tokens = model.tokens(model.encode("Once upon"), 3)
    first = model.stats.compile
    assert first > 0
    next(tokens)
    assert model.stats.compile == first
    next(tokens)
    both = model.stats.compile
    assert both > first
    assert next(tokens) >= 0
    assert model.stats.compile == both


@pytest.mark.long
def test_an_interrupt_ends_the_searches_of_both_programs(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the text comes from what was found so far."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Strategy, "run", interrupt)
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        found = load(shared_data / "stories-260k/stories260K.gguf", mode="20s", context=16)
        prefill, decode = found.compile()
    search = prefill.report().search
    assert search is not None
    assert search.interrupted
    assert decode.report().search is None  # it was not searched
    assert found.generate("Tom", 3)
