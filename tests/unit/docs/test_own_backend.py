"""The backend that docs/own_backend.md makes computes what others do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import luminal as lm
from luminal.backends import registry
from luminal.base.errors import CompileError
from manual import examples

PAGE = Path(__file__).resolve().parents[3] / "docs" / "own_backend.md"
LONG = {"luminal.training", "luminal.models"}
"""Modules whose examples train or load a model."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)"),
]


@pytest.fixture(scope="module")
def c99() -> Iterator[str]:
    known = {"__name__": "document"}
    try:
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
            exec(compile(block, PAGE.name, "exec"), known)
        yield "c99"
    finally:
        registry.BACKENDS.pop("c99", None)


def test_examples_of_the_reference_run_on_it(
    c99: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    names, faults, count = examples.known(), [], 0
    with lm.device(c99):
        for module in sorted(set(examples.modules()) - LONG):
            for example in [*examples.read(module).values()][::5]:
                if (shown := given(example, names)) is None:
                    continue
                count += 1
                if not example.agrees(shown):
                    faults.append(f"{module}.{example.name}: {shown}, not {example.result}")
    assert faults == []
    assert count > 90


def given(example: examples.Example, names: dict[str, Any]) -> str | None:
    """What it gives; None of what LAPACK computes, which runs on the host alone."""
    try:
        return repr(example.given(names))
    except CompileError as error:
        if "a Python function, which runs on the host" in str(error):
            return None
        raise
