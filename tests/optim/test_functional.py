"""The functional forms: pure, from Tensors to Tensors, each in the dtype of what it replaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import optim
from tests.close import close, close_each

rng = np.random.default_rng(0)
P, G = (rng.normal(0, 1, (3, 4)).astype(np.float32) for _ in range(2))
M, V = (np.abs(rng.normal(0, 1, (3, 4))).astype(np.float32) for _ in range(2))

FORMS: dict[str, Any] = {
    "sgd": (lambda p, g, m, v, t: (optim.sgd_on_graph(p, g, 0.1, weight_decay=0.5),), 1),
    "momentum": (lambda p, g, m, v, t: optim.sgd_momentum_on_graph(p, g, m, 0.1), 2),
    "adam": (lambda p, g, m, v, t: optim.adam_on_graph(p, g, m, v, t, 0.1), 3),
    "amsgrad": (
        lambda p, g, m, v, t: optim.adam_on_graph(p, g, m, v, t, 0.1, max_exp_avg_sqs=m),
        4,
    ),
    "rmsprop": (lambda p, g, m, v, t: optim.rmsprop_on_graph(p, g, v, 0.1), 2),
    "centered": (
        lambda p, g, m, v, t: optim.rmsprop_on_graph(
            p, g, [x + 9 for x in v], 0.1, momentum=0.5, momentum_buffers=m, grad_avgs=v
        ),
        4,
    ),
    "lamb": (lambda p, g, m, v, t: optim.lamb_on_graph(p, g, m, v, t, 0.1), 3),
    "adagrad": (lambda p, g, m, v, t: optim.adagrad_on_graph(p, g, v, t, 0.1), 2),
    "lion": (lambda p, g, m, v, t: optim.lion_on_graph(p, g, m, 0.1), 2),
    "radam": (lambda p, g, m, v, t: optim.radam_on_graph(p, g, m, v, t, 0.1), 3),
    "muon": (lambda p, g, m, v, t: optim.muon_on_graph(p, g, m, 0.1), 2),
}


@pytest.mark.parametrize("name", FORMS)
def test_they_are_pure_and_keep_dtypes(name: str) -> None:
    form, count = FORMS[name]
    cx = lm.Graph()
    p, g, m, v = (cx.constant(x) for x in (P, G, M, V))
    low = [x.cast("bfloat16") for x in (p, g)]
    found = form([p, low[0]], [g, low[1]], [m, m], [v, v], cx.constant(3))
    assert not cx.sinks
    assert len(found) == count
    first, *moments = found
    assert [x.dtype.name for x in first] == ["float32", "bfloat16"]
    assert all(x.dtype is lm.float32 for column in moments for x in column)
    rounded = first[1].cast("float32").numpy()
    # bfloat16's digits in steps that add up: the same weights, not the same numbers
    np.testing.assert_allclose(rounded, first[0].numpy(), 0.05, 0.05)


def test_their_formulas() -> None:
    cx = lm.Graph()
    p, g, m, v = ([cx.constant(x)] for x in (P, G, M, V))
    (new,) = optim.sgd_on_graph(p, g, cx.constant(0.25), weight_decay=0.5)
    close_each(new.numpy(), P - 0.25 * (G + 0.5 * P))
    (new,), (b,) = optim.sgd_momentum_on_graph(p, g, m, 0.1, dampening=0.5, nesterov=True)
    buffer = 0.9 * M + 0.5 * G
    close_each(b.numpy(), buffer)
    close_each(new.numpy(), P - 0.1 * (G + 0.9 * buffer))
    (new,), (first,), (second,) = optim.adam_on_graph(p, g, m, v, cx.constant(3), 0.1)
    close_each(first.numpy(), 0.9 * M + 0.1 * G)
    close_each(second.numpy(), 0.999 * V + 0.001 * G * G)
    step = (0.9 * M + 0.1 * G) / (1 - 0.9**3)
    step /= np.sqrt((0.999 * V + 0.001 * G * G) / (1 - 0.999**3)) + 1e-8
    close(new.numpy(), P - 0.1 * step)


def test_bias_is_corrected_to_the_last_bits() -> None:
    cx = lm.Graph()
    for step in (1, 2, 1000):
        zero, one = cx.zeros(1), cx.ones(1)
        v = [one * ((1 - 0.999**step) / 0.999 - 0.001 / 0.999)]  # the mean of ones becomes exact
        (new,), *_ = optim.adam_on_graph(
            [zero], [one], [zero], v, cx.constant(step), 1.0, betas=(0.0, 0.999), eps=0.0
        )
        # a dozen operations of float32 against float64: 8 to 80 ulp
        np.testing.assert_allclose(new.numpy(), -1, 1e-6)


def test_other_programs_see_every_step_and_a_group_has_one_counter() -> None:
    params = [lm.Parameter(np.zeros(3, np.float32), name=f"p{k}") for k in range(5)]
    cx = lm.Graph()
    loss = cx.zeros(())
    for k, p in enumerate(params):
        loss = loss + (cx.weight_of(p) - k).square().sum()
    optimizer = optim.Adam([{"params": params[:3]}, {"params": params[3:]}], lr=0.5)
    optimizer.step(loss.output("loss"))
    counters = {optimizer.state[p]["step"] for p in params}
    assert len(counters) == 2
    step = lm.compile(cx)
    other = lm.Graph()
    sum(other.weight_of(p).sum() for p in params).output("sum")
    read = lm.compile(other)
    seen = [float(read()["sum"])]
    for _ in range(3):
        step()
        seen.append(float(read()["sum"]))
        # a dozen operations of float32 against float64: 8 to 80 ulp
        assert seen[-1] == pytest.approx(sum(float(p.numpy().sum()) for p in params), rel=1e-6)
    assert seen == sorted(set(seen))


def test_a_step_under_jit_is_recorded_for_each_shape() -> None:
    model, rate = lm.nn.Linear(3, 2).initialize(0), lm.State((), init=0.01, name="rate")
    optimizer = optim.AdamW(model.parameters(), lr=rate)

    @lm.jit
    def step(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        loss = lm.nn.functional.mse_loss(model(x), y)
        optimizer.step(loss)
        return loss

    losses = [float(step(np.ones((n, 3)), np.zeros((n, 2)))) for n in (4, 4, 5, 5)]
    assert losses[1] < losses[0]
    assert optimizer.state_dict()["state"][0]["step"] == 4
    rate.set(0.0)
    last = [float(step(np.ones((n, 3)), np.zeros((n, 2)))) for n in (4, 5)]
    assert last[0] == pytest.approx(last[1])


def test_batches_of_any_size() -> None:
    rng = np.random.default_rng(1)
    p = lm.Parameter(np.ones((3, 2), np.float32))
    cx = lm.Graph()
    loss = (cx.tensor(("b", 3), name="x") @ cx.weight_of(p)).square().mean()
    norm = optim.SGD([p], lr=0.1).step(loss.output("loss"), clip_norm=100.0)
    assert norm is not None
    norm.output("norm")
    step = lm.compile(cx)
    for n in (1, 4, 7):
        x, before = rng.normal(0, 1, (n, 3)).astype(np.float32), np.array(p.numpy())
        found = step({"x": x})
        gradient = 2 * x.T @ (x @ before) / (2 * n)
        close(p.numpy(), before - 0.1 * gradient)
        close_each(found["norm"], np.linalg.norm(gradient))
