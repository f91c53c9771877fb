"""Tokenizers' files whose steps would make a text far longer are refused, by the step that does."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tokenizers import normalizers, pre_tokenizers

from luminal.base.errors import LoadError
from luminal.loaders.growth import check_growth


def table(longest: int) -> str:
    """SentencePiece's, of one text that is put in."""
    return base64.b64encode((8).to_bytes(4, "little") + b"\0" * 8 + b"a" * longest + b"\0").decode()


def steps(kind: str, count: int, **more: Any) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": [{"type": kind, **more}] * count}


DOUBLING = {
    "bytes": steps("ByteLevel", 40),
    "replaced": steps("Replace", 40, pattern={"String": "a"}, content="aa"),
    "prepended": steps("Prepend", 2, prepend="a" * 200),
    "table": steps("Precompiled", 3, precompiled_charsmap=table(33)),
    "deep": steps("Sequence", 1, normalizers=[steps("ByteLevel", 20)]),
}


@pytest.mark.parametrize("name", DOUBLING)
def test_what_makes_a_text_far_longer(name: str) -> None:
    with pytest.raises(LoadError, match=r"x: its part may make a text \d+ times as long; at most"):
        check_growth(DOUBLING[name], "x: its part")


def test_many_steps() -> None:
    with pytest.raises(LoadError, match="x has 102 steps; at most 100 are supported"):
        check_growth(steps("NFC", 101), "x")


def test_those_of_models_pass() -> None:
    check_growth(steps("Precompiled", 1, precompiled_charsmap=table(33)), "x")
    check_growth(steps("Precompiled", 1, precompiled_charsmap="?"), "x")
    check_growth([steps("ByteLevel", 2), steps("Replace", 1, content="\u2581")], "x")


def test_a_byte_level_step_doubles() -> None:
    """What is said of it is what the library does."""
    step: Any
    for count in (1, 2, 5):
        step = normalizers.Sequence([normalizers.ByteLevel()] * count)
        assert len(step.normalize_str("\u00e9")) == 2**count
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        step = pre_tokenizers.Sequence([level] * count)
        assert len(step.pre_tokenize_str("\u00e9")[0][0]) == 2**count
