"""`luminal draw`: a picture of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli.options import Backend, Mode
from luminal.cli.output import check_can_be_written


def command(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the picture shows.")],
    model: Annotated[str, typer.Option(help="A Stable Diffusion: a folder of diffusers.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The image to write, as out.png.")
    ] = Path("out.png"),
    steps: Annotated[int, typer.Option(min=1, help="More are slower and finer.")] = 30,
    guidance: Annotated[float, typer.Option(help="How far the text moves each step.")] = 7.5,
    negative: Annotated[str, typer.Option(help="What to move away from.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Another one gives another picture.")] = 0,
    size: Annotated[
        str | None,
        typer.Option(
            help="The picture's WIDTHxHEIGHT in pixels.", show_default="that of its training"
        ),
    ] = None,
    sampler: Annotated[str, typer.Option(help="Which way of steps: ddim, euler.")] = "ddim",
    mode: Mode = "fast",
    backend: Backend = "cpu",
) -> None:
    """Draw what PROMPT says into an image, with a bar of the steps on a terminal."""
    from luminal import models
    from luminal.loaders.image import image_format, write_image
    from luminal.models.diffusion.text_to_image import TextToImage

    sides = None if size is None else _sides(size)
    image_format(output)  # what is wrong with it is said before the work is done
    check_can_be_written("draw: --output", output)
    loaded = models.load(model, mode=mode, backend=backend)
    if not isinstance(loaded, TextToImage):
        raise InputError(f"draw: {model} is a {type(loaded).__name__}; give a Stable Diffusion")
    picture = loaded.draw(prompt, steps, guidance, seed, sides, sampler, negative)
    write_image(output, picture)


def _sides(size: str) -> tuple[int, int]:
    """Width and height of WIDTHxHEIGHT."""
    width, _, height = size.lower().partition("x")
    if not (width.isascii() and width.isdigit() and height.isascii() and height.isdigit()):
        raise InputError(f"draw: --size {size} is not WIDTHxHEIGHT; give one as 512x512")
    return int(width), int(height)
