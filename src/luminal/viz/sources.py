"""Where values come from, as tables of the document: files with their lines, modules."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from luminal.base.lines import Recorded, printable
from luminal.base.origins import module_of

CONTEXT = 2  # lines that are shown around one
WIDEST = 200  # characters of a line that are shown


class Sources:
    """The files and modules that were mentioned so far."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, dict[int, None]]] = {}  # by name: number, lines
        self._modules: dict[str, int] = {"": 0}  # by path
        self._classes = [""]

    def columns(self, recorded: Sequence[Recorded | None]) -> dict[str, Any]:
        """The module, file, line and call of each, as columns."""
        places = [self.place(r) for r in recorded]
        return {
            "module": [-1 if r is None else self._module(r) for r in recorded],
            "file": [file for file, _ in places],
            "line": [line for _, line in places],
            "call": ["" if r is None else ("gradient of " * r.is_gradient) + r.call
                     for r in recorded],
        }  # fmt: skip

    def place(self, recorded: Recorded | None) -> tuple[int, int]:
        """The number of the file, and that of the line; -1 and 0 where none is known."""
        if recorded is None or not recorded.line.file:
            return -1, 0
        name, number = recorded.line.file, recorded.line.number
        file, lines = self._files.setdefault(name, (len(self._files), {}))
        lines[number] = None
        return file, number

    def lines(self, recorded: Iterable[Recorded]) -> list[tuple[int, int]]:
        """The different lines of some origins, as (file, line)."""
        places = dict.fromkeys(self.place(r) for r in recorded)
        return sorted(place for place in places if place[0] >= 0)

    def _module(self, recorded: Recorded) -> int:
        """The number of a module; those around it get numbers too."""
        path, kind = module_of(recorded)
        if path not in self._modules:
            parts = path.split(".")
            for count in range(1, len(parts) + 1):
                outer = ".".join(parts[:count])
                if outer not in self._modules:
                    self._modules[outer] = len(self._modules)
                    self._classes.append("")
        number = self._modules[path]
        self._classes[number] = self._classes[number] or kind
        return number

    def facts(self) -> dict[str, Any]:
        """The tables: `files` with the texts of lines, `modules` with their classes."""
        files = [
            {"path": _shown(name), "lines": _texts(name, lines)}
            for name, (_, lines) in self._files.items()
        ]
        pairs = zip(self._modules, self._classes, strict=True)
        modules = [{"path": path, "class": kind} for path, kind in pairs]
        return {"files": files, "modules": modules}


def _shown(name: str) -> str:
    """A file as it is called on the page: from the current folder, or by its last parts."""
    path = Path(name)
    try:
        return printable(str(path.relative_to(Path.cwd())))
    except ValueError:
        return printable(str(Path(*path.parts[-2:])))


def _texts(name: str, numbers: Iterable[int]) -> dict[str, str]:
    wanted = {n + k for n in numbers for k in range(-CONTEXT, CONTEXT + 1) if n + k > 0}
    texts = ((n, linecache.getline(name, n).rstrip("\n")) for n in sorted(wanted))
    return {str(n): text[:WIDEST] for n, text in texts if text or n in numbers}
