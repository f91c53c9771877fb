"""Averages of Parameters move as PyTorch's, and stand in for them in evaluation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import luminal as lm
from luminal import optim
from luminal.training.ema import EMA
from tests.optim.pairs import Ours, assert_near, batches, first_values


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_averages_are_those_of_torch(backend: str) -> None:
    ours = Ours()
    model = torch.nn.ParameterDict(
        {name: torch.nn.Parameter(torch.from_numpy(v)) for name, v in first_values().items()}
    )
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    ema = EMA(ours.params.values(), 0.8)
    optim.SGD(ours.params.values(), lr=0.1).step(ours.loss)
    ema.update(ours.graph)
    step = lm.compile(ours.graph, backend)
    for x, y in batches():
        step({"x": x, "y": y})
        with torch.no_grad():
            for name, p in model.items():
                p.copy_(torch.from_numpy(ours.numpy()[name]))
        averaged.update_parameters(model)
        found = {name: ema.averages[p].numpy() for name, p in ours.params.items()}
        expected = {name: p.detach().numpy() for name, p in averaged.module.items()}
        assert_near(found, expected, 1e-6)


def test_averages_stand_in_and_leave() -> None:
    p = lm.Parameter(np.zeros(2, np.float32), name="p")
    ema = EMA([p, p], 0.5)
    cx = lm.Graph()
    optim.SGD([p], lr=1.0).apply([-cx.ones(2)])
    ema.update(cx, when=cx.tensor((), "bool", "go"))
    step = lm.compile(cx, "cpu")
    for go in (True, False, True):
        step({"go": np.asarray(go)})
    np.testing.assert_array_equal(p.numpy(), 3)
    reader = lm.Graph()
    (reader.weight_of(p) + 0).output("p")
    read = lm.compile(reader)
    with ema.swapped():
        np.testing.assert_array_equal(read()["p"], 2)  # of 1 and 3
    np.testing.assert_array_equal(read()["p"], 3)
    with pytest.raises(RuntimeError, match="stops"), ema.swapped():
        raise RuntimeError("an evaluation stops")
    np.testing.assert_array_equal(read()["p"], 3)
    step({"go": np.asarray(True)})
    np.testing.assert_array_equal(read()["p"], 4)
    ema.apply()
    np.testing.assert_array_equal(read()["p"], 3)


def test_runs_in_which_no_update_is_due_count_as_none() -> None:
    p = lm.Parameter(np.zeros(2, np.float32), name="p")
    ema = EMA([p], 0.5)
    cx = lm.Graph()
    optim.SGD([p], lr=1.0).apply([-cx.ones(2)])
    ema.update(cx, when=cx.tensor((), "bool", "go"))
    step = lm.compile(cx, "cpu")
    for go, count, average in ((False, 0, 0), (True, 1, 2), (False, 1, 2), (True, 2, 3)):
        step({"go": np.asarray(go)})
        assert ema.state_dict()["count"] == count
        np.testing.assert_array_equal(ema.averages[p].numpy(), average)


def test_averages_of_bfloat16_are_float32_and_are_saved() -> None:
    p = lm.Parameter(np.ones(2), "bfloat16", "p")
    first, second = EMA([p]), EMA([p])
    assert first.averages[p].dtype is lm.float32
    first.averages[p].set(np.float32([0.1, 0.2]))
    first.count.set(3)
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(second.averages[p].numpy(), np.float32([0.1, 0.2]))
    assert second.count.numpy() == 3
    second.apply()
    # bfloat16's last digit, 2**-8
    np.testing.assert_allclose(p.numpy().astype(np.float32), [0.1, 0.2], 4e-3)
    with pytest.raises(lm.LoadError, match="2 averages for 1 parameters"):
        second.load_state_dict({"count": 0, "averages": [1, 2]})
    with pytest.raises(lm.LoadError, match=r"EMA: p: the average has the shape \(3,\)"):
        second.load_state_dict({"count": 0, "averages": [np.zeros(3, np.float32)]})
    with pytest.raises(
        lm.InputError, match="decay=1; it must be a number of at least 0 and below 1"
    ):
        EMA([p], 1)


def test_an_update_before_the_step_is_refused() -> None:
    p, cx = lm.Parameter(np.ones(2, np.float32)), lm.Graph()
    average = EMA([p])
    with pytest.raises(lm.GraphError, match="assigns none of the parameters; call it after optimi"):
        average.update(cx)
    optim.SGD([p]).step((cx.weight_of(p) ** 2).sum())
    average.update(cx)
