"""Models of images with the preparation they were trained with: labels and vectors of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.image import Preparation, as_rgb, preparation_of, read_image
from luminal.loaders.shown import shown
from luminal.models.checkpoint import folder_config, folder_processor
from luminal.models.families.settings import are_independent, labels_of
from luminal.models.sampling import checked_count
from luminal.nn import Module
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture: TypeAlias = str | Path | Image | np.ndarray[Any, Any]

Array = np.ndarray[Any, Any]
BATCH = 16  # images at once: more gain nothing on a CPU


@dataclass(frozen=True, slots=True)
class Guess:
    """A label and its probability."""

    label: str
    probability: float


def folder_preparation(folder: Path) -> Preparation:
    """By the settings in it. Raises LoadError where there are none."""
    fields = folder_processor(folder, "image_processor")
    preparation = preparation_of(fields)
    if preparation.shape is None:
        raise LoadError(
            f"{fields.path}: the shape of what it makes depends on the image; give crop_size"
        )
    return preparation


class ImageEncoder:
    """A module that makes a vector of each image; one program serves all numbers of images."""

    def __init__(
        self,
        model: Module,
        prepare: Preparation,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.prepare = model, prepare
        self.mode, self.backend = mode, chosen_device(backend)
        self._program: Executable | None = None

    @classmethod
    def of_folder(cls, folder: Path, model: Module, mode: Any, backend: str) -> ImageEncoder:
        """With the preparation of its folder. Raises LoadError."""
        return cls(model, folder_preparation(folder), mode, backend)

    def __repr__(self) -> str:
        name = type(self.model).__name__
        return f"{type(self).__name__}({name}, images of {self.prepare.shape}; {self.backend})"

    def compile(self) -> Executable:
        """The program, compiled at the first call: images (b, 3, height, width) to vectors."""
        if self._program is None:
            graph = Graph("images")
            assert self.prepare.shape is not None
            shape = graph.dim("b", 1, BATCH), 3, *self.prepare.shape
            images = graph.tensor(shape, dtypes.float32, "images")
            self.model(images).output("vectors")
            self._program = compile(graph, backend=self.backend, mode=self.mode)
        return self._program

    def embed(self, images: Sequence[Picture]) -> Array:
        """Files, images of Pillow or arrays of bytes, to (len(images), width) in float32. Raises
        LoadError.
        """
        program = self.compile()
        parts = [program(images=batch)["vectors"] for batch in prepared(images, self.prepare)]
        return np.concatenate(parts)


def prepared(images: Sequence[Picture], prepare: Preparation) -> Iterator[Array]:
    """Batches of images, (b, 3, height, width). Raises InputError where there are none."""
    if not isinstance(images, Sequence) or isinstance(images, str) or not images:
        raise InputError(f"images: got {shown(images)}; give a list of images")
    for at in range(0, len(images), BATCH):
        yield np.stack([prepare(opened(image)) for image in images[at : at + BATCH]])


def opened(image: Picture) -> Image:
    """A file's image, or the image itself, in RGB. Raises LoadError, InputError."""
    return read_image(Path(image)) if isinstance(image, str | Path) else as_rgb(image)


class ImageClassifier(ImageEncoder):
    """A module whose vectors are logits of `labels`; see `likeliest`."""

    def __init__(
        self,
        model: Module,
        prepare: Preparation,
        labels: Sequence[str],
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
        independent: bool = False,
    ) -> None:
        super().__init__(model, prepare, mode, backend)
        self.labels, self.independent = labels, independent

    @classmethod
    def of_folder(cls, folder: Path, model: Module, mode: Any, backend: str) -> ImageClassifier:
        """With the preparation and labels of its folder. Raises LoadError."""
        fields = Fields(folder_config(folder), folder / "config.json")
        prepare, labels = folder_preparation(folder), labels_of(fields)
        return cls(model, prepare, labels, mode, backend, are_independent(fields))

    def classify(self, images: Sequence[Picture], top: int = 5) -> list[list[Guess]]:
        """The `top` likeliest labels of each image, the likeliest first. Raises InputError."""
        checked_count("top", top, 1)
        return [
            likeliest(logits, self.labels, top, self.independent) for logits in self.embed(images)
        ]


def likeliest(
    logits: Array, labels: Sequence[str], top: int, independent: bool = False
) -> list[Guess]:
    """By the softmax of logits (labels,); by their sigmoids if the labels are `independent`."""
    wide = logits.astype(np.float64)
    # By logarithms and in float64: a sum of exponentials of large logits would be infinite.
    total = np.logaddexp(wide, 0) if independent else np.logaddexp.reduce(wide)
    shares = np.exp(wide - total)
    order = np.argsort(-shares, kind="stable")[:top]
    return [Guess(labels[number], float(shares[number])) for number in order]
