"""What stands in a file, as a short text for a message: one line, whatever it is."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

from luminal.base.errors import LoadError

MAX_LENGTH = 120

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = MAX_LENGTH


def check_name(name: str, path: Path) -> None:
    """Raises LoadError for the name of a tensor that is no text: it could not be printed."""
    if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
        raise LoadError(f"{path}: tensor {shown(name)}: its name is no UTF-8; the file is damaged")


def shown(value: Any) -> str:
    """The value as Python writes it, or an error's text, cut to `MAX_LENGTH`."""
    text = str(value) if isinstance(value, BaseException) else _repr.repr(value)
    line = " ".join(text.split())
    return line if len(line) <= MAX_LENGTH else line[: MAX_LENGTH - 3] + "..."
