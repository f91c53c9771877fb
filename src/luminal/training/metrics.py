"""The numbers of a run, one JSON object a line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.base.errors import InputError
from luminal.loaders.mapped import given_path
from luminal.loaders.write_atomic import replacing

Row = dict[str, Any]


class MetricsLog:
    """A file of metrics. A run that goes on from a step keeps its rows up to that step.

    Numbers that JSON does not have are null. `rows` are those in the file, newest last.
    """

    def __init__(self, path: str | Path, after: int = 0) -> None:
        self.path = given_path(path)
        self.rows = [row for row in _rows_of(self.path) if row["step"] <= after] if after else []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as file:
                file.writelines(_line(row) for row in self.rows)
            # Without a buffer a row is in the file once it is added, however the process ends.
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from error

    def add(self, row: Mapping[str, Any]) -> None:
        """Appends a row, at once."""
        self.rows.append(dict(row))
        self._file.write(_line(row))

    def close(self) -> None:
        """Closes the file of metrics."""
        self._file.close()


def _line(row: Mapping[str, Any]) -> bytes:
    numbers = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }
    return json.dumps(numbers).encode() + b"\n"


def _rows_of(path: Path) -> list[Row]:
    """The whole rows of a log; a process that was killed may have left half a line."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows
