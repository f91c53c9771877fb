"""`luminal convert`: a model in another kind of file."""

from __future__ import annotations

from typing import Annotated

import typer

from luminal.cli.options import Tokenizer, WeightDtype


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="A folder, .gguf, llama2.c .bin, .safetensors, or Hugging Face id."
        ),
    ],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="A .gguf, a .safetensors, or a new folder.")
    ],
    dtype: WeightDtype = None,
    tokenizer: Tokenizer = None,
) -> None:
    """Write the model in IN as OUT."""
    from luminal.models.conversion import convert

    convert(source, target, dtype, tokenizer)
