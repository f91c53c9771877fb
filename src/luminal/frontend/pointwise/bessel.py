"""Bessel functions of the first and second kind and modified ones, of order 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from luminal.base.dtypes import DType, float32, float64
from luminal.frontend.handle import in_float
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.unary import Coefficients, odd, polynomial

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


# --- modified bessel ------------------------------------------------------------------------------


_MODIFIED_CUT = 8  # between the polynomials of x and those of 1 / x
# fmt: off
# exp(-x) I0(x) and exp(-x) I1(x) / x, of x / 4 - 1 for 0 <= x < 8
_I0_NEAR = {
    float32: (
        0.20700192, -0.11300431, 0.09451528, -0.08904412, 0.08735217, -0.08495481, 0.07918558,
        -0.06958564, 0.057243165, -0.042889554, 0.02881846, -0.019703442, 0.014263083,
        -0.0070709605, 0.0013996084, -0.0013152986, 0.0019366115, -0.00071596424,
    ),
    float64: (
        0.2070019212239867, -0.11300432688620547, 0.09451562853995113, -0.08904344136076091,
        0.08734341617551639, -0.08496338091610686, 0.07927522590734334, -0.06954119561833444,
        0.056777032017422326, -0.042985949441735, 0.030177912043631273, -0.019682654784225574,
        0.011960077796596415, -0.006792399425972051, 0.003617126848566517, -0.0018118882703143208,
        0.0008563142693253064, -0.00038289865326062344, 0.00016240719962067824,
        -6.551432183779179e-05, 2.5200125607691833e-05, -9.244991297161188e-06,
        3.2312079615622504e-06, -1.0937526657202664e-06, 3.6654850801837415e-07,
        -1.1096398249919765e-07, 2.6602924562200932e-08, -8.626693607314718e-09,
        4.421463248581759e-09, -1.05818281892322e-09,
    ),
}
_I1_NEAR = {
    float32: (
        0.04468771, -0.061124336, 0.068057545, -0.06848272, 0.06376856, -0.055278335, 0.04466349,
        -0.033682168, 0.02374305, -0.015538003, 0.009415258, -0.0055833734, 0.0032989867,
        -0.0015190244, 0.00045293168, -0.000311375, 0.00029637615, -9.675946e-05,
    ),
    float64: (
        0.044687709875608835, -0.06112433802966629, 0.06805759990951162, -0.0684826062058255,
        0.06376740371340589, -0.05528003922705054, 0.0446745726212934, -0.03367135551994201,
        0.02368601695713703, -0.015571309256547605, 0.009583962156189871, -0.00553456776079442,
        0.0030057623869621745, -0.0015388749622361807, 0.0007445124797557779, -0.000341174749062063,
        0.00014842084960524859, -6.142649971511105e-05, 2.4234575764852972e-05,
        -9.131871190309852e-06, 3.2926610258622747e-06, -1.138044622107804e-06,
        3.772675394109904e-07, -1.2003053909127497e-07, 3.7033531330490047e-08,
        -1.117620810579032e-08, 3.09666853592999e-09, -7.428724866246604e-10,
        2.2753419299566593e-10, -9.293454290490948e-11, 1.9259612213621563e-11,
    ),
}
# exp(-x) sqrt(x) I(x), of 16 / x - 1
_I0_FAR = {
    float32: (
        0.4021765, 0.0033605553, 0.00013620983, 1.1113805e-05, 1.5960991e-06, 3.613573e-07,
    ),
    float64: (
        0.4021765094450081, 0.0033605519836677504, 0.00013621607438985735, 1.1143033800707508e-05,
        1.4838476647254293e-06, 2.973596046880504e-07, 8.872035006761847e-08,
        3.9328893436266956e-08, 2.1566201572060963e-08, 7.534357558678354e-09,
        -6.849105388907503e-09, -1.3326100019597835e-08, -5.038783776444292e-09,
        7.335980229091688e-09, 6.561404100320608e-09, -3.13464256495403e-09, -4.577071943761076e-09,
        1.1050677314973502e-09, 2.19802364707122e-09, -2.803434682482085e-10,
        -6.638051602567774e-10, 3.6294555964317637e-11, 9.373749998390955e-11,
    ),
}
_I1_FAR = {
    float32: (
        0.38939846, -0.009749582, -0.00021916967, -1.5001428e-05, -2.008525e-06, -4.230198e-07,
    ),
    float64: (
        0.38939845902587233, -0.009749577193235737, -0.0002192357638338823, -1.5038547200567478e-05,
        -1.8349101330315317e-06, -3.483855760976065e-07, -1.0001287672429324e-07,
        -4.3129177373696234e-08, -2.3373988230379026e-08, -8.42776554743195e-09,
        6.734806283437301e-09, 1.403423655634247e-08, 5.9732062267877994e-09,
        -7.642388311430349e-09, -7.885428612934807e-09, 3.426224164075569e-09,
        6.238113223508053e-09, -1.438713890906413e-09, -3.789831086806042e-09,
        5.295547091029908e-10, 1.6816888452701453e-09, -1.4011311715735206e-10,
        -4.746591625200761e-10, 1.8514573573428816e-11, 6.285586270997607e-11,
    ),
}
# Of x**2 for x <= 2: I0(x), I1(x) / x, K0(x) + log(x / 2) I0(x) and
# (K1(x) - 1 / x - log(x / 2) I1(x)) / x
_I0_SERIES = {
    float32: (
        1.0, 0.25, 0.015624984, 0.00043405793, 6.7622505e-06, 7.295833e-08,
    ),
    float64: (
        1.0, 0.25, 0.015624999999999953, 0.00043402777777793724, 6.781684027506314e-06,
        6.781684054122976e-08, 4.709501249962805e-10, 2.4028634818396177e-12, 9.373811299005501e-15,
        3.042148995589876e-17,
    ),
}
_I1_SERIES = {
    float32: (
        0.5, 0.0625, 0.0026041653, 5.425584e-05, 6.7670504e-07, 6.0266707e-09,
    ),
    float64: (
        0.5, 0.062499999999999896, 0.002604166666667371, 5.425347222035666e-05,
        6.781684052393792e-07, 5.651401540450126e-09, 3.3640089470199464e-11,
        1.4997915516010558e-13, 5.477984969693352e-16,
    ),
}
_K0_NEAR = {
    float32: (
        -0.5772157, 0.10569614, 0.014418373, 0.0005453141, 1.0158929e-05, 1.2716902e-07,
    ),
    float64: (
        -0.5772156649015329, 0.1056960837746168, 0.014418505235913402, 0.0005451899602573274,
        1.0214014135195478e-05, 1.157035101258446e-07, 8.819879032945209e-10, 4.843339979085721e-12,
        2.006206182166274e-14, 6.872327179403754e-17,
    ),
}
_K1_NEAR = {
    float32: (
        0.038607832, -0.04204902, -0.002837109, -7.493572e-05, -1.086128e-06, -1.0870432e-08,
    ),
    float64: (
        0.038607832450766426, -0.04204902094365391, -0.00283711198376525, -7.4930429055062e-05,
        -1.0892182600672358e-06, -1.0112904931821129e-08, -6.540386218794695e-11,
        -3.1162052465441176e-13, -1.2067258121493911e-15,
    ),
}
# exp(x) sqrt(x) K(x), of 4 / x - 1
_K0_FAR = {
    float32: (
        1.2185954, -0.031071452, 0.003032707, -0.0004799176, 9.9203535e-05, -2.4165554e-05,
        8.347486e-06, -2.938932e-06,
    ),
    float64: (
        1.2185953385133905, -0.031071461824889898, 0.0030328918102752174, -0.0004797690567329217,
        9.956054742443085e-05, -2.4735205427683334e-05, 7.00224558118628e-06,
        -2.191167391737273e-06, 7.427806400315236e-07, -2.689759429835334e-07,
        1.0295190475749504e-07, -4.105688143133547e-08, 1.705455771063094e-08,
        -8.024912671560756e-09, 3.795277758320216e-09, -6.647675133820031e-10,
        6.332667557589502e-11, -1.23639067677638e-09, 8.01651967986684e-10, 4.391384675746637e-10,
        -3.070495348123575e-10, -1.7594972782707287e-10, 1.0837071557531212e-10,
    ),
}
_K1_FAR = {
    float32: (
        1.3631519, 0.103349715, -0.005567102, 0.000735987, -0.00013796477, 3.199558e-05,
        -1.12758025e-05, 3.7186337e-06,
    ),
    float64: (
        1.363151890371342, 0.10334973775386565, -0.00556672988007493, 0.0007357241548718199,
        -0.00013959021954905503, 3.2843866502759414e-05, -8.961207600980742e-06,
        2.730030100351029e-06, -9.067070573399965e-07, 3.2305674169830393e-07,
        -1.2203982545389224e-07, 4.815427532931599e-08, -1.979441358133172e-08,
        9.214040741075326e-09, -4.375215163808622e-09, 7.964340889887477e-10,
        -3.142928582931522e-11, 1.361737082327721e-09, -9.295566892656957e-10,
        -4.775083389955931e-10, 3.5497222612574954e-10, 1.927508915486622e-10,
        -1.2227937877520964e-10,
    ),
}
# fmt: on


def _scaled_i(x: Tensor, near: Coefficients, far: Coefficients) -> Tensor:
    """exp(-x) I(x) for x >= 0; the polynomial near 0 is of I1 over x."""
    outer = polynomial(16 / x - 1, far) / x.sqrt()
    return where(x < _MODIFIED_CUT, polynomial(x * (2 / _MODIFIED_CUT) - 1, near), outer)


def _i0e_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return g * (i1e(x) - x.sign() * y)


@in_float
@differentiated(_i0e_derivative)
def i0e(x: Tensor) -> Tensor:
    """exp(-|x|) * i0(x), within 4 ulp."""
    return _scaled_i(abs(x), _I0_NEAR, _I0_FAR)


@in_float
@differentiated(lambda g, y, x: g * (i0e(x) - where(x == 0, 0.5, y * (x.sign() + 1 / x))))
def i1e(x: Tensor) -> Tensor:
    """exp(-|x|) * i1(x), within 5 ulp."""
    a = abs(x)
    return odd(where(a < _MODIFIED_CUT, a, 1) * _scaled_i(a, _I1_NEAR, _I1_FAR), x)


def _grown(scaled: Tensor, x: Tensor) -> Tensor:
    """scaled * exp(|x|), by halves: where the product is finite, though the factor is not."""
    root = (abs(x) * 0.5).exp()
    return scaled * root * root


def _i0_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return g * i1(x)


@in_float
@differentiated(_i0_derivative)
def i0(x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 0, within 6 ulp; inf at both ends.

    `exp(-x) I0(x)` is a polynomial of x up to 8, and one of 1 / x over sqrt(x) above, as in Cephes.
    """
    return where(abs(x) == math.inf, math.inf, _grown(i0e(x), x))


@in_float
@differentiated(lambda g, y, x: g * (i0(x) - where(x == 0, 0.5, y / x)))
def i1(x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 1, within 7 ulp."""
    return where(abs(x) == math.inf, x, _grown(i1e(x), x))


def _k0_near(x: Tensor) -> Tensor:
    square = x * x
    return polynomial(square, _K0_NEAR) - (x * 0.5).log() * polynomial(square, _I0_SERIES)


def _k1_near(x: Tensor) -> Tensor:
    square = x * x
    growing = (x * 0.5).log() * polynomial(square, _I1_SERIES) + polynomial(square, _K1_NEAR)
    return x * growing + 1 / x


def _scaled_k(x: Tensor, far: Coefficients) -> Tensor:
    """exp(x) K(x) for x >= 2."""
    return polynomial(4 / x - 1, far) / x.sqrt()


def _at_the_start(value: Tensor, x: Tensor) -> Tensor:
    return where(x < 0, math.nan, where(x == 0, math.inf, value))


def _k0_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return -g * modified_bessel_k1(x)


@in_float
@differentiated(_k0_derivative)
def modified_bessel_k0(x: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 0, within 6 ulp; inf at 0, NaN
    below.

    Up to 2 a polynomial of x**2 and log(x / 2) I0, above exp(-x) / sqrt(x) times one of 1 / x.
    """
    far = (-x).exp() * _scaled_k(x, _K0_FAR)
    return _at_the_start(where(x <= 2, _k0_near(x), far), x)


@in_float
@differentiated(lambda g, y, x: -g * (modified_bessel_k0(x) + y / x))
def modified_bessel_k1(x: Tensor) -> Tensor:
    """The modified Bessel function of the second kind, of order 1, within 5 ulp."""
    far = (-x).exp() * _scaled_k(x, _K1_FAR)
    return _at_the_start(where(x <= 2, _k1_near(x), far), x)


def _scaled_k0_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return g * (y - scaled_modified_bessel_k1(x))


@in_float
@differentiated(_scaled_k0_derivative)
def scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """exp(x) * K0(x), within 6 ulp; inf at 0, NaN below."""
    near = x.exp() * _k0_near(x)
    return _at_the_start(where(x <= 2, near, _scaled_k(x, _K0_FAR)), x)


@in_float
@differentiated(lambda g, y, x: g * (y - scaled_modified_bessel_k0(x) - y / x))
def scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """exp(x) * K1(x), within 6 ulp; inf at 0, NaN below."""
    near = x.exp() * _k1_near(x)
    return _at_the_start(where(x <= 2, near, _scaled_k(x, _K1_FAR)), x)
