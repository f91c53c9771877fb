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

Mode = Annotated[str, typer.Option("--mode", help="How to compile; see lm.compile.")]

Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", help="Tokenizer file, where the model has none of its own."),
]

Template = Annotated[
    typer.FileText | None,
    typer.Option("--template", help="A chat template (Jinja) instead of the model's."),
]

Temperature = Annotated[
    float,
    typer.Option(
        "--temperature", min=0.0, help="0 takes the likeliest token; higher is more varied."
    ),
]

TopP = Annotated[
    float,
    typer.Option(
        "--top-p", max=1.0, help="Sample from the likeliest of this total probability, above 0."
    ),
]

Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampling.")]
