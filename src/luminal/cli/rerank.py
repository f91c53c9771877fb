"""`luminal rerank`: documents by how well they answer a query."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli.embed import lines_of_input
from luminal.cli.options import Backend, Mode


def command(
    model: Annotated[str, typer.Option(help="A folder, or a Hugging Face id, of a cross-encoder.")],
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="What the documents should answer.")
    ],
    documents: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DOCUMENT]...", help="Texts; without one, lines of the input."),
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="How many to print.")] = None,
    mode: Mode = "fast",
    backend: Backend = "cpu",
) -> None:
    """Print a line of JSON for each document, the best first: its number, score and text."""
    from luminal import models
    from luminal.models.text_reader import TextClassifier

    reader = models.load(model, mode=mode, backend=backend)
    if not isinstance(reader, TextClassifier):
        raise InputError(f"rerank: {model} is a {type(reader).__name__}; give a cross-encoder")
    texts = documents or lines_of_input("rerank")
    for best in reader.rerank(query, texts, top):
        row = {"index": best.index, "score": best.score, "document": texts[best.index]}
        typer.echo(json.dumps(row))
