"""What is said of a program on a mesh: docs/sharding.md shows what its example prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from luminal.distributed import Engine, run_local

PAGE = Path(__file__).parents[2] / "docs" / "sharding.md"


def test_the_page_shows_what_its_example_prints() -> None:
    text = PAGE.read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    shown = re.search(r"```\n(4 ranks.*?)\n```", text, re.DOTALL)
    assert code is not None
    assert shown is not None

    def work(engine: Engine) -> str:
        printed: list[Any] = []
        exec(code[1], {"print": printed.append})
        return str(printed[0])

    assert run_local(4, work) == [shown[1]] * 4
