"""The tokenizer in the metadata of a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors

from luminal.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.sentencepiece import Kind, Piece, SentencePieceTokenizer
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import HuggingFaceTokenizer, Tokenizer, library_errors

# GGUF's tokenizer.ggml.token_type: normal 1, unknown 2, control 3, user-defined 4, unused 5, byte 6
_CONTROL, _BYTE = 3, 6
_KINDS = {1: Kind.TEXT, 4: Kind.TEXT, _BYTE: Kind.BYTE}

# How Llama 3 cuts text before byte-pair encoding: contractions, words, up to three digits,
# punctuation, line ends, spaces (the pattern in its published tokenizer.json).
_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def gguf_tokenizer(metadata: Mapping[str, Any], path: Path) -> Tokenizer:
    """The tokenizer in the metadata: SentencePiece ("llama") or byte-level BPE ("gpt2")."""
    fields = Fields(metadata, path, "the metadata")
    model = metadata.get("tokenizer.ggml.model")
    if model == "llama":
        return _sentencepiece(fields)
    if model == "gpt2":
        return _byte_level(fields)
    raise LoadError(
        f"{path}: tokenizer {shown(model)} is not supported; 'llama' and 'gpt2' are; "
        f"pass a tokenizer.json"
    )


def _sentencepiece(fields: Fields) -> SentencePieceTokenizer:
    tokens = fields.listed("tokenizer.ggml.tokens", str)
    scores = fields.listed("tokenizer.ggml.scores", float)
    types = fields.listed("tokenizer.ggml.token_type", int)
    if not len(tokens) == len(scores) == len(types):
        raise LoadError(
            f"{fields.path}: the tokenizer has {len(tokens)} tokens, {len(scores)} scores and "
            f"{len(types)} types; it must have as many of each"
        )
    pieces = []
    for token, score, kind_number in zip(tokens, scores, types, strict=True):
        kind = _KINDS.get(kind_number, Kind.CONTROL)
        if kind is Kind.BYTE:
            text = bytes([_byte_value(token, fields.path)])
        else:
            text = token.replace("\u2581", " ").encode("utf-8", "surrogateescape")
        pieces.append(Piece(text, score, kind))
    count = len(pieces)
    unknown = fields.id_or_none("tokenizer.ggml.unknown_token_id", count)
    return SentencePieceTokenizer(
        pieces,
        bos_id=fields.token_id("tokenizer.ggml.bos_token_id", count),
        eos_id=fields.token_id("tokenizer.ggml.eos_token_id", count),
        unknown_id=0 if unknown is None else unknown,
        add_bos=fields.flag("tokenizer.ggml.add_bos_token", True),
        add_space=fields.flag("tokenizer.ggml.add_space_prefix", True),
    )


def _byte_value(token: str, path: Path) -> int:
    match = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)
    if not match:
        raise LoadError(f"{path}: byte token {shown(token)} must have the form <0xNN>")
    return int(match[1], 16)


def _byte_level(fields: Fields) -> HuggingFaceTokenizer:
    path = fields.path
    tokens = fields.listed("tokenizer.ggml.tokens", str)
    lines = fields.listed("tokenizer.ggml.merges", str)
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    types = fields.listed("tokenizer.ggml.token_type", int, [])
    cut = fields.text("tokenizer.ggml.pre", "default")
    bos, eos, eot = (
        fields.id_or_none(f"tokenizer.ggml.{name}_token_id", len(tokens))
        for name in ("bos", "eos", "eot")
    )
    is_llama3 = cut in ("llama-bpe", "llama3", "llama-v3")
    with_bos = fields.flag("tokenizer.ggml.add_bos_token", is_llama3)
    vocab = {token: index for index, token in enumerate(tokens)}
    with library_errors(path):
        inner = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=is_llama3))
        inner.pre_tokenizer = _pre_tokenizer(cut, path)
        inner.decoder = decoders.ByteLevel()
        special = [token for token, kind in zip(tokens, types, strict=False) if kind == _CONTROL]
        inner.add_special_tokens([AddedToken(token, special=True) for token in special])
        if bos is not None and with_bos:
            inner.post_processor = processors.TemplateProcessing(
                single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
            )
    ends = frozenset(end for end in (eos, eot) if end is not None)
    return HuggingFaceTokenizer(inner, bos, ends, path)


def _pre_tokenizer(cut: str, path: Path) -> pre_tokenizers.PreTokenizer:
    if cut in ("default", "gpt-2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if cut == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if cut in ("llama-bpe", "llama3", "llama-v3"):
        words = pre_tokenizers.Split(Regex(_LLAMA3_PATTERN), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([words, level])
    raise LoadError(
        f"{path}: pre-tokenizer {shown(cut)} is not supported; default, gpt-2, smollm and "
        f"llama-bpe are; pass a tokenizer.json"
    )
