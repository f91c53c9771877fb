"""docs/models.md names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from luminal.models.architectures import records
from luminal.models.families import FAMILIES, family_of
from luminal.models.families.family import Family
from tests.models.tiny_architectures import TINY, VARIANTS

ROOT = Path(__file__).resolve().parents[2]
PAGE_PATH = ROOT / "docs/models.md"
PAGE = PAGE_PATH.read_text("utf-8")


def test_every_architecture_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+For\w+|GPT2LMHeadModel)`", PAGE))
    known = {record.name for record in records()}
    assert known - named == set(), "these records have no row in docs/models.md"
    assert named - known == set(), "docs/models.md names these, which have no record"


def test_every_architecture_is_compared_with_transformers() -> None:
    """By a row for its class; those of RWKV-7 are in a file of their own, and three have the
    decoder of another class.
    """
    compared = {tiny.record for tiny in (TINY | VARIANTS).values()}
    others = {"RWKV7ForCausalLM"}
    others |= {f"{name}ForConditionalGeneration" for name in ("Gemma3n", "Qwen3_5", "Qwen3_5Moe")}
    missing = {record.name for record in records()} - compared - others
    assert missing == set(), "these records have no row in tests/models/tiny_architectures.py"


def test_the_page_names_the_architectures_without_files_in_gguf() -> None:
    (sentence,) = re.findall(r"but for these, whose\s+record(.*?)\.\n", PAGE, re.DOTALL)
    named = set(re.findall(r"`(\w+For\w+)`", sentence))
    without = {record.name for record in records() if record.gguf is None}
    assert without - named == set(), "docs/models.md must name these, whose record has no gguf="
    assert named - without == set(), "docs/models.md names these, whose record has gguf="


def test_every_row_leads_to_what_it_names() -> None:
    for name in FAMILIES:
        assert isinstance(family_of({"architectures": [name]}), Family), name


def test_the_example_is_the_file() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block == (ROOT / "src/luminal/models/architectures/phi.py").read_text("utf-8")
    assert block.count("\n") < 60
