"""Values that a file gives by key, each checked for its type and range when it is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.loaders.shown import shown

MAX_SIZE = 2**31 - 1
"""Positions and token ids are 32-bit integers."""


MOST = 1e30
"""Of numbers: they become 32-bit floats."""


class _Needed:
    """The default of a key that must be there."""


NEEDED: Final = _Needed()

T = TypeVar("T")


@contextmanager
def naming(path: object) -> Iterator[None]:
    """LoadErrors of what is inside name the file; those that do so already stay."""
    try:
        yield
    except LoadError as error:
        if str(path) in str(error):
            raise
        raise LoadError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class Fields:
    """The values; `what` is the thing they are part of, for messages. null counts as no value.

    Every method raises LoadError for a key that is missing and has no default, and for a value of
    another type or outside its range.
    """

    values: Mapping[str, Any]
    path: Path
    what: str = "the configuration"

    def integer(
        self, key: str, default: int | _Needed = NEEDED, least: int = 1, most: int = MAX_SIZE
    ) -> int:
        """An integer from `least` to `most`; sizes, positions and ids all fit 31 bits."""
        value = self._value(key, default)
        # Not `isinstance`: Python's bool is an int, and JSON's true is no number of anything.
        if type(value) is not int:
            raise self._wrong(key, value, "an integer")
        if value < least:
            raise LoadError(f"{self.path}: {key} is {value}, it must be at least {least}")
        if value > most:
            raise LoadError(f"{self.path}: {key} is {shown(value)}, it must be at most {most}")
        return value

    def number(
        self, key: str, default: float | _Needed = NEEDED, least: float = 0, most: float = MOST
    ) -> float:
        """A number from `least` to `most`, above 0."""
        value = self._value(key, default)
        # Python's reader of JSON takes the word NaN, which fails every comparison and so ends here
        # too.
        if type(value) not in (int, float) or not least <= value <= most or value == 0:
            raise self._wrong(key, value, f"a number above 0, from {least:g} to {most:g}")
        return float(value)

    def number_or_none(self, key: str, missing: float | None = None) -> float | None:
        """A number above 0, where there is one; `missing` where there is not even a null."""
        value = self.values.get(key, missing)
        return None if value is None else self.number(key, missing or NEEDED)

    def flag(self, key: str, default: bool) -> bool:
        """True or false; null is false, as for whoever only asks whether it is true."""
        if self.values.get(key, default) is None:
            return False
        return self._typed(key, default, bool, "true or false")

    def text(self, key: str, default: str) -> str:
        """A setting that must be a string."""
        return self._typed(key, default, str, "a string")

    def listed(self, key: str, kind: type[T], default: list[T] | _Needed = NEEDED) -> list[T]:
        """A list of values of one type."""
        value = self._value(key, default)
        if not isinstance(value, list):
            raise self._wrong(key, value, "a list")
        for item in value:
            if type(item) is not kind:
                raise self._wrong(key, item, f"a list of {kind.__name__}", "holds")
        return value

    def section(self, key: str) -> Fields:
        """The values in an object; none where it is missing."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object")
        return Fields(value or {}, self.path, key)

    def __bool__(self) -> bool:
        return bool(self.values)

    def id_or_none(self, key: str, count: int) -> int | None:
        """The id of one of `count` tokens."""
        if self.values.get(key) is None:
            return None
        value = self.integer(key, least=0)
        if value >= count:
            raise LoadError(f"{self.path}: {key} is {value}; the vocabulary has {count} tokens")
        return value

    def token_id(self, key: str, count: int) -> int:
        """The id of one of `count` tokens, which must be given."""
        self._value(key, NEEDED)
        token = self.id_or_none(key, count)
        assert token is not None
        return token

    def _typed(self, key: str, default: T, kind: type[T], words: str) -> T:
        value = self._value(key, default)
        if type(value) is not kind:
            raise self._wrong(key, value, words)
        return value

    def _value(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is NEEDED:
            raise LoadError(f"{self.path}: {self.what} has no {key!r}")
        return default

    def _wrong(self, key: str, value: Any, words: str, verb: str = "is") -> LoadError:
        return LoadError(f"{self.path}: {key} {verb} {shown(value)}, it must be {words}")
