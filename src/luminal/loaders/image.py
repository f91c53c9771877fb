"""Images in files of any kind that Pillow reads, and how a model's settings prepare them."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import installation
from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import MOST, Fields
from luminal.loaders.mapped import open_file
from luminal.loaders.shown import shown
from luminal.loaders.write_atomic import replacing

if TYPE_CHECKING:
    from PIL.Image import Image

Array = np.ndarray[Any, Any]

LANCZOS, _BILINEAR, BICUBIC = 1, 2, 3  # Pillow's numbers of filters
_FILTERS = 5  # the last of these numbers
MOST_LENGTH = 1 << 18  # of an image that is cropped then
MOST_SIDE = 8192  # of what a model takes: more would fill the memory
_CONVNEXT = "ConvNextImageProcessor", "ConvNextFeatureExtractor"
_UNCROPPED = 384  # ConvNeXt's: images of at least this size are not cropped


def read_image(path: Path) -> Image:
    """An RGB image, turned as its camera says. Raises LoadError, InputError without Pillow."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ModuleNotFoundError:
        raise InputError(
            f"{path}: reading images needs Pillow; {installation.hint('image')}"
        ) from None
    with open_file(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a large image, or tags that nobody reads
        try:
            with Image.open(file) as image:
                return as_rgb(ImageOps.exif_transpose(image))
        except UnidentifiedImageError:
            raise LoadError(f"{path}: no image that Pillow reads") from None
        except (OSError, Image.DecompressionBombError) as error:
            raise LoadError(f"{path}: no image that Pillow reads: {error}") from None
        except InputError as error:
            raise LoadError(f"{path}: {error}") from None


SENT = ("PNG", "JPEG", "WEBP", "GIF")
"""Formats of images that others send: Pillow's readers of some others start programs."""


def read_sent(data: bytes, most: int) -> Image:
    """An RGB image of at most so many pixels, turned as its camera says, of bytes that somebody
    sent; of several pictures the first. Raises InputError.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ModuleNotFoundError:
        raise InputError(f"reading images needs Pillow; {installation.hint('image')}") from None
    formats = ", ".join(SENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a large image, or tags that nobody reads
        try:
            with Image.open(io.BytesIO(data), formats=SENT) as image:
                # Some bytes may stand for any number of pixels; until here only the sizes are read.
                if image.width * image.height > most:
                    raise InputError(
                        f"it has {image.width} x {image.height} pixels, more than {most}; send a "
                        "smaller one"
                    )
                return as_rgb(ImageOps.exif_transpose(image))
        except InputError:
            raise
        except UnidentifiedImageError:
            raise InputError(f"its bytes are none of {formats}; send one of these") from None
        except Image.DecompressionBombError:
            raise InputError(f"it has more than {most} pixels; send a smaller one") from None
        except MemoryError:  # readers of some formats take several times the pixels
            raise InputError("reading it takes too much memory; send a smaller one") from None
        except Exception as error:  # what is damaged lets Pillow's readers raise anything
            raise InputError(
                f"its bytes are damaged ({shown(error)}); send all of the file"
            ) from None


def as_rgb(image: Image | Array) -> Image:
    """With 8 bits a channel, of 16 the upper ones; also of an array (height, width, 1, 3 or 4) of
    bytes. Raises InputError for what is no image, is empty, or has values of no known range.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise InputError(f"images: they need Pillow; {installation.hint('image')}") from None
    if isinstance(image, np.ndarray):
        image = _of_array(image)
    if not isinstance(image, Image.Image):
        raise InputError(
            f"images: {shown(image)} is none; give a file, an image of Pillow or an array of bytes"
        )
    if not all(image.size):
        raise InputError(f"images: one of {image.size} pixels is empty; give one with some")
    if image.mode in _OPEN_RANGES:
        raise InputError(
            f"images: values of mode {image.mode!r} have no known range; give 8 or 16 bits"
        )
    if image.mode.startswith("I;16"):  # Pillow cuts them off at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB")


def _of_array(pixels: Array) -> Image:
    """Grey, RGB or RGBA bytes as an image."""
    from PIL import Image

    channels = pixels.shape[2:]
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or channels not in _CHANNELS:
        raise InputError(
            f"images: an array is {pixels.dtype} of shape {pixels.shape}; give uint8 of (height, "
            "width, 3)"
        )
    if not pixels.size:
        raise InputError(f"images: an array of shape {pixels.shape} is empty; give some pixels")
    return Image.fromarray(pixels[..., 0] if channels == (1,) else pixels)


_CHANNELS = ((), (1,), (3,), (4,))
_OPEN_RANGES = ("I", "F")  # Pillow's modes of 32 bits


def image_format(path: Path) -> str:
    """Pillow's name of the format of a file to write, by its ending. Raises InputError."""
    from PIL import Image

    name = Image.registered_extensions().get(path.suffix.lower())
    if name not in Image.SAVE:
        raise InputError(f"{path}: no image that Pillow writes ends so; name a .png or .jpg")
    return name


def write_image(path: Path, image: Image) -> None:
    """In the format of its ending, the whole file or none of it. Raises InputError."""
    name, content = image_format(path), io.BytesIO()
    try:
        image.save(content, name)
        with replacing(path) as file:
            file.write(content.getbuffer())
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: the format has no place for it
        raise InputError(f"{path}: cannot be written: {shown(error)}") from None


@dataclass(frozen=True, slots=True)
class Preparation:
    """How an image becomes what a model takes: resized, cropped, scaled and normalised.

    `shortest`: the shorter side becomes so long and the other one keeps the ratio, unless that is
    more than `longest`, which it then becomes; else `size` (height, width), of which None keeps the
    image's own. `crop` (height, width): of the middle.
    """

    size: tuple[int, int] | None = None
    shortest: int | None = None
    resample: int = _BILINEAR
    crop: tuple[int, int] | None = None
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    longest: int | None = None

    def __call__(self, image: Image) -> Array:
        """(3, height, width) in float32. Raises InputError for an image far longer than wide."""
        if self.shortest is not None:
            side, other = self._sides(*sorted(image.size))
            if other > MOST_LENGTH:
                raise InputError(
                    f"images: one of {image.size} pixels is too long: its shorter side becomes "
                    f"{side}, the other {other}; give one of at most {MOST_LENGTH}"
                )
            wide = image.width > image.height
            image = image.resize((other, side) if wide else (side, other), self.resample)
        elif self.size is not None:
            # Pillow has the width first.
            image = image.resize((self.size[1], self.size[0]), self.resample)
        pixels = np.asarray(image, np.uint8)
        return self.normal(pixels if self.crop is None else _middle(pixels, *self.crop))

    def normal(self, pixels: Array) -> Array:
        """Bytes (height, width, 3), scaled and normalised: (3, height, width) in float32."""
        # As transformers rounds: its arrays are float64 up to here.
        scaled = (pixels.astype(np.float64) * self.scale).astype(np.float32)
        normal = (scaled - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(normal.transpose(2, 0, 1))

    def _sides(self, short: int, long: int) -> tuple[int, int]:
        """What the shorter and the longer side become."""
        assert self.shortest is not None
        side: float = self.shortest
        if self.longest is not None and long / short * side > self.longest:
            side = self.longest * short / long
        # The shorter side is rounded, the other one cut off, as transformers and torchvision do.
        return round(side), int(side * long / short)

    @property
    def shape(self) -> tuple[int, int] | None:
        """(height, width) of all that it makes, None where that depends on the image."""
        return self.crop or (None if self.shortest else self.size)


IMAGENET = Preparation(
    shortest=256,
    crop=(224, 224),
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
)
"""What models of ImageNet take that come without settings."""


def _middle(pixels: Array, height: int, width: int) -> Array:
    """That part of (h, w, 3), with zeros around where the image is smaller."""
    middle = np.zeros((height, width, pixels.shape[2]), pixels.dtype)
    parts = []
    for size, wanted in zip(pixels.shape[:2], (height, width), strict=True):
        if size >= wanted:
            first = (size - wanted) // 2
            parts.append((slice(first, first + wanted), slice(None)))
        else:
            # Of an odd rest the greater half is in front, as transformers pads.
            first = -(-(wanted - size) // 2)
            parts.append((slice(None), slice(first, first + size)))
    (rows, to_rows), (columns, to_columns) = parts
    middle[to_rows, to_columns] = pixels[rows, columns]
    return middle


def preparation_of(fields: Fields) -> Preparation:
    """The preparation that a `preprocessor_config.json` describes. Raises LoadError for settings
    that are not supported.
    """
    kind = fields.text("image_processor_type", fields.text("feature_extractor_type", ""))
    # transformers has classes for several libraries' arrays, whose settings mean the same.
    kind = kind.removesuffix("Fast").removesuffix("Pil")
    cropped = fields.flag("do_center_crop", "crop_size" in fields.values)
    # One integer means both sides or the shorter one: which of them, only the class in the file
    # tells.
    by_short_side = cropped or kind in _CONVNEXT or kind.startswith("Detr")
    square = kind.startswith(_SQUARE) or not by_short_side
    size: tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    shortest: int | None = None
    longest: int | None = None
    if fields.flag("do_resize", True):
        size, shortest = _size(fields, "size", square)
        longest = _longest(fields) if shortest else None
    if kind in _CONVNEXT and shortest:
        # ConvNeXt's rule: small images are made larger than asked for and cropped, large ones are
        # squeezed into the square.
        if shortest < _UNCROPPED:
            crop = shortest, shortest
            shortest = int(shortest / fields.number("crop_pct", 224 / 256, most=1))
        else:
            size, shortest = (shortest, shortest), None
    elif cropped:
        crop, _ = _size(fields, "crop_size", square=True)
    return replace(values_of(fields), size=size, shortest=shortest, crop=crop, longest=longest)


def values_of(
    fields: Fields, resample: int = _BILINEAR, mean: Floats | None = None, std: Floats | None = None
) -> Preparation:
    """What it says of values alone, with these defaults: the image keeps its size."""
    normal = fields.flag("do_normalize", True)
    defaults = {"image_mean": [*(mean or _HALF)], "image_std": [*(std or _HALF)]}
    fields = replace(fields, values={**defaults, **fields.values})
    return Preparation(
        resample=fields.integer("resample", resample, least=0, most=_FILTERS),
        scale=fields.number("rescale_factor", 1 / 255) if fields.flag("do_rescale", True) else 1.0,
        mean=_channels(fields, "image_mean") if normal else (0.0,) * 3,
        std=_channels(fields, "image_std", least=1e-6) if normal else (1.0,) * 3,
    )


def _longest(fields: Fields) -> int | None:
    """The most that a longer side becomes; old files have it beside the size."""
    for key, part in (("longest_edge", fields.values.get("size")), ("max_size", fields.values)):
        if isinstance(part, Mapping) and part.get(key) is not None:
            return Fields(part, fields.path, "size").integer(key, most=MOST_SIDE)
    return None


_HALF = (0.5, 0.5, 0.5)
Floats = tuple[float, ...]


_SQUARE = ("ViT", "DeiT")  # whose integer size is that of both sides, also where they crop


def _size(fields: Fields, key: str, square: bool) -> tuple[tuple[int, int] | None, int | None]:
    """Height and width, or the shorter side; an integer is that of both if `square`."""
    if type(fields.values.get(key)) is int:
        side = fields.integer(key, most=MOST_SIDE)
        return ((side, side), None) if square else (None, side)
    section = fields.section(key)
    if "shortest_edge" in section.values:
        return None, section.integer("shortest_edge", most=MOST_SIDE)
    if not section:
        raise LoadError(f"{fields.path}: no {key} in it")
    height, width = (section.integer(side, most=MOST_SIDE) for side in ("height", "width"))
    return (height, width), None


def _channels(fields: Fields, key: str, least: float = -MOST) -> tuple[float, ...]:
    values: Any = fields.values.get(key)
    numbers = isinstance(values, list) and all(
        type(number) in (int, float) and least <= number <= MOST for number in values
    )
    if not numbers or len(values) != 3:
        raise LoadError(
            f"{fields.path}: {key} is {shown(values)}; it must be a list of 3 numbers, each at "
            f"least {least:g}"
        )
    return tuple(map(float, values))
