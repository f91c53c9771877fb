"""What stands in a file, as a short text for a message: one line, whatever it is."""

from __future__ import annotations

import reprlib
from typing import Any

MAX_LENGTH = 120

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = MAX_LENGTH


def shown(value: Any) -> str:
    """The value as Python writes it, or an error's text, cut to `MAX_LENGTH`."""
    text = str(value) if isinstance(value, BaseException) else _repr.repr(value)
    line = " ".join(text.split())
    return line if len(line) <= MAX_LENGTH else line[: MAX_LENGTH - 3] + "..."
