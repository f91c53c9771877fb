"""lm.distributions beside torch.distributions: densities, moments, gradients, and draws by their
moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import distributions as ours
from luminal.base.errors import InputError, ShapeError
from tests.close import close_to_greatest

torch = pytest.importorskip("torch")
theirs = torch.distributions

SHARE = 1e-5  # of the greatest element: sums of some ten terms of float32
rng = np.random.default_rng(5)
A, B = rng.standard_normal((4, 3)).astype("f4"), rng.random((4, 3)).astype("f4") * 0.8 + 0.1

MADE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Normal": lambda d, a, b: d.Normal(a, b),
    "Normal of numbers": lambda d, a, b: d.Normal(0.5, 2),
    "Laplace": lambda d, a, b: d.Laplace(a, b),
    "Uniform": lambda d, a, b: d.Uniform(a - 4, a + b + 4),
    "Exponential": lambda d, a, b: d.Exponential(b),
    "Bernoulli": lambda d, a, b: d.Bernoulli(probs=b),
    "Bernoulli of logits": lambda d, a, b: d.Bernoulli(logits=a),
    "Categorical": lambda d, a, b: d.Categorical(b),
    "Categorical of logits": lambda d, a, b: d.Categorical(logits=a),
    "Independent": lambda d, a, b: d.Independent(d.Normal(a, b), 1),
    "MixtureSameFamily": lambda d, a, b: d.MixtureSameFamily(
        d.Categorical(logits=a), d.Normal(a, b)
    ),
    "of vectors": lambda d, a, b: d.MixtureSameFamily(
        d.Categorical(logits=a[:, 0]), d.Independent(d.Laplace(a, b), 1)
    ),
}  # fmt: skip


def values(name: str) -> np.ndarray[Any, Any]:
    """Where densities are asked for."""
    if name.startswith("Categorical"):
        return np.array([0, 2, 1, 1])
    if name.startswith("Bernoulli"):
        return (B > 0.5).astype("f4")
    shape = {"MixtureSameFamily": (4,), "of vectors": (3,)}.get(name, (4, 3))
    return np.random.default_rng(6).random(shape).astype("f4")


@pytest.mark.parametrize("name", MADE)
def test_densities_entropies_and_moments_are_pytorchs(name: str) -> None:
    make, at = MADE[name], values(name)
    a, b = torch.tensor(A, requires_grad=True), torch.tensor(B, requires_grad=True)
    expected, got = make(theirs, a, b), make(ours, lm.tensor(A), lm.tensor(B))
    assert got.batch_shape == tuple(expected.batch_shape)
    assert got.event_shape == tuple(expected.event_shape)
    close_to_greatest(
        got.log_prob(lm.tensor(at)).numpy(),
        expected.log_prob(torch.tensor(at)).detach().numpy(),
        SHARE,
    )
    for what in ("mean", "variance", "stddev"):
        if not name.startswith("Categorical"):
            close_to_greatest(
                getattr(got, what).numpy(), getattr(expected, what).detach().numpy(), SHARE
            )
    if "vectors" not in name and "Mixture" not in name:
        close_to_greatest(got.entropy().numpy(), expected.entropy().detach().numpy(), SHARE)

    def loss(a: Any, b: Any) -> Any:
        return make(ours, a, b).log_prob(lm.tensor(at)).sum() + 0 * (a + b).sum()

    (expected.log_prob(torch.tensor(at)).sum() + 0 * (a + b).sum()).backward()
    for g, x in zip(lm.grad(loss, argnums=(0, 1))(lm.tensor(A), lm.tensor(B)), (a, b), strict=True):
        close_to_greatest(g.numpy(), x.grad.numpy(), SHARE)


@pytest.mark.parametrize("name", MADE)
def test_draws_have_the_mean_and_the_variance(name: str) -> None:
    lm.manual_seed(1)
    made = MADE[name](ours, lm.tensor(A), lm.tensor(B))
    draws = made.sample((4000,))
    assert draws.shape == (4000, *made.batch_shape, *made.event_shape)
    if name.startswith("Categorical"):
        drawn = np.stack([(draws.numpy() == k).mean(0) for k in range(3)], -1)
        # Five standard deviations of a share.
        np.testing.assert_allclose(drawn, made.probs.numpy(), atol=5 * np.sqrt(0.25 / 4000))
        return
    mean, spread = made.mean.numpy(), made.stddev.numpy()
    error = np.abs(draws.numpy().mean(0) - mean) / spread
    assert error.max() < 5 / np.sqrt(4000)  # five standard deviations of a mean
    np.testing.assert_allclose(draws.numpy().std(0) / spread, 1, atol=0.15)  # of heavy tails, too


def test_divergences_are_pytorchs_and_others_are_refused() -> None:
    rest = {name: MADE[name] for name in MADE if "Mixture" not in name and "of" not in name}
    for name, make in rest.items():
        wide = (A + 0.2, np.minimum(B + 0.1, 0.95)) if name != "Uniform" else (A, B)
        args = [(A, B), wide]
        p, q = (make(ours, lm.tensor(a), lm.tensor(b)) for a, b in args)
        their_p, their_q = (make(theirs, torch.tensor(a), torch.tensor(b)) for a, b in args)
        expected = theirs.kl_divergence(their_p, their_q).numpy()
        close_to_greatest(ours.kl_divergence(p, q).numpy(), expected, SHARE)
    with pytest.raises(InputError, match="no formula for Normal and Uniform; use the mean of"):
        ours.kl_divergence(ours.Normal(0, 1), ours.Uniform(0, 1))


def test_rsample_has_gradients_and_sample_has_none() -> None:
    for draw, slope in (("rsample", 4.0), ("sample", 0.0)):
        g = lm.grad(lambda x: getattr(ours.Normal(x, 1), draw)((4,)).sum())  # noqa: B023
        assert g(lm.tensor(0.5)).item() == slope


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(InputError, match="Categorical: give probs or logits, one of them"):
        ours.Categorical()
    with pytest.raises(ShapeError, match="3 probabilities, and components of the batch shape"):
        ours.MixtureSameFamily(ours.Categorical(lm.ones(3)), ours.Normal(lm.ones(2), 1))
    with pytest.raises(InputError, match="Independent: 2 of 1 dims"):
        ours.Independent(ours.Normal(lm.ones(2), 1), 2)
