"""Sound in RIFF WAVE files. Multimedia Programming Interface and Data Specifications 1.0, 1991."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.loaders.mapped import open_file
from luminal.loaders.write_atomic import replacing

Array = np.ndarray[Any, Any]

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_DTYPES = {
    (_PCM, 8): ("u1", 128, 128),
    (_PCM, 16): ("<i2", 0, 2**15),
    (_PCM, 24): ("<i4", 0, 2**31),  # with a byte of zeros below
    (_PCM, 32): ("<i4", 0, 2**31),
    (_FLOAT, 32): ("<f4", 0, 1),
    (_FLOAT, 64): ("<f8", 0, 1),
}
"""Format and bits: the dtype, the value of silence, that of full scale."""

_OPEN = 0x7FFF_0000
"""From here on a size stands for one that was not known when the header was written, as 0 does:
programs that write into a pipe give the most that they can, of 31 bits or of 32."""
_MOST_RATE = 1_000_000  # of a damaged file: sound has less than 400 kHz
_ZERO_CROSSINGS = 32  # of the sinc on either side: the stop band lies below the noise of 16 bits
_BLOCK = 16384  # outputs at once: NumPy may copy the windows of all
_BETA = 9.0  # of the Kaiser window: about 90 dB


def read_wav(path: Path) -> tuple[Array, int]:
    """Samples (count,) in float32 from -1 to 1, the mean of all channels, and how many a second.

    Of samples that are cut off what is there is read, with a warning that names both lengths.
    Raises LoadError for a file that is no WAVE, ends before its samples, is compressed, or has
    samples that are no finite numbers.
    """
    with open_file(path) as file:
        return wav_of(file.read(), path)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=5)  # whoever called what reads sound


def wav_of(data: bytes, path: Path, told: Callable[[str], None] = _warn) -> tuple[Array, int]:
    """What `read_wav` gives, of the bytes of a file; `path` is for messages. `told` is called
    where samples are cut off.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise LoadError(f"{path}: no WAVE file; convert it to one (16 bits, any rate)")
    layout, samples, place, size = None, None, 12, 0
    while samples is None and place + 8 <= len(data):
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        body = data[place + 8 : place + 8 + size]
        if name == b"fmt ":
            layout = _layout(body, path)
        elif name == b"data":
            # 0 until a recording has ended.
            samples = body if 0 < size < _OPEN else data[place + 8 :]
        # Chunks begin at even places: an odd one has a byte of padding, which its size does not
        # count.
        place += 8 + size + size % 2
    if layout is None or samples is None:
        raise LoadError(f"{path}: no format or no samples in it; the file is cut off")
    kind, channels, rate, bits = layout
    if (kind, bits) not in _DTYPES:
        raise LoadError(
            f"{path}: format {kind} of {bits} bits is not supported; PCM of 8, 16, 24 or 32 bits "
            "and floats of 32 or 64 are"
        )
    if len(samples) < size < _OPEN:
        bytes_a_second = rate * channels * bits // 8
        told(
            f"{path}: its header says {size} bytes of samples, {size / bytes_a_second:.2f} s, and "
            f"{len(samples)} are there, {len(samples) / bytes_a_second:.2f} s: the file is cut off"
        )
    sound = _floats(samples, kind, bits, channels)
    if not np.isfinite(sound).all():
        raise LoadError(f"{path}: samples are NaN or infinite; the file is damaged")
    return sound, rate


def _layout(body: bytes, path: Path) -> tuple[int, int, int, int]:
    """Format, channels, rate, bits of a sample."""
    if len(body) < 16:
        raise LoadError(f"{path}: its format has {len(body)} bytes of 16; the file is cut off")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    # The first two bytes of the GUID of the sub-format are then the format proper.
    if kind == _EXTENSIBLE and len(body) >= 26:
        (kind,) = struct.unpack_from("<H", body, 24)
    if not channels or not 0 < rate <= _MOST_RATE:
        raise LoadError(
            f"{path}: {channels} channels at {rate} Hz; there must be at least one, at 1 to "
            f"{_MOST_RATE} Hz"
        )
    return kind, channels, rate, bits


def _floats(samples: bytes, kind: int, bits: int, channels: int) -> Array:
    """The mean of the channels; a last frame that is not whole is left out."""
    name, silence, full = _DTYPES[kind, bits]
    frame = channels * bits // 8
    samples = samples[: len(samples) // frame * frame]
    if bits == 24:
        # No dtype has 24 bits: as the upper bytes of 32 the sign is where it belongs.
        wide = np.zeros((len(samples) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(samples, np.uint8).reshape(-1, 3)
        samples = wide.tobytes()
    with np.errstate(invalid="ignore", over="ignore"):  # such samples are refused
        floats = (np.frombuffer(samples, name).astype(np.float64) - silence) / full
        mixed: Array = floats.reshape(-1, channels).mean(1).astype(np.float32)
    return mixed


def pcm_bytes(samples: Array) -> bytes:
    """Samples (count,) from -1 to 1 as integers of 16 bits, the lower byte first; what is louder is
    cut.
    """
    loud = np.clip(np.asarray(samples, np.float64), -1, 1) * (2**15 - 1)
    return np.rint(loud).astype("<i2").tobytes()


def wav_bytes(samples: Array, rate: int) -> bytes:
    """A WAVE file of one channel and 16 bits, of samples (count,) from -1 to 1."""
    body = pcm_bytes(samples)
    layout = struct.pack("<HHIIHH", _PCM, 1, rate, 2 * rate, 2, 16)
    parts = (b"fmt ", layout), (b"data", body)
    chunks = b"".join(name + struct.pack("<I", len(part)) + part for name, part in parts)
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def write_wav(path: Path, samples: Array, rate: int) -> None:
    """Writes such a file, whole or not at all. Raises InputError where it cannot be written."""
    with replacing(path) as file:
        file.write(wav_bytes(samples, rate))


def resampled(samples: Array, rate: int, wanted: int) -> Array:
    """Samples (count,) at `rate` as they would be at `wanted` a second, float32.

    Band-limited interpolation by a sinc in a Kaiser window: J. O. Smith and P. Gossett, 1984.
    """
    if rate == wanted or not len(samples):
        return samples
    # The places of outputs between the inputs repeat after `up` outputs, so there are that many
    # sets of weights, and each serves every up-th output at once.
    common = gcd(rate, wanted)
    up, down = wanted // common, rate // common
    cutoff = min(1.0, wanted / rate)  # of the lower of the two Nyquist frequencies
    reach = int(np.ceil(_ZERO_CROSSINGS / cutoff))
    taps = np.arange(-reach, reach + 1)
    count = -(-len(samples) * up // down)
    rows = -(-count // up)
    padded = np.pad(samples.astype(np.float32), (reach, reach + down + 1 + rows * down))
    sound = np.empty((rows, up), np.float32)
    for phase in range(up):  # outputs phase, phase + up, ...: all at one place between samples
        whole, part = divmod(phase * down, up)
        distance = taps - part / up
        shape = np.clip(1 - (distance / (reach + 1)) ** 2, 0, None)
        weights = cutoff * np.sinc(cutoff * distance) * np.i0(_BETA * np.sqrt(shape)) / np.i0(_BETA)
        windows = np.lib.stride_tricks.sliding_window_view(padded[whole:], len(taps))[::down]
        for at in range(0, rows, _BLOCK):
            end = min(at + _BLOCK, rows)
            sound[at:end, phase] = windows[at:end] @ weights.astype(np.float32)
    return sound.reshape(-1)[:count]
