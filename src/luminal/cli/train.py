"""`luminal train`: a Llama learns from a text file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from luminal.cli.options import Backend


def command(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="Text, sizes, steps: docs/training.md.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="Folder to write, instead of the configured one.")
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Go on from the newest checkpoint in the output folder.")
    ] = True,
    backend: Backend = "cpu",
) -> None:
    """Train a tokenizer and a Llama on a text; `luminal generate --model FOLDER` reads the folder.

    Ctrl-C ends after the step, with a checkpoint to go on from.
    """
    from dataclasses import replace

    from luminal.models.train import TextRun, train_text
    from luminal.session import device_choice
    from luminal.training.settings import read_settings

    run = read_settings(config, TextRun)
    if output is not None:
        run = replace(run, output=str(output.absolute()))
    with device_choice.device(backend):
        trained = train_text(run, config.parent, resume=resume)
    typer.echo()
    typer.echo(trained.sample)
    typer.echo()
    if trained.record.interrupted:
        typer.echo(f"stopped after step {trained.record.steps}; the same command goes on")
    typer.echo(
        f"{trained.folder}: validation loss {trained.validation_loss:.4f}, "
        f"{trained.bits_per_byte:.3f} bits a byte"
    )
