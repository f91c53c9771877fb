"""Bytes of tokens, of both kinds of vocabularies: side by side they are the text's."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from luminal.loaders.token_bytes import bytes_of, text_of
from luminal.loaders.tokenizer import HuggingFaceTokenizer

TEXT = "a é 日本 😀 ~"


def byte_level() -> HuggingFaceTokenizer:
    """A token a byte, written as GPT-2 does."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return HuggingFaceTokenizer(inner, None, frozenset(), Path("bytes"))


def byte_fallback() -> HuggingFaceTokenizer:
    """Tokens of some characters, and one a byte for all others, as Llama 2's."""
    vocabulary = {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3, "~": 4, "日": 5}
    vocabulary |= {f"<0x{byte:02X}>": 6 + byte for byte in range(256)}
    inner = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>", byte_fallback=True)
    )
    inner.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    inner.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    return HuggingFaceTokenizer(inner, None, frozenset(), Path("fallback"))


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_bytes_of_tokens_make_up_the_text(make) -> None:  # type: ignore[no-untyped-def]
    tokenizer = make()
    ids = tokenizer.encode(TEXT)
    assert b"".join(bytes_of(tokenizer, token) for token in ids).decode().lstrip(" ") == TEXT
    assert len(ids) > len(TEXT)  # some are parts of characters


def test_a_space_in_front_counts() -> None:
    tokenizer = byte_fallback()
    assert tokenizer.decode([3]) == "a"
    assert text_of(tokenizer, 3) == " a"
