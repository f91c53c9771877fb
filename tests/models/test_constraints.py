"""Texts that must match a schema or a pattern, from a model that knows nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.models import LanguageModel, load
from luminal.models.constraints import json_schema, regex

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
    with pytest.raises(lm.InputError, match="draft: a constraint asks for one token at a time"):
        model.stream("Once", constraint=regex("a+"), draft=lm.models.PromptLookup())
    few = load(shared_data / "tinystories-656k")
    with pytest.raises(lm.InputError, match="no tokens of the model spell what must come next"):
        few.generate("Once", constraint=json_schema(SCHEMA))
