"""What the documents type after `luminal` is a command, with options that it has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from luminal.cli.main import app

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

PYTHON = re.compile(r"^```python.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"^```\w*\n.*?^```|^    .*?$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"(?:^|[\s`/])luminal ([a-z]+)\b([^\n#]*)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_are_as_the_documents_have_them(document: Path) -> None:
    assert wrong(document.read_text("utf-8")) == []


def test_what_is_no_command_is_found() -> None:
    text = "`luminal serve M --api-key K`, `luminal bake x`, `luminal run m.onnx --random`"
    assert wrong(text) == ["luminal serve has no --api-key", "luminal bake is no command"]


def wrong(text: str) -> list[str]:
    """The commands and options in the code of a document that `luminal` does not have."""
    found = []
    for code in CODE.findall(PYTHON.sub("", text)):
        for name, rest in TYPED.findall(code):
            if name not in commands():
                found.append(f"luminal {name} is no command")
                continue
            own = re.split(r" -- |`|\.py | -m ", rest)[0]  # what follows is another program's
            options = re.findall(r"(?<!\S)--[a-z][a-z-]*", own)
            found += [f"luminal {name} has no {each}" for each in options if not has(name, each)]
    return found


def has(name: str, option: str) -> bool:
    """Whether a command, or one below it, has an option."""
    command = commands()[name]
    below = getattr(command, "commands", {"": command}).values()
    return any(option in (*p.opts, *p.secondary_opts) for each in below for p in each.params)


@cache
def commands() -> dict[str, Any]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
