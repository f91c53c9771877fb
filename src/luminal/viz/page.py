"""The page: one self-contained HTML file with a document in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "page"


def page(document: Mapping[str, Any]) -> str:
    """The document's page: HTML that needs no other file and no network."""
    head, style, script, end = _parts()
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    # In a script element "</script>" and "<!--" are read by the HTML parser wherever they stand.
    data = data.replace("<", "\\u003c")
    kind = 'type="application/json" id="document"'
    return (
        f"{head}<style>\n{style}\n</style>\n<script {kind}>{data}</script>\n"
        f"<script>\n{script}\n</script>\n{end}"
    )


@cache
def _parts() -> tuple[str, str, str, str]:
    """The page before its data, its style, its script, and what ends it."""
    html, style, script = (
        (_FOLDER / name).read_text(encoding="utf-8") for name in ("index.html", "viz.css", "viz.js")
    )
    head, _, end = html.rpartition("</body>")
    return head, style, script, f"</body>{end}"
