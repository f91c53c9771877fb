"""The page: one self-contained HTML file with a document in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "page"
_STYLE = '<link rel="stylesheet" href="viz.css">'
_DOCUMENT = '<script type="application/json" id="document">null</script>'
_SCRIPT = '<script src="viz.js"></script>'


def page(document: Mapping[str, Any]) -> str:
    """The document's page: HTML that needs no other file and no network."""
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    # In a script element "</script>" and "<!--" are read by the HTML parser wherever they stand.
    data = data.replace("<", "\\u003c")
    before, after = _halves()
    return f"{before}{_DOCUMENT.replace('null', data)}{after}"


@cache
def _halves() -> tuple[str, str]:
    """The page up to its data, and what follows, with style and script in them."""
    html, style, script = (
        (_FOLDER / name).read_text(encoding="utf-8") for name in ("index.html", "viz.css", "viz.js")
    )
    html = html.replace(_STYLE, f"<style>\n{style}</style>")
    html = html.replace(_SCRIPT, f"<script>\n{script}</script>")
    before, _, after = html.partition(_DOCUMENT)
    return before, after
