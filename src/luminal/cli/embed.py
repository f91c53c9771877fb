"""`luminal embed`: vectors of texts."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from luminal.base.errors import InputError
from luminal.cli.options import Backend, Mode
from luminal.cli.output import writing
from luminal.loaders.write_atomic import replacing


def command(
    model: Annotated[str, typer.Option(help="A folder, or a Hugging Face id.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="The texts; without one, lines of the input."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.npy", help="Write them as one array."),
    ] = None,
    mode: Mode = "fast",
    backend: Backend = "cpu",
) -> None:
    """Print a line of JSON for each text: the text and its vector."""
    from luminal import models
    from luminal.models.embed import TextEncoder

    encoder = models.load(model, mode=mode, backend=backend)
    if not isinstance(encoder, TextEncoder | models.LanguageModel):
        raise InputError(f"embed: {model} is a {type(encoder).__name__}; give a model of texts")
    lines = texts or lines_of_input("embed")
    vectors = encoder.embed(lines)
    if output is None:
        for text, vector in zip(lines, vectors, strict=True):
            typer.echo(json.dumps({"text": text, "vector": vector.tolist()}))
        return
    with writing("--output", output):
        content = io.BytesIO()  # NumPy itself cannot write to a pipe
        np.save(content, vectors)
        with replacing(output) as file:
            file.write(content.getbuffer())


def lines_of_input(what: str) -> list[str]:
    """The lines of the standard input. Raises InputError, which names `what`, for no UTF-8."""
    try:
        return [line.rstrip("\r\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise InputError(f"{what}: the input is no {error.encoding}: {error.reason}") from None
