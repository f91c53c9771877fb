"""CLIP's tokenizer: of a tokenizer.json, or of the vocab.json and merges.txt of older folders."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.json_file import read_bytes, read_json
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import HuggingFaceTokenizer, library_errors, read_tokenizer_json

_START, _END = "<|startoftext|>", "<|endoftext|>"
_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
"""What is a word: Radford et al., arXiv 2103.00020, section 2.4, in the words of their program."""


@dataclass(frozen=True, slots=True)
class PaddedTokenizer:
    """A tokenizer whose texts all have `length` ids: cut off, or filled with `padding`."""

    tokenizer: HuggingFaceTokenizer
    length: int
    start: int
    end: int
    padding: int

    def ids(self, text: str) -> list[int]:
        """The ids of a text, between those that begin and end it. Raises InputError."""
        inner = self.tokenizer.encode(text, bare=True)[: self.length - 2]
        ids = [self.start, *inner, self.end]
        return ids + [self.padding] * (self.length - len(ids))


def read_clip_tokenizer(folder: Path, length: int) -> PaddedTokenizer:
    """The tokenizer of a folder, for texts of `length` ids. Raises LoadError."""
    path = folder / "tokenizer.json"
    settings_path = folder / "tokenizer_config.json"
    values = read_json(settings_path) if is_there(settings_path) else {}
    settings = Fields(values, settings_path)
    keys = ("bos_token", _START), ("eos_token", _END), ("pad_token", _END)
    names = {key: _content(settings, key, default) for key, default in keys}
    special = list(names.values())
    tokenizer = read_tokenizer_json(path) if is_there(path) else _of_merges(folder, special)
    ids = []
    for key, name in names.items():
        number = tokenizer.id_of(name)
        if number is None:
            raise LoadError(f"{folder}: the tokenizer has no {shown(name)}, which is its {key}")
        ids.append(number)
    return PaddedTokenizer(tokenizer, length, *ids)


def _of_merges(folder: Path, special: list[str]) -> HuggingFaceTokenizer:
    """Pairs of bytes, merged in lower case; the last one of a word is marked.

    The `special` tokens are found in texts before words are, what fills texts, too.
    """
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    for path in (vocabulary, merges):
        if not is_there(path):
            raise LoadError(f"{folder}: no tokenizer.json in it, and no {path.name}")
    names = read_json(vocabulary)
    lines = read_bytes(merges).decode("utf-8", "replace").splitlines()
    pairs = []
    for line in lines:
        first, _, second = line.strip().partition(" ")
        if second and not line.startswith("#version"):
            pairs.append((first, second))
    with library_errors(merges):
        inner = tokenizers.Tokenizer(
            models.BPE(
                names,
                pairs,
                continuing_subword_prefix="",
                end_of_word_suffix="</w>",
                unk_token=_END,
            )
        )
        inner.normalizer = normalizers.Sequence(
            [
                normalizers.NFC(),
                normalizers.Replace(tokenizers.Regex(r"\s+"), " "),
                normalizers.Lowercase(),
            ]
        )
        inner.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(_WORDS), "removed", invert=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        inner.add_special_tokens([name for name in special if name in names])
    return HuggingFaceTokenizer(inner, None, frozenset(), merges)


def _content(settings: Fields, key: str, default: str) -> str:
    """A token's text; old files have an object with settings around it."""
    if isinstance(settings.values.get(key), dict):
        return settings.section(key).text("content", default)
    return settings.text(key, default)
