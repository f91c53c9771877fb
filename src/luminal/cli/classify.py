"""`luminal classify`: the likeliest labels of images or texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from luminal.base.errors import InputError
from luminal.cli import onnx_inputs
from luminal.cli.options import Backend, Mode

if TYPE_CHECKING:
    from luminal.models.image_model import Guess

_OPEN_SIZE = 224  # of images where a model leaves it open: ImageNet's


def command(
    model: Annotated[str, typer.Option(help="A folder, a Hugging Face id, or a .onnx.")],
    images: Annotated[
        list[Path] | None, typer.Argument(metavar="[IMAGE]...", help="Files of any kind.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A text instead of an image; may be repeated.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="A text to choose from, for CLIP and SigLIP; may be repeated."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many labels to show.")] = 5,
    mode: Mode = "fast",
    backend: Backend = "cpu",
) -> None:
    """Print the likeliest labels of each image or text, with their probabilities."""
    if not images and not text:
        raise InputError("classify: nothing is given; name files of images, or give --text TEXT")
    if text:
        if images or label:
            raise InputError("classify: --text goes with neither images nor --label")
        _print_of_texts(text, model, top, mode, backend)
        return
    images = images or []
    if model.endswith(".onnx"):
        guesses_by_image = list(_by_onnx(images, Path(model), top, mode, backend))
    else:
        guesses_by_image = _by_model(images, model, label or [], top, mode, backend)
    _print(images, guesses_by_image)


def _print_of_texts(texts: Sequence[str], name: str, top: int, mode: str, backend: str) -> None:
    from luminal import models
    from luminal.models.text_reader import TextClassifier, TokenClassifier

    loaded = models.load(name, mode=mode, backend=backend)
    if isinstance(loaded, TokenClassifier):
        for guesses in loaded.classify(texts):
            for guess in guesses:
                typer.echo(
                    f"{guess.probability:7.2%}  {guess.label}  {guess.start}-{guess.end}  "
                    f"{guess.text}"
                )
        return
    if not isinstance(loaded, TextClassifier):
        raise InputError(
            f"classify: {name} is a {type(loaded).__name__}; give a classifier of texts"
        )
    _print(texts, loaded.classify(texts, top))


def _print(subjects: Sequence[object], labels: Sequence[Sequence[Guess]]) -> None:
    for subject, guesses in zip(subjects, labels, strict=True):
        if len(subjects) > 1:
            typer.echo(f"{subject}:")
        for guess in guesses:
            typer.echo(f"{guess.probability:7.2%}  {guess.label}")


def _by_model(
    images: Sequence[Path], name: str, labels: Sequence[str], top: int, mode: str, backend: str
) -> list[list[Guess]]:
    from luminal import models
    from luminal.models.image_model import ImageClassifier
    from luminal.models.image_text import ImageTextModel

    loaded = models.load(name, mode=mode, backend=backend)
    if isinstance(loaded, ImageTextModel):
        if not labels:
            raise InputError(f"classify: {name} knows no labels of its own; give --label TEXT")
        return loaded.classify(images, labels, top)
    if labels:
        raise InputError(f"classify: --label is for CLIP and SigLIP; {name} has labels of its own")
    if not isinstance(loaded, ImageClassifier):
        raise InputError(f"classify: {name} is a {type(loaded).__name__}; give a classifier")
    return loaded.classify(images, top)


def _by_onnx(
    images: Sequence[Path], path: Path, top: int, mode: str, backend: str
) -> Iterator[list[Guess]]:
    """The guesses for one image at a time; settings and labels are those of the folder, where it
    has any.
    """
    from luminal.loaders.fields import Fields
    from luminal.loaders.image import IMAGENET, read_image
    from luminal.models.checkpoint import folder_config, has_processor
    from luminal.models.families.settings import are_independent, labels_of
    from luminal.models.image_model import folder_preparation, likeliest

    model = onnx_inputs.load_model(path).compile(mode=mode, backend=backend)
    (name,) = model.input_names
    _, shape = model.declared(name)
    sizes = shape[2:] if shape is not None else []
    if len(sizes) != 2:
        raise InputError(f"classify: {path} takes {name}{shape}; it must be (1, 3, h, w)")
    height, width = (n if isinstance(n, int) else _OPEN_SIZE for n in sizes)
    # ImageNet's models are evaluated on the centre of an image whose shorter side is 8/7 of the
    # crop: 256 for 224. An export says nothing of it, so the customary ratio is taken.
    prepare = replace(IMAGENET, crop=(height, width), shortest=round(min(height, width) * 8 / 7))
    if has_processor(path.parent):
        prepare = folder_preparation(path.parent)
    labels, independent = None, False
    if (path.parent / "config.json").exists():
        fields = Fields(folder_config(path.parent), path.parent / "config.json")
        labels, independent = labels_of(fields), are_independent(fields)
    for image in images:
        logits = next(iter(model({name: prepare(read_image(image))[None]}).values()))[0]
        # A network that was trained further often keeps the old config beside it. Names of other
        # classes would be worse than numbers.
        if labels is None or len(labels) != len(logits):
            labels = [str(number) for number in range(len(logits))]
        if (
            not independent and (logits >= 0).all() and abs(float(logits.sum()) - 1) < 1e-3
        ):  # probabilities already
            # Softmax of the logarithms of probabilities gives the probabilities back, so one path
            # serves exports with and without a softmax at their end.
            logits = np.log(np.maximum(logits, 1e-30))
        yield likeliest(logits, labels, top, independent)
