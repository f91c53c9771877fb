"""JSON that holds one object or list, from a file or from a part of one."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

from luminal.base.errors import LoadError
from luminal.loaders.mapped import open_file
from luminal.loaders.shown import shown

MAX_BYTES = 100_000_000
"""Three times the largest tokenizer.json."""

T = TypeVar("T")


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`. Raises LoadError where it cannot be read or holds something else."""
    return parse_object(read_bytes(path), str(path))


def read_json_list(path: Path) -> list[Any]:
    """The list in `path`. Raises LoadError where it cannot be read or holds something else."""
    return _parsed(read_bytes(path), str(path), list, "a list")


def read_bytes(path: Path) -> bytes:
    """What is in a file of JSON. Raises LoadError where it cannot be read, or is far too long."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise LoadError(f"{path}: more than {MAX_BYTES} bytes; the file is damaged")
        try:
            # Bounded once more: a file may grow after its size was asked for.
            return file.read(MAX_BYTES)
        except OSError as error:
            raise LoadError(f"{path}: cannot be read: {error.strerror}") from error


def parse_object(data: bytes, what: str, *, unique: bool = False) -> dict[str, Any]:
    """The object in `data`. Raises LoadError, which names `what`, where it holds something else.

    Where keys must be `unique`, also if an object has one twice.
    """

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            twice = next(
                key for key, count in Counter(key for key, _ in pairs).items() if count > 1
            )
            raise LoadError(f"{what}: has {shown(twice)} twice; the file is damaged")
        return members

    return _parsed(data, what, dict, "an object", checked if unique else None)


def _parsed(data: bytes, what: str, kind: type[T], words: str, hook: Any = None) -> T:
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=hook)
    except ValueError as error:
        raise LoadError(f"{what}: not JSON: {shown(error)}") from error
    except RecursionError:  # its values would be too deep for whatever looks at them
        raise LoadError(f"{what}: not JSON of a model: lists or objects nest too deeply") from None
    if not isinstance(value, kind):
        raise LoadError(f"{what}: holds a JSON {type(value).__name__}, it must hold {words}")
    return value
