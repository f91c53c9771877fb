"""Special functions under the names of torch.special."""

from luminal.frontend.pointwise import (
    bessel,
    exponential,
    gamma,
    rounding,
    special,
    trigonometric,
    unary,
)
from luminal.frontend.pointwise import gamma as zetas
from luminal.frontend.reduce import normalization

digamma = psi = gamma.digamma
gammaln = gamma.lgamma
multigammaln = gamma.mvlgamma
polygamma = zetas.polygamma
zeta = zetas.zeta
erf = special.erf
erfc = special.erfc
erfcx = special.erfcx
erfinv = special.erfinv
ndtr = special.ndtr
ndtri = special.ndtri
log_ndtr = special.log_ndtr
entr = special.entr
exp2 = unary.exp2
expm1 = exponential.expm1
log1p = exponential.log1p
expit = exponential.sigmoid
logit = exponential.logit
xlogy = exponential.xlogy
xlog1py = exponential.xlog1py
softmax = normalization.softmax
log_softmax = normalization.log_softmax
logsumexp = normalization.logsumexp
round = rounding.round
sinc = trigonometric.sinc
bessel_j0 = bessel.bessel_j0
bessel_j1 = bessel.bessel_j1
bessel_y0 = bessel.bessel_y0
bessel_y1 = bessel.bessel_y1
spherical_bessel_j0 = bessel.spherical_bessel_j0
i0 = modified_bessel_i0 = bessel.i0
i0e = bessel.i0e
i1 = modified_bessel_i1 = bessel.i1
i1e = bessel.i1e
modified_bessel_k0 = bessel.modified_bessel_k0
modified_bessel_k1 = bessel.modified_bessel_k1
scaled_modified_bessel_k0 = bessel.scaled_modified_bessel_k0
scaled_modified_bessel_k1 = bessel.scaled_modified_bessel_k1
chebyshev_polynomial_t = special.chebyshev_polynomial_t
chebyshev_polynomial_u = special.chebyshev_polynomial_u
chebyshev_polynomial_v = special.chebyshev_polynomial_v
chebyshev_polynomial_w = special.chebyshev_polynomial_w
shifted_chebyshev_polynomial_t = special.shifted_chebyshev_polynomial_t
shifted_chebyshev_polynomial_u = special.shifted_chebyshev_polynomial_u
shifted_chebyshev_polynomial_v = special.shifted_chebyshev_polynomial_v
shifted_chebyshev_polynomial_w = special.shifted_chebyshev_polynomial_w
hermite_polynomial_h = special.hermite_polynomial_h
hermite_polynomial_he = special.hermite_polynomial_he
laguerre_polynomial_l = special.laguerre_polynomial_l
legendre_polynomial_p = special.legendre_polynomial_p
