"""What every tokenizer offers, the streaming decoder, and tokenizers in `tokenizer.json` files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import tokenizers

from luminal.base.errors import InputError, LoadError
from luminal.loaders.fields import MAX_SIZE
from luminal.loaders.given_text import MARK, GivenTexts
from luminal.loaders.growth import check_growth
from luminal.loaders.json_file import parse_object, read_bytes, read_json
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown

SETTINGS = ("generation_config.json", "config.json", "tokenizer_config.json")
"""Files beside a tokenizer.json that name its special tokens, the first answer counts."""

STDERR = 2
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

    def encode(self, text: str, bare: bool = False) -> list[int]:
        """The ids of a prompt, with the BOS in front where the model was trained with one.

        `bare`: the text's own ids only. Raises InputError for half a surrogate pair.
        """

    def marked(self, value: Any) -> Any:
        """A text of others, or dicts and lists of such, for a place inside of a text that is
        encoded: in none of them `encode` finds a special token.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens have none, half characters give U+FFFD."""

    def to_json(self) -> str:
        """The text of a `tokenizer.json`."""

    def name_of(self, token: int) -> str:
        """How the vocabulary spells an id."""


# A token may be half a character, and what an id adds depends on those before it (spaces, merges).
# Decoding all of the text at each token would take time by its square.
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
        text = self._tokenizer.decode(self._context + self._pending)
        if text.startswith(before):
            return text[len(before) :]
        return self._tokenizer.decode(self._pending)  # half a character spoils the bytes before it


# What is wrong with a file has to come out as an error of that file, whatever a library does when
# it meets it.
@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Whatever the tokenizers library says of a file's tokenizer comes out as a LoadError.

    It raises bare Exceptions, and a failed assertion in it (a panic) is no Exception at all.
    """
    try:
        yield
    except (LoadError, RecursionError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise LoadError(
            f"{path}: not a tokenizer the tokenizers library reads: {shown(error)}"
        ) from error


@contextmanager
def panics_unheard() -> Iterator[None]:
    """Keeps what the library prints of a panic off the standard error; all else comes late."""
    try:
        kept = os.dup(STDERR)
    except OSError:  # it is closed
        yield
        return
    with tempfile.TemporaryFile() as aside:
        try:
            os.dup2(aside.fileno(), STDERR)
            yield
        finally:
            os.dup2(kept, STDERR)
            os.close(kept)
        aside.seek(0)
        with suppress(OSError):
            os.write(STDERR, aside.read())


class HuggingFaceTokenizer:
    """A tokenizer of the `tokenizers` library; `path` is the file it is from, for messages."""

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        bos_id: int | None,
        eos_ids: frozenset[int],
        path: Path,
    ) -> None:
        # A file may ask that texts be cut or padded to one length, as in training: no prompt shall
        # be.
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        self._path = path
        # The library's own skip_special_tokens misses special tokens marked "normalized".
        added = inner.get_added_tokens_decoder()
        self._special = frozenset(index for index, token in added.items() if token.special)
        self._given = GivenTexts(inner)
        self.bos_id = bos_id
        self.eos_ids = eos_ids
        self._texts: dict[int, str] = {}  # of ids alone
        # Ids may have gaps, so their count is no bound.
        self.vocab_size = max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        if self.vocab_size == 0:
            raise LoadError(f"{path}: the tokenizer has no tokens; the file is damaged")

    def to_json(self) -> str:
        """The text of a `tokenizer.json`."""
        text: str = self._inner.to_str(pretty=True)
        return text

    def name_of(self, token: int) -> str:
        """The name of a token in the file, empty for an id that it does not name."""
        return self._inner.id_to_token(token) or ""

    def id_of(self, name: str) -> int | None:
        """The id of a token by its name in the file, where it has one."""
        number: int | None = self._inner.token_to_id(name)
        return number

    def encode(self, text: str, bare: bool = False) -> list[int]:
        """See Tokenizer.encode; the file's post-processor adds the BOS."""
        try:
            text.encode()
        except UnicodeEncodeError as error:  # from a command line that is no UTF-8
            raise InputError(
                f"text: character {error.start} is no text ({text[error.start]!a}); give UTF-8"
            ) from None
        with library_errors(self._path):
            if MARK in text:
                ids = self._given.encoded(text, bare)
            else:
                ids = self._inner.encode(text, add_special_tokens=not bare).ids
        if max(ids, default=0) >= self.vocab_size:
            raise LoadError(
                f"{self._path}: a text begins or ends with id {max(ids)}; the vocabulary ends at "
                f"{self.vocab_size - 1}"
            )
        return ids

    def marked(self, value: Any) -> Any:
        """A value with marks where its texts spell special tokens (see Tokenizer.marked)."""
        with library_errors(self._path):
            return self._given.marked(value)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, without special tokens (see Tokenizer.decode)."""
        if len(ids) != 1:
            return self._decoded(ids)
        text = self._texts.get(ids[0])  # streams ask for it with each token
        if text is None:
            text = self._texts[ids[0]] = self._decoded(ids)
        return text

    def _decoded(self, ids: Sequence[int]) -> str:
        with library_errors(self._path):
            text: str = self._inner.decode([i for i in ids if i not in self._special])
        return text


def read_tokenizer_json(path: Path) -> HuggingFaceTokenizer:
    """The tokenizer of a `tokenizer.json`; the files beside it say what begins and ends a text."""
    data = read_bytes(path)
    beside = [place for place in map(path.with_name, SETTINGS) if is_there(place)]
    sources = [(place, read_json(place)) for place in beside]
    with panics_unheard():
        inner = of_settings(data, path, str(path))
        bos, eos = (_special_ids(role, sources, inner) for role in ("bos", "eos"))
        tokenizer = HuggingFaceTokenizer(inner, min(bos, default=None), eos, path)
        tokenizer.encode("")  # what it adds to every text
    return tokenizer


def of_settings(data: bytes, path: Path, what: str) -> tokenizers.Tokenizer:
    """What the library makes of the bytes of a tokenizer.json. Raises LoadError, which names
    `what`, for what is none, and for one that makes texts far longer.
    """
    try:
        with library_errors(path):
            inner = tokenizers.Tokenizer.from_buffer(data)
    except LoadError:
        parse_object(data, what)  # says more of what is no JSON at all
        raise
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        part_of_library = getattr(inner, part)
        if part_of_library is not None:
            # What the library has made of the file, and not what the file says, is what will run.
            check_growth(json.loads(part_of_library.__getstate__()), f"{what}: its {part}")
    return inner


def _special_ids(
    role: str, sources: list[tuple[Path, dict[str, Any]]], inner: tokenizers.Tokenizer
) -> frozenset[int]:
    """The first answer among the files: an id or a list of ids, or in the last one a text."""
    for path, source in sources:
        ids = source.get(f"{role}_token_id")
        listed = ids if isinstance(ids, list) else [] if ids is None else [ids]
        if not all(type(number) is int and 0 <= number <= MAX_SIZE for number in listed):
            raise LoadError(f"{path}: {role}_token_id is {shown(ids)}, it must be an id or several")
        if listed:
            return frozenset(listed)
        token = source.get(f"{role}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if text is not None and not isinstance(text, str):
            raise LoadError(f"{path}: {role}_token is {shown(token)}, it must be a text")
        number = None if text is None else inner.token_to_id(text)
        if number is not None:
            return frozenset([number])
    return frozenset()
