"""What a text must match, token by token: a JSON schema or a regular expression, by llguidance."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from luminal.errors import InputError
from luminal.frontend.handle import Array
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.sampling import words_of


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar of llguidance; `what` it is, for messages."""

    what: str
    grammar: str

    def matcher(self, tokenizer: Tokenizer, vocab_size: int) -> GrammarMatcher:
        """For one text of a model with so many tokens. Raises InputError for a wrong grammar."""
        table = _table(tokenizer)
        matcher = _llguidance().LLMatcher(table, self.grammar, log_level=0)
        if matcher.is_error():
            raise InputError(f"{self.what}: {matcher.get_error().strip()}")
        return GrammarMatcher(matcher, vocab_size)


def json_schema(schema: Mapping[str, Any] | str) -> Constraint:
    """JSON that a schema allows, without white space that it need not have; `{}` allows any JSON.

    Raises InputError for what is no JSON.
    """
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        json.loads(text)
    except (TypeError, ValueError) as error:
        raise InputError(f"json_schema: it is no JSON: {error}") from None
    options = {"whitespace_flexible": False}  # white space has no end
    grammar = _llguidance().LLMatcher.grammar_from_json_schema(text, overrides=options)
    return Constraint("json_schema", grammar)


def regex(pattern: str) -> Constraint:
    """All of a text matches `pattern`, in the syntax of Rust's regex, without look-around."""
    if not isinstance(pattern, str):
        raise InputError(f"regex: {pattern!r} is no pattern; give a str")
    return Constraint("regex", _llguidance().LLMatcher.grammar_from_regex(pattern))


class GrammarMatcher:
    """Follows one text; see `luminal.models.text.Matcher`."""

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher, self._bytes = matcher, 4 * words_of(vocab_size)

    def allowed(self) -> Array:
        """A bit for every token id, uint32 (ceil(vocab_size / 32),)."""
        bits = self._matcher.compute_bitmask()[: self._bytes]
        return np.frombuffer(bits.ljust(self._bytes, b"\0"), np.uint32)

    def accept(self, token: int) -> None:
        """Takes the token that came. Raises InputError where none could fit."""
        if not self._matcher.consume_token(token):
            raise InputError("constraint: no tokens of the model spell what must come next")

    @property
    def complete(self) -> bool:
        """Can nothing but an end token come?"""
        return bool(self._matcher.is_stopped())


_tables: weakref.WeakKeyDictionary[Tokenizer, Any] = weakref.WeakKeyDictionary()


def _table(tokenizer: Tokenizer) -> Any:
    """The bytes of every token, which take about a second to find: once for each tokenizer."""
    if tokenizer not in _tables:
        if not tokenizer.eos_ids:
            raise InputError("constraint: the tokenizer has no token that ends a text")
        try:
            _tables[tokenizer] = _llguidance().LLTokenizer(
                tokenizer.to_json(), eos_token=sorted(tokenizer.eos_ids)
            )
        except ValueError as error:
            raise InputError(f"constraint: the tokenizer does not fit: {error}") from None
    return _tables[tokenizer]


def _llguidance() -> Any:
    """The library, which is optional."""
    try:
        import llguidance
    except ImportError:
        raise InputError(
            "constraint: it needs llguidance; pip install 'luminal[constrain]'"
        ) from None
    return llguidance
