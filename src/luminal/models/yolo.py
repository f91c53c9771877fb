"""YOLOv8 and YOLO11: boxes of things in an image. Jocher et al., Ultralytics, 2023 and 2024."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.models.yolo_blocks import (
    Bottleneck,
    Concat,
    PartialAttention,
    PartialStage,
    PyramidPooling,
    SplitBottlenecks,
    conv,
)
from luminal.nn import Conv2d, Module, ModuleList, Sequential, Upsample

BINS = 16  # of a distance from a place to a side of its box, in strides
STRIDES = (8, 16, 32)


@dataclass(frozen=True, slots=True)
class YoloConfig:
    """`version` is 8 or 11. `depth` and `width` multiply numbers of blocks and channels, of which
    there are at most `most` before. `deep`: all of YOLO11's stages have inner stages.
    """

    version: int
    classes: int
    depth: float
    width: float
    most: int
    deep: bool = False

    def channels(self, count: int) -> int:
        """A multiple of 8."""
        return math.ceil(min(count, self.most) * self.width / 8) * 8

    def blocks(self, count: int) -> int:
        """The number of blocks, scaled and at least one."""
        return max(round(count * self.depth), 1)


class Layer(NamedTuple):
    """A module of the network, whose inputs are the outputs of these layers; -1 is the one before.

    `outputs`: its channels.
    """

    module: Module
    outputs: int
    inputs: tuple[int, ...] = (-1,)


class _Plan:
    """The layers so far: what each makes follows from those before."""

    def __init__(self, config: YoloConfig) -> None:
        self.config = config
        self.layers: list[Layer] = []

    def _inputs(self) -> int:
        return self.layers[-1].outputs if self.layers else 3

    def conv(self, count: int) -> None:
        """Adds a convolution that halves height and width."""
        outputs = self.config.channels(count)
        self.layers.append(Layer(conv(self._inputs(), outputs, 3, 2), outputs))

    def stage(
        self, count: int, blocks: int, shortcut: bool = True, deep: bool = False, share: float = 0.5
    ) -> None:
        """Blocks of the version."""
        config = self.config
        outputs, number = config.channels(count), config.blocks(blocks)
        inner = int(outputs * share)
        parts: list[Module]
        if config.version == 8:
            parts = [Bottleneck(inner, inner, shortcut, 1.0) for _ in range(number)]
        elif deep or config.deep:
            parts = [SplitBottlenecks(inner) for _ in range(number)]
        else:
            parts = [Bottleneck(inner, inner) for _ in range(number)]
        self.layers.append(Layer(PartialStage(self._inputs(), outputs, parts, share), outputs))

    def pooling(self, count: int) -> None:
        """Ends the part that gets smaller."""
        outputs = self.config.channels(count)
        self.layers.append(Layer(PyramidPooling(self._inputs(), outputs), outputs))

    def attention(self, blocks: int) -> None:
        """Adds attention over parts of the features, as YOLO11 has it."""
        outputs = self._inputs()
        module = PartialAttention(outputs, self.config.blocks(blocks))
        self.layers.append(Layer(module, outputs))

    def twice(self) -> None:
        """Adds a layer that doubles height and width."""
        self.layers.append(Layer(Upsample(scale_factor=2), self._inputs()))

    def beside(self, other: int) -> None:
        """The last layer's channels, then those of layer `other`."""
        outputs = self._inputs() + self.layers[other].outputs
        self.layers.append(Layer(Concat(), outputs, (-1, other)))

    def detect(self, *levels: int) -> None:
        """The end: boxes and classes of three sizes."""
        channels = [self.layers[level].outputs for level in levels]
        head = Detect(channels, self.config.classes, separable=self.config.version == 11)
        self.layers.append(Layer(head, 0, levels))


def _yolov8(plan: _Plan) -> None:
    plan.conv(64)
    for count, blocks in ((128, 3), (256, 6), (512, 6), (1024, 3)):
        plan.conv(count)
        plan.stage(count, blocks)
    plan.pooling(1024)
    for count, other in ((512, 6), (256, 4)):
        plan.twice()
        plan.beside(other)
        plan.stage(count, 3, shortcut=False)
    for count, other, outputs in ((256, 12, 512), (512, 9, 1024)):
        plan.conv(count)
        plan.beside(other)
        plan.stage(outputs, 3, shortcut=False)
    plan.detect(15, 18, 21)


def _yolo11(plan: _Plan) -> None:
    plan.conv(64)
    for count, outputs in ((128, 256), (256, 512)):
        plan.conv(count)
        plan.stage(outputs, 2, share=0.25)
    for count in (512, 1024):
        plan.conv(count)
        plan.stage(count, 2, deep=True)
    plan.pooling(1024)
    plan.attention(2)
    for count, other in ((512, 6), (256, 4)):
        plan.twice()
        plan.beside(other)
        plan.stage(count, 2)
    for count, other, outputs in ((256, 13, 512), (512, 10, 1024)):
        plan.conv(count)
        plan.beside(other)
        plan.stage(outputs, 2, deep=outputs == 1024)
    plan.detect(16, 19, 22)


class Detect(Module):
    """Boxes and classes of every place of three levels. `separable`: YOLO11's way of classes.

    Distances to a box's sides are means over bins: Li et al., arXiv 2006.04388.
    """

    def __init__(self, channels: Sequence[int], classes: int, separable: bool) -> None:
        first = channels[0]
        box, name = max(16, first // 4, 4 * BINS), max(first, min(classes, 100))

        def towards(inputs: int) -> Iterator[Module]:
            for width in (inputs, name):
                if separable:
                    yield Sequential(conv(width, width, 3, groups=width), conv(width, name))
                else:
                    yield conv(width, name, 3)

        self.cv2 = ModuleList(
            Sequential(conv(channel_count, box, 3), conv(box, box, 3), Conv2d(box, 4 * BINS, 1))
            for channel_count in channels
        )
        self.cv3 = ModuleList(
            Sequential(*towards(channel_count), Conv2d(name, classes, 1))
            for channel_count in channels
        )

    def forward(self, *levels: Tensor) -> tuple[Tensor, Tensor]:
        """Corners of boxes in pixels (batch, places, 4), scores of classes (batch, places, n)."""
        by_level = [
            _decoded(boxes(x), scores(x), stride)
            for x, boxes, scores, stride in zip(levels, self.cv2, self.cv3, STRIDES, strict=True)
        ]
        boxes, scores = zip(*by_level, strict=True)
        return concat(boxes, 1), concat(scores, 1)


def _decoded(boxes: Tensor, scores: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """The boxes and scores of one level, (batch, 4 * BINS, h, w) and (batch, classes, h, w)."""
    height, width = (n.value for n in boxes.extents[2:])
    rows, columns = np.divmod(np.arange(height * width), width)
    centres = boxes.graph.constant(np.stack((columns, rows), -1).astype(np.float32) + 0.5)
    # A distance is the mean of a distribution over bins: where a side of a thing is unclear, the
    # bins can say so.
    shares = boxes.flatten(2).unflatten(1, (4, BINS)).softmax(2)
    bins = np.arange(BINS, dtype=np.float32).reshape(-1, 1)
    distances = (shares * bins).sum(2).mT
    corners = concat((centres - distances[..., :2], centres + distances[..., 2:]), -1)
    return corners * stride, scores.flatten(2).mT.sigmoid()


class Yolo(Module):
    """Images to boxes and scores; `model` are its layers, numbered as in Ultralytics' files."""

    def __init__(self, config: YoloConfig) -> None:
        self.config = config
        plan = _Plan(config)
        {8: _yolov8, 11: _yolo11}[config.version](plan)
        self.inputs = [layer.inputs for layer in plan.layers]
        self.model = ModuleList(layer.module for layer in plan.layers)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, 3, h, w), sizes multiples of 32, values 0 to 1; see Detect."""
        outputs: list[Tensor] = [images]
        for module, inputs in zip(self.model, self.inputs, strict=True):
            sources = (outputs[-1] if number == -1 else outputs[number + 1] for number in inputs)
            outputs.append(module(*sources))
        return outputs[-1]  # type: ignore[return-value]
