"""`luminal merge`: a model with an adapter in its weights."""

from __future__ import annotations

from typing import Annotated

import typer

from luminal.cli.options import Tokenizer, WeightDtype


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder, .gguf, or Hugging Face id.")
    ],
    adapter: Annotated[
        str, typer.Argument(metavar="ADAPTER", help="A folder of PEFT: LoRA or DoRA.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="A .gguf, a .safetensors, or a new folder.")
    ],
    dtype: WeightDtype = None,
    tokenizer: Tokenizer = None,
) -> None:
    """Write MODEL with ADAPTER merged into its weights as OUT."""
    from luminal.models.conversion import convert

    convert(model, target, dtype, tokenizer, adapter=adapter)
