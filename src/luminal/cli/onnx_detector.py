"""A YOLO as Ultralytics exports it to ONNX: run as it is, its boxes chosen by another program."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal import dtypes
from luminal.cli import onnx_inputs
from luminal.errors import InputError
from luminal.frontend.movement import concat
from luminal.models.detect import Detector, output_best_boxes
from luminal.runtime.executable import Executable
from luminal.session import Graph, compile

if TYPE_CHECKING:
    from luminal.onnx import Model

_OPEN_SIZE = 640  # of images where a model leaves it open


class OnnxDetector(Detector):
    """One input, (1, 3, size, size); one output, (1, 4 + classes, places): centres and sizes of
    boxes, then scores. Labels are the metadata's `names`, numbers where there are none.
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

    def candidates(self, pixels: np.ndarray[Any, Any], iou: float) -> Mapping[str, Any]:
        """See Detector."""
        (found, *_) = self._model(pixels[None]).values()
        count = len(self.labels) or found.shape[1] - 4
        if found.ndim != 3 or found.shape[1] != 4 + count or count < 1:
            raise InputError(
                f"detect: the model gives {found.shape}; it must be (1, 4 + classes, places)"
                + (f" for {count} classes" if self.labels else "")
            )
        self.labels = self.labels or [str(number) for number in range(count)]
        if iou not in self._programs:
            self._programs[iou] = self._choice(found.shape[1:], iou)
        return self._programs[iou](found=found[0])

    def _choice(self, shape: tuple[int, ...], iou: float) -> Executable:
        graph = Graph("boxes")
        found = graph.tensor(shape, dtypes.float32, "found").mT
        centre, half = found[:, :2], found[:, 2:4] / 2
        output_best_boxes(concat((centre - half, centre + half), -1), found[:, 4:], iou)
        return compile(graph, backend=self._backend, mode=self._mode)


def _names(model: Model) -> list[str]:
    """Of the metadata, which hold a dict of Python; none where there are none."""
    texts = [each.value for each in model.proto.metadata_props if each.key == "names"]
    try:
        found = ast.literal_eval(texts[0])
        return [str(found[number]) for number in range(len(found))]
    except (IndexError, KeyError, TypeError, ValueError, SyntaxError):
        return []
