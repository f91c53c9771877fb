"""A document shown: written as one file, or served to a browser of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.loaders.write_atomic import replacing
from luminal.viz.page import page
from luminal.viz.server import serve


def show(
    document: Mapping[str, Any], path: str | Path | None, port: int = 0, browser: bool = True
) -> None:
    """Writes the page to `path`; without one serves it until Ctrl-C. Raises InputError."""
    text = page(document)
    if path is None:
        serve(text, port, browser)
        return
    with replacing(path) as file:
        file.write(text.encode())
