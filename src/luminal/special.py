"""Special functions under the names of torch.special."""

from luminal.frontend import (
    exponential,
    gamma,
    logits,
    rounding,
    special,
    trigonometric,
    unary,
)

digamma = psi = gamma.digamma
gammaln = gamma.lgamma
multigammaln = gamma.mvlgamma
erf = special.erf
erfc = special.erfc
erfcx = special.erfcx
erfinv = special.erfinv
ndtr = special.ndtr
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
