"""`luminal transcribe`: what is said in a WAVE file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli.options import Backend, Mode


def command(
    sound: Annotated[Path, typer.Argument(metavar="FILE.wav", help="The sound, at any rate.")],
    model: Annotated[
        str, typer.Option(help="A Whisper, wav2vec 2.0 or Parakeet: a folder, or an id.")
    ],
    language: Annotated[
        str | None,
        typer.Option(help="The code of the language, as en.", show_default="the likeliest one"),
    ] = None,
    translate: Annotated[
        bool, typer.Option("--translate", help="Translate what is said to English.")
    ] = False,
    timestamps: Annotated[bool, typer.Option(help="Show the time of each line.")] = True,
    words: Annotated[
        bool, typer.Option("--words", help="Show the time of each word, by Whisper too.")
    ] = False,
    fallback: Annotated[
        bool,
        typer.Option(help="Try higher temperatures where a text repeats itself or is unlikely."),
    ] = True,
    mode: Mode = "fast",
    backend: Backend = "cpu",
) -> None:
    """Print what is said, a line for each segment as it is found; for each word where the model
    has no decoder.
    """
    from luminal import models
    from luminal.models.ctc import CtcTranscriber
    from luminal.models.transcribe import Transcriber, clock

    loaded = models.load(model, mode=mode, backend=backend)
    if isinstance(loaded, CtcTranscriber):
        if translate or language is not None:
            raise InputError(f"transcribe: --language and --translate are for Whisper, not {model}")
        for segment in loaded.transcribe(sound, "words" if timestamps else "text"):
            typer.echo(str(segment) if timestamps else segment.text)
        return
    if not isinstance(loaded, Transcriber):
        raise InputError(
            f"transcribe: {model} is a {type(loaded).__name__}; give a Whisper, wav2vec 2.0 "
            "or Parakeet"
        )
    task = "translate" if translate else "transcribe"
    from luminal.models.attempts import ONCE, Fallback

    retries = Fallback() if fallback else ONCE
    for segment in loaded.stream(sound, language, task, timestamps, words, retries):
        if words:
            for word in segment.words:
                typer.echo(f"[{clock(word.start)} -> {clock(word.end)}] {word.text.strip()}")
            continue
        typer.echo(str(segment) if timestamps else segment.text.strip())
