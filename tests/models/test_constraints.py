"""Texts that must match a schema or a pattern, from a model that knows nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.loaders.tokenizer import Tokenizer
from luminal.models import LanguageModel, ModelDraft, PromptLookup, load
from luminal.models.constraints import json_schema, regex
from luminal.models.sampling import Draw

pytest.importorskip("llguidance")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "name": {"type": "string", "maxLength": 6},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3},
        "known": {"type": "boolean"},
    },
    "required": ["age", "name", "known"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(shared_data: Path) -> LanguageModel:
    """Its weights are noise."""
    loaded = load(shared_data / "stories-260k/stories260K.gguf", context=160)
    rng = np.random.default_rng(0)
    for parameter in loaded.model.parameters():
        parameter.set(rng.standard_normal(parameter.shape).astype(parameter.dtype.numpy))
    return loaded


def check(found: dict[str, Any]) -> None:
    """By hand, what the schema says."""
    assert found.keys() - {"tags"} == {"age", "name", "known"}
    assert isinstance(found["age"], int)
    assert 0 <= found["age"] <= 120
    assert len(found["name"]) <= 6
    assert isinstance(found["known"], bool)
    assert set(found.get("tags", [])) <= {"red", "blue"}


@pytest.mark.parametrize(
    "count", [4, pytest.param(100, marks=pytest.mark.long)], ids=["some", "hundred"]
)
def test_every_text_is_what_the_schema_allows(model: LanguageModel, count: int) -> None:
    found = model.complete(["Once"], 120, n=count, constraint=json_schema(SCHEMA), temperature=1.0)
    for completion in found:
        assert completion.reason == "stop"
        check(json.loads(completion.text))
    assert len({completion.text for completion in found}) > count // 2


@pytest.mark.long
def test_a_pattern_and_a_text_without_one_side_by_side(model: LanguageModel) -> None:
    pattern = "[A-Z]{3}-[0-9]{2,4}"
    alone = model.generate("Once", 30, constraint=regex(pattern), temperature=1.5, seed=2)
    assert re.fullmatch(pattern, alone)
    free = model.generate("Once", 10, temperature=1.5, seed=2)
    assert not re.fullmatch(pattern, free)
    assert model.generate("Once", 2, constraint=regex("(yes|no)")) in ("yes", "no", "ye", "n")


def test_what_cannot_be_matched_is_refused(model: LanguageModel, shared_data: Path) -> None:
    for make, message in (
        (lambda: json_schema("{bad"), "json_schema: it is no JSON: Expecting property name"),
        (lambda: json_schema({"type": "foo"}), "json_schema: Invalid type: foo"),
        (lambda: regex("[0-9"), 'regex: .*invalid regex "\\[0-9"'),
        (lambda: regex(3), "regex: 3 is no pattern"),
    ):
        with pytest.raises(lm.InputError, match=message):
            model.stream("Once", constraint=make())
    few = load(shared_data / "tinystories-656k")
    with pytest.raises(lm.InputError, match="no tokens of the model spell what must come next"):
        few.generate("Once", constraint=json_schema(SCHEMA))


class Knowing:
    """A draft that knows a text: all that it proposes is right, up to where it ends, or with
    `wrong` every third token is not.
    """

    def __init__(self, tokens: Sequence[int], wrong: bool = False) -> None:
        self.tokens = [(token + 1) % 512 if wrong and k % 3 == 2 else token
                       for k, token in enumerate(tokens)]  # fmt: skip

    def propose(self, draw: Draw, most: int) -> list[int]:
        """What comes next, and a token that ends it."""
        return [*self.tokens[len(draw.tokens) - draw.prompt :], 2][:most]


FORMS = {"schema": json_schema(SCHEMA), "pattern": regex("(ab|a[bc]+d){2,9}x")}


@pytest.mark.parametrize("form", [pytest.param("schema", marks=pytest.mark.long), "pattern"])
@pytest.mark.parametrize(
    "options",
    [{"temperature": 1.3, "seed": 5}, pytest.param({}, marks=pytest.mark.long)],
    ids=["drawn", "greedy"],
)
def test_drafts_change_no_text(model: LanguageModel, form: str, options: dict[str, Any]) -> None:
    constraint = FORMS[form]
    whole = model.complete(["Once"], 120, constraint=constraint, **options)[0]
    drafts = {
        "right": Knowing(whole.tokens),
        "wrong": Knowing(whole.tokens, wrong=True),
        "lookup": PromptLookup(),
    }
    shares = {}
    for name, draft in drafts.items():
        found = model.generate("Once", 120, constraint=constraint, draft=draft, **options)
        assert found == whole.text, name
        shares[name] = model.stats.acceptance
    assert shares["right"] == 1
    assert 0 < shares["wrong"] < 1


class Shortsighted:
    """A user's own constraint: its matcher is asked for the next token alone."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def matcher(self, tokenizer: Tokenizer, vocab_size: int) -> Shortsighted:
        """For one text."""
        return Shortsighted(self._inner.matcher(tokenizer, vocab_size))

    def allowed(self) -> Any:
        """Which tokens may come."""
        return self._inner.allowed()

    def accept(self, token: int) -> None:
        """Takes one."""
        self._inner.accept(token)

    @property
    def complete(self) -> bool:
        """Can nothing but an end come?"""
        return bool(self._inner.complete)


def test_a_matcher_that_does_not_look_ahead_has_a_token_a_step(model: LanguageModel) -> None:
    whole = model.complete(["Once"], 8, constraint=FORMS["pattern"])[0]
    found = model.generate(
        "Once", 8, constraint=Shortsighted(FORMS["pattern"]), draft=Knowing(whole.tokens)
    )
    assert (found, model.stats.proposed) == (whole.text, 0)


@pytest.mark.long
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_many_drafted_texts(model: LanguageModel, shared_data: Path, temperature: float) -> None:
    """Of two schemas: each is valid, and that without a draft, by lookup and by a smaller model,
    here one with the model's own weights.
    """
    other = load(shared_data / "stories-260k/stories260K.gguf", context=160)
    for mine, theirs in zip(other.model.parameters(), model.model.parameters(), strict=True):
        mine.set(theirs.numpy())
    accepted = 0
    for seed in range(12):
        for form in FORMS:
            options: dict[str, Any] = {"temperature": temperature, "seed": seed}
            options |= {"constraint": FORMS[form]}
            prompt = "Once upon a time" if seed % 2 else "abacd" * seed + "a"
            whole = model.complete([prompt], 100, **options)[0]
            if whole.reason == "stop" and form == "schema":
                check(json.loads(whole.text))
            for draft in (PromptLookup(), ModelDraft(other)):
                assert model.generate(prompt, 100, draft=draft, **options) == whole.text
                accepted += model.stats.accepted
    assert accepted > 100


def test_what_may_come_ahead(model: LanguageModel) -> None:
    """The masks of tokens that are taken one by one, and the matcher stays where it is."""
    size, encode = model.model.config.vocab_size, model.tokenizer.encode
    matcher = regex("ab?c{1,3}").matcher(model.tokenizer, size)
    a, b, c, d = (encode("x" + letter)[-1] for letter in "abcd")
    before = matcher.allowed().copy()
    masks = matcher.ahead([a, b, c, c])
    np.testing.assert_array_equal(matcher.allowed(), before)
    one = matcher.copy()
    for token, mask in zip([a, b, c, c], masks, strict=True):
        one.accept(token)
        np.testing.assert_array_equal(mask, one.allowed())
    assert len({mask.tobytes() for mask in masks}) > 2
    assert len(matcher.ahead([a, b, d, c])) == 2  # d may not come
    assert len(matcher.ahead([a, c, c, c, c])) == 3  # nothing may come after three
    assert matcher.ahead([d]) == matcher.ahead([]) == []
