"""The fields of a JSON request, each read with its rule. A field that nothing reads is an error."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from luminal.loaders.shown import shown
from luminal.serve.errors import ApiError, refused


def parse(body: bytes) -> Fields:
    """The object in a body. Raises ApiError where it holds anything else, or RecursionError."""
    try:
        value = decoded(body.decode())
    except UnicodeEncodeError:
        raise ApiError(
            400, "body: a text has half a surrogate pair, which is no character"
        ) from None
    except ValueError as error:
        raise ApiError(400, f"body: it is not JSON: {shown(error)}") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"body: {shown(value)} is no JSON object")
    return Fields(value)


def decoded(text: str) -> Any:
    """JSON whose texts, keys too, can be written as UTF-8. Raises ValueError or RecursionError."""
    value = json.loads(text, parse_constant=_no_number)
    # Only an escape can bring half of a surrogate pair: the body itself was UTF-8. So most bodies
    # are not written a second time.
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


class Fields:
    """A JSON object's fields; null is as good as left out. `path` stands before their names."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values, self._path = values, path
        self._read: set[str] = set()

    def name(self, field: str) -> str:
        """What errors call a field."""
        return self._path + field

    @property
    def names(self) -> list[str]:
        """The names of all fields that are there."""
        return list(self._values)

    def get(self, field: str) -> Any:
        """The value, unchecked; None if there is none."""
        self._read.add(field)
        return self._values.get(field)

    def needed(self, field: str) -> Any:
        """The value, unchecked. Raises ApiError if there is none."""
        value = self.get(field)
        if value is None:
            raise ApiError(400, f"{self.name(field)}: it is missing", self.name(field), "missing")
        return value

    def flag(self, field: str, default: bool = False) -> bool:
        """A field that is true or false."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise refused(self.name(field), f"{shown(value)} is not true or false")
        return value

    def integer(self, field: str, low: int, high: int, default: Any = None) -> Any:
        """An integer of low .. high."""
        value = self.get(field)
        if value is None:
            return default
        # JSON has one kind of number, and some clients send 16.0 for 16.
        if type(value) is float and value.is_integer():
            value = int(value)
        # `type`, not isinstance: true is an int to Python, but no number in JSON.
        if type(value) is not int or not low <= value <= high:
            raise refused(self.name(field), f"{shown(value)} is no integer of {low} .. {high}")
        return value

    def number(self, field: str, low: float, high: float, default: float) -> float:
        """A number of low .. high."""
        value = self.get(field)
        if value is None:
            return default
        if type(value) not in (int, float) or not low <= value <= high or math.isnan(value):
            raise refused(self.name(field), f"{shown(value)} is no number of {low:g} .. {high:g}")
        return float(value)

    def text(self, field: str) -> str | None:
        """A field that is a text."""
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, str):
            raise refused(self.name(field), f"{shown(value)} is no text")
        return value

    def choice(self, field: str, allowed: Iterable[str], default: str) -> str:
        """One of a few words."""
        value = self.get(field)
        if value is None:
            return default
        words = tuple(allowed)
        if value not in words:
            raise refused(
                self.name(field), f"{shown(value)} is not one of {', '.join(map(repr, words))}"
            )
        return str(value)

    def object(self, field: str) -> Fields | None:
        """An object, as fields of its own."""
        value = self.get(field)
        return None if value is None else object_of(value, self.name(field))

    def objects(self, field: str, most: int) -> list[Fields]:
        """A list of at most so many objects; none if it is left out."""
        value = self.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > most:
            raise refused(self.name(field), f"{shown(value)} is no list of at most {most} objects")
        return [object_of(item, f"{self.name(field)}[{k}]") for k, item in enumerate(value)]

    def ignore(self, *fields: str) -> None:
        """Fields that change no answer."""
        self._read.update(fields)

    def end(self) -> None:
        """Raises ApiError if there is a field that was not read."""
        for field, value in self._values.items():
            # A misspelt option that is silently left aside gives other texts than were asked for,
            # and nobody notices.
            if field not in self._read and value is not None:
                name = shown(self.name(field))
                raise ApiError(400, f"{name}: there is no such field here", name, "unknown_field")


def object_of(value: Any, name: str) -> Fields:
    """An object's fields, named after `name`."""
    if not isinstance(value, dict):
        raise refused(name, f"{shown(value)} is no object")
    return Fields(value, f"{name}.")
