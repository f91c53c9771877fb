"""`luminal merge`: a model with an adapter in its weights."""

from __future__ import annotations

from typing import Annotated

import typer

from luminal.cli.options import Tokenizer


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
    dtype: Annotated[
        str | None,
        typer.Option(
            help="The dtype of weights: f32, f16, bf16; or packed: q8_0 to q2_k, q4_k_m.",
            show_default="as they are",
        ),
    ] = None,
    tokenizer: Tokenizer = None,
) -> None:
    """Write MODEL with ADAPTER merged into its weights as OUT."""
    from luminal.models.conversion import convert

    convert(model, target, dtype, tokenizer, adapter=adapter)
