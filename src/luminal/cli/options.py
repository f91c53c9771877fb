"""Options that several subcommands have."""

from __future__ import annotations

from typing import Annotated

import typer

Backend = Annotated[
    str, typer.Option("--backend", "--device", help="Where to run; see `luminal devices`.")
]

KeepQuantized = Annotated[
    bool,
    typer.Option("--keep-quantized", help="Packed matrices stay so; else they are f32."),
]

ComputeDtype = Annotated[
    str | None,
    typer.Option(
        "--compute-dtype",
        help="What products of a language model multiply: float32, bfloat16, float16; "
        "int8 where matrices stay packed.",
        show_default="that of its matrices",
    ),
]
