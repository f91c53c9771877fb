"""A `tokenizer.json` as the metadata of a GGUF file, whole and in the format's own terms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from luminal.loaders.gguf_tokenizer import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    WHOLE_FILE,
)
from luminal.loaders.json_file import parse_object
from luminal.loaders.pre_tokenizers import CUTS, GPT2_PATTERN
from luminal.loaders.sentencepiece import SPACE

_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
_ENDS = ("eos", "eot", "eom")


def tokenizer_metadata(
    text: str,
    path: Path,
    bos: int | None,
    ends: Sequence[int],
    framed: Sequence[int],
    rows: int = 0,
) -> dict[str, Any]:
    """The metadata for the `text` of a tokenizer.json; `framed`: the ids that it makes of an empty
    text.

    `ends`: what ends a text, and otherwise an answer. `rows`: those of the model's embedding, which
    other readers take to be as many as tokens are listed: unused ones fill the list. Readers
    without `tokenizer.huggingface.json` cut texts by the names in `pre_tokenizers`, where the
    pattern has one.
    """
    settings = parse_object(text.encode(), str(path))
    model = settings["model"]
    added = {entry["id"]: entry for entry in settings.get("added_tokens") or []}
    tokens, scores = _tokens(model, added, rows)
    types = [_type(number, token, model, added) for number, token in enumerate(tokens)]
    metadata: dict[str, Any] = {WHOLE_FILE: text, "tokenizer.ggml.token_type": types}
    parts = list(_parts(settings))
    kinds = {entry.get("type") for entry in parts}
    if model["type"] == "WordPiece":
        metadata["tokenizer.ggml.model"] = "bert"
        tokens = [_marked(token, kind) for token, kind in zip(tokens, types, strict=True)]
    elif model["type"] == "BPE" and "ByteLevel" in kinds:
        metadata["tokenizer.ggml.model"] = "gpt2"
        metadata["tokenizer.ggml.merges"] = [" ".join(pair) for pair in _merges(model)]
        cut = _cut(settings.get("pre_tokenizer"), bool(model.get("ignore_merges")))
        if cut is not None:
            metadata["tokenizer.ggml.pre"] = cut
    elif model["type"] == "BPE":
        metadata["tokenizer.ggml.model"] = "llama"
        # These readers join the pair of the best score: so scores fall with the ranks of the
        # merges.
        ranks = {left + right: -float(rank) for rank, (left, right) in enumerate(_merges(model))}
        metadata["tokenizer.ggml.scores"] = [
            ranks.get(token, -float(len(ranks))) for token in tokens
        ]
        metadata["tokenizer.ggml.add_space_prefix"] = any(
            entry["type"] == "Prepend" or entry.get("prepend_scheme") in ("first", "always")
            for entry in parts
        )
    else:
        metadata["tokenizer.ggml.model"] = {"Unigram": "t5"}.get(model["type"], "none")
        metadata["tokenizer.ggml.scores"] = scores
    metadata["tokenizer.ggml.tokens"] = tokens
    ids = dict(zip(_ENDS, ends, strict=False)) | ({} if bos is None else {"bos": bos})
    if model.get("unk_token") in tokens:
        ids["unknown"] = tokens.index(model["unk_token"])
    for role, number in ids.items():
        metadata[f"tokenizer.ggml.{role}_token_id"] = number
    metadata["tokenizer.ggml.add_bos_token"] = bos is not None and [*framed[:1]] == [bos]
    metadata["tokenizer.ggml.add_eos_token"] = bool(framed) and framed[-1] in ends[:1]
    return metadata


def _tokens(
    model: Mapping[str, Any], added: Mapping[int, Any], least: int
) -> tuple[list[str], list[float]]:
    """At least so many tokens by their ids, and scores; ids that no token has get one."""
    vocabulary = model["vocab"]
    pairs = vocabulary.items()
    scores = [0.0] * len(vocabulary)
    if model["type"] == "Unigram":
        pairs = [(token, number) for number, (token, _) in enumerate(vocabulary)]
        scores = [float(score) for _, score in vocabulary]
    by_id = {number: token for token, number in pairs}
    by_id |= {number: entry["content"] for number, entry in added.items()}
    count = max(max(by_id, default=-1) + 1, least)
    tokens = [by_id.get(number, f"[PAD{number}]") for number in range(count)]
    return tokens, scores + [0.0] * (count - len(scores))


def _type(number: int, token: str, model: Mapping[str, Any], added: Mapping[int, Any]) -> int:
    if token == model.get("unk_token"):
        return UNKNOWN
    if number in added:
        return CONTROL if added[number]["special"] else USER_DEFINED
    if token == f"[PAD{number}]":
        return UNUSED
    return BYTE if model.get("byte_fallback") and _BYTE_TOKEN.fullmatch(token) else NORMAL


def _marked(token: str, kind: int) -> str:
    """A piece as the format writes BERT's: those that begin a word are marked, not the others."""
    if kind != NORMAL or (token.startswith("[") and token.endswith("]")):
        return token
    return token[2:] if token.startswith("##") else SPACE + token


def _merges(model: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Pairs; older files have them as one text."""
    for merge in model["merges"]:
        yield merge.split(" ") if isinstance(merge, str) else merge


def _parts(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The normalizers, pre-tokenizers and decoders, one by one."""
    waiting = [settings.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")]
    while waiting:
        part = waiting.pop()
        if part:
            yield part
            for key in ("normalizers", "pretokenizers", "decoders"):
                waiting += part.get(key) or []


def _cut(part: Mapping[str, Any] | None, whole: bool) -> str | None:
    """The first name of the pattern by which texts are cut."""
    steps = (part or {}).get("pretokenizers") or [part or {}]
    patterns: list[str | None] = []
    for step in steps:
        match step:
            case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated"}:
                patterns.append(pattern)
            case {"type": "Digits", "individual_digits": True}:
                patterns.append(r"\p{N}")
            case {"type": "ByteLevel", "use_regex": False}:
                pass
            case {"type": "ByteLevel"}:
                patterns.append(GPT2_PATTERN)
            case _:
                return None
    names = (n for n, c in CUTS.items() if (list(c.patterns), c.whole) == (patterns, whole))
    return next(names, None)
