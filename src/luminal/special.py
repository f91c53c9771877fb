"""Special functions under the names of torch.special."""

from luminal.frontend import (
    bessel,
    exponential,
    gamma,
    logits,
    modified_bessel,
    orthogonal,
    rounding,
    special,
    trigonometric,
    unary,
)
from luminal.frontend import zeta as zetas

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
softmax = logits.softmax
log_softmax = logits.log_softmax
logsumexp = logits.logsumexp
round = rounding.round
sinc = trigonometric.sinc
bessel_j0 = bessel.bessel_j0
bessel_j1 = bessel.bessel_j1
bessel_y0 = bessel.bessel_y0
bessel_y1 = bessel.bessel_y1
spherical_bessel_j0 = bessel.spherical_bessel_j0
i0 = modified_bessel_i0 = modified_bessel.i0
i0e = modified_bessel.i0e
i1 = modified_bessel_i1 = modified_bessel.i1
i1e = modified_bessel.i1e
modified_bessel_k0 = modified_bessel.modified_bessel_k0
modified_bessel_k1 = modified_bessel.modified_bessel_k1
scaled_modified_bessel_k0 = modified_bessel.scaled_modified_bessel_k0
scaled_modified_bessel_k1 = modified_bessel.scaled_modified_bessel_k1
chebyshev_polynomial_t = orthogonal.chebyshev_polynomial_t
chebyshev_polynomial_u = orthogonal.chebyshev_polynomial_u
chebyshev_polynomial_v = orthogonal.chebyshev_polynomial_v
chebyshev_polynomial_w = orthogonal.chebyshev_polynomial_w
shifted_chebyshev_polynomial_t = orthogonal.shifted_chebyshev_polynomial_t
shifted_chebyshev_polynomial_u = orthogonal.shifted_chebyshev_polynomial_u
shifted_chebyshev_polynomial_v = orthogonal.shifted_chebyshev_polynomial_v
shifted_chebyshev_polynomial_w = orthogonal.shifted_chebyshev_polynomial_w
hermite_polynomial_h = orthogonal.hermite_polynomial_h
hermite_polynomial_he = orthogonal.hermite_polynomial_he
laguerre_polynomial_l = orthogonal.laguerre_polynomial_l
legendre_polynomial_p = orthogonal.legendre_polynomial_p
