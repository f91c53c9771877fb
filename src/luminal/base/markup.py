"""What a notebook shows of Tensors, graphs, executables and reports: tables of escaped text.

Names are users', files' and models': whatever they hold is shown as it is and never as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def card(title: str, rows: Iterable[tuple[str, str]] = (), text: str = "") -> str:
    """A title, a table of names with what they are, and text in lines of equal letters."""
    named = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(said)}</td></tr>'
        for name, said in rows
        if said
    )
    shown = f"<table>{named}</table>" if named else ""
    shown += f"<pre>{escape(text)}</pre>" if text else ""
    return f"<div><b>{escape(title)}</b>{shown}</div>"


def table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """A title, and rows of cells, the first of them heads."""
    if not rows:
        return card(title)
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:]
    )
    return f"<div><b>{escape(title)}</b><table><tr>{head}</tr>{body}</table></div>"
