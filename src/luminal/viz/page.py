"""The page: one self-contained HTML file with a document in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

EXACT = 2**53 - 1  # Number.MAX_SAFE_INTEGER
AMOUNTS = frozenset(("flops", "bytes", "distinct"))
_FOLDER = Path(__file__).parent / "page"
_STYLE = '<link rel="stylesheet" href="viz.css">'
_DOCUMENT = '<script type="application/json" id="document">null</script>'
_SCRIPTS = re.compile(r'(?:<script src="\w+\.js"></script>\n)+')


def page(document: Mapping[str, Any]) -> str:
    """The document's page: HTML that needs no other file and no network."""
    data = json.dumps(_exact(document), separators=(",", ":"), ensure_ascii=False)
    # In a script element "</script>" and "<!--" are read by the HTML parser wherever they stand.
    data = data.replace("<", "\\u003c")
    before, after = _halves()
    return f"{before}{_DOCUMENT.replace('null', data)}{after}"


def _exact(facts: Any, is_amount: bool = False) -> Any:
    """The document with integers that JavaScript would round as text: it has no others than
    float64. Amounts stay numbers, as the page adds them up and shows three digits.
    """
    if isinstance(facts, Mapping):
        return {name: _exact(value, name in AMOUNTS) for name, value in facts.items()}
    if isinstance(facts, list | tuple):
        return [_exact(value) for value in facts]
    if isinstance(facts, int) and abs(facts) > EXACT and not is_amount:
        return str(facts)
    return facts


@cache
def _halves() -> tuple[str, str]:
    """The page up to its data, and what follows, with style and script in them."""
    html = _text("index.html").replace(_STYLE, f"<style>\n{_text('viz.css')}</style>")
    html = _SCRIPTS.sub(lambda found: f"<script>\n{_joined(found[0])}</script>\n", html)
    before, _, after = html.partition(_DOCUMENT)
    return before, after


def _joined(scripts: str) -> str:
    """The scripts that elements name, in their order. Each uses what others have at its top."""
    return "\n".join(map(_text, re.findall(r'src="([^"]+)"', scripts)))


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
