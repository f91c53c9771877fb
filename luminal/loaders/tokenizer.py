"""What every tokenizer offers, the streaming decoder, and tokenizers in `tokenizer.json` files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import tokenizers

from luminal.errors import LoadError
from luminal.loaders.json_file import read_json

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what decode shows for the bytes of half a character


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def bos_id(self) -> int | None:
        """The id that begins a text, where the model has one."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids at which generation stops."""

    @property
    def vocab_size(self) -> int:
        """Ids are below this."""

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, with the BOS in front where the model was trained with one."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens have none, half characters give U+FFFD."""


class StreamDecoder:
    """Decodes ids as they come; hands out whole UTF-8 characters only.

    The pieces joined equal the text that the ids add to that of `prompt`. Only the ids since the
    last piece, and those of that piece, are decoded again at each step.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._context = list(prompt)  # ids whose text has been given out: they decide on spaces
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        """The text that is complete with this id; "" where a character is still unfinished."""
        self._pending.append(token)
        text = self._pending_text()
        if not text or text.endswith(_REPLACEMENT):
            return ""
        self._context, self._pending = self._pending, []
        return text

    def finish(self) -> str:
        """What is left at the end: an unfinished character, as U+FFFD."""
        text = self._pending_text()
        self._context, self._pending = self._pending, []
        return text

    def _pending_text(self) -> str:
        before = self._tokenizer.decode(self._context)
        return self._tokenizer.decode(self._context + self._pending)[len(before) :]


class HuggingFaceTokenizer:
    """A tokenizer of the `tokenizers` library."""

    def __init__(
        self, inner: tokenizers.Tokenizer, bos_id: int | None, eos_ids: frozenset[int]
    ) -> None:
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        # The library's own skip_special_tokens misses special tokens marked "normalized".
        added = inner.get_added_tokens_decoder()
        self._special = frozenset(index for index, token in added.items() if token.special)
        self.bos_id = bos_id
        self.eos_ids = eos_ids
        self.vocab_size: int = inner.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """See Tokenizer.encode; the file's post-processor adds the BOS."""
        ids: list[int] = self._inner.encode(text).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See Tokenizer.decode."""
        text: str = self._inner.decode([i for i in ids if i not in self._special])
        return text


def read_tokenizer_json(path: Path) -> HuggingFaceTokenizer:
    """The tokenizer of a `tokenizer.json`; the files beside it say what begins and ends a text."""
    read_json(path)  # the library's own message for a missing or broken file names no file
    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise LoadError(f"{path}: not a tokenizer the tokenizers library reads: {error}") from error
    sources = [
        read_json(path.parent / name)
        for name in ("generation_config.json", "config.json", "tokenizer_config.json")
        if (path.parent / name).is_file()
    ]
    bos = _special_ids("bos", sources, inner)
    return HuggingFaceTokenizer(
        inner, bos_id=min(bos, default=None), eos_ids=_special_ids("eos", sources, inner)
    )


def _special_ids(
    role: str, sources: list[dict[str, Any]], inner: tokenizers.Tokenizer
) -> frozenset[int]:
    """The first answer among the files: an id or a list of ids, or in the last one a text."""
    for source in sources:
        ids = source.get(f"{role}_token_id")
        if type(ids) is int:
            return frozenset([ids])
        if isinstance(ids, list) and ids:
            return frozenset(ids)
        token = source.get(f"{role}_token")
        text = token.get("content") if isinstance(token, dict) else token
        number = inner.token_to_id(text) if isinstance(text, str) else None
        if number is not None:
            return frozenset([number])
    return frozenset()
