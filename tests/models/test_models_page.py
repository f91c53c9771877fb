"""docs/models.md names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from luminal.models.architectures import ARCHITECTURES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/models.md").read_text("utf-8")


def test_every_architecture_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+For\w+|GPT2LMHeadModel)`", PAGE))
    assert named == set(ARCHITECTURES)


def test_the_example_is_the_file() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block == (ROOT / "luminal/models/architectures/olmo2.py").read_text("utf-8")
    assert block.count("\n") < 60
