# Made from the table of names, luminal/frontend/names/table.py, by `make names`.

from luminal.frontend.pointwise import bessel as _bessel
from luminal.frontend.pointwise import exponential as _exponential
from luminal.frontend.pointwise import gamma as _gamma
from luminal.frontend.pointwise import special as _special
from luminal.frontend.pointwise import trigonometric as _trigonometric
from luminal.frontend.pointwise import unary as _unary
from luminal.frontend.reduce import normalization as _normalization

bessel_j0 = _bessel.bessel_j0
bessel_j1 = _bessel.bessel_j1
bessel_y0 = _bessel.bessel_y0
bessel_y1 = _bessel.bessel_y1
chebyshev_polynomial_t = _special.chebyshev_polynomial_t
chebyshev_polynomial_u = _special.chebyshev_polynomial_u
chebyshev_polynomial_v = _special.chebyshev_polynomial_v
chebyshev_polynomial_w = _special.chebyshev_polynomial_w
digamma = _gamma.digamma
entr = _special.entr
erf = _special.erf
erfc = _special.erfc
erfcx = _special.erfcx
erfinv = _special.erfinv
exp2 = _unary.exp2
expit = _exponential.sigmoid
expm1 = _exponential.expm1
gammaln = _gamma.lgamma
hermite_polynomial_h = _special.hermite_polynomial_h
hermite_polynomial_he = _special.hermite_polynomial_he
i0 = _bessel.i0
i0e = _bessel.i0e
i1 = _bessel.i1
i1e = _bessel.i1e
laguerre_polynomial_l = _special.laguerre_polynomial_l
legendre_polynomial_p = _special.legendre_polynomial_p
log1p = _exponential.log1p
log_ndtr = _special.log_ndtr
log_softmax = _normalization.log_softmax
logit = _exponential.logit
logsumexp = _normalization.logsumexp
modified_bessel_i0 = _bessel.i0
modified_bessel_i1 = _bessel.i1
modified_bessel_k0 = _bessel.modified_bessel_k0
modified_bessel_k1 = _bessel.modified_bessel_k1
multigammaln = _gamma.mvlgamma
ndtr = _special.ndtr
ndtri = _special.ndtri
polygamma = _gamma.polygamma
psi = _gamma.digamma
round = _unary.round
scaled_modified_bessel_k0 = _bessel.scaled_modified_bessel_k0
scaled_modified_bessel_k1 = _bessel.scaled_modified_bessel_k1
shifted_chebyshev_polynomial_t = _special.shifted_chebyshev_polynomial_t
shifted_chebyshev_polynomial_u = _special.shifted_chebyshev_polynomial_u
shifted_chebyshev_polynomial_v = _special.shifted_chebyshev_polynomial_v
shifted_chebyshev_polynomial_w = _special.shifted_chebyshev_polynomial_w
sinc = _trigonometric.sinc
softmax = _normalization.softmax
spherical_bessel_j0 = _bessel.spherical_bessel_j0
xlog1py = _exponential.xlog1py
xlogy = _exponential.xlogy
zeta = _gamma.zeta

__all__ = [
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
]
