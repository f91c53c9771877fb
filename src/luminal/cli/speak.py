"""`luminal speak`: a text as sound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli.options import Backend, Mode
from luminal.cli.output import check_can_be_written


def command(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the voice says.")],
    model: Annotated[str, typer.Option(help="A VITS, as those of MMS: a folder, or an id.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The WAVE file to write.")] = Path(
        "out.wav"
    ),
    speed: Annotated[float, typer.Option(help="2 is twice as fast; from 0.25 to 4.")] = 1.0,
    speaker: Annotated[int, typer.Option(min=0, help="The number of a voice.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Another one says it another way.")] = 0,
    mode: Mode = "fast",
    backend: Backend = "cpu",
) -> None:
    """Say TEXT, into a WAVE file of 16 bits."""
    from luminal import models
    from luminal.loaders.wav import write_wav
    from luminal.models.speak import SpeechSynthesizer

    if output.suffix.lower() != ".wav":
        raise InputError(f"speak: --output {output} must end with .wav; only WAVE is written")
    check_can_be_written("speak: --output", output)  # before the model is read
    loaded = models.load(model, mode=mode, backend=backend)
    if not isinstance(loaded, SpeechSynthesizer):
        raise InputError(f"speak: {model} is a {type(loaded).__name__}; give a VITS")
    write_wav(output, loaded.speak(text, speaker, speed, seed), loaded.rate)
