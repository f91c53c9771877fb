"""Bessel functions of the first and second kind, of order 0 and 1.

Near 0 a polynomial of x**2, which of the first kind is multiplied with its first two zeros; from 5
on Hankel's form `sqrt(2 / (pi x)) (P cos(x - phase) - Q sin(x - phase))` (Abramowitz and Stegun,
9.2.5 and 9.2.6), as in Cephes. Errors are relative near 0 and the zero of it, absolute further out,
where they are those of the sine of x.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from luminal.dtypes import DType, float32, float64
from luminal.frontend.binary import where
from luminal.frontend.derivatives import differentiated
from luminal.frontend.handle import in_float
from luminal.frontend.polynomial import Coefficients, polynomial

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Zeros: TypeAlias = "Sequence[tuple[float, float]]"

_CUT = 5  # between the polynomials of x**2 and those of 1 / x**2
# fmt: off
# Zeros, in two parts each: a number of the dtype, and what it lacks.
_ZEROS_0 = {
    float32: ((2.4048254, 1.0870590460455913e-07), (5.520078, -7.19341483347784e-08)),
    float64: (
        (2.404825557695773, -1.176691651530894e-16), (5.520078110286311, 8.088597146146722e-17)
    ),
}
_ZEROS_1 = {
    float32: ((3.831706, -7.685059315313556e-08), (7.015587, -1.8321172499646294e-07)),
    float64: (
        (3.8317059702075125, -1.5269184090088067e-16), (7.015586669815619, -9.414165653410389e-17)
    ),
}
# J0(x) / ((x**2 - zero**2) (x**2 - zero**2)) and, over x too, J1's; of x**2, for |x| < 5
_J0_NEAR = {
    float32: (
        0.0031873556, -0.0019210872, 0.000487683, -7.12162e-05, 6.854504e-06, -4.7233286e-07,
        2.453662e-08,
    ),
    float64: (
        0.0031873556303932387, -0.0019210870437164043, 0.0004876827177655839,
        -7.121705240575853e-05, 6.854954847201707e-06, -4.7062916645706503e-07,
        2.428622037029454e-08, -9.78143894663366e-10, 3.1637259099445755e-11,
        -8.404184812303373e-13, 1.8671599780962773e-14, -3.5244572820489674e-16,
        5.690891206976646e-18,
    ),
}
_J1_NEAR = {
    float32: (
        0.00043236988, -0.00020932672, 4.421862e-05, -5.515461e-06, 4.6273544e-07, -2.8188696e-08,
        1.2218548e-09,
    ),
    float64: (
        0.0004323698734106474, -0.00020932672214860176, 4.421868807101479e-05,
        -5.515494459601969e-06, 4.6259792151657316e-07, -2.8111472529722088e-08,
        1.3002918726311016e-09, -4.742877795733934e-11, 1.401294592180093e-12,
        -3.4250829358527223e-14, 7.045272209235162e-16, -1.2377794668568973e-17,
        1.8711182306069807e-19,
    ),
}
# Y0(x) - 2 / pi log(x) J0(x)
_Y0_NEAR = {
    float32: (
        0.48372486, -0.43265584, -0.47057644, 0.38851658, -0.11151656, 0.017634798, -0.0018031641,
        0.00013062776, -6.8389268e-06,
    ),
    float64: (
        0.4837248578102995, -0.4326558222855125, -0.47057636552972876, 0.38851639956570944,
        -0.11151682184328655, 0.01763534538933876, -0.0018028096665503853, 0.0001299462909208217,
        -6.985504374077061e-06, 2.9142206889637085e-07, -9.7209552080454e-09,
        2.6539975248625817e-10, -6.04993694723965e-12, 1.166603953074689e-13,
    ),
}
# (Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x
_Y1_NEAR = {
    float32: (
        0.1397494, 0.09108651, -0.1631203, 0.066346966, -0.013432934, 0.0016687696, -0.00014223313,
        8.771218e-06,
    ),
    float64: (
        0.13974939033568806, 0.09108650838448444, -0.16312020358118715, 0.06634695354779108,
        -0.013433433740818165, 0.0016688031328635942, -0.00014141835794484212,
        8.733098304848775e-06, -4.1137780795312436e-07, 1.528890182573714e-08,
        -4.6013010745475043e-10, 1.1448943838049981e-11, -2.397782341669183e-13,
        4.277907601247645e-15,
    ),
}
# P and x * Q of 2 (5 / x)**2 - 1
_P0 = {
    float32: (
        0.99863476, -0.0013274758, 3.4953002e-05, -2.5278014e-06, 2.8166824e-07,
    ),
    float64: (
        0.9986347659091991, -0.0013274931272004003, 3.491730581077085e-05, -2.459963321484891e-06,
        2.9759010201737064e-07, -5.08643230838394e-08, 1.1058301818592053e-08,
        -2.8705436149232575e-09, 8.562292591841693e-10, -2.8517945797296937e-10,
        9.7250551457765e-11, -3.538662922896777e-11, 2.48236444437734e-11, -1.3637307914439548e-11,
        -3.7435929805120225e-12, 3.4153115425728652e-12, 3.6143863492485995e-12,
        -2.2353911549120413e-12,
    ),
}
_Q0 = {
    float32: (
        -0.12361497, 0.0013142158, -6.33501e-05, 6.224672e-06, -1.0246006e-06, 2.161196e-07,
    ),
    float64: (
        -0.12361496352611864, 0.0013142139729102479, -6.338715442546448e-05, 6.239113169655954e-06,
        -9.409875177417573e-07, 1.8870297800464946e-07, -4.639803449062309e-08,
        1.3296573176345177e-08, -4.293813943146095e-09, 1.528284055141074e-09,
        -5.893787713124995e-10, 2.340483443877698e-10, -9.695047211403392e-11,
        6.525669845967478e-11, -4.013914911703935e-11, -1.6053795218039128e-11,
        1.9311761930320556e-11, 2.9758910227746255e-11, -2.4482048368632118e-11,
        -1.4356451772489409e-11, 1.170864646645756e-11, 4.365255771198312e-12,
        -3.2255764787007984e-12,
    ),
}
_P1 = {
    float32: (
        1.0022906, 0.0022414436, -4.5617628e-05, 3.0555905e-06, -4.929633e-07,
    ),
    float64: (
        1.0022906462560661, 0.0022414632139165767, -4.5782806529390985e-05, 2.9786211346350553e-06,
        -3.466719151341159e-07, 5.791626554980492e-08, -1.2402701962004368e-08,
        3.1875529562097118e-09, -9.422147494996673e-10, 3.0312304895803643e-10,
        -1.0595089749231102e-10, 5.480950189472371e-11, -2.6622329676450066e-11,
        -3.0642934501236227e-12, 3.919356832784642e-12, 6.475546904709406e-12, -3.8375164481595e-12,
    ),
}
_Q1 = {
    float32: (
        0.37304744, -0.0018648517, 7.892236e-05, -7.3539063e-06, 1.1867126e-06, -2.429649e-07,
    ),
    float64: (
        0.3730474331740802, -0.001864849621841222, 7.898094178185426e-05, -7.369927954475653e-06,
        1.0798853142856237e-06, -2.126672646774832e-07, 5.164244583150131e-08,
        -1.4665661354958035e-08, 4.6974920253717795e-09, -1.6563632879000951e-09,
        6.545011596141877e-10, -2.785217433863698e-10, 7.462244512084286e-11,
        -1.7085504658568138e-11, 7.247380297254243e-11, -5.146376154477599e-11,
        -2.823806723538068e-11, 2.2844165985774093e-11, 1.320595984623964e-11,
        -9.008630293955739e-12,
    ),
}
# fmt: on


def _beside_zeros(x: Tensor, zeros: Mapping[DType, Zeros], coefficients: Coefficients) -> Tensor:
    """p(x**2) times x**2 - zero**2 of each zero, without cancellation, for 0 <= x < 5."""
    result = polynomial(_square(x), coefficients)
    for zero, rest in zeros[x.dtype]:
        result = result * ((x - zero - rest) * (x + zero))
    return result


def _square(x: Tensor) -> Tensor:
    """x**2 for 0 <= x < 5 as a position in -1 .. 1."""
    return x * x * (2 / _CUT**2) - 1


def _wave(x: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine and the sine of x - pi / 4, times sqrt(2): x itself is not rounded once more."""
    return x.cos() + x.sin(), x.sin() - x.cos()


def _amplitudes(x: Tensor, p: Coefficients, q: Coefficients) -> tuple[Tensor, Tensor]:
    """P and Q of Hankel's form over sqrt(pi x), for x >= 5."""
    inverse = 1 / x
    position = inverse * inverse * (2 * _CUT**2) - 1
    scale = (inverse * (1 / math.pi)).sqrt()
    return polynomial(position, p) * scale, polynomial(position, q) * inverse * scale


def _j0_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return -g * bessel_j1(x)


@in_float
@differentiated(_j0_derivative)
def bessel_j0(x: Tensor) -> Tensor:
    """J0, within 2e-7 in f32 and 4e-16 in f64; NaN at the infinities."""
    a = abs(x)
    p, q = _amplitudes(a, _P0, _Q0)
    cosine, sine = _wave(a)
    return where(a < _CUT, _beside_zeros(a, _ZEROS_0, _J0_NEAR), p * cosine - q * sine)


@in_float
@differentiated(lambda g, y, x: g * (bessel_j0(x) - where(x == 0, 0.5, y / x)))
def bessel_j1(x: Tensor) -> Tensor:
    """J1, within 2e-7 in f32 and 4e-16 in f64; NaN at the infinities."""
    a = abs(x)
    p, q = _amplitudes(a, _P1, _Q1)
    cosine, sine = _wave(a)
    far = p * sine + q * cosine  # of x - 3 pi / 4
    near = x * _beside_zeros(a, _ZEROS_1, _J1_NEAR)
    return where(a < _CUT, near, where(x < 0, -far, far))


def _y0_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return -g * bessel_y1(x)


@in_float
@differentiated(_y0_derivative)
def bessel_y0(x: Tensor) -> Tensor:
    """Y0, within 4e-7 in f32 and 6e-16 in f64; -inf at 0, NaN below."""
    p, q = _amplitudes(x, _P0, _Q0)
    cosine, sine = _wave(x)
    logarithm = x.log() * (2 / math.pi)
    near = polynomial(_square(x), _Y0_NEAR) + logarithm * bessel_j0(x)
    return where(x < 0, math.nan, where(x < _CUT, near, p * sine + q * cosine))


@in_float
@differentiated(lambda g, y, x: g * (bessel_y0(x) - y / x))
def bessel_y1(x: Tensor) -> Tensor:
    """Y1, within 4e-7 in f32 and 6e-16 in f64, relative near 0; -inf at 0, NaN below."""
    p, q = _amplitudes(x, _P1, _Q1)
    cosine, sine = _wave(x)
    series = x * polynomial(_square(x), _Y1_NEAR) + (2 / math.pi) * x.log() * bessel_j1(x)
    near = where(x == 0, -math.inf, series - (2 / math.pi) / x)
    return where(x < 0, math.nan, where(x < _CUT, near, q * sine - p * cosine))


@in_float
@differentiated(lambda g, y, x: g * where(x == 0, 0, (x.cos() - y) / x))
def spherical_bessel_j0(x: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0 and 0 at the infinities."""
    return where(x == 0, 1, where(abs(x) == math.inf, 0, x.sin() / x))
