"""Types of blocks with one scale: integers of 1 to 8 bits, ternary ones, floats of 4 bits.

Four-bit floats: OCP Microscaling Formats 1.0; Rouhani et al., arXiv 2310.10537.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from luminal.loaders.ggml.blocks import BlockType, fields, numbers, record
from luminal.loaders.mapped import Array

UNEVEN = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""What the codes of IQ4_NL and IQ4_XS stand for."""

_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12], np.float32)
_FLOAT4 = np.concatenate([_E2M1, 0 - _E2M1])  # twice the value, so that all are integers
_POWERS_OF_3 = np.array([[1], [3], [9], [27], [81]], np.uint8)


def _centered(bits: int, high_bits: bool = False) -> BlockType:
    """Codes around 0 times a scale; the fifth bit of each lies apart."""

    def decode(blocks: Array) -> Array:
        codes = _codes(blocks, high_bits).astype(np.int8) - np.int8(1 << (bits - 1))
        return numbers(blocks["scale"], 1) * codes

    return BlockType(32, _record(("scale", "<f2"), high_bits=high_bits), decode)


def _from_least(high_bits: bool = False) -> BlockType:
    """Codes from 0 times a scale, plus the least value."""

    def decode(blocks: Array) -> Array:
        scaled = numbers(blocks["scale"], 1) * numbers(_codes(blocks, high_bits), -1)
        return scaled + numbers(blocks["least"], 1)

    head = ("scale", "<f2"), ("least", "<f2")
    return BlockType(32, _record(*head, high_bits=high_bits), decode)


def _record(*head: tuple[str, str], high_bits: bool) -> np.dtype[np.void]:
    high = [("high", "u1", 4)] if high_bits else []
    return record(*head, *high, ("low", "u1", 16))


def _codes(blocks: Array, high_bits: bool) -> Array:
    low = fields(blocks["low"], 4, 16)
    return low | fields(blocks["high"], 1) << np.uint8(4) if high_bits else low


def _bytes(*head: tuple[str, str]) -> BlockType:
    def decode(blocks: Array) -> Array:
        return numbers(blocks["scale"], 1) * numbers(blocks["codes"], -1)

    return BlockType(32, record(*head, ("codes", "i1", 32)), decode)


def _bytes_of_256(blocks: Array) -> Array:
    return numbers(blocks["scale"], 1) * numbers(blocks["codes"], -1)


def _signs(blocks: Array) -> Array:
    scale = numbers(blocks["scale"], 1)
    return np.where(fields(blocks["bits"], 1) == 1, scale, -scale)


def _uneven(blocks: Array) -> Array:
    return numbers(blocks["scale"], 1) * UNEVEN[fields(blocks["codes"], 4, 16)]


def _mxfp4(blocks: Array) -> Array:
    """The scale is half of a power of two, whose exponent is stored."""
    exponent = blocks["exponent"].astype(np.uint32)
    tiny = np.uint32(1 << 21) << np.minimum(exponent, 1)  # below float32's normal numbers
    bits = np.where(exponent < 2, tiny, (exponent - np.uint32(1)) << np.uint32(23))
    scale = bits.astype(np.uint32).view(np.float32)
    return scale[:, None] * _FLOAT4[fields(blocks["codes"], 4, 16)]


def _nvfp4(blocks: Array) -> Array:
    """Four scales, floats of 4 bits of exponent and 3 of mantissa, also halved."""
    codes = blocks["scales"]
    exponent = (codes >> 3 & 15).astype(np.float32)
    mantissa = (codes & 7).astype(np.float32)
    normal = (np.float32(1) + mantissa / np.float32(8)) * np.float32(2) ** (exponent - 7)
    scales = np.where(exponent == 0, mantissa * np.float32(2**-9), normal) * np.float32(0.5)
    scales[codes == 0x7F] = 0  # no number
    values = _FLOAT4[fields(blocks["codes"], 4, 8)].reshape(len(blocks), 4, 16)
    return numbers(scales, 4, 1) * values


def _tq1(blocks: Array) -> Array:
    """Five digits of base 3 in a byte, as the fraction b / 256: times 3, the next one is in front.
    Four in the last bytes.
    """
    parts = (blocks["codes"][:, :32], 5), (blocks["codes"][:, 32:], 5), (blocks["rest"], 4)
    # In bytes these products wrap, which is what drops the digits in front.
    turned = [
        (part[:, None] * _POWERS_OF_3[:count]).reshape(len(blocks), -1) for part, count in parts
    ]
    digits = np.concatenate(turned, 1).astype(np.uint16) * np.uint16(3) >> 8
    return numbers(blocks["scale"], 1) * (digits.astype(np.int8) - np.int8(1))


def _tq2(blocks: Array) -> Array:
    codes = fields(blocks["codes"], 2, 32).astype(np.int8) - np.int8(1)
    return numbers(blocks["scale"], 1) * codes


TYPES: Mapping[str, BlockType] = {
    "Q1_0": BlockType(128, record(("scale", "<f2"), ("bits", "u1", 16)), _signs),
    "Q4_0": _centered(4),
    "Q4_1": _from_least(),
    "Q5_0": _centered(5, high_bits=True),
    "Q5_1": _from_least(high_bits=True),
    "Q8_0": _bytes(("scale", "<f2")),
    "Q8_1": _bytes(("scale", "<f2"), ("sum", "<f2")),
    "Q8_K": BlockType(
        256, record(("scale", "<f4"), ("codes", "i1", 256), ("sums", "<i2", 16)), _bytes_of_256
    ),
    "IQ4_NL": BlockType(32, record(("scale", "<f2"), ("codes", "u1", 16)), _uneven),
    "MXFP4": BlockType(32, record(("exponent", "u1"), ("codes", "u1", 16)), _mxfp4),
    "NVFP4": BlockType(64, record(("scales", "u1", 4), ("codes", "u1", 32)), _nvfp4),
    "TQ1_0": BlockType(256, record(("codes", "u1", 48), ("rest", "u1", 4), ("scale", "<f2")), _tq1),
    "TQ2_0": BlockType(256, record(("codes", "u1", 64), ("scale", "<f2")), _tq2),
}
