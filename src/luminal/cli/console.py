"""What commands print by rich: texts are data, never markup, and cells are never cut off."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table


def console() -> Console:
    """The standard output: `[cuda]` and `:x:` in a name or a reason are printed as they are."""
    return Console(markup=False, emoji=False)


def progress() -> Progress:
    """A bar on the standard error, gone when it is done; none where that is no terminal."""
    errors = Console(stderr=True, markup=False, emoji=False)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )


def table(*heads: str, **options: Any) -> Table:
    """A table with a column for each head, where words that are too long go on in the next line."""
    return Table(*(Column(head, overflow="fold") for head in heads), **options)
