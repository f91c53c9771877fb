"""Dataclasses from TOML: every key is one that is known, every value of its type."""

from __future__ import annotations

import difflib
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

from luminal.base.errors import InputError
from luminal.loaders.mapped import given_path
from luminal.loaders.shown import shown

T = TypeVar("T")


def read_settings(path: str | Path, kind: type[T]) -> T:
    """The dataclass `kind` from a TOML file; its fields that are dataclasses are tables.

    A value may be an int, float, str, bool, a dataclass, or None by default. Raises InputError that
    names the key and the rule, for unknown keys also the nearest known one.
    """
    place = given_path(path)
    try:
        table = tomllib.loads(place.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # of TOML or UTF-8
        raise InputError(f"{place}: not TOML: {shown(error)}") from error
    return settings_of(table, kind, str(place))


def settings_of(table: Mapping[str, Any], kind: type[T], where: str) -> T:
    """The dataclass from a table; `where` names it in messages."""
    assert is_dataclass(kind)
    by_name = {field.name: field for field in fields(kind)}
    for key in table:
        if key not in by_name:
            near = difflib.get_close_matches(key, by_name, 1, 0.5)
            fix = f"did you mean {near[0]!r}" if near else f"known are {', '.join(by_name)}"
            raise InputError(f"{where}: no setting {key!r}; {fix}")
    types = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, field in by_name.items():
        if name in table:
            values[name] = _value(table[name], types[name], f"{where}: {name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise InputError(f"{where}: {name} is missing; give it a value")
    settings: T = kind(**values)
    return settings


def _value(value: Any, kind: Any, where: str) -> Any:
    if isinstance(kind, UnionType):  # of a type and None, which TOML does not have
        (kind,) = (
            alternative for alternative in typing.get_args(kind) if alternative is not type(None)
        )
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise InputError(f"{where} is {shown(value)}; it must be a table")
        return settings_of(value, kind, where)
    # TOML has a type for 1 and another one for 1.0; who writes a rate of 1 means the latter.
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise InputError(f"{where} is {shown(value)}; it must be of type {kind.__name__}")
    return value
