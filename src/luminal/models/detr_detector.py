"""Things in images by a DETR, whose images keep their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.image import MOST_SIDE, Preparation, preparation_of
from luminal.models.checkpoint import folder_config, folder_processor
from luminal.models.detect import Detector, output_best_boxes
from luminal.models.detr import Detr, corners
from luminal.models.families.settings import labels_of
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from PIL.Image import Image

Array = np.ndarray[Any, Any]


class DetrDetector(Detector):
    """A detector whose model is a loaded DETR; one program serves images of all shapes."""

    overlap = 1.0  # it was trained to find each thing once

    def __init__(
        self,
        model: Detr,
        prepare: Preparation,
        labels: Sequence[str],
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        super().__init__(labels)
        self.model, self.prepare = model, prepare
        self.mode, self.backend = mode, chosen_device(backend)
        self._programs: dict[float, Executable] = {}

    @classmethod
    def of_folder(cls, folder: Path, model: Detr, mode: Any, backend: str) -> DetrDetector:
        """With the preparation and labels of its folder. Raises LoadError."""
        fields = folder_processor(folder, "image_processor")
        if fields.values.get("pad_size") is not None:
            raise LoadError(f"{fields.path}: pad_size is not supported; leave it out")
        labels = labels_of(Fields(folder_config(folder), folder / "config.json"))
        return cls(model, preparation_of(fields), labels, mode, backend)

    def __repr__(self) -> str:
        layers = self.model.config.encoder
        return (
            f"DetrDetector({layers.num_hidden_layers} layers of {layers.hidden_size}, "
            f"{len(self.labels)} labels; {self.backend})"
        )

    def compile(self, iou: float = 1.0) -> Executable:
        """The program for this overlap, compiled at the first call: an image (1, 3, h, w) to
        candidates, whose boxes are parts of the image.
        """
        if iou not in self._programs:
            graph = Graph("detect")
            shape = 1, 3, *(graph.dim(name, 1, MOST_SIDE) for name in ("h", "w"))
            logits, boxes = self.model(graph.tensor(shape, dtypes.float32, "image"))
            # How likely nothing is counts, but it is no label to choose.
            scores = logits.softmax(-1)[..., :-1]
            output_best_boxes(corners(boxes).squeeze(0), scores.squeeze(0), iou)
            self._programs[iou] = compile(graph, backend=self.backend, mode=self.mode)
        return self._programs[iou]

    def prepared(self, image: Image) -> tuple[Array, Array, Array]:
        """The image as its settings say; see Detector."""
        return self.prepare(image), np.zeros(4), 1 / np.array([*image.size] * 2)

    def candidates(self, pixels: Array, iou: float) -> Mapping[str, Any]:
        """The boxes in pixels (3, height, width), as `output_best_boxes` names them."""
        return self.compile(iou)(image=pixels[None])
