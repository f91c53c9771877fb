"""`luminal segment`: the regions of an image, by the labels of its pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli.options import Backend, Mode


def command(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A file of any kind.")],
    model: Annotated[str, typer.Option(help="A SegFormer: a folder, or a Hugging Face id.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Colour the regions in this image.")
    ] = None,
    mode: Mode = "fast",
    backend: Backend = "cpu",
) -> None:
    """Print a line for each label that is there: its share of the pixels, its box in pixels."""
    from luminal import models
    from luminal.loaders.image import image_format, read_image, write_image
    from luminal.models.segment import Segmenter

    loaded = models.load(model, mode=mode, backend=backend)
    if not isinstance(loaded, Segmenter):
        raise InputError(f"segment: {model} is a {type(loaded).__name__}; give a SegFormer")
    picture = read_image(image)
    if output is not None:
        image_format(output)  # what is wrong with it is said before the work is done
    segmentation = loaded.segment(picture)
    for region in segmentation.regions():
        typer.echo(str(region))
    if output is not None:
        write_image(output, segmentation.drawn(picture))
