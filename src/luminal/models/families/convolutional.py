"""ResNet, MobileNet v1 and v2, ConvNeXt. arXiv 1512.03385, 1704.04861, 1801.04381, 2201.03545."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import MAX_LAYERS
from luminal.models.classifier import Classifier
from luminal.models.convnext import ConvNeXt
from luminal.models.convolutional import BlockConfig, ConvConfig, ConvNet
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import labels_of
from luminal.models.image_model import ImageClassifier

_CONV_NAMES: Names = (
    (r"num_batches_tracked$", None),
    (r"\.convolution\.", ".conv."),
    (r"\.normalization\.", ".norm."),
    (r"^classifier(\.1)?\.", "head."),
)


class Named(NamedTuple):
    """A block, and what the names of its convolutions begin with in the files."""

    block: BlockConfig
    convs: Sequence[str]
    shortcut: str = ""


def _sizes(fields: Fields, key: str) -> list[int]:
    """A list of sizes, one for each stage."""
    sizes = fields.listed(key, int)
    if not sizes or not all(0 < size <= MAX_LAYERS for size in sizes):
        raise LoadError(f"{fields.path}: {key} is {sizes}; all must be from 1 to {MAX_LAYERS}")
    return sizes


def _stages(fields: Fields) -> list[tuple[int, int]]:
    """The width and depth of each."""
    widths, depths = _sizes(fields, "hidden_sizes"), _sizes(fields, "depths")
    if len(widths) != len(depths):
        raise LoadError(
            f"{fields.path}: hidden_sizes has {len(widths)} stages, depths {len(depths)}"
        )
    return list(zip(widths, depths, strict=True))


def resnet(fields: Fields) -> Iterator[Named]:
    """The blocks of a ResNet."""
    act = fields.text("hidden_act", "relu")
    kind = fields.text("layer_type", "bottleneck")
    if kind not in ("basic", "bottleneck"):
        raise LoadError(f"{fields.path}: layer_type {kind!r} is not 'basic' or 'bottleneck'")
    early = fields.flag("downsample_in_bottleneck", False)
    width = fields.integer("embedding_size")
    stem = ConvConfig(fields.integer("num_channels", 3), width, 7, 2, activation=act)
    yield Named(BlockConfig((stem,), pooled=True), ["resnet.embedder.embedder."])
    for stage, (outputs, depth) in enumerate(_stages(fields)):
        halves = stage > 0 or fields.flag("downsample_in_first_stage", False)
        for layer in range(depth):
            stride = 2 if halves and layer == 0 else 1
            sizes: tuple[tuple[int, ...], ...]
            if kind == "basic":
                sizes = (width, outputs, 3, stride), (outputs, outputs, 3, 1)
            else:
                inner = outputs // 4
                # The paper halves in the first convolution, later versions in the second, which
                # reads all pixels.
                first, second = (stride, 1) if early else (1, stride)
                sizes = (
                    (width, inner, 1, first),
                    (inner, inner, 3, second),
                    (inner, outputs, 1, 1),
                )
            *convs, last = (ConvConfig(*numbers) for numbers in sizes)
            convs.append(replace(last, activation=None))
            path = f"resnet.encoder.stages.{stage}.layers.{layer}."
            yield Named(
                BlockConfig(tuple(convs), residual=True, activation=act),
                [f"{path}layer.{number}." for number in range(len(convs))],
                f"{path}shortcut.",
            )
            width = outputs


_HALVING_V1 = (1, 3, 5, 11)
_CHANNELS_V2 = 16, *(24,) * 2, *(32,) * 3, *(64,) * 4, *(96,) * 3, *(160,) * 3, 320
_HALVING_V2 = (0, 2, 5, 12)


class _MobileNet:
    """What both versions read: convolutions with their options, widths by the multiplier."""

    def __init__(self, fields: Fields) -> None:
        self.multiplier = fields.number("depth_multiplier", 1.0, most=64)
        self.least = fields.integer("min_depth", 8)
        self.step = fields.integer("depth_divisible_by", 8)
        self.options: dict[str, Any] = {
            "activation": fields.text("hidden_act", "relu6"),
            "norm_eps": fields.number("layer_norm_eps", 1e-3, most=1),
            "same": fields.flag("tf_padding", True),
        }

    def conv(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
        **changes: Any,
    ) -> ConvConfig:
        """With the options; `changes` are others of ConvConfig."""
        sizes = inputs, outputs, kernel, stride, groups, dilation
        return ConvConfig(*sizes, **self.options | changes)

    def divisible(self, channels: float) -> int:
        """Rounded to a multiple of `step` that is at least nine tenths of it."""
        rounded = max(self.least, int(channels + self.step / 2) // self.step * self.step)
        # As in TensorFlow's code, which the papers' networks were trained with: down to the nearest
        # multiple, but never by more than a tenth.
        return rounded + self.step if rounded < 0.9 * channels else rounded

    def width(self, channels: int) -> int:
        """The channels of a layer of the second version, which rounds the product."""
        return self.divisible(round(channels * self.multiplier))


def _mobilenet_v1(fields: Fields) -> Iterator[Named]:
    network = _MobileNet(fields)
    depth = 32
    width = max(int(depth * network.multiplier), network.least)
    stem = network.conv(fields.integer("num_channels", 3), width, 3, 2)
    yield Named(BlockConfig((stem,)), ["mobilenet_v1.conv_stem."])
    for number in range(13):
        halves = number in _HALVING_V1
        depth *= 2 if halves or number == 0 else 1
        outputs = max(int(depth * network.multiplier), network.least)
        depthwise = network.conv(width, width, 3, 2 if halves else 1, width)
        names = [f"mobilenet_v1.layer.{2 * number + part}." for part in range(2)]
        yield Named(BlockConfig((depthwise, network.conv(width, outputs, 1))), names)
        width = outputs


def _mobilenet_v2(fields: Fields) -> Iterator[Named]:
    network = _MobileNet(fields)
    ratio = fields.number("expand_ratio", 6)
    first, widths = network.width(32), [network.width(channels) for channels in _CHANNELS_V2]
    stem = {"first_conv": network.conv(fields.integer("num_channels", 3), first, 3, 2)}
    if not fields.flag("first_layer_is_expansion", True):
        stem["expand_1x1"] = network.conv(first, first, 1)
    stem["conv_3x3"] = network.conv(first, first, 3, 1, first)
    stem["reduce_1x1"] = network.conv(first, widths[0], 1, activation=None)
    yield Named(
        BlockConfig(tuple(stem.values())), [f"mobilenet_v2.conv_stem.{name}." for name in stem]
    )
    reached, further = 2, 1
    most = fields.integer("output_stride", 32)
    for number, (width, outputs) in enumerate(pairwise(widths)):
        halves = 2 if number in _HALVING_V2 else 1
        dilation = 1
        if reached == most:  # the further ones see as far without getting smaller
            stride, dilation, further = 1, further, further * halves
        else:
            stride, reached = halves, reached * halves
        inner = network.divisible(round(width * ratio))
        convs = {
            "expand_1x1": network.conv(width, inner, 1),
            "conv_3x3": network.conv(inner, inner, 3, stride, inner, dilation),
            "reduce_1x1": network.conv(inner, outputs, 1, activation=None),
        }
        residual = stride == 1 and width == outputs
        names = [f"mobilenet_v2.layer.{number}.{name}." for name in convs]
        yield Named(BlockConfig(tuple(convs.values()), residual), names)
    # The last layer stays wide in narrow networks, since classes are told apart there (arXiv
    # 1801.04381, section 4).
    fixed = fields.flag("finegrained_output", True) and network.multiplier < 1
    last = network.conv(widths[-1], 1280 if fixed else network.width(1280), 1)
    yield Named(BlockConfig((last,)), ["mobilenet_v2.conv_1x1."])


def names_of(blocks: Iterable[Named]) -> Names:
    """How their weights are named in the files and by a ConvNet called `trunk`."""
    names = list(_CONV_NAMES)
    for number, (_, convs, shortcut) in enumerate(blocks):
        path = f"trunk.blocks.{number}."
        for part, name in enumerate(convs):
            names.append((f"^{re.escape(name)}", f"{path}convs.{part}."))
        if shortcut:
            names.append((f"^{re.escape(shortcut)}", f"{path}shortcut."))
    return names


def _family(named: Callable[[Fields], Iterator[Named]]) -> Family:
    """A family of networks that are blocks of convolutions."""

    def model(fields: Fields) -> Classifier:
        trunk = ConvNet([part.block for part in named(fields)])
        return Classifier(trunk, trunk.width, len(labels_of(fields)))

    def weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
        return renamed(tensors, names_of(named(fields)))

    return Family(model, weights, ImageClassifier.of_folder)


_CONVNEXT_NAMES: Names = (
    (r"^classifier\.", "head."),
    (r"^convnext\.", "trunk."),
    (r"\.embeddings\.patch_embeddings\.", ".stem.0."),
    (r"\.embeddings\.layernorm\.", ".stem.1."),
    (r"^trunk\.layernorm\.", "trunk.norm."),
    (r"\.encoder\.stages\.(\d+)\.layers\.", r".stages.\1."),
    (r"\.dwconv\.", ".conv."),
    (r"\.layernorm\.", ".norm."),
    (r"\.pwconv1\.", ".mlp.up_proj."),
    (r"\.pwconv2\.", ".mlp.down_proj."),
    (r"\.layer_scale_parameter$", ".scale"),
)


def _convnext(fields: Fields) -> Classifier:
    widths, depths = zip(*_stages(fields), strict=True)
    trunk = ConvNeXt(
        fields.integer("num_channels", 3),
        fields.integer("patch_size", 4),
        widths,
        depths,
        fields.text("hidden_act", "gelu"),
        fields.number("layer_norm_eps", 1e-12, most=1),
        fields.values.get("layer_scale_init_value", 1e-6) != 0,
    )
    return Classifier(trunk, trunk.width, len(labels_of(fields)))


def _convnext_weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    halves = [
        (rf"\.encoder\.stages\.{stage}\.downsampling_layer\.", f".halves.{stage - 1}.")
        for stage in range(1, len(_stages(fields)))
    ]
    return renamed(tensors, (*halves, *_CONVNEXT_NAMES))


RESNET, MOBILENET_V1, MOBILENET_V2 = map(_family, (resnet, _mobilenet_v1, _mobilenet_v2))
CONVNEXT = Family(_convnext, _convnext_weights, ImageClassifier.of_folder)
