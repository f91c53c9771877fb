"""The convolutions of ResNet-50 and the depthwise ones of MobileNet, one image."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import torch

from bench.block import EFFORT, Call
from bench.limits import Counted
from bench.row import Row, Rows
from bench.targets import against_mkl
from bench.work import Work, normal, row_of
from luminal.nn import functional as F

Conv2d = Callable[..., torch.Tensor]
WORST = 1.0
RESNET = (  # input channels, output channels, kernel, stride, extent of the input
    (3, 64, 7, 2, 224), (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56),
    (256, 64, 1, 1, 56), (256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (128, 512, 1, 1, 28),
    (256, 512, 1, 2, 56), (512, 128, 1, 1, 28), (128, 128, 3, 1, 28), (512, 256, 1, 1, 28),
    (256, 256, 3, 2, 28), (256, 1024, 1, 1, 14), (512, 1024, 1, 2, 28), (1024, 256, 1, 1, 14),
    (256, 256, 3, 1, 14), (1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (512, 2048, 1, 1, 7),
    (512, 512, 3, 1, 7),
)  # fmt: skip
QUICK = ((64, 64, 3, 1, 56), (256, 1024, 1, 1, 14), (256, 256, 3, 1, 14))
DEPTHWISE = ((32, 1, 112), (96, 2, 112), (144, 1, 56), (192, 1, 28), (384, 1, 14), (960, 1, 7))


def rows() -> Rows:
    """Against PyTorch, channels first and last, whichever is faster."""
    found = []
    for shape in QUICK if EFFORT.quick else RESNET:
        row = row_of(_convolution(*shape))
        found.append(row.measured)
        yield row
    yield _mean("ResNet-50's convolutions", found, 1.5)
    depthwise = []
    for channels, stride, extent in DEPTHWISE[:: 3 if EFFORT.quick else 1]:
        row = row_of(_convolution(channels, channels, 3, stride, extent, channels))
        depthwise.append(row.measured)
        yield row
    yield _mean("MobileNet's depthwise convolutions", depthwise, 1.7)


def _mean(name: str, found: Sequence[float], target: float) -> Row:
    mean, detail = statistics.geometric_mean(found), f"geometric mean of {len(found)}"
    return Row(name, mean, against_mkl(target), "x", (min(found), max(found)), detail)


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int, extent: int, groups: int = 1
) -> Work:
    padding = kernel // 2
    weight = normal(outputs, inputs // groups, kernel, kernel) / (inputs * kernel) ** 0.5
    depthwise = "depthwise " if groups > 1 else ""
    name = f"{depthwise}convolution {inputs}->{outputs}, {kernel}x{kernel}/{stride} at {extent}"
    positions = (extent // stride) ** 2
    conv2d = partial(torch.nn.functional.conv2d, stride=stride, padding=padding, groups=groups)
    return Work(
        name,
        WORST,
        {"x": normal(1, inputs, extent, extent), "w": weight},
        lambda x, w: F.conv2d(x, w, stride=stride, padding=padding, groups=groups),
        torch=conv2d,
        weights=frozenset("w"),
        counted=Counted(2.0 * positions * outputs * (inputs // groups) * kernel**2),
        prepared={"channels last": partial(_channels_last, conv2d)},
    )


def _channels_last(conv2d: Conv2d, x: torch.Tensor, w: torch.Tensor) -> Call:
    last = [given.to(memory_format=torch.channels_last) for given in (x, w)]
    return lambda: conv2d(*last)
