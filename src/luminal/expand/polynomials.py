"""The numbers behind exp, exp2, log, log2, sin and cos, one table for f32 and one for f64.

Coefficients are minimax in relative error, made by Remez exchange: for f32 in 80-bit floats, where
one after the other was rounded and the rest fitted again; for f64 in 70 digits, then rounded. The
reductions subtract multiples of a constant in pieces (W. Cody, W. Waite, Software Manual for the
Elementary Functions, 1980), of which fma makes the first exact.

Largest error measured against wider floats, in ulp of the result (subnormal ones too), on 2**26 to
2**27 arguments of all magnitudes in f32, 2 * 10**7 in f64:

f32: exp 1.00, exp2 0.86, log 0.86, log2 1.10; sin and cos up to |x| = 2**20 1.61, or 2**-23.7
absolute; 1.58 beyond, by integers.
f64: exp 0.98, exp2 0.91, log 0.89, log2 1.04; sin and cos up to |x| = 2**30 1.49.
"""

from __future__ import annotations

import math

import numpy as np

from luminal.base.dtypes import DType, float32, float64, int32, int64, uint32, uint64
from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """What the elementary functions of one dtype are made of."""

    dtype: DType
    signed: DType
    unsigned: DType
    mantissa: int
    """Stored bits of it."""
    bias: int
    """Of the exponent."""
    huge: float
    """From here on angles are reduced in integers (`angles.py`), or by the machine's sine."""
    exp_ends: tuple[float, float]
    """0 below, inf above."""
    exp2_ends: tuple[float, float]
    ln2: tuple[float, float]
    log2e: tuple[float, float]
    half_pi: tuple[float, float, float]
    """In pieces: with fma the first product cancels exactly below `huge`."""
    exp: tuple[float, ...]
    """e**r = 1 + r + r*r*Q(r) on |r| <= ln(2)/2."""
    exp2: tuple[float, ...]
    """2**r = 1 + r*Q(r) on |r| <= 1/2."""
    log: tuple[float, ...]
    """log(1 + f) = f - f*f/2 + f*f*f*Q(f) on sqrt(1/2) <= 1 + f <= sqrt(2)."""
    sin: tuple[float, ...]
    """sin(r) = r + r*r*r*Q(r*r) on |r| <= pi/4 and a little more."""
    cos: tuple[float, ...]
    """cos(r) = 1 - r*r/2 + r**4*Q(r*r) on the same."""

    @property
    def round(self) -> float:
        """Adding it rounds to an integer that sits in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    def bits(self, value: float) -> int:
        """The bits of a float, as an integer."""
        return int(np.array(value, self.dtype.numpy).view(self.unsigned.numpy))


FLOAT32 = Table(
    *(float32, int32, uint32),
    mantissa=23,
    bias=127,
    huge=2.0**20,
    exp_ends=(-110.0, 100.0),
    exp2_ends=(-160.0, 160.0),
    ln2=(float.fromhex("0x1.62e43p-1"), float.fromhex("-0x1.05c61p-29")),
    log2e=(float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0cp-26")),
    half_pi=(1.5707964, -4.371139e-08, -1.7150994e-15),
    # relative errors 2**-28.2, 2**-27.5, 2**-27.3, 2**-27.0 and 2**-31.7, the last two up to 0.85
    exp=(0.49999994, 0.16666517, 0.041668106, 0.00836914, 0.0013836714),
    exp2=(0.69314724, 0.24022655, 0.055502728, 0.009617065, 0.0013417751, 0.00015825259),
    log=(
        *(0.3333333, -0.25000823, 0.2000126, -0.16623345),
        *(0.14201072, -0.13159549, 0.1276573, -0.076411806),
    ),
    sin=(-0.16666648, 0.008331745, -0.00019461509),
    cos=(0.041666634, -0.0013886781, 2.4374356e-05),
)
FLOAT64 = Table(
    *(float64, int64, uint64),
    mantissa=52,
    bias=1023,
    huge=2.0**30,
    exp_ends=(-760.0, 720.0),
    exp2_ends=(-1100.0, 1100.0),
    ln2=(float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56")),
    log2e=(float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56")),
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    # relative errors 2**-60.3, 2**-55.6, 2**-57.6, 2**-56.7 and 2**-59.3
    exp=(
        *(0.5, 0.16666666666666682, 0.041666666666666095, 0.00833333333331703),
        *(0.001388888888911642, 0.00019841269896394033, 2.480158692513561e-05),
        *(2.7557234851277725e-06, 2.755758310477522e-07, 2.5112040677771157e-08),
        *(2.0826240738929176e-09,),
    ),
    exp2=(
        *(0.6931471805599453, 0.24022650695910072, 0.05550410866482169, 0.00961812910762833),
        *(0.0013333558146392684, 0.0001540353039364082, 1.5252733854326183e-05),
        *(1.321548659483368e-06, 1.0178051938238955e-07, 7.054974507541273e-09),
        *(4.4565711288835447e-10, 2.562537954796052e-11),
    ),
    log=(
        *(0.33333333333333454, -0.2499999999999892, 0.1999999999994614, -0.16666666666914332),
        *(0.14285714293840718, -0.12499999982023884, 0.11111110516089415, -0.1000000038306748),
        *(0.0909093350420011, -0.08333345765137729, 0.07691714505826232, -0.07141999999550017),
        *(0.06675147818023057, -0.06269801698136622, 0.05817783721101089, -0.05326776905406219),
        *(0.05415955289275731, -0.06275038889824973, 0.056968886504978083, -0.024276358772053114),
    ),
    sin=(
        *(-0.1666666666666663, 0.008333333333322031, -0.0001984126982951762),
        *(2.755731359553915e-06, -2.5050743584300716e-08, 1.5895980742397983e-10),
    ),
    cos=(
        *(0.041666666666666595, -0.0013888888888872934, 2.4801587288773103e-05),
        *(-2.7557314155973857e-07, 2.0875697591442947e-09, -1.1358364225020004e-11),
    ),
)
TABLES = {table.dtype: table for table in (FLOAT32, FLOAT64)}

TWO_OVER_PI = 2 / math.pi
TWO_OVER_PI_BITS = 0x_0517CC1B_727220A9_4FE13ABE_8FA9A6EE_06DB14AC_C9E21C82_0FF28B1D
"""The bits of 2/pi, the first with the weight 2**4: in front of f32's window from 2**20 on stand
zeros."""
TWO_OVER_PI_PAIRS = tuple(TWO_OVER_PI_BITS >> 160 - 32 * k & 2**64 - 1 for k in range(6))
"""Each word of it with the next one."""
