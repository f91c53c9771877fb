"""Tokenizers of both kinds of vocabularies: all of bytes, and with bytes as a last resort."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from luminal.loaders.tokenizer import HuggingFaceTokenizer


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
