"""docs/models.md names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from luminal.models.architectures import records
from luminal.models.families import FAMILIES, family_of
from luminal.models.families.family import Family

ROOT = Path(__file__).resolve().parents[2]
PAGE_PATH = ROOT / "docs/models.md"
PAGE = PAGE_PATH.read_text("utf-8")


def test_every_architecture_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+For\w+|GPT2LMHeadModel)`", PAGE))
    assert named == {record.name for record in records()}


def test_the_page_names_the_architectures_without_files_in_gguf() -> None:
    (sentence,) = re.findall(r"but for these, whose\s+record(.*?)\.\n", PAGE, re.DOTALL)
    named = set(re.findall(r"`(\w+For\w+)`", sentence))
    assert named == {record.name for record in records() if record.gguf is None}


def test_every_row_leads_to_what_it_names() -> None:
    for name in FAMILIES:
        assert isinstance(family_of({"architectures": [name]}), Family), name


def test_the_example_is_the_file() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block == (ROOT / "src/luminal/models/architectures/phi.py").read_text("utf-8")
    assert block.count("\n") < 60
