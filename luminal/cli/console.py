"""What commands print by rich: texts are data, never markup, and cells are never cut off."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Column, Table


def console() -> Console:
    """The standard output: `[cuda]` and `:x:` in a name or a reason are printed as they are."""
    return Console(markup=False, emoji=False)


def table(*heads: str, **options: Any) -> Table:
    """A table with a column for each head, where words that are too long go on in the next line."""
    return Table(*(Column(head, overflow="fold") for head in heads), **options)
