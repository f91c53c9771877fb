"""Texts and pairs of texts as a model was trained on them: framed, cut, and numbered by text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from luminal.base.errors import InputError
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import HuggingFaceTokenizer, library_errors


class Prepared(NamedTuple):
    """A text, or a pair: ids, of which text each is by the model's own numbers, and for the ids
    that are a text's the characters (begin, end) that they stand for; None for those that frame.
    `second`: whether an id is of the second text.
    """

    ids: list[int]
    segments: list[int]
    places: list[tuple[int, int] | None]
    second: list[bool]


class TextPairs:
    """Texts are cut to `most` ids: of a pair what is longer, or with `only_second` the second text
    alone, whose rest then follows in further windows that overlap by a quarter. `path`: the file of
    the tokenizer, for messages.
    """

    def __init__(
        self, tokenizer: HuggingFaceTokenizer, path: Path, most: int, only_second: bool = False
    ) -> None:
        self._path, self._most = path, most
        # A copy: what it cuts is no business of others who encode with the same tokenizer.
        with library_errors(self._path):
            self._inner = tokenizers.Tokenizer.from_str(tokenizer.to_json())
            self._framed = self._inner.num_special_tokens_to_add(True)
            self._frame = self._inner.num_special_tokens_to_add(False)
        self._strategy = "only_second" if only_second else "longest_first"

    def __call__(self, what: str, text: str, pair: str | None = None) -> list[Prepared]:
        """The windows of a text or pair, of which there is one but for `only_second`.

        Raises InputError, which names `what`, for what is no text or has no tokens.
        """
        for part in (text,) if pair is None else (text, pair):
            if not isinstance(part, str):
                raise InputError(f"{what}: {shown(part)} is no text; give strings")
            try:
                part.encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"{what}: character {error.start} is no text; give UTF-8"
                ) from None
        cuts_second = self._strategy == "only_second" and pair is not None
        room = self._most - (self._frame if pair is None else self._framed)
        if room < (1 if pair is None else 2):
            raise InputError(f"{what}: the model takes {self._most} tokens, too few for texts")
        with library_errors(self._path):
            stride = 0
            if cuts_second:
                first = len(self._inner.encode(text, add_special_tokens=False).ids)
                if first >= room:
                    raise InputError(
                        f"{what}: the first text has {first} tokens, and with the second one there "
                        f"is room for {room}; shorten it"
                    )
                stride = (room - first) // 4
            strategy = self._strategy if pair is not None else "longest_first"
            self._inner.enable_truncation(self._most, stride=stride, strategy=strategy)
            whole = self._inner.encode(text, pair)
        windows = [whole, *(whole.overflowing if cuts_second else ())]
        if not any(number is not None for number in whole.sequence_ids):
            raise InputError(f"{what}: {shown(text)} has no tokens; give some text")
        return [_prepared(window) for window in windows]


def _prepared(encoding: Any) -> Prepared:
    numbers: Sequence[int | None] = encoding.sequence_ids
    places = [
        None if number is None else (int(begin), int(end))
        for number, (begin, end) in zip(numbers, encoding.offsets, strict=True)
    ]
    second = [number == 1 for number in numbers]
    return Prepared([*encoding.ids], [*encoding.type_ids], places, second)
