"""Probability distributions under the names of torch.distributions.

Parameters are Tensors, Parameters or numbers, which broadcast. Densities, entropies and moments are
recorded like any other operation, so they have gradients. `sample` and `rsample` draw from the
default generator, as `lm.randn` does: the numbers are drawn at once, so both are refused where
`lm.jit` records. Arguments are not checked (`validate_args` changes nothing): outside of its
support a density is what its formula gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from luminal.base.errors import InputError, ShapeError
from luminal.frontend.handle import is_tensor
from luminal.frontend.movement.joining import broadcast_tensors
from luminal.frontend.pointwise.binary import graph_of
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.session.eager import default_graph
from luminal.session.seeded import rand, randn

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Exponential",
    "Independent",
    "Laplace",
    "MixtureSameFamily",
    "Normal",
    "Uniform",
    "kl_divergence",
]

TINY = 2.0**-126
"""The least normal float32: what is above it has a finite logarithm."""


class Distribution:
    """Independent draws of `batch_shape`, each of `event_shape`."""

    def __init__(self, batch_shape: Sequence[Any] = (), event_shape: Sequence[Any] = ()) -> None:
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)

    @property
    def mean(self) -> Tensor:
        """The expectation of a draw."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def variance(self) -> Tensor:
        """The expectation of the squared distance from the mean."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def entropy(self) -> Tensor:
        """The expectation of -log_prob, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of (*sample_shape, *batch_shape, *event_shape), with the parameters' gradients."""
        raise NotImplementedError(f"{type(self).__name__}: draws have no gradients; use sample")

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of (*sample_shape, *batch_shape, *event_shape), without gradients."""
        return self.rsample(sample_shape).detach()

    def _extended(self, sample_shape: Sequence[int]) -> tuple[Any, ...]:
        return (*sample_shape, *self.batch_shape, *self.event_shape)


class _Shifted(Distribution):
    """A distribution of mean `loc`, whose draws lie `scale` times as far from it as those of 1."""

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = _tensors(loc, scale)
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:
        return self.loc


class Normal(_Shifted):
    """The normal distribution of mean `loc` and standard deviation `scale`."""

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    def log_prob(self, value: Any) -> Tensor:
        z = (value - self.loc) / self.scale
        return -0.5 * z * z - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        return self.scale.log() + 0.5 * math.log(2 * math.pi * math.e)

    def cdf(self, value: Any) -> Tensor:
        """The probability of a draw of at most `value`."""
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Any) -> Tensor:
        """The value that a draw is at most with this probability."""
        (share,) = _tensors(value)
        return self.loc + self.scale * math.sqrt(2) * (2 * share - 1).erfinv()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.loc + self.scale * randn(self._extended(sample_shape))


class Laplace(_Shifted):
    """The Laplace distribution, exp(-|x - loc| / scale) / (2 * scale)."""

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale * self.scale

    def log_prob(self, value: Any) -> Tensor:
        return -(2 * self.scale).log() - abs(value - self.loc) / self.scale

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = rand(self._extended(sample_shape)) - 0.5
        return self.loc - self.scale * u.sign() * (1 - 2 * u.abs()).clamp(min=TINY).log()


class Uniform(Distribution):
    """Numbers of low <= x < high, all as likely as each other."""

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = _tensors(low, high)
        super().__init__(self.low.shape)

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def log_prob(self, value: Any) -> Tensor:
        (x,) = _tensors(value)
        inside = ((self.low <= x) & (x < self.high)).cast(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.low + rand(self._extended(sample_shape)) * (self.high - self.low)


class Exponential(Distribution):
    """The exponential distribution, rate * exp(-rate * x) for x >= 0."""

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = _tensors(rate)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / (self.rate * self.rate)

    def log_prob(self, value: Any) -> Tensor:
        return self.rate.log() - self.rate * value

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return -(1 - rand(self._extended(sample_shape))).log() / self.rate


class Bernoulli(Distribution):
    """1 with probability `probs`, or of the log odds `logits`; else 0."""

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (odds,) = _tensors(_one_of("Bernoulli", probs, logits))
        self.probs = odds if logits is None else odds.sigmoid()
        self.logits = odds.logit(eps=EPS) if logits is None else odds
        super().__init__(odds.shape)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def log_prob(self, value: Any) -> Tensor:
        return value * self.logits - self.logits.softplus()

    def entropy(self) -> Tensor:
        return self.logits.softplus() - self.probs * self.logits

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = rand(self._extended(sample_shape)) < self.probs
        return drawn.cast(self.probs.dtype).detach()


class Categorical(Distribution):
    """One of the numbers 0..n-1, with the probabilities in the last dim: `probs`, which are divided
    by their sum, or softmax of `logits`.
    """

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (odds,) = _tensors(_one_of("Categorical", probs, logits))
        if odds.ndim == 0:
            raise ShapeError("Categorical: its parameter is 0-d; the last dim is that of classes")
        if logits is None:
            self.probs = odds / odds.sum(-1, keepdim=True)
            self.logits = self.probs.clamp(EPS, 1 - EPS).log()
        else:
            self.logits = odds.log_softmax(-1)
            self.probs = odds.softmax(-1)
        super().__init__(odds.shape[:-1])

    def log_prob(self, value: Any) -> Tensor:
        (index,) = _tensors(value)
        shape = broadcast_tensors(index, self.logits[..., 0])[0].extents
        rows = self.logits.expand(*shape, self.logits.extents[-1])
        places = index.cast("int64").unsqueeze(-1).expand(*shape, 1)
        return rows.gather(-1, places).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.probs * self.logits.clamp(min=-3.4e38)).sum(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # The greatest of logits with Gumbel noise is each with its probability.
        u = rand((*sample_shape, *self.logits.shape)).clamp(min=TINY)
        return (self.logits - (-u.log()).log()).argmax(-1).detach()


class Independent(Distribution):
    """Another distribution whose last dims of draws are one event: densities are multiplied."""

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        batch, count = base_distribution.batch_shape, reinterpreted_batch_ndims
        if not 0 <= count <= len(batch):
            raise InputError(f"Independent: {count} of {len(batch)} dims; give 0..{len(batch)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, count
        cut = len(batch) - count
        super().__init__(batch[:cut], (*batch[cut:], *base_distribution.event_shape))

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def log_prob(self, value: Any) -> Tensor:
        return _summed(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return _summed(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)


class MixtureSameFamily(Distribution):
    """One of the components, which are the last dim of a batch, chosen by a Categorical."""

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        batch = component_distribution.batch_shape
        if not batch or batch[-1] != mixture_distribution.probs.shape[-1]:
            raise ShapeError(
                f"MixtureSameFamily: {mixture_distribution.probs.shape[-1]} probabilities, and "
                f"components of the batch shape {batch}; its last dim is that of components"
            )
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """The mean of the variances, and the variance of the means."""
        component = self.component_distribution
        apart = component.mean - self.mean.unsqueeze(self._dim)
        return self._weighted(component.variance + apart * apart)

    @property
    def _dim(self) -> int:
        """The dim of components in a draw of all of them."""
        return -1 - len(self.event_shape)

    def _weighted(self, values: Tensor) -> Tensor:
        shares = self.mixture_distribution.probs
        shares = shares.reshape(*shares.extents, *(1 for _ in self.event_shape))
        return (shares * values).sum(self._dim)

    def log_prob(self, value: Any) -> Tensor:
        (x,) = _tensors(value)
        of_each = self.component_distribution.log_prob(x.unsqueeze(self._dim))
        return (of_each + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        choice = self.mixture_distribution.sample(sample_shape)
        draws = self.component_distribution.sample(sample_shape)
        ones = (1 for _ in self.event_shape)
        places = choice.reshape(*choice.extents, 1, *ones)
        extents = [*draws.extents]
        extents[self._dim] = places.extents[self._dim]
        return draws.gather(self._dim, places.expand(*extents)).squeeze(self._dim)


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence of q from p, in nats, by the formula of the two classes.

    Raises InputError for classes without one here.
    """
    if isinstance(p, Independent) and isinstance(q, Independent):
        if p.reinterpreted_batch_ndims == q.reinterpreted_batch_ndims:
            return _summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
    elif isinstance(p, Normal) and isinstance(q, Normal):
        ratio = (p.scale / q.scale) ** 2
        apart = ((p.loc - q.loc) / q.scale) ** 2
        return 0.5 * (ratio + apart - 1 - ratio.log())
    elif isinstance(p, Categorical) and isinstance(q, Categorical):
        return (p.probs * (p.logits - q.logits)).sum(-1)
    elif isinstance(p, Bernoulli) and isinstance(q, Bernoulli):
        apart = p.probs * (p.logits - q.logits)
        return apart + q.logits.softplus() - p.logits.softplus()
    elif isinstance(p, Exponential) and isinstance(q, Exponential):
        ratio = q.rate / p.rate
        return ratio - 1 - ratio.log()
    elif isinstance(p, Laplace) and isinstance(q, Laplace):
        ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
        return -ratio.log() + apart / q.scale + ratio * (-apart / p.scale).exp() - 1
    elif isinstance(p, Uniform) and isinstance(q, Uniform):
        inside = ((q.low <= p.low) & (p.high <= q.high)).cast(p.low.dtype)
        return ((q.high - q.low) / (p.high - p.low)).log() - inside.log()
    raise InputError(
        f"kl_divergence: there is no formula for {type(p).__name__} and {type(q).__name__}; use "
        "the mean of p.log_prob(x) - q.log_prob(x) over x = p.rsample((n,))"
    )


EPS = 2.0**-23
"""Of float32: how near to 0 and 1 probabilities are let before their logarithms are taken."""


def _one_of(what: str, probs: Any, logits: Any) -> Any:
    if (probs is None) == (logits is None):
        raise InputError(f"{what}: give probs or logits, one of them")
    return probs if logits is None else logits


def _summed(x: Tensor, count: int) -> Tensor:
    """The sum over the last dims."""
    return x.sum(tuple(range(-count, 0))) if count else x


def _tensors(*values: Any) -> tuple[Tensor, ...]:
    """Parameters as Tensors of one graph and one shape."""
    held = [x.as_tensor() if isinstance(x, Parameter | State) else x for x in values]
    graph = graph_of("distribution", held) if any(map(is_tensor, held)) else default_graph()
    tensors = [graph.constant(float(x) if isinstance(x, int) else x) for x in held]
    return broadcast_tensors(*tensors) if len(tensors) > 1 else tuple(tensors)
