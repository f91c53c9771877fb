"""Drafts change how fast a text comes, never the text."""

from __future__ import annotations

from typing import Any

import pytest

import luminal as lm
from luminal.models import LanguageModel, ModelDraft, PromptLookup
from luminal.models.sampling import Draw, Sampling
from tests.models.small_models import VOCABULARY, Letters, language_model, llama

PROMPT = "ABCABCABCAB"


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return language_model()


@pytest.mark.parametrize(
    "options",
    [{"temperature": 1.1, "top_k": 8, "seed": 4}, pytest.param({}, marks=pytest.mark.long)],
    ids=["drawn", "greedy"],
)
def test_the_text_is_that_without_a_draft(model: LanguageModel, options: dict[str, int]) -> None:
    expected = model.generate(PROMPT, 9, **options)
    drafts = (
        PromptLookup(),
        ModelDraft(language_model(llama(1, layers=1))),
        ModelDraft(language_model(), 5),
    )
    shares = []
    for draft in drafts:
        assert model.generate(PROMPT, 9, draft=draft, **options) == expected
        shares.append(model.stats.acceptance)
    assert shares[2] == 1  # the model itself is always right
    assert shares[1] < 0.5
    told = f"accepted {model.stats.accepted} of {model.stats.proposed} tokens, 100%"
    assert told in model.stats.text()


def test_a_draft_ends_where_the_text_does(model: LanguageModel) -> None:
    whole = model.generate(PROMPT, 14)
    stop = whole[7:9]
    for draft in (PromptLookup(), ModelDraft(language_model())):
        found = model.generate(PROMPT, 14, stop=stop, draft=draft)
        assert found == whole[: whole.find(stop)]


def test_a_draft_may_fill_the_context() -> None:
    small = language_model(context=9)
    filled = small.generate("A", 500)
    assert len(filled) == 9
    for draft in (PromptLookup(), ModelDraft(language_model())):
        for _ in range(2):  # what the draft's caches hold is used again
            assert small.generate("A", 500, draft=draft) == filled


def test_lookup_proposes_what_followed_the_longest_end() -> None:
    def proposed(tokens: list[int], most: int = 9) -> list[int]:
        return PromptLookup(count=3, ngram=2).propose(Draw(Sampling(), tokens), most)

    assert proposed([1, 2, 3, 4, 9, 2, 5, 1, 2]) == [3, 4, 9]
    assert proposed([1, 2, 3, 7, 2, 5, 8, 9, 2]) == [5, 8, 9]
    assert proposed([1, 2, 3, 7, 2, 5, 8, 9, 2], 1) == [5]
    assert proposed([1, 2, 3]) == []
    assert proposed([1]) == []


class Fewer(Letters):
    """A tokenizer without the last letter."""

    vocab_size = VOCABULARY - 1


class Proposing:
    """A draft that always proposes this."""

    def __init__(self, proposed: Any) -> None:
        self.proposed = proposed

    def propose(self, draw: Draw, most: int) -> Any:
        return self.proposed


@pytest.mark.parametrize(
    ("proposed", "message"),
    [
        (None, "it proposes None; at most 7 token ids may be"),
        ([1] * 8, r"it proposes \[1, 1, .*; at most 7 token ids may be"),
        ("ab", "token: 'a' is no int"),
        ([1.5], "token: 1.5 is no int"),
        ([-1], "token: -1 is not 0 or above"),
        ([64], "token 64 is not below 64, the vocabulary's size"),
    ],
    ids=str,
)
def test_what_a_draft_must_not_propose(model: LanguageModel, proposed: Any, message: str) -> None:
    with pytest.raises(lm.InputError, match=f"draft: {message}"):
        model.generate(PROMPT, 9, draft=Proposing(proposed))


def test_what_is_no_draft(model: LanguageModel) -> None:
    with pytest.raises(lm.InputError, match=r"draft: .*PromptLookup.* is none; make one"):
        model.generate(PROMPT, 9, draft=PromptLookup)  # type: ignore[arg-type]
    with pytest.raises(lm.InputError, match="draft: a model proposes nothing to itself"):
        model.generate(PROMPT, 9, draft=ModelDraft(model))
    other = language_model()
    other.tokenizer = Fewer()
    with pytest.raises(lm.InputError, match="its vocabulary has 63 tokens, the model's 64; give a"):
        model.stream(PROMPT, 9, draft=ModelDraft(other))
