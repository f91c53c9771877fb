"""What a text must match, token by token: a JSON schema or a regular expression, by llguidance."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.base import installation
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.sampling import words_of


class ConstraintError(InputError):
    """A constraint that makes no sense, is too large, or that no text can match."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar of llguidance; `what` it is, for messages."""

    what: str
    grammar: str

    def matcher(self, tokenizer: Tokenizer, vocab_size: int) -> GrammarMatcher:
        """For one text of a model with so many tokens. Raises ConstraintError."""
        matcher = _llguidance().LLMatcher(token_table(tokenizer), self.grammar, log_level=0)
        return GrammarMatcher(self.what, matcher, vocab_size)


def json_schema(schema: Mapping[str, Any] | bool | str) -> Constraint:
    """JSON that a schema allows, without white space that it need not have; `{}` allows any JSON.

    Raises ConstraintError for what is no JSON or no schema.
    """
    try:
        value = json.loads(schema) if isinstance(schema, str) else schema
        text = json.dumps({} if value is True else value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConstraintError(f"json_schema: it is no JSON: {error}") from None
    options = {"whitespace_flexible": False}  # white space has no end
    try:
        grammar = _llguidance().LLMatcher.grammar_from_json_schema(text, overrides=options)
    except ValueError as error:
        raise ConstraintError(f"json_schema: it is no schema: {_first_line(error)}") from None
    return Constraint("json_schema", grammar)


def regex(pattern: str) -> Constraint:
    """All of a text matches `pattern`, in the syntax of Rust's regex, without look-around."""
    if not isinstance(pattern, str):
        raise ConstraintError(f"regex: {pattern!r} is no pattern; give a str")
    return Constraint("regex", _llguidance().LLMatcher.grammar_from_regex(pattern))


class GrammarMatcher:
    """Follows one text; see `luminal.models.text.Matcher`. Raises ConstraintError, at once or late:
    what a grammar takes of time and memory shows only when it is followed.
    """

    def __init__(self, what: str, matcher: Any, vocab_size: int) -> None:
        self._what, self._matcher, self._bytes = what, matcher, 4 * words_of(vocab_size)
        self._check()
        # Asked once before the first token: a grammar that nothing matches is stopped at once, and
        # only this call finds out.
        matcher.compute_bitmask()
        if self.complete and not matcher.is_accepting():
            raise ConstraintError(f"{what}: no text matches it: {_first_line(matcher.get_error())}")

    def copy(self) -> GrammarMatcher:
        """One for another text, as far as this one is: what is known of the grammar is shared."""
        # Compiling a grammar takes much longer than copying one, and n texts of a request have the
        # same.
        copied = GrammarMatcher.__new__(GrammarMatcher)
        copied._what, copied._matcher, copied._bytes = (
            self._what,
            self._matcher.deep_copy(),
            self._bytes,
        )
        return copied

    def allowed(self) -> Array:
        """A bit for every token id, uint32 (ceil(vocab_size / 32),)."""
        bits = self._matcher.compute_bitmask()[: self._bytes]
        self._check()
        # A model's vocabulary may be padded beyond its tokenizer's: these ids are allowed by none.
        return np.frombuffer(bits.ljust(self._bytes, b"\0"), np.uint32)

    def accept(self, token: int) -> None:
        """Takes the token that came."""
        if not self._matcher.consume_token(token):
            raise ConstraintError(
                f"{self._what}: no tokens of the model spell what must come next, or it is too "
                f"large: {_first_line(self._matcher.get_error())}"
            )

    def ahead(self, tokens: Sequence[int]) -> list[Array]:
        """See `ForesightMatcher`: a copy takes the tokens."""
        masks: list[Array] = []
        copy = self.copy()
        for token in tokens[: copy._matcher.validate_tokens([*tokens])]:
            copy.accept(token)
            if copy.complete:
                break
            masks.append(copy.allowed())
        return masks

    @property
    def complete(self) -> bool:
        """Can nothing but an end token come?"""
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintError(f"{self._what}: {_first_line(self._matcher.get_error())}")


def _first_line(error: Any) -> str:
    """What is wrong, without the library's own state."""
    return str(error).strip().partition("\n")[0]


_tables: weakref.WeakKeyDictionary[Tokenizer, Any] = weakref.WeakKeyDictionary()


def token_table(tokenizer: Tokenizer) -> Any:
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
            f"constraint: it needs llguidance; {installation.hint('constrain')}"
        ) from None
    return llguidance
