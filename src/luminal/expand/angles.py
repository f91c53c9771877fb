"""Huge angles by quarters of a turn, in integers: for machines without fast f64.

x = m * 2**e with an integer m of 24 bits, and only the last bits of x / (pi/2) before the binary
point and some after it are asked for. Bits of 2/pi above a window that depends on e give multiples
of 4 quarters; 96 bits from there on leave 62 of the fraction, and the float nearest to a multiple
of pi/2 is 2**-31 away from it. (M. Payne, R. Hanek, Radian reduction for trigonometric functions,
SIGNUM 18, 1983.)
"""

from __future__ import annotations

from luminal.base.dtypes import float32, int64, uint32, uint64
from luminal.expand.builder import Builder
from luminal.expand.fold import constant
from luminal.expand.ir import Operand, Type
from luminal.expand.polynomials import FLOAT32, TWO_OVER_PI_PAIRS

WORD, LOW = 32, 0xFFFFFFFF
FRACTION = 62  # bits of a quarter


def huge_angle(b: Builder, x: Operand) -> tuple[Operand, Operand]:
    """(r, n) with x = n*pi/2 + r, r at most pi/4 from 0, for finite f32 |x| of 2**20 and more.

    Of n, a u32, the last two bits count.
    """
    bits = b.bitcast(x, uint32)
    signed = b.op("or", b.op("and", bits, 0x807FFFFF), 0x4B000000)  # m with the sign of x
    m = b.cast(b.bitcast(signed, float32), int64)
    exponent = b.op("and", b.op("shr", bits, 23), 0xFF)
    place = b.op("sub", exponent, FLOAT32.bits(FLOAT32.huge) >> 23)  # of the window, from 0
    first, second, third = _window(b, place)
    # m * window, its last 64 bits above the 32 that are dropped: they wrap to quarters mod 4
    # Wrapping is wanted: what overflows 64 bits are multiples of four quarters, which are whole
    # turns.
    high = b.op("shl", b.op("mul", m, first), WORD)
    low = b.op("shr", b.op("mul", m, third), WORD)
    product = b.op("add", b.op("add", high, b.op("mul", m, second)), low)
    rest = b.op("shr", b.op("shl", product, 64 - FRACTION), 64 - FRACTION)
    quarters = b.cast(b.op("shr", b.op("sub", product, rest), FRACTION), uint32)
    head = b.cast(rest, float32)
    # The fraction has 62 bits and f32 holds 24: what the head leaves out is a second float, so the
    # product with pi/2 is as good as for small angles.
    tail = b.cast(b.op("sub", rest, b.cast(head, int64)), float32)
    unit, unit_low = (piece * 2.0**-FRACTION for piece in FLOAT32.half_pi[:2])
    small = b.op("fma", head, unit_low, b.op("mul", tail, unit))
    return b.op("fma", head, unit, small), quarters


def _window(b: Builder, place: Operand) -> list[Operand]:
    """Three words of the bits of 2/pi from a place on, each as an i64."""
    word = b.op("shr", place, WORD.bit_length() - 1)
    left = b.op("sub", WORD, b.cast(b.op("and", place, WORD - 1), uint64))
    is_word = [b.op("eq", word, number) for number in range(3)]
    wide = Type(uint64, place.type.lanes)
    pairs = [constant(wide, pair) for pair in TWO_OVER_PI_PAIRS]
    words = []
    for number in range(3):
        pair: Operand = pairs[number + 3]
        for offset in (2, 1, 0):
            pair = b.op("select", is_word[offset], pairs[number + offset], pair)
        words.append(b.bitcast(b.op("and", b.op("shr", pair, left), LOW), int64))
    return words
