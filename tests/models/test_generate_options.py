"""What a language model is asked for: options that make no sense are refused by name, at once."""

from __future__ import annotations

from typing import Any

import pytest

import luminal as lm
from luminal.models import LanguageModel, Llama, LlamaConfig

CONFIG = LlamaConfig(
    hidden_size=8,
    intermediate_size=8,
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
    head_dim=8,
    vocab_size=10,
    max_position_embeddings=16,
)


class Letters:
    """A tokenizer of digits."""

    eos_ids = frozenset({0})

    def encode(self, text: str) -> list[int]:
        return [int(letter) for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(str, ids))


def model(**options: Any) -> LanguageModel:
    return LanguageModel(Llama(CONFIG), Letters(), backend="reference", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seed": None}, "seed=None is no int; give an int >= 0"),
        ({"seed": -1}, "seed=-1 is negative; give an int >= 0"),
        ({"seed": 1.5}, "seed=1.5 is no int"),
        ({"seed": 1 << 64}, "seed is an int of more than 64 bits"),
        ({"max_tokens": -1}, "max_tokens: -1 is not 0 or above"),
        ({"max_tokens": None}, "max_tokens: None is no int"),
        ({"max_tokens": 2.5}, "max_tokens: 2.5 is no int"),
        ({"max_tokens": True}, "max_tokens: True is no int"),
        ({"temperature": None}, "temperature: None is not 0 or above"),
        ({"temperature": 10**400}, "temperature: 1000.* is not 0 or above, and finite in"),
        ({"top_k": -1}, "top_k: -1 is not 1 or above"),
        ({"top_p": 2}, "top_p: 2 is not above 0 and at most 1"),
        ({"top_p": 1e-46}, "top_p: 1e-46 is not above 0 and at most 1"),
        ({"logit_bias": {5: float("inf")}}, "logit_bias: inf of token 5 is no finite 32-bit float"),
        ({"logit_bias": {5: -(10**400)}}, "logit_bias: .* of token 5 is no finite 32-bit float"),
        ({"prompt": None}, "prompt: None is no text; give a str"),
        ({"prompt": ""}, "prompt: it has no tokens"),
        ({"prompt": "1" * 17}, "prompt: 17 tokens, but the context is 16; shorten it"),
    ],
)
def test_options_are_refused_by_name_before_anything_is_compiled(
    options: dict[str, Any], text: str
) -> None:
    loaded, before = model(), lm.compile_count()
    with pytest.raises(lm.InputError, match=text):
        loaded.stream(**({"prompt": "123"} | options))
    assert lm.compile_count() == before


@pytest.mark.parametrize(
    ("context", "text"), [(0, "context: 0 is not 1 or above"), ("4", "context: '4' is no int")]
)
def test_the_context_is_checked(context: Any, text: str) -> None:
    with pytest.raises(lm.InputError, match=text):
        model(context=context)


def test_no_tokens_are_none() -> None:
    loaded = model()
    assert loaded.generate("123", max_tokens=0) == ""
    assert repr(loaded) == (
        "LanguageModel(Llama, 1 layers of 8, 10 tokens, context 16; reference, fast, compiled)"
    )
