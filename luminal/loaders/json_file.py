"""JSON files that hold one object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from luminal.errors import LoadError


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`. Raises LoadError where it cannot be read or holds something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise LoadError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise LoadError(f"{path}: holds a JSON {type(value).__name__}, it must hold an object")
    return value
