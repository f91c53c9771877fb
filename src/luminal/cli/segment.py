"""`luminal segment`: the regions of an image, by the labels of its pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli.options import Backend, Mode


def command(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A file of any kind.")],
    model: Annotated[str, typer.Option(help="A SegFormer or SAM: a folder, or an id.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Colour the regions in this image.")
    ] = None,
    point: Annotated[
        list[str] | None, typer.Option(help="X,Y in pixels, for SAM; all are on one thing.")
    ] = None,
    box: Annotated[
        list[str] | None, typer.Option(help="LEFT,TOP,RIGHT,BOTTOM, for SAM; a thing each.")
    ] = None,
    mode: Mode = "fast",
    backend: Backend = "cpu",
) -> None:
    """Print a line for each label that is there: its share of the pixels, its box in pixels. For
    SAM a line for each thing: how well its mask fits, its share, its box.
    """
    from luminal import models
    from luminal.loaders.image import image_format, read_image, write_image
    from luminal.models.segment import Segmenter, covered
    from luminal.models.segment_anything import SegmentAnything

    loaded = models.load(model, mode=mode, backend=backend)
    if not isinstance(loaded, Segmenter | SegmentAnything):
        raise InputError(f"segment: {model} is a {type(loaded).__name__}; give a SegFormer or SAM")
    points = [_numbers("point", text, 2) for text in point or []]
    boxes = [_numbers("box", text, 4) for text in box or []]
    if isinstance(loaded, SegmentAnything) != bool(points or boxes):
        raise InputError(
            f"segment: {model} is a {type(loaded).__name__}; give --point X,Y or "
            "--box LEFT,TOP,RIGHT,BOTTOM to SAM, and to SAM only"
        )
    picture = read_image(image)
    if output is not None:
        image_format(output)  # what is wrong with it is said before the work is done
    if isinstance(loaded, SegmentAnything):
        masks = [masks[0] for masks in loaded.encode(picture).masks(points, boxes)]
        for mask in masks:
            typer.echo(str(mask))
        if output is not None:
            write_image(output, covered(picture, [mask.pixels for mask in masks]))
        return
    segmentation = loaded.segment(picture)
    for region in segmentation.regions():
        typer.echo(str(region))
    if output is not None:
        write_image(output, segmentation.drawn(picture))


def _numbers(option: str, text: str, count: int) -> list[float]:
    """The numbers of an option, which have commas between them."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        raise InputError(f"segment: --{option} {text} is not {count} numbers with commas between")
    return numbers
