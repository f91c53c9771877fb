"""Qwen2-VL and Qwen2.5-VL: images of any size, turned by rows and columns; windows in the latter.

Wang et al., arXiv 2409.12191; Bai et al., arXiv 2502.13923.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.dtypes import float32, int32, promote
from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.loaders.image import BICUBIC, values_of
from luminal.models.architectures.settings import layer_count, refuse
from luminal.models.families.renaming import Names
from luminal.models.seeing.qwen2_vl_file import QWEN2_5_VL_FILE, QWEN2_VL_FILE
from luminal.models.seeing.record import Prepare, Prepared, ProjectorFile, Seeing
from luminal.models.seen import AXES, Span
from luminal.models.transformer import TransformerConfig, TransformerLayer
from luminal.nn import Linear, Module, ModuleList, RotaryEmbedding
from luminal.nn.functional import gelu
from luminal.nn.rotary import Angles

if TYPE_CHECKING:
    from PIL.Image import Image

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
"""Of CLIP's images, where a processor's file does not say."""
_MOST_RATIO = 200  # of an image's sides
_MOST_VECTORS = 1 << 14  # of one image
_THETA = 10000.0
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class PatchConfig:
    """A tower of patches of `frames` x `patch` x `patch` pixels, `merge` x `merge` of which are one
    vector of `hidden` numbers. `window`: pixels along a side of what patches see, but for layers in
    `whole`, which see all; None where all layers do.
    """

    layers: TransformerConfig
    hidden: int
    channels: int = 3
    patch: int = 14
    frames: int = 2
    merge: int = 2
    window: int | None = None
    whole: tuple[int, ...] = ()


class PatchTower(Module):
    """The patches of one image to vectors."""

    def __init__(self, config: PatchConfig, dtype: Any = float32) -> None:
        layers, self.config = config.layers, config
        width, merged = layers.hidden_size, layers.hidden_size * config.merge**2
        pixels = config.channels * config.frames * config.patch**2
        self.patches = Linear(pixels, width, bias=False, dtype=dtype)
        rotary = RotaryEmbedding(layers.head_dim)
        self.layers = ModuleList(
            TransformerLayer(layers, dtype, rotary) for _ in range(layers.num_hidden_layers)
        )
        self.norm = layers.make_norm(dtype)
        self.first, self.second = Linear(merged, merged), Linear(merged, config.hidden)

    def forward(self, images: Tensor, axes: Tensor, windows: Tensor | None = None) -> Tensor:
        """images (m, merge**2, pixels of a patch), the patches of each vector, which lie at the row
        and column `axes` (2, m * merge**2) and in these windows, to (m, hidden).
        """
        x = self.patches(images.flatten(0, 1))
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        angles = self._angles(axes)
        # Patches lie in the order of vectors, not of windows: a mask says the same as an order.
        near = None if windows is None else windows.unsqueeze(-1) == windows
        for number, layer in enumerate(self.layers):
            visible = None if number in self.config.whole else near
            x = layer(x, visible, angles=angles)
        merged = self.norm(x).unflatten(0, images.extents[:2]).flatten(1)
        vectors: Tensor = self.second(gelu(self.first(merged)))
        return vectors

    def _angles(self, axes: Tensor) -> Angles:
        """Half of the features turn by the row, the others by the column."""
        size = self.config.layers.head_dim // 2
        frequencies = _THETA ** (-np.arange(0, size, 2) / size)
        rows, columns = (
            axes[axis].cast(float32).unsqueeze(-1) * frequencies.astype(np.float32)
            for axis in (0, 1)
        )
        angles = concat((rows, columns), -1)
        return Angles(angles.cos(), angles.sin())

    def recorded(self, graph: Any) -> Tensor:
        """The vectors of "images", "axes" and "windows", inputs of the graph."""
        config = self.config
        m, count = graph.dim("m", 1, _MOST_VECTORS), config.merge**2
        pixels = config.channels * config.frames * config.patch**2
        images = graph.tensor((m, count, pixels), float32, "images")
        axes = graph.tensor((2, m, count), int32, "axes").flatten(1)
        if config.window is None:
            return self(images, axes)  # type: ignore[no-any-return]
        windows = graph.tensor((m,), int32, "windows")
        of_patches = windows.unsqueeze(-1).expand(m, count).flatten()
        return self(images, axes, of_patches)  # type: ignore[no-any-return]


def _first(fields: Fields, hidden: int) -> PatchConfig:
    """The tower of Qwen2-VL, without windows."""
    vision = fields.section("vision_config")
    width = vision.integer("embed_dim", 1280)
    inner = int(width * vision.number("mlp_ratio", 4))
    return _config(vision, hidden, width, inner, vision.text("hidden_act", "quick_gelu"))


def _second(fields: Fields, hidden: int) -> PatchConfig:
    """The tower of Qwen2.5-VL, with windows."""
    vision = fields.section("vision_config")
    refuse(vision, out_hidden_size=hidden)
    width, inner = vision.integer("hidden_size", 3584), vision.integer("intermediate_size", 3420)
    whole = vision.listed("fullatt_block_indexes", int, [7, 15, 23, 31])
    return _config(
        vision,
        hidden,
        width,
        inner,
        vision.text("hidden_act", "silu"),
        gated=True,
        window=vision.integer("window_size", 112),
        whole=(*whole,),
    )


def _config(
    vision: Fields,
    hidden: int,
    width: int,
    inner: int,
    activation: str,
    gated: bool = False,
    window: int | None = None,
    whole: tuple[int, ...] = (),
) -> PatchConfig:
    heads = vision.integer("num_heads", 16)
    if width % heads or width // heads % 4:
        raise LoadError(
            f"{vision.path}: {width} features of {heads} heads; those of a head must be a multiple "
            "of 4, as pairs of them turn by rows and by columns"
        )
    patch, merge = vision.integer("patch_size", 14), vision.integer("spatial_merge_size", 2)
    if window is not None and window < patch * merge:
        raise LoadError(
            f"{vision.path}: window_size is {window} pixels; it must be at least {patch * merge}, "
            f"the side of {merge} x {merge} patches of {patch}, which are one vector"
        )
    layers = TransformerConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layer_count(vision, "depth") if "depth" in vision.values else 32,
        num_attention_heads=heads,
        head_dim=width // heads,
        activation=activation,
        gated=gated,
        rms=gated,
        norm_eps=_EPSILON,
    )
    return PatchConfig(
        layers,
        hidden,
        vision.integer("in_channels", 3),
        patch,
        vision.integer("temporal_patch_size", 2),
        merge,
        window,
        whole,
    )


def _weights(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Queries, keys and values apart; the patches' convolution as the product that it is."""
    weights: dict[str, Array] = {}
    for name, array in tensors.items():
        if ".qkv." in name:
            if not array.ndim or len(array) % 3:
                raise LoadError(
                    f"weights: {name!r} has the shape {array.shape}; its first dim must be a "
                    "multiple of 3, for queries, keys and values"
                )
            for part, rows in zip("qkv", np.split(array, 3), strict=True):
                weights[name.replace(".qkv.", f".{part}_proj.")] = rows
        elif name == "patches.weight":
            weights[name] = _product(array, tensors.get(_SECOND))
        elif name != _SECOND:
            weights[name] = array
    return weights


_SECOND = "patches.weight.1"
"""The weight of the second of two frames, where files have one for each."""


def _product(array: Array, second: Array | None) -> Array:
    """A convolution's weight (width, channels, frames, rows, columns) as rows of a matrix."""
    if second is not None:
        if array.ndim != 4 or array.shape != second.shape:
            raise LoadError(
                f"weights: those of patches have the shapes {array.shape} and {second.shape}; "
                "both must be (width, channels, rows, columns); download the file again"
            )
        array = np.stack((array, second), 2)
    if array.ndim != 5:
        raise LoadError(
            f"weights: that of patches has the shape {array.shape}; it must be (width, channels, "
            "frames, rows, columns), and GGUF files have one for each of two frames"
        )
    return array.reshape(len(array), math.prod(array.shape[1:]))


def _names(fields: Fields) -> Names:
    return (
        (r"^(model\.)?visual\.", ""),
        (r"^patch_embed\.proj\.", "patches."),
        (r"^merger\.ln_q\.", "norm."),
        (r"^merger\.mlp\.0\.", "first."),
        (r"^merger\.mlp\.2\.", "second."),
        (r"^blocks\.", "layers."),
        (r"\.norm1\.", ".attention.norm."),
        (r"\.norm2\.", ".mlp.norm."),
        (r"\.attn\.proj\.", ".attention.part.o_proj."),
        (r"\.attn\.(qkv|[qkv]_proj)\.", r".attention.part.\1."),
        (r"\.mlp\.(fc1|up_proj)\.", ".mlp.part.up_proj."),
        (r"\.mlp\.(fc2|down_proj)\.", ".mlp.part.down_proj."),
        (r"\.mlp\.gate_proj\.", ".mlp.part.gate_proj."),
    )


def _preparing(
    config_of: Callable[[Fields, int], PatchConfig],
) -> Callable[[Fields, Fields, Callable[[int], str]], Prepare]:
    """How images become patches for such a tower."""

    def made(fields: Fields, processor: Fields, name: Callable[[int], str]) -> Prepare:
        hidden = fields.section("vision_config").integer("out_hidden_size", 1)
        config, values = config_of(fields, hidden), values_of(processor, BICUBIC, _MEAN, _STD)
        expected = {
            "patch_size": config.patch,
            "merge_size": config.merge,
            "temporal_patch_size": config.frames,
        }
        refuse(processor, do_resize=True, **expected)
        size = processor.section("size")
        least = processor.integer("min_pixels", size.integer("shortest_edge", 56 * 56))
        most = processor.integer("max_pixels", size.integer("longest_edge", 28 * 28 * 1280))
        image_token = name(fields.integer("image_token_id"))

        def prepare(image: Image) -> Prepared:
            step = config.patch * config.merge
            image = image.resize(_fitting(image.size, step, least, most), values.resample)
            grid = image.height // step, image.width // step
            count = grid[0] * grid[1]
            if count > _MOST_VECTORS:
                raise InputError(
                    f"images: one of {image.size} pixels becomes {count} tokens, more than "
                    f"{_MOST_VECTORS}; give a smaller one"
                )
            inputs = {"images": _patches(values(image), config), "axes": _axes(grid, config.merge)}
            if config.window is not None:
                side = config.window // step
                across = -(-grid[1] // side)
                rows, columns = np.indices(grid)
                windows = rows // side * across + columns // side
                inputs["windows"] = windows.reshape(-1).astype(np.int32)
            return Prepared([inputs], image_token * count, count, grid)

        return prepare

    return made


def _fitting(size: tuple[int, int], step: int, least: int, most: int) -> tuple[int, int]:
    """(width, height) as multiples of `step`, near the ratio of `size`, of `least` to `most`
    pixels.
    """
    if max(size) > _MOST_RATIO * min(size):
        raise InputError(
            f"images: one of {size} pixels is too narrow: a side may be {_MOST_RATIO} times the "
            "other; cut it"
        )
    sides = [round(side / step) * step for side in size]
    area = size[0] * size[1]
    if sides[0] * sides[1] > most:
        by = math.sqrt(area / most)
        sides = [max(step, math.floor(side / by / step) * step) for side in size]
    elif sides[0] * sides[1] < least:
        by = math.sqrt(least / area)
        sides = [math.ceil(side * by / step) * step for side in size]
    return sides[0], sides[1]


def _patches(pixels: Array, config: PatchConfig) -> Array:
    """(3, height, width) to (vectors, merge**2, pixels of a patch), of `frames` equal frames."""
    channels, height, width = pixels.shape
    size, merge = config.patch, config.merge
    grid = height // size // merge, width // size // merge
    parts = pixels.reshape(channels, grid[0], merge, size, grid[1], merge, size)
    parts = parts.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
    shape = *parts.shape[:5], config.frames, size, size
    return np.broadcast_to(parts, shape).reshape(grid[0] * grid[1], merge**2, -1)


def _axes(grid: tuple[int, int], merge: int) -> Array:
    """The row and column of each patch, (2, vectors, merge**2)."""
    rows, columns = grid
    places = np.indices((rows * merge, columns * merge), np.int32)
    split = places.reshape(2, rows, merge, columns, merge).transpose(0, 1, 3, 2, 4)
    return split.reshape(2, rows * columns, merge**2)


def _places(count: int, spans: Sequence[Span]) -> Array:
    """Tokens of an image are where it begins in time, and by row and column from there on; what
    follows is behind its longer side.
    """
    places = np.empty((AXES, count), np.int32)
    at, position = 0, 0
    for first, end, _, grid in spans:
        places[:, at:first] = np.arange(position, position + first - at)
        position += first - at
        inner = np.indices((1, *grid), np.int32).reshape(AXES, -1)
        places[:, first:end] = position + inner
        at, position = end, position + max(grid)
    places[:, at:] = np.arange(position, position + count - at)
    return places


def _seeing(config_of: Callable[[Fields, int], PatchConfig], file: ProjectorFile) -> Seeing:
    return Seeing(
        lambda fields, hidden: PatchTower(config_of(fields, hidden)),
        ("visual.", "model.visual."),
        _names,
        _preparing(config_of),
        weights=_weights,
        places=_places,
        file=file,
    )


QWEN2_VL, QWEN2_5_VL = _seeing(_first, QWEN2_VL_FILE), _seeing(_second, QWEN2_5_VL_FILE)
