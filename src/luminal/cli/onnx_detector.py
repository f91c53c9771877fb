"""A YOLO as its authors export it to ONNX: run as it is, its boxes chosen by another program."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError
from luminal.cli import onnx_inputs
from luminal.frontend.movement.views import concat
from luminal.models.detect import SquareDetector, output_best_boxes
from luminal.runtime.executable import Executable
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from luminal.onnx import Model

Array = np.ndarray[Any, Any]

_OPEN_SIZE = 640  # of images where a model leaves it open
_STEPS = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32), (16, 32))
"""Of the grids whose cells are places, or three places each: three sizes, a larger or a smaller one
more, and those of tiny models.
"""
_ROUNDED = 1e-3  # that a score in half precision may be off


class OnnxDetector(SquareDetector):
    """A detector of one input, (1, 3, size, size), and one output of a known Layout. Labels are the
    metadata's `names`, numbers where there are none.
    """

    def __init__(self, path: Path, mode: str, backend: str) -> None:
        model = onnx_inputs.load_model(path).compile(mode=mode, backend=backend)
        (name,) = model.input_names
        _, shape = model.declared(name)
        if shape is None or len(shape) != 4:
            raise InputError(f"detect: {path} takes {name}{shape}; it must be (1, 3, size, size)")
        super().__init__(_names(model), shape[2] if isinstance(shape[2], int) else _OPEN_SIZE)
        self._model, self._mode, self._backend = model, mode, backend
        self._programs: dict[float, Executable] = {}

    def candidates(self, pixels: Array, iou: float) -> Mapping[str, Any]:
        """The boxes, scores and classes of an image, as `Detector.candidates` gives them."""
        (output, *_) = self._model(pixels[None]).values()
        layout = layout_of(output.shape, len(self.labels), self.size)
        check_rows(layout.rows(output[0]), layout.has_objectness, self.size)
        self.labels = self.labels or [str(number) for number in range(layout.classes)]
        # The overlap is a number in the program, not an input of it: each one asked for gets a
        # program, and a user asks for one or two.
        if iou not in self._programs:
            self._programs[iou] = self._choice(output.shape[1:], layout, iou)
        return self._programs[iou](found=output[0])

    def _choice(self, shape: tuple[int, ...], layout: Layout, iou: float) -> Executable:
        graph = Graph("boxes")
        rows = layout.rows(graph.tensor(shape, dtypes.float32, "found"))
        centre, half = rows[:, :2], rows[:, 2:4] / 2
        # YOLOv5 and YOLOv7 give apart how sure a box is and what would be in it, and a thing's
        # score is the product. Later ones give the product itself.
        scores = rows[:, 4:5] * rows[:, 5:] if layout.has_objectness else rows[:, 4:]
        output_best_boxes(concat((centre - half, centre + half), -1), scores, iou)
        return compile(graph, backend=self._backend, mode=self._mode)


class Layout(NamedTuple):
    """What the numbers of an output are. A row of a place is the centre and size of its box, with
    `has_objectness` how sure it is that there is any thing, and a score for each class.
    """

    has_rows: bool  # (places, numbers), else (numbers, places)
    has_objectness: bool
    classes: int

    def rows(self, output: Any) -> Any:
        """An array or a Tensor, as a row for each place."""
        return output if self.has_rows else output.T


def layout_of(shape: Sequence[int], classes: int, size: int) -> Layout:
    """The layout of an output for images of this size; 0 classes: the model does not say how many
    there are.

    Raises InputError for a shape that is none of the layouts, or may be of two.
    """
    # Exports do not say what their numbers are; for an image of known size the numbers of cells are
    # known, so that a shape fits one layout at most.
    layouts = []
    if len(shape) == 3 and shape[0] == 1:
        _, high, wide = shape
        cells = {sum((size // step) ** 2 for step in steps) for steps in _STEPS}
        anchored = {3 * count for count in cells}
        if classes:
            options = [(False, False, high - 4), (True, False, wide - 4), (True, True, wide - 5)]
            layouts = [Layout(*option) for option in options if option[2] == classes]
        elif wide in cells and high > 4:
            layouts = [Layout(False, False, high - 4)]
        elif high in anchored and wide > 5:
            layouts = [Layout(True, True, wide - 5)]
    if len(layouts) != 1:
        of_classes = f" for the {classes} classes of its metadata" if classes else ""
        raise InputError(
            f"detect: the model gives {tuple(shape)}; it must be (1, 4 + classes, places), as "
            "YOLOv8 and later give, or (1, places, 5 + classes), as YOLOv5 and YOLOv7"
            + (of_classes or "; how many classes there are is told by `names` in its metadata")
        )
    return layouts[0]


def check_rows(rows: Array, has_objectness: bool, size: int) -> None:
    """Raises InputError for numbers that are no boxes in pixels with scores from 0 to 1."""
    # Boxes given as parts of the image have all centres below 1. In pixels, cells cover the whole
    # image, so that some centre lies in its right or lower half whatever it shows.
    furthest, scores = float(rows[:, :2].max()), rows[:, 4:]
    if not furthest > size / 2:
        raise InputError(
            f"detect: no centre of a box lies beyond {furthest:.3g} in an image of {size} pixels; "
            "export the model so that it gives boxes in pixels"
        )
    least, most = float(scores.min()), float(scores.max())
    if not (least >= -_ROUNDED and most <= 1 + _ROUNDED):
        what = "objectness and scores" if has_objectness else "scores"
        raise InputError(
            f"detect: {what} are from {least:.3g} to {most:.3g}; they must be from 0 to 1: export "
            "the model so that it gives probabilities, without masks, keypoints or angles"
        )


def _names(model: Model) -> list[str]:
    """The labels in the metadata, which hold a dict of Python; none where there are none."""
    texts = [entry.value for entry in model.proto.metadata_props if entry.key == "names"]
    try:
        # The metadata holds the text of a Python dict, which is no JSON (its keys are numbers).
        # `literal_eval` reads such a text and runs nothing of it.
        names = ast.literal_eval(texts[0])
        return [str(names[number]) for number in range(len(names))]
    except (IndexError, KeyError, TypeError, ValueError, SyntaxError):
        return []
