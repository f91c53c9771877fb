"""Things in images: a detector's boxes, of which each thing keeps the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError, LoadError
from luminal.base.number_kinds import is_number
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.boxes import nms
from luminal.models.checkpoint import folder_config
from luminal.models.families.settings import labels_of
from luminal.models.image_model import opened
from luminal.models.yolo import STRIDES, Yolo
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from PIL.Image import Image

    from luminal.models.image_model import Picture

Array = np.ndarray[Any, Any]
CANDIDATES = 1000  # the likeliest boxes, which alone are compared
_GREY = 114  # around an image that is no square


@dataclass(frozen=True, slots=True)
class Detection:
    """A thing, how sure it is, and its box in pixels: left, top, right, bottom."""

    label: str
    score: float
    box: tuple[float, float, float, float]

    def __str__(self) -> str:
        return f"{self.score:7.2%}  {self.label}  " + " ".join(f"{x:.1f}" for x in self.box)


def output_best_boxes(boxes: Tensor, scores: Tensor, iou: float) -> None:
    """Boxes (n, 4) and scores (n, classes): outputs of the likeliest m, the likeliest first.

    "boxes" (m, 4), their "scores" and "labels" (m,), and whether `nms` has "kept" them among their
    class.
    """
    # Overlaps are compared pair by pair, so their number is bounded before.
    best, label = scores.max(-1)
    count = min(CANDIDATES, best.extents[0].value)
    score, place = best.topk(count)
    box, label = boxes[place], label[place]
    kept = nms(box, score, iou, label)
    for name, values in (("boxes", box), ("scores", score), ("labels", label), ("kept", kept)):
        values.output(name)


class Detector:
    """What finds things of `labels`; `overlap`: that of two boxes of one thing, by default."""

    overlap = 0.7

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = labels

    def prepared(self, image: Image) -> tuple[Array, Array, Array]:
        """The pixels (3, height, width) of an image as the model takes it, and how its boxes there
        become those in the image: less the second array, divided by the third, each (4,).
        """
        raise NotImplementedError(f"{type(self).__name__}: write prepared(self, image)")

    def candidates(self, pixels: Array, iou: float) -> Mapping[str, Any]:
        """The boxes in pixels (3, height, width), as `output_best_boxes` names them."""
        raise NotImplementedError(f"{type(self).__name__}: write candidates(self, pixels, iou)")

    def detect(
        self, image: Picture, confidence: float = 0.25, iou: float | None = None
    ) -> list[Detection]:
        """Things that are at least so likely, the likeliest first; of two boxes of one class that
        overlap by more than `iou` the likelier (`overlap` by default). Raises InputError,
        LoadError.
        """
        iou = self.overlap if iou is None else iou
        for name, value in (("confidence", confidence), ("iou", iou)):
            if not is_number(value, Real) or not 0 <= value <= 1:
                raise InputError(f"detect: {name} is {shown(value)}; it must be from 0 to 1")
        picture = opened(image)
        pixels, corner, scale = self.prepared(picture)
        candidates = self.candidates(pixels, iou)
        limits = np.array([*picture.size] * 2)
        detections = []
        for box, score, label, kept in zip(
            *(candidates[name] for name in ("boxes", "scores", "labels", "kept")), strict=True
        ):
            if kept and score >= confidence:
                # A box that reaches beyond the picture, into a border around it, ends at its edge.
                corners = np.clip((box - corner) / scale, 0, limits)
                left, top, right, bottom = corners.tolist()
                name = self.labels[label]
                detections.append(Detection(name, float(score), (left, top, right, bottom)))
        return detections


class SquareDetector(Detector):
    """A detector for which images become squares of `size` pixels."""

    def __init__(self, labels: Sequence[str], size: int) -> None:
        super().__init__(labels)
        if size % STRIDES[-1]:
            raise InputError(f"detector: size {size} is no multiple of {STRIDES[-1]}")
        self.size = size

    def prepared(self, image: Image) -> tuple[Array, Array, Array]:
        """The image in the middle of a grey square; see Detector."""
        pixels, scale, corner = squared(image, self.size)
        return pixels, np.array([*corner] * 2), np.full(4, scale)


class YoloDetector(SquareDetector):
    """A detector whose model is a loaded YOLO."""

    def __init__(
        self,
        model: Yolo,
        labels: Sequence[str],
        size: int = 640,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        super().__init__(labels, size)
        self.model, self.mode, self.backend = model, mode, chosen_device(backend)
        self._programs: dict[float, Executable] = {}

    @classmethod
    def of_folder(cls, folder: Path, model: Yolo, mode: Any, backend: str) -> YoloDetector:
        """With the labels and size of its `config.json`. Raises LoadError."""
        path = folder / "config.json"
        fields = Fields(folder_config(folder), path)
        try:
            return cls(model, labels_of(fields), fields.integer("image_size", 640), mode, backend)
        except InputError as error:
            raise LoadError(f"{path}: {error}") from None

    def __repr__(self) -> str:
        return (
            f"YoloDetector(YOLO {self.model.config.version}, {len(self.labels)} labels, images of "
            f"{self.size}; {self.backend})"
        )

    def compile(self, iou: float = 0.7) -> Executable:
        """The program for this overlap, compiled at the first call: an image to candidates."""
        if iou not in self._programs:
            graph = Graph("detect")
            shape = 1, 3, self.size, self.size
            boxes, scores = self.model(graph.tensor(shape, dtypes.float32, "image"))
            output_best_boxes(boxes.squeeze(0), scores.squeeze(0), iou)
            self._programs[iou] = compile(graph, backend=self.backend, mode=self.mode)
        return self._programs[iou]

    def candidates(self, pixels: Array, iou: float) -> Mapping[str, Any]:
        """The boxes in pixels (3, size, size), as `output_best_boxes` names them."""
        return self.compile(iou)(image=pixels[None])


def squared(image: Image, size: int) -> tuple[Array, float, tuple[int, int]]:
    """(3, size, size) in float32 from 0 to 1, grey around it; its scale, and its corner there."""
    from PIL import Image

    scale = min(size / image.width, size / image.height)
    # At least one pixel: an image may be a thousand times as wide as high.
    width, height = (max(round(n * scale), 1) for n in image.size)
    left, top = (size - width) // 2, (size - height) // 2
    square = Image.new("RGB", (size, size), (_GREY,) * 3)
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR), (left, top))
    pixels = np.asarray(square, np.uint8).transpose(2, 0, 1)
    return pixels.astype(np.float32) / np.float32(255), scale, (left, top)


def drawn(image: Image, detections: list[Detection]) -> Image:
    """A copy with boxes and labels; every label has a colour of its own."""
    from PIL import ImageDraw

    picture = image.copy()
    draw = ImageDraw.Draw(picture)
    width = max(round(max(image.size) / 400), 1)
    names = sorted({detection.label for detection in detections})
    for detection in detections:
        hue = names.index(detection.label) * 360 // len(names)
        colour = f"hsl({hue}, 90%, 45%)"
        left, top, _, _ = detection.box
        draw.rectangle(detection.box, outline=colour, width=width)
        text = f"{detection.label} {detection.score:.0%}"
        draw.rectangle(draw.textbbox((left, top), text), fill=colour)
        draw.text((left, top), text, fill="white")
    return picture
