"""What the outputs of a model without a decoder say: characters, or pieces of text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Protocol

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import HuggingFaceTokenizer
from luminal.models.architectures.settings import refuse

_WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"  # of a piece; SentencePiece writes spaces so


class Said(NamedTuple):
    """A character or piece, its id, and its frames from `start` to before `end`."""

    text: str
    token: int
    start: int
    end: int


class Vocabulary(Protocol):
    """What the ids of a model say."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Into what a text can be divided; "text" is all of it."""

    def said(self, ids: Sequence[int]) -> list[Said]:
        """What the likeliest ids of all frames say, without silence."""

    def divided(self, said: Sequence[Said], parts: str) -> list[list[Said]]:
        """Groups of what is said, of which each is a word or another part."""

    def text(self, said: Sequence[Said]) -> str:
        """The text of a group."""


class Characters(NamedTuple):
    """A text for each id, one of which is `blank`, nothing said.

    `gap` stands between words; `lower`: texts are written in lower case.
    """

    texts: dict[int, str]
    unknown: str
    blank: str
    gap: str
    lower: bool = False

    @classmethod
    def of_folder(cls, folder: Path) -> Characters:
        """By `vocab.json`, `added_tokens.json` and `tokenizer_config.json`. Raises LoadError."""
        path = folder / "vocab.json"
        if not is_there(path):
            raise LoadError(
                f"{folder}: no {path.name} in it; save_pretrained of the model's tokenizer of "
                "transformers writes one"
            )
        settings_path = folder / "tokenizer_config.json"
        values = read_json(settings_path) if is_there(settings_path) else {}
        settings = Fields(values, settings_path)
        if settings.values.get("target_lang") is not None:
            raise LoadError(
                f"{settings_path}: target_lang is {shown(settings.values['target_lang'])}; a "
                "vocabulary of several languages is not supported"
            )
        refuse(settings, replace_word_delimiter_char=" ")
        ids = read_json(path)
        more = folder / "added_tokens.json"
        if is_there(more):
            ids |= read_json(more)
        for text, number in ids.items():
            if type(number) is not int or number < 0:
                raise LoadError(f"{path}: {shown(text)} is {shown(number)}; it must be an id")
        blank = _content(settings, "pad_token", "<pad>")
        if blank not in ids:
            raise LoadError(f"{path}: it lacks {shown(blank)}, which stands for silence")
        return cls(
            {number: text for text, number in ids.items()},
            _content(settings, "unk_token", "<unk>"),
            blank,
            _content(settings, "word_delimiter_token", "|"),
            settings.flag("do_lower_case", False),
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """What a text can be divided into."""
        return "words", "characters", "text"

    def said(self, ids: Sequence[int]) -> list[Said]:
        """The characters in the likeliest ids of all frames."""
        # By texts and not by ids: those that have none of their own are one unknown character.
        runs = _runs([self.texts.get(token, self.unknown) for token in ids], ids)
        return [run for run in runs if run.text != self.blank]

    def divided(self, said: Sequence[Said], parts: str) -> list[list[Said]]:
        """Characters, the gaps between words among them, or words without them."""
        if parts == "characters":
            return [[character] for character in said]
        groups = groupby(said, lambda character: character.text == self.gap)
        return [list(word) for is_gap, word in groups if not is_gap]

    def text(self, said: Sequence[Said]) -> str:
        """The text of characters."""
        text = "".join(" " if character.text == self.gap else character.text for character in said)
        return text.lower() if self.lower else text


class Pieces(NamedTuple):
    """The pieces of a tokenizer of SentencePiece's kind; `blank` is the id of nothing said."""

    tokenizer: HuggingFaceTokenizer
    blank: int

    @property
    def parts(self) -> tuple[str, ...]:
        """What a text can be divided into."""
        return "words", "text"

    def said(self, ids: Sequence[int]) -> list[Said]:
        """The pieces in the likeliest ids of all frames, by their names."""
        runs = _runs([self.tokenizer.name_of(token) for token in ids], ids)
        return [run for run in runs if run.token != self.blank]

    def divided(self, said: Sequence[Said], parts: str) -> list[list[Said]]:
        """Words: a piece begins one where it begins with a space."""
        words: list[list[Said]] = []
        for piece in said:
            if not words or piece.text.startswith(_WORD_START):
                words.append([])
            words[-1].append(piece)
        return [word for word in words if self.text(word)]

    def text(self, said: Sequence[Said]) -> str:
        """The text of pieces, without special tokens."""
        return self.tokenizer.decode([piece.token for piece in said])


def _runs(texts: Sequence[str], ids: Sequence[int]) -> list[Said]:
    """Frames in a row that say the same are one."""
    runs, start = [], 0
    for text, run in groupby(texts):
        end = start + sum(1 for _ in run)
        runs.append(Said(text, ids[start], start, end))
        start = end
    return runs


def _content(settings: Fields, key: str, default: str) -> str:
    """A token's text; old files have an object with settings around it."""
    if isinstance(settings.values.get(key), dict):
        return settings.section(key).text("content", default)
    return settings.text(key, default)
