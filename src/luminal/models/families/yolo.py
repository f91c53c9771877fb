"""YOLOv8 and YOLO11 in a folder: a `config.json` of ours, and weights as Ultralytics names them.

The configuration says `architectures`, a `scale` ("n", "s", "m", "l", "x") or `depth_multiple`,
`width_multiple` and `max_channels`; `id2label` or `num_labels`; `image_size`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.detect import YoloDetector
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import labels_of
from luminal.models.yolo import Yolo, YoloConfig
from luminal.models.yolo_blocks import NORM_EPS

_SCALES: Mapping[int, Mapping[str, tuple[float, float, int]]] = {
    8: {
        "n": (1 / 3, 0.25, 1024),
        "s": (1 / 3, 0.5, 1024),
        "m": (2 / 3, 0.75, 768),
        "l": (1.0, 1.0, 512),
        "x": (1.0, 1.25, 512),
    },
    11: {
        "n": (0.5, 0.25, 1024),
        "s": (0.5, 0.5, 1024),
        "m": (0.5, 1.0, 512),
        "l": (1.0, 1.0, 512),
        "x": (1.0, 1.5, 512),
    },
}
"""Depth, width and most channels of the sizes that are published."""
_DEEP = "mlx"  # sizes of YOLO11 whose stages all have inner ones
_NAMES: Names = ((r"num_batches_tracked$|\.dfl\.", None), (r"\.bn\.", ".norm."))


def _model(version: int, fields: Fields) -> Yolo:
    scales = _SCALES[version]
    scale = fields.text("scale", "")
    if scale and scale not in scales:
        raise LoadError(f"{fields.path}: scale {scale!r} is not one of {', '.join(scales)}")
    depth, width, most = scales.get(scale, (None, None, None))
    config = YoloConfig(
        version,
        len(labels_of(fields)),
        depth or fields.number("depth_multiple", most=16),
        width or fields.number("width_multiple", most=16),
        most or fields.integer("max_channels", 1024),
        fields.flag("deep", bool(scale) and scale in _DEEP),
    )
    return Yolo(config)


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    """Weights by our names. Convolutions that contain their norms get norms that only add."""
    weights = renamed(tensors, _NAMES)
    for name in [name for name in weights if name.endswith(".conv.bias")]:
        path, bias = name.removesuffix("conv.bias") + "norm.", weights.pop(name)
        weights[path + "bias"] = bias
        weights[path + "running_mean"] = np.zeros_like(bias)
        # The norm adds its epsilon to the variance, so this one divides by 1: one module serves
        # both kinds of files.
        weights[path + "running_var"] = np.full_like(bias, 1 - NORM_EPS)
        weights[path + "weight"] = np.ones_like(bias)
    return weights


YOLOV8, YOLO11 = (
    Family(partial(_model, version), _weights, YoloDetector.of_folder) for version in _SCALES
)
