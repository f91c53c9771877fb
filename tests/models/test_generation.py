"""Texts of a batch are those of each prompt alone; samples, stop strings, vectors, scores."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.models import LanguageModel, ModelDraft, PromptLookup, Sampling, beam_search
from luminal.models.architectures import read_decoder
from luminal.models.sampling import Draw
from tests.close import close
from tests.models.decoder_checks import saved
from tests.models.small_models import VOCABULARY, Letters, language_model, twin

PROMPTS = ["EFG", "A", "Mabcdefg", "b7"]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return language_model()


def test_a_batch_writes_what_each_prompt_gets_alone(model: LanguageModel) -> None:
    alone = [model.generate(prompt, 10) for prompt in PROMPTS]
    assert len(set(alone)) == len(PROMPTS)
    before = lm.compile_count()
    assert model.generate(PROMPTS, 10) == alone
    assert lm.compile_count() - before == 2
    assert model.generate([*reversed(PROMPTS[:3])], 10) == alone[2::-1]
    assert lm.compile_count() - before == 2  # for all lengths, and for fewer prompts


def test_a_seed_gives_the_same_text_alone_and_among_others(model: LanguageModel) -> None:
    options: dict[str, Any] = {"temperature": 1.2, "top_p": 0.9, "frequency_penalty": 0.1}
    alone = [model.generate(PROMPTS[0], 8, seed=seed, **options) for seed in (5, 6, 7)]
    assert len(set(alone)) == 3
    found = model.complete(PROMPTS[:2], 8, n=3, seed=5, **options)
    assert [each.text for each in found[:3]] == alone
    assert model.generate(PROMPTS[0], 8, seed=6, **options) == alone[1]


def test_the_cpu_writes_the_same(model: LanguageModel) -> None:
    compiled = language_model(backend="cpu")
    assert compiled.generate(PROMPTS, 6) == model.generate(PROMPTS, 6)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mamba", "deepseek_v3"])
def test_batches_of_models_with_other_caches(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    saved(name, tmp_path)
    other = LanguageModel(read_decoder(tmp_path), Letters(), backend="reference", context=24)
    alone = [other.generate(prompt, 6) for prompt in PROMPTS[:3]]
    assert other.generate(PROMPTS[:3], 6) == alone
    if name == "mamba":
        with pytest.raises(lm.InputError, match="recurrent layers, which cannot forget tokens"):
            other.stream("A", draft=PromptLookup())
        with pytest.raises(lm.InputError, match="recurrent layers, which keep no positions"):
            other.save_prompt("A", tmp_path / "prompt.safetensors")


def test_many_prompts_are_read_in_groups(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = model.generate(PROMPTS, 5)
    monkeypatch.setattr("luminal.models.generate.MOST_ROWS", 3)
    other = language_model()
    assert other.generate(PROMPTS, 5) == expected
    assert other.programs.rows == 4
    assert (other.stats.texts, other.stats.new_tokens) == (4, 20)


@pytest.mark.long
def test_texts_end_one_by_one(model: LanguageModel) -> None:
    whole = model.generate(PROMPTS, 10)
    stops = [whole[0][4:6], whole[2][7:9]]
    found = model.complete(PROMPTS, 10, stop=stops)
    for text, completion in zip(whole, found, strict=True):
        places = [text.find(stop) for stop in stops if stop in text]
        assert completion.text == text[: min(places, default=10)]
        assert completion.reason == ("stop" if places else "length")
    assert "".join(model.stream(PROMPTS[0], 10, stop=stops[0])) == found[0].text


def test_texts_end_where_the_context_does() -> None:
    small, prompts = language_model(context=6), ["ABCDEF", "A", "ABCDE"]
    alone = [small.generate(prompt, 50) for prompt in prompts]
    assert list(map(len, alone)) == [1, 6, 2]
    assert small.generate(prompts, 50) == alone


def test_end_tokens_in_a_batch() -> None:
    other = language_model()
    other.tokenizer.eos_ids = frozenset(range(0, VOCABULARY, 9))  # type: ignore[misc]
    alone = [other.complete([prompt], 10)[0] for prompt in PROMPTS]
    assert other.complete(PROMPTS, 10) == alone
    assert len({len(each.tokens) for each in alone}) > 1
    assert {each.reason for each in alone} >= {"stop"}


def test_log_probabilities_are_scores(model: LanguageModel) -> None:
    found = model.complete(PROMPTS, 6, logprobs=True, temperature=1.5, seed=3)
    for prompt, completion in zip(PROMPTS, found, strict=True):
        scores = model.score(prompt + completion.text)
        close(completion.logprobs, scores[len(prompt) - 1 :])
        rows = zip(completion.tokens, completion.logprobs, completion.top, strict=True)
        for token, logprob, top in rows:
            assert len(top) == 20
            assert sorted(top, key=lambda each: -each[1]) == [*top]
            # a logarithm of a softmax in float32, which two programs compute: some 40 ulp of 1
            assert dict(top).get(token, logprob) == pytest.approx(logprob, abs=1e-5)
    assert model.score("A").shape == (0,)


def test_scores_and_vectors_are_those_of_transformers(model: LanguageModel) -> None:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    theirs = twin(model.model)
    ids = torch.tensor([model.encode(PROMPTS[2])])
    with torch.no_grad():
        out = theirs(ids, output_hidden_states=True)
    hidden = out.hidden_states[-1][0].numpy()
    for pooling, expected in (("mean", hidden.mean(0)), ("last", hidden[-1])):
        found = model.embed(PROMPTS[2], pooling, normalize=False)
        close(found, expected, ulp=8)
    logprobs = out.logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0].numpy()
    close(model.score(PROMPTS[2]), logprobs)
    vectors = model.embed(PROMPTS)
    assert vectors.shape == (4, 32)
    # a norm of 32 squares, rounded: 8 ulp
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


def test_what_makes_no_sense_is_refused(model: LanguageModel) -> None:
    for call, message in (
        (lambda: model.complete(["A"], 3, n=0), "n: 0 is not 1 or above"),
        (lambda: model.complete([[1, 64]], 3), "token 64 is not below 64"),
        (lambda: model.complete([[]], 3), "it has no tokens"),
        (lambda: model.generate("A", 3, stop=""), "stop: '' is no text to stop at"),
        (lambda: model.generate("A", 3, logit_bias=[1]), "no dict of token ids to numbers"),
        (lambda: model.generate("A", 3, stop=3), "stop: 3 is no text"),
        (lambda: model.generate("A", 3, temprature=1), "temprature: no such option; there are"),
        (
            lambda: model.generate("A", 3, constraint="a+"),
            "'a\\+' is none; make one with models.reg",
        ),
        (lambda: model.generate("A", 3, draft=3), "draft: 3 is none; make one with models.Prompt"),
        (lambda: model.complete(["A"], 3, seed="x"), "seed='x' is no int"),
        (lambda: model.complete("AB", 3), "prompts: 'AB' is one text; give a list of them"),
        (lambda: model.generate("A", 3, logit_bias={64: 1}), "logit_bias: token 64 is not below"),
        (lambda: model.embed("A", "sum"), "pooling 'sum': takes one of 'mean', 'last'"),
    ):
        with pytest.raises(lm.InputError, match=message):
            call()
    assert model.complete([], 3) == []
    assert model.embed([]).shape == (0, 32)


BEGINS: dict[str, Callable[[LanguageModel, Path], object]] = {
    "generate": lambda model, path: model.generate("B", 2),
    "stream": lambda model, path: next(model.stream("B", 2)),
    "complete": lambda model, path: model.complete(["B", "CD"], 2),
    "beam": lambda model, path: beam_search(model, "B", width=1, max_tokens=2),
    "beams": lambda model, path: beam_search(model, "B", width=2, max_tokens=2),
    "save_prompt": lambda model, path: model.save_prompt("BCD", path / "prompt"),
    "draft": lambda model, path: ModelDraft(model).propose(Draw(Sampling(), [2, 3, 4], 3), 3),
}


@pytest.mark.parametrize("name", BEGINS)
def test_another_text_ends_the_first(model: LanguageModel, name: str, tmp_path: Path) -> None:
    first = model.stream("A", 5)
    next(first)
    BEGINS[name](model, tmp_path)
    with pytest.raises(lm.GraphError, match="another text was started on this model"):
        next(first)


def test_threads_get_their_own_text_or_are_refused(model: LanguageModel) -> None:
    prompts = ["AB", "CDE", "F", "GHIJ"]
    alone = [model.generate(prompt, 6) for prompt in prompts]

    def write(number: int) -> bool:
        try:
            return model.generate(prompts[number], 6) == alone[number]
        except lm.GraphError:
            return True

    with ThreadPoolExecutor(len(prompts)) as pool:
        assert all(pool.map(write, [0, 1, 2, 3] * 5))
