"""What draws: how often, that keys decide, and what must never come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import GraphError, InputError, ShapeError
from luminal.frontend.random.drawing import chosen
from tests.close import close
from tests.numerics.recording import on, run

F = lm.nn.functional
Array = np.ndarray[Any, Any]
BACKENDS = ("reference", "cpu")
WEIGHTS = np.array([0, 1, 0, 3, 6, 0], np.float32)


def drawn(fn: Any, *arrays: Any, seed: int = 0) -> Any:
    def recorded(*tensors: Any) -> Any:
        with lm.nn.keyed(lm.random.key(seed, tensors[0].graph)):
            return fn(*tensors)

    return run(recorded, *arrays)


@pytest.mark.parametrize("backend", BACKENDS)
def test_multinomial_draws_by_weights(backend: str) -> None:
    with on(backend):
        many, one, rows = drawn(
            lambda x: [x.multinomial(20000, replacement=True), lm.multinomial(x, 1),
                       x.expand(4000, 6).multinomial(2)], WEIGHTS)  # fmt: skip
    assert many.dtype == one.dtype == np.int64
    share = np.bincount(many, minlength=6) / many.size
    # four standard deviations of shares of 20,000 draws
    np.testing.assert_allclose(share, WEIGHTS / 10, atol=0.015)
    assert not share[[0, 2, 5]].any()
    assert (rows[:, 0] != rows[:, 1]).all()
    assert set(np.unique(rows)) == {1, 3, 4}
    first = np.bincount(rows[:, 0], minlength=6) / 4000
    # four standard deviations of shares of 4,000 draws
    np.testing.assert_allclose(first, WEIGHTS / 10, atol=0.03)
    both = np.mean((np.sort(rows, 1) == [3, 4]).all(1))  # 3 then 4, or 4 then 3
    assert abs(both - (0.3 * 0.6 / 0.7 + 0.6 * 0.3 / 0.4)) < 0.03


def test_multinomial_never_draws_what_has_no_weight() -> None:
    x = np.zeros((64, 33), np.float32)
    x[np.arange(64), np.arange(64) % 33] = np.logspace(-30, 30, 64)
    found = drawn(lambda t: [t.multinomial(50, True), t.multinomial(1)], x)
    for each in found:
        assert (each == (np.arange(64) % 33)[:, None]).all()


def test_shares_of_the_running_sum() -> None:
    ends = np.array([0, 1 / 16, 0.5, np.nextafter(np.float32(1), 0)], np.float32)
    weights = np.array([[0, 1, 0, 7, 8, 0], [0] * 6, [0, 0, 3, 0, 0, 0]], np.float32)
    found = run(chosen, weights, np.broadcast_to(ends, (3, 4)))
    assert found.tolist() == [[1, 3, 4, 4], [0] * 4, [2] * 4]


def test_multinomial_needs_as_many_places_as_samples() -> None:
    with pytest.raises(lm.DimError, match="multinomial: samples without replacement"):
        drawn(lambda x: x.multinomial(7), WEIGHTS)
    with pytest.raises(GraphError, match=r"multinomial: it draws .* has no random key"):
        run(lambda x: x.multinomial(2), WEIGHTS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponential_and_gumbel_numbers(dtype: str) -> None:
    def both(seed: Any) -> Any:
        keys = lm.random.split(lm.random.key(seed))
        return [lm.random.exponential(keys[0], (60000,), 2.0, dtype),
                lm.random.gumbel(keys[1], (60000,), dtype)]  # fmt: skip

    e, g = run(both, np.int64(3))
    assert e.dtype == g.dtype == np.dtype(dtype)
    assert (e > 0).all()
    assert np.isfinite(e).all()
    assert np.isfinite(g).all()
    assert abs(e.mean() - 0.5) < 0.01
    assert abs(np.median(e) - np.log(2) / 2) < 0.01
    assert abs(g.mean() - np.euler_gamma) < 0.02
    assert abs(g.var() - np.pi**2 / 6) < 0.05


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax(hard: bool) -> None:
    logits = np.log(WEIGHTS + 1e-30).astype(np.float32) * np.ones((8000, 1), np.float32)
    y = drawn(lambda x: F.gumbel_softmax(x, 0.7, hard, dim=1), logits)
    close(y.sum(1), np.ones(8000), 16)
    # four standard deviations of shares of 8,000 draws
    np.testing.assert_allclose(
        np.bincount(y.argmax(1), minlength=6) / 8000, WEIGHTS / 10, atol=0.02
    )
    if hard:
        assert np.abs(y - (y == y.max(1, keepdims=True))).max() < 1e-6
    turned = drawn(lambda x: F.gumbel_softmax(x.mT, 0.7, hard, dim=0), logits)
    close(turned.sum(0), np.ones(8000), 16)


def test_bernoulli_and_rrelu() -> None:
    p = np.linspace(0, 1, 5, dtype=np.float32)
    found = drawn(lambda x: lm.bernoulli(x.expand(4000, 5)), p)
    assert found.dtype == np.float32
    # four standard deviations of shares of 4,000 draws
    np.testing.assert_allclose(found.mean(0), p, atol=0.03)
    x = np.array([-1.0, 2.0], np.float32) * np.ones((1000, 1), np.float32)
    noisy, middle = drawn(lambda t: [F.rrelu(t, 0.1, 0.3, training=True), F.rrelu(t, 0.1, 0.3)], x)
    assert (noisy[:, 1] == 2).all()
    assert -0.3 <= noisy[:, 0].min() < -0.28 < -0.12 < noisy[:, 0].max() <= -0.1
    close(middle, np.where(x > 0, x, x * 0.2))


# --- dropout --------------------------------------------------------------------------------------

SHAPES = {"dropout1d": (60, 50, 7), "dropout2d": (60, 50, 4, 5), "dropout3d": (30, 50, 3, 2, 4)}


@pytest.mark.parametrize("name", [*SHAPES, "dropout", "alpha_dropout", "feature_alpha_dropout"])
def test_dropout_functions(name: str) -> None:
    x = np.ones(SHAPES.get(name, (60, 50, 4)), np.float32)
    function = getattr(F, name)
    y = drawn(lambda t: function(t, 0.3, True), x)
    values = np.unique(y)
    assert values.size == 2
    whole = y.reshape(*y.shape[:2], -1)
    together = (whole == whole[..., :1]).all()
    assert together == (name not in ("dropout", "alpha_dropout"))
    dropped = whole[..., 0] == values.min()
    assert abs(dropped.mean() - 0.3) < 0.04
    if "alpha" in name:
        theirs = np.unique(getattr(torch.nn.functional, name)(torch.ones(60, 50, 4), 0.3, True))
        close(values, theirs, 8)
    else:
        close(values, np.array([0, 1 / 0.7]))
    same, none, all_ = drawn(lambda t: [function(t, 0.3, False), function(t, 0.0, True),
                                        function(t, 1.0, True)], x)  # fmt: skip
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(none, x)
    assert not all_.any()
    with pytest.raises(InputError, match=f"{name}: p is 1.5; it is a probability in 0..1"):
        drawn(lambda t: function(t, 1.5, True), x)
    with pytest.raises(GraphError, match=f"{name}: it draws random numbers and has no random key"):
        run(lambda t: function(t, 0.3, True), x)
    keyed = run(lambda t: function(t, 0.3, True, key=lm.random.key(0, t.graph)), x)
    assert (keyed != x).any()


def test_three_dims_have_a_batch_and_channels_as_pytorchs() -> None:
    y = drawn(lambda t: lm.nn.Dropout2d(0.5)(t), np.ones((40, 30, 9), np.float32))
    assert (y == y[..., :1]).all()
    assert 0.4 < (y[..., 0] == 0).mean() < 0.6  # each (batch, channel) of its own
    y = drawn(lambda t: F.dropout3d(t, 0.5), np.ones((30, 2, 3, 4), np.float32))
    assert (y == y[:, :1, :1, :1]).all()
    for name in ("dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"):
        with pytest.raises(ShapeError, match=f"{name}: x0: f32"):
            drawn(lambda t, name=name: getattr(F, name)(t, 0.5, True), np.ones(3, np.float32))
