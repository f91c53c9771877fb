"""Examples of public names, which the reference shows: `python -m manual.examples` runs them.

A file `NAME.txt` here holds those of the module (or the class) of that name. Each stands under a
heading `## name`: lines of Python, of which the last is an expression, then what it gives behind
`# ` (on the same line where that fits). `...` stands there for any text; behind digits it stands
for more of them, where the last that is shown may differ by one from machine to machine. The names
in `IMPORTS` are known. A test runs all, and asks PyTorch, or NumPy's array API, the same where they
have the same name; `--write` puts what they give now in the place of what they say.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

IMPORTS = """\
import numpy as np

import luminal as lm
from luminal import array_api as xp
from luminal import nn, optim, training
from luminal.nn import functional as F
"""
"""What every example may use."""

NEEDED = {"luminal.onnx": "onnx", "luminal.torch_backend": "torch"}
"""By module the package without which it cannot be imported."""

CUT, NUMBER = r"(-?\d+\.\d+\.\.\.)", r"(-?\d+\.\d+(?:e-?\d+)?)"
"""A number of which only some digits are shown, and one as Python writes it."""

LINE = 100
"""Columns of a line that a result may share with its expression."""


@dataclass(frozen=True)
class Example:
    """What is typed at an entry of the reference, and what it gives."""

    module: str
    name: str
    code: str
    result: str

    def __str__(self) -> str:
        beside = f"{self.code}  # {self.result}"
        last = beside.rpartition("\n")[2]
        return beside if len(last) <= LINE else f"{self.code}\n# {self.result}"

    def given(self, names: Mapping[str, Any]) -> Any:
        """What the last line gives, where the names mean this."""
        *statements, last = ast.parse(self.code).body
        assert isinstance(last, ast.Expr), f"{self.name}: {self.code!r} ends with no expression"
        known = dict(names)
        exec(compile(ast.Module(statements, []), self.name, "exec"), known)
        return eval(compile(ast.Expression(last.value), self.name, "eval"), known)

    def agrees(self, shown: str) -> bool:
        """Whether the result is this text, but for what `...` stands for."""
        cut = [part for part in re.split(CUT, self.result) if part]
        pattern = "".join(NUMBER if re.match(CUT, p) else re.escape(p) for p in cut)
        found = re.fullmatch(pattern.replace(r"\.\.\.", ".*"), shown, re.DOTALL)
        if found is None:
            return False
        told = [part.removesuffix("...") for part in cut if re.match(CUT, part)]
        return all(
            abs(float(number) - float(text)) <= 1.5 * 10.0 ** -len(text.partition(".")[2])
            for number, text in zip(found.groups(), told, strict=True)
        )


@cache
def read(module: str) -> dict[str, Example]:
    """The examples of a module, by name."""
    path = FOLDER / f"{module}.txt"
    if not path.exists():
        return {}
    parts = re.split(r"^## (\S+)\n", path.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {
        name: _parsed(module, name, text)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _parsed(module: str, name: str, text: str) -> Example:
    code, mark, result = text.strip().rpartition("# ")
    return (
        Example(module, name, code.strip(), result)
        if mark
        else Example(module, name, text.strip(), "")
    )


def modules() -> list[str]:
    """Those that have examples."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def known() -> dict[str, Any]:
    """The names of `IMPORTS`."""
    names: dict[str, Any] = {}
    exec(IMPORTS, names)
    return names


def write(module: str) -> None:
    """The file of a module, with what its examples give now where that is something else."""
    names = known()
    rows = []
    for example in read(module).values():
        shown = repr(example.given(names))
        now = example if example.agrees(shown) else replace(example, result=shortened(shown))
        rows.append(f"## {example.name}\n{now}\n")
    (FOLDER / f"{module}.txt").write_text("\n".join(rows), "utf-8")


def shortened(shown: str) -> str:
    """Numbers of many digits end with `...`: the last ones differ from machine to machine."""
    return re.sub(r"(\d\.\d{4})\d{4,}(e[+-]\d+)?", r"\1...", shown)
