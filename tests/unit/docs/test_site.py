"""The site: every public name is in its reference, and it builds without a warning, offline."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import luminal as lm
from luminal import nn
from manual import commands, reference
from tests.serve import browser

ROOT = Path(__file__).resolve().parents[3]


def headings(text: str) -> set[str]:
    return set(re.findall(r"^## (\w+)$", text, re.MULTILINE))


@pytest.fixture(scope="module")
def tensor() -> str:
    return reference.page_of_class("luminal.Tensor", lm.Tensor)


def test_every_method_of_a_tensor_is_there(tensor: str) -> None:
    callables = {name for name, value in vars(lm.Tensor).items() if callable(value)}
    assert {name for name in callables if not name.startswith("_")} <= headings(tensor)


def test_an_entry_says_how_it_is_called_what_it_does_and_where_it_differs(tensor: str) -> None:
    text = tensor.partition("\n## median\n")[2].partition("\n## ")[0]
    assert "luminal.Tensor.median(dim: int | None = None, keepdim: bool = False)" in text
    assert "**Source:** `src/luminal/frontend/" in text
    assert "**Tested against:** `torch." in text
    assert "**Differs:** the lower of two, as PyTorch; NumPy gives their mean" in text


def test_the_menu_has_all_pages() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    named = set(re.findall(r"[\w./-]+\.md", menu)) - {"readme.md"}
    modules = map(reference.path_of, reference.MODULES)
    made = {reference.INDEX, reference.TENSOR, commands.COMMANDS, commands.FLAGS, *modules}
    assert named == made | {path.name for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.long
def test_every_public_name_is_in_the_reference_with_a_text() -> None:
    pages = reference.pages()
    assert set(lm.__all__) - {"__version__"} <= headings(pages["reference/luminal.md"])
    assert set(nn.__all__) <= headings(pages["reference/luminal.nn.md"])
    assert [path for path, text in pages.items() if "*(no text)*" in text] == []


@pytest.mark.long
def test_it_builds_without_a_warning_and_asks_nobody(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (extra docs)")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    for page in sorted(tmp_path.rglob("*.html")):
        loaded = re.findall(
            r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?://[^\" >]+)", page.read_text("utf-8")
        )
        assert loaded == [], page
    if browser.PROGRAM is not None:
        assert "Prometheus" in found_first(tmp_path, "prometheus").read_text("utf-8")


def found_first(site: Path, words: str) -> Path:
    """The page that the search of a site that lies in a folder gives first."""
    with browser.opened((site / "index.html").as_uri()) as page:
        field = "document.querySelector('.md-search__input')"
        page.value("document.querySelector('#__search').click()")
        page.value(f"{field}.focus()")
        page.value(f"{field}.value = '{words}'")
        page.value(f"{field}.dispatchEvent(new KeyboardEvent('keyup', {{bubbles: true}}))")
        first = "document.querySelector('.md-search-result__link')"
        page.wait(f"{first} !== null")
        assert page.errors == []
        return Path(page.value(f"new URL({first}.href).pathname"))
