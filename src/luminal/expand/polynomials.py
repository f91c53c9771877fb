"""The numbers behind exp, exp2, log, log2, sin and cos in f32.

Coefficients are minimax in relative error, made by Remez exchange in 80-bit floats: one after the
other was rounded to f32 and the rest fitted again.

Largest error measured on 2**26 to 2**27 arguments of all magnitudes against f64, in ulp of the f32
result (subnormal ones too): exp 1.00, exp2 0.86, log 0.86, log2 1.10; sin and cos up to
|x| = 2**20 1.61, or 2**-23.7 absolute; 1.58 beyond, by integers.
"""

LN2_HI, LN2_LO = float.fromhex("0x1.62e43p-1"), float.fromhex("-0x1.05c61p-29")
LOG2E_HI, LOG2E_LO = float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0cp-26")

# e**r = 1 + r + r*r*Q(r) on |r| <= ln(2)/2; relative error 2**-28.2
EXP = (0.49999994, 0.16666517, 0.041668106, 0.00836914, 0.0013836714)
# 2**r = 1 + r*Q(r) on |r| <= 1/2; relative error 2**-27.5
EXP2 = (0.69314724, 0.24022655, 0.055502728, 0.009617065, 0.0013417751, 0.00015825259)
# log(1 + f) = f - f*f/2 + f*f*f*Q(f) on sqrt(1/2) <= 1 + f <= sqrt(2); relative error 2**-27.3
LOG = (
    *(0.3333333, -0.25000823, 0.2000126, -0.16623345),
    *(0.14201072, -0.13159549, 0.1276573, -0.076411806),
)
# sin(r) = r + r*r*r*Q(r*r) on |r| <= 0.85; relative error 2**-27.0
SIN = (-0.16666648, 0.008331745, -0.00019461509)
# cos(r) = 1 - r*r/2 + r**4*Q(r*r) on |r| <= 0.85; relative error 2**-31.7
COS = (0.041666634, -0.0013886781, 2.4374356e-05)
# pi/2 in three f32 pieces: with fma the first product cancels exactly for |x| < 2**20
HALF_PI = (1.5707964, -4.371139e-08, -1.7150994e-15)
TWO_OVER_PI = 0.63661975

ROUND = 1.5 * 2.0**23
"""Adding it rounds to an integer that sits in the low bits of the sum."""
ROUND_BITS = 0x4B400000
SQRT_HALF_BITS = 0x3F3504F3
HUGE_BITS = 0x49800000
"""2**20: from here on quarters of a turn are counted in integers (`angles.py`), or in f64."""
TWO_OVER_PI_BITS = 0x_0517CC1B_727220A9_4FE13ABE_8FA9A6EE_06DB14AC_C9E21C82_0FF28B1D
"""Of 2/pi, the first with the weight 2**4: in front of 2**20's window stand zeros."""
TWO_OVER_PI_PAIRS = tuple(TWO_OVER_PI_BITS >> 160 - 32 * k & 2**64 - 1 for k in range(6))
"""Each word of it with the next one."""
INF_BITS = 0x7F800000
