"""Images divided into regions: a label for each pixel."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.image import MOST_LENGTH, Preparation
from luminal.loaders.shown import shown
from luminal.models.checkpoint import folder_config
from luminal.models.families.settings import labels_of
from luminal.models.image_model import folder_preparation, opened
from luminal.nn import Module
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from PIL.Image import Image

    from luminal.models.image_model import Picture

Array = np.ndarray[Any, Any]
_COVER = 0.55  # of a colour over a picture, which stays visible below


@dataclass(frozen=True, slots=True)
class Region:
    """What of an image has a label: its share of the pixels, and its box in pixels: left, top,
    right, bottom.
    """

    label: str
    share: float
    box: tuple[int, int, int, int]

    def __str__(self) -> str:
        return f"{self.share:7.2%}  {self.label}  " + " ".join(map(str, self.box))


@dataclass(frozen=True, slots=True)
class Segmentation:
    """`ids`: the number of each pixel's label among `labels`, (height, width) in int32."""

    ids: Array
    labels: Sequence[str]

    def mask(self, label: str) -> Array:
        """Which pixels have this label: bools (height, width). Raises InputError."""
        if label not in self.labels:
            raise InputError(
                f"mask: {shown(label)} is no label of this model; the first of its "
                f"{len(self.labels)} are {', '.join(self.labels[:5])}"
            )
        # Two labels of one name are one here.
        numbers = [number for number, name in enumerate(self.labels) if name == label]
        return np.isin(self.ids, numbers)

    def regions(self) -> list[Region]:
        """One for each label that is there, the largest first."""
        numbers, counts = np.unique(self.ids, return_counts=True)
        regions = []
        for at in np.argsort(-counts, kind="stable"):
            rows, columns = np.nonzero(self.ids == numbers[at])
            box = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            left, top, right, bottom = (int(edge) for edge in box)
            share = float(counts[at] / self.ids.size)
            regions.append(Region(self.labels[numbers[at]], share, (left, top, right, bottom)))
        return regions

    def drawn(self, image: Image) -> Image:
        """A copy of the image with its regions in colours. Raises InputError for another size."""
        if image.size != self.ids.shape[::-1]:
            raise InputError(
                f"drawn: the image has {image.size} pixels, the regions {self.ids.shape[::-1]}; "
                "give the image that was divided"
            )
        return covered(image, [self.ids == number for number in range(len(self.labels))])


def covered(image: Image, masks: Sequence[Array]) -> Image:
    """A copy of an image where the pixels of each mask, bools (height, width), have a colour."""
    from PIL import Image

    pixels = np.array(image.convert("RGB"))
    for number, mask in enumerate(masks):
        # Hues a golden ratio apart: those of neighbouring numbers are told apart.
        colour = np.array(colorsys.hsv_to_rgb(number * 0.618 % 1, 1, 1)) * 255
        pixels[mask] = np.round(pixels[mask] * (1 - _COVER) + colour * _COVER)
    return Image.fromarray(pixels)


class Segmenter:
    """A loaded model of pixels' labels; one program serves images of all sizes."""

    def __init__(
        self,
        model: Module,
        prepare: Preparation,
        labels: Sequence[str],
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.prepare, self.labels = model, prepare, labels
        self.mode, self.backend = mode, chosen_device(backend)
        self._program: Executable | None = None

    @classmethod
    def of_folder(cls, folder: Path, model: Module, mode: Any, backend: str) -> Segmenter:
        """With the preparation and labels of its folder. Raises LoadError."""
        labels = labels_of(Fields(folder_config(folder), folder / "config.json"))
        return cls(model, folder_preparation(folder), labels, mode, backend)

    def __repr__(self) -> str:
        name = type(self.model).__name__
        return f"Segmenter({name}, {len(self.labels)} labels; {self.backend})"

    def compile(self) -> Executable:
        """The program, compiled at the first call: an image (1, 3, height, width), and the size
        (h, w) of what it was made of, to numbers of labels (h, w).
        """
        if self._program is None:
            graph = Graph("regions")
            assert self.prepare.shape is not None
            image = graph.tensor((1, 3, *self.prepare.shape), dtypes.float32, "image")
            size = [graph.dim(name, 1, MOST_LENGTH) for name in ("h", "w")]
            # The logits are smooth between places, the labels are not.
            logits = self.model(image).interpolate(size, mode="bilinear")
            logits.squeeze(0).argmax(0).cast(dtypes.int32).output("ids")
            self._program = compile(graph, backend=self.backend, mode=self.mode)
        return self._program

    def segment(self, image: Picture) -> Segmentation:
        """The labels of a file's pixels, or of those of an image of Pillow. Raises InputError,
        LoadError.
        """
        picture = opened(image)
        size = {"h": picture.height, "w": picture.width}
        ids = self.compile()({"image": self.prepare(picture)[None]}, dims=size)["ids"]
        return Segmentation(np.asarray(ids), self.labels)
