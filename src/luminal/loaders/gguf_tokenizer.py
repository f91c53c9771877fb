"""The tokenizer in the metadata of a GGUF file, of the kinds "llama", "gpt2" and "bert"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.pre_tokenizers import CUTS
from luminal.loaders.sentencepiece import SPACE, Kind, Piece, sentencepiece
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import (
    HuggingFaceTokenizer,
    library_errors,
    of_settings,
    panics_unheard,
)

WHOLE_FILE = "tokenizer.huggingface.json"
"""The key of a whole `tokenizer.json`, which then counts."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""`tokenizer.ggml.token_type`."""
_KINDS = {NORMAL: Kind.TEXT, USER_DEFINED: Kind.WHOLE, BYTE: Kind.BYTE}
_BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")


def gguf_tokenizer(metadata: Mapping[str, Any], path: Path) -> HuggingFaceTokenizer:
    """The tokenizer. Raises LoadError for one of another kind, and for what does not fit."""
    fields = Fields(metadata, path, "the metadata")
    with panics_unheard():
        if WHOLE_FILE in metadata:
            return _of_whole_file(fields)
        kind = metadata.get("tokenizer.ggml.model")
        if not isinstance(kind, str) or kind not in _BUILDERS:
            raise LoadError(
                f"{path}: tokenizer {shown(kind)} is not supported; "
                f"{', '.join(map(repr, _BUILDERS))} are; pass a tokenizer.json"
            )
        return _BUILDERS[kind](fields)


def _of_whole_file(fields: Fields) -> HuggingFaceTokenizer:
    text = fields.text(WHOLE_FILE, "")
    what = f"{fields.path}: {WHOLE_FILE}"
    # As the header's texts were read: what is no UTF-8 becomes the bytes again that it was.
    inner = of_settings(text.encode("utf-8", "surrogateescape"), fields.path, what)
    return _finished(fields, inner, fields.listed("tokenizer.ggml.tokens", str), ())


def _sentencepiece(fields: Fields) -> HuggingFaceTokenizer:
    """ "llama": a text also ends where another one begins: models emit the BOS there."""
    tokens = fields.listed("tokenizer.ggml.tokens", str)
    scores = fields.listed("tokenizer.ggml.scores", float)
    types = fields.listed("tokenizer.ggml.token_type", int)
    if not len(tokens) == len(scores) == len(types):
        raise LoadError(
            f"{fields.path}: the tokenizer has {len(tokens)} tokens, {len(scores)} scores and "
            f"{len(types)} types; it must have as many of each"
        )
    for token, number in zip(tokens, types, strict=True):
        if number == BYTE and not _BYTE_TOKEN.fullmatch(token):
            raise LoadError(f"{fields.path}: byte token {shown(token)} must have the form <0xNN>")
    pieces = [
        Piece(token, score, _KINDS.get(number, Kind.CONTROL))
        for token, score, number in zip(tokens, scores, types, strict=True)
    ]
    unknown = fields.id_or_none("tokenizer.ggml.unknown_token_id", len(tokens)) or 0
    bos = fields.token_id("tokenizer.ggml.bos_token_id", len(tokens))
    fields.token_id("tokenizer.ggml.eos_token_id", len(tokens))
    with library_errors(fields.path):
        inner = sentencepiece(pieces, unknown, fields.flag("tokenizer.ggml.add_space_prefix", True))
        _frame(fields, inner, tokens, add_bos=True)
    return _finished(fields, inner, tokens, (bos,))


def _byte_level(fields: Fields) -> HuggingFaceTokenizer:
    """ "gpt2": the pieces are bytes, each written as a letter."""
    name = fields.text("tokenizer.ggml.pre", "default")
    if name not in CUTS:
        raise LoadError(
            f"{fields.path}: pre-tokenizer {shown(name)} is not supported; {', '.join(CUTS)} are; "
            "pass a tokenizer.json"
        )
    cut = CUTS[name]
    tokens = fields.listed("tokenizer.ggml.tokens", str)
    lines = fields.listed("tokenizer.ggml.merges", str)
    # The first space parts both: within pieces a space is written as another letter.
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    with library_errors(fields.path):
        vocabulary = {token: number for number, token in enumerate(tokens)}
        inner = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=cut.whole))
        if cut.composed:
            inner.normalizer = normalizers.NFC()
        inner.pre_tokenizer = cut.pre_tokenizer()
        inner.decoder = decoders.ByteLevel()
        _add_special(fields, inner, tokens)
        _frame(fields, inner, tokens, cut.add_bos)
    return _finished(fields, inner, tokens, ())


def _wordpiece(fields: Fields) -> HuggingFaceTokenizer:
    """ "bert": a piece that begins a word is marked, and not the others as in BERT's files."""
    tokens = fields.listed("tokenizer.ggml.tokens", str)
    marked = [_berts(token) for token in tokens]
    unknown = fields.id_or_none("tokenizer.ggml.unknown_token_id", len(tokens)) or 0
    with library_errors(fields.path):
        vocabulary = {token: number for number, token in enumerate(marked)}
        inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=marked[unknown]))
        inner.normalizer = normalizers.BertNormalizer()
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        inner.decoder = decoders.WordPiece()
        _add_special(fields, inner, marked)
        _frame(fields, inner, marked, add_bos=True, add_eos=True)
    return _finished(fields, inner, marked, ())


def _berts(token: str) -> str:
    """A token as BERT's own files write it."""
    # [CLS], [SEP] and the like are no parts of words, and neither form marks them.
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[1:] if token.startswith(SPACE) else f"##{token}"


_BUILDERS = {"llama": _sentencepiece, "gpt2": _byte_level, "bert": _wordpiece}


# --- what all kinds share


def _add_special(fields: Fields, inner: tokenizers.Tokenizer, tokens: Sequence[str]) -> None:
    """Tokens that no pieces make: those without a text, and those that are cut out first."""
    types = fields.listed("tokenizer.ggml.token_type", int, [])
    for wanted, special in (((CONTROL, UNKNOWN), True), ((USER_DEFINED,), False)):
        specials = [token for token, kind in zip(tokens, types, strict=False) if kind in wanted]
        added = [
            AddedToken(token, normalized=False, special=special) for token in specials if token
        ]
        (inner.add_special_tokens if special else inner.add_tokens)(added)


def _special(fields: Fields, count: int, *names: str) -> int | None:
    """The id of the first of the names that the metadata has."""
    keys = (f"tokenizer.ggml.{name}_token_id" for name in names)
    ids = (fields.id_or_none(key, count) for key in keys)
    return next((token for token in ids if token is not None), None)


def _frame(
    fields: Fields,
    inner: tokenizers.Tokenizer,
    tokens: Sequence[str],
    add_bos: bool = False,
    add_eos: bool = False,
) -> None:
    """Has every text begin and end with the tokens that the metadata asks for."""
    begin = _special(fields, len(tokens), "bos", "cls")
    end = _special(fields, len(tokens), "eos", "seperator")  # as the key is spelled
    if not fields.flag("tokenizer.ggml.add_bos_token", add_bos):
        begin = None
    if not fields.flag("tokenizer.ggml.add_eos_token", add_eos):
        end = None
    ids = {tokens[token]: token for token in (begin, end) if token is not None}
    if ids:
        template = [*_quoted(tokens, begin), "$A", *_quoted(tokens, end)]
        inner.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=list(ids.items())
        )


def _quoted(tokens: Sequence[str], number: int | None) -> list[str]:
    return [] if number is None else [tokens[number]]


def _finished(
    fields: Fields, inner: tokenizers.Tokenizer, tokens: Sequence[str], ends: Iterable[int]
) -> HuggingFaceTokenizer:
    """With the ids that begin and end texts; some models end an answer otherwise than a text."""
    names = ("eos", "eot", "eom")
    ids = [fields.id_or_none(f"tokenizer.ggml.{name}_token_id", len(tokens)) for name in names]
    ending = frozenset([*ends, *(token for token in ids if token is not None)])
    bos = _special(fields, len(tokens), "bos", "cls")
    with library_errors(fields.path):
        tokenizer = HuggingFaceTokenizer(inner, bos, ending, fields.path)
        tokenizer.encode("")  # what it adds to every text
    return tokenizer
