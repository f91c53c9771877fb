"""`luminal detect`: things in an image, and where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from luminal.base.errors import InputError
from luminal.cli.options import Backend, Mode


def command(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A file of any kind.")],
    model: Annotated[str, typer.Option(help="A YOLO or DETR: a folder, an id, or a .onnx.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw the boxes into this image.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Show what is at least so likely.")] = 0.25,
    iou: Annotated[
        float | None,
        typer.Option(help="Boxes that overlap more are one thing.", show_default="0.7, of DETR 1"),
    ] = None,
    mode: Mode = "fast",
    backend: Backend = "cpu",
) -> None:
    """Print a line for each thing: how sure it is, what it is, its box in pixels."""
    from luminal import models
    from luminal.loaders.image import image_format, read_image, write_image
    from luminal.models.detect import Detector, drawn

    if model.endswith(".onnx"):
        from luminal.cli.onnx_detector import OnnxDetector

        loaded = OnnxDetector(Path(model), mode, backend)
    else:
        loaded = models.load(model, mode=mode, backend=backend)
    if not isinstance(loaded, Detector):
        raise InputError(f"detect: {model} is a {type(loaded).__name__}; give a detector")
    picture = read_image(image)
    if output is not None:
        image_format(output)  # what is wrong with it is said before the work is done
    things = loaded.detect(picture, confidence, iou)
    for thing in things:
        typer.echo(str(thing))
    if output is not None:
        write_image(output, drawn(picture, things))
