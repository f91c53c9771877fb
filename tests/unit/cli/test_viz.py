"""`luminal viz` of the models that people have: whole ones, and packed ones as they lie."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from luminal.cli import main
from luminal.models import SHIPPED

pytestmark = pytest.mark.long


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["luminal", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code


@pytest.mark.parametrize("kind", [None, "q8_0"])
def test_the_page_of_a_model(
    kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, page = str(SHIPPED), tmp_path / "page.html"
    if kind is not None:
        target = str(tmp_path / "packed")
        run(monkeypatch, "quantize", str(SHIPPED), target, "--type", kind)
    run(monkeypatch, "viz", target, "--no-profile", "--export", str(page))
    found = re.search(r'id="document">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert found is not None
    document = json.loads(found[1])
    assert document["title"] == f"{target}, decode"
    assert document["launches"]
    weights = {buffer["name"] for buffer in document["memory"]["buffers"]}
    assert ("model.embed_tokens.weight.words" in weights) is (kind is not None)
    assert ("model.embed_tokens.weight" in weights) is (kind is None)
