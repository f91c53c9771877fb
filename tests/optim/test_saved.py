"""state_dict of optimizers: what goes out comes back, or nothing changes."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import optim
from tests.optim.pairs import Ours, Theirs, assert_near, batches

DATA = [*batches()]


def trained(build: Any, steps: range, ours: Ours | None = None, saved: Any = None) -> Any:
    """(problem, optimizer, its program) after these steps; from `saved`, if it is given."""
    ours = ours or Ours()
    optimizer = build(ours.params)
    if saved is not None:
        values, state = saved
        for name, p in ours.params.items():
            p.set(values[name])
        optimizer.load_state_dict(state)
    optimizer.step(ours.loss)
    step = lm.compile(ours.graph, "reference")
    run(step, steps)
    return ours, optimizer, step


def run(step: lm.Executable, steps: range) -> None:
    for k in steps:
        step({"x": DATA[k][0], "y": DATA[k][1]})


BUILDS: dict[str, Any] = {
    "sgd": lambda ps: optim.SGD(ps.values(), lr=0.05, momentum=0.9, dampening=0.3),
    "adamw": lambda ps: optim.AdamW(ps.values(), lr=0.01, amsgrad=True),
    "nadam": lambda ps: optim.NAdam([{"params": [p]} for p in ps.values()], lr=0.01),
    "adagrad": lambda ps: optim.Adagrad(ps.values(), initial_accumulator_value=0.1),
    "rmsprop": lambda ps: optim.RMSprop(ps.values(), centered=True, momentum=0.9),
}


@pytest.mark.parametrize("name", BUILDS)
def test_a_run_cut_in_two_ends_in_the_same_bits(name: str) -> None:
    whole, kept, _ = trained(BUILDS[name], range(8))
    half, optimizer, _ = trained(BUILDS[name], range(4))
    saved = half.numpy(), copy.deepcopy(optimizer.state_dict())
    again, restored, _ = trained(BUILDS[name], range(4, 8), saved=saved)
    for key, value in whole.numpy().items():
        np.testing.assert_array_equal(again.numpy()[key], value)
    for p, q in zip(kept.parameters, restored.parameters, strict=True):
        for slot, state in kept.state[p].items():
            np.testing.assert_array_equal(restored.state[q][slot].numpy(), state.numpy())


def test_a_program_at_hand_goes_on_from_what_is_loaded() -> None:
    ours, optimizer, step = trained(BUILDS["adamw"], range(3))
    values, state = ours.numpy(), optimizer.state_dict()
    run(step, range(3, 6))
    expected = ours.numpy()
    for name, p in ours.params.items():
        p.set(values[name])
    optimizer.load_state_dict(state)
    run(step, range(3, 6))
    for name, value in ours.numpy().items():
        np.testing.assert_array_equal(value, expected[name])
    assert optimizer.state_dict()["state"][0]["step"] == 6


def test_an_empty_state_starts_again() -> None:
    ours, optimizer, step = trained(BUILDS["adamw"], range(0))
    start, blank = ours.numpy(), BUILDS["adamw"](ours.params).state_dict()
    assert blank["state"] == {}
    run(step, range(3))
    expected = ours.numpy()
    for name, p in ours.params.items():
        p.set(start[name])
    optimizer.load_state_dict(blank)
    run(step, range(3))
    for name, value in ours.numpy().items():
        np.testing.assert_array_equal(value, expected[name])


OF_BOTH: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.05, "momentum": 0.9},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "Adagrad": {"lr": 0.05},
    "RMSprop": {"lr": 0.01, "centered": True, "momentum": 0.5},
    "Adamax": {"lr": 0.01},
    "Adadelta": {"lr": 0.5},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
}


@pytest.mark.parametrize("name", OF_BOTH)
def test_what_torch_saved_is_taken_over(name: str) -> None:
    ours, theirs = Ours(), Theirs()
    expected = getattr(torch.optim, name)(theirs.params.values(), **OF_BOTH[name])
    for x, y in DATA[:5]:
        theirs.step(expected, x, y)
    for key, value in theirs.numpy().items():
        ours.params[key].set(value)
    optimizer = getattr(optim, name)(ours.params.values(), **OF_BOTH[name] | {"lr": 0.5})
    optimizer.load_state_dict(expected.state_dict())
    assert optimizer.param_groups[0]["lr"] == OF_BOTH[name]["lr"]
    entry, theirs_entry = (each.state_dict()["state"][0] for each in (optimizer, expected))
    assert {*entry} == {*theirs_entry}
    optimizer.step(ours.loss)
    step = lm.compile(ours.graph, "reference")
    for x, y in DATA[5:]:
        theirs.step(expected, x, y)
        step({"x": x, "y": y})
    assert_near(ours.numpy(), theirs.numpy())


def test_options_go_through_json_and_tensors_stay() -> None:
    ours = Ours()
    rate = ours.graph.tensor((), name="lr")
    optimizer = optim.Adam(ours.params.values(), lr=rate, betas=(0.5, 0.75))
    groups = json.loads(json.dumps(optimizer.state_dict()["param_groups"]))
    assert (groups[0]["lr"], groups[0]["params"]) == (None, [0, 1, 2, 3])
    other = optim.Adam(ours.params.values(), lr=rate)
    other.load_state_dict({"state": {}, "param_groups": groups})
    assert other.param_groups[0]["betas"] == (0.5, 0.75)
    assert other.param_groups[0]["lr"] is rate


def damaged(change: Any) -> tuple[optim.Optimizer, dict[str, Any], Any]:
    _, optimizer, _ = trained(lambda ps: optim.Adam(ps.values(), lr=0.01), range(2))
    before = optimizer.state_dict()
    state = copy.deepcopy(before)
    state["param_groups"][0]["lr"] = 0.7
    for entry in state["state"].values():
        entry["exp_avg"] += 1
    change(state)
    return optimizer, state, before


DAMAGE: dict[str, tuple[Any, str]] = {
    "shape": (
        lambda s: s["state"][1].update(exp_avg_sq=np.zeros(5, np.float32)),
        r"Adam: b: exp_avg_sq has the shape \(5,\), the parameter \(4,\)",
    ),
    "lacking": (lambda s: s["state"][2].pop("exp_avg"), "Adam: scale: the state_dict has step, "),
    "other slot": (lambda s: s["state"][0].update(sum=1), "Adam: w: .* states are step, exp_avg"),
    "dtype": (
        lambda s: s["state"][0].update(exp_avg=np.full((5, 4), 1j)),
        "Adam: w: exp_avg: expected float32",
    ),
    "groups": (lambda s: s["param_groups"].append({"params": []}), "2 groups, the optimizer 1"),
    "count": (lambda s: s["param_groups"][0]["params"].pop(), "group 0 has 3 parameters"),
    "number": (lambda s: s["state"].update({9: s["state"][0]}), "a state for 9"),
    "option": (lambda s: s["param_groups"][0].update(eps=-1.0), "group 0: Adam: eps=-1.0"),
    "steps": (lambda s: s["state"][3].update(step=7), r"nothing has the counts \(7,\), w \(2,\)"),
    "options": (
        lambda s: (
            s["param_groups"][0].update(amsgrad=True)
            or [e.update(max_exp_avg_sq=e["exp_avg"]) for e in s["state"].values()]
        ),
        "w: the step that is recorded has the states step, exp_avg, exp_avg_sq",
    ),
    "no dict": (lambda s: s.pop("state"), r"no state_dict of an optimizer \(KeyError\('state'\)\)"),
    "text": (lambda s: s["state"].update(w=1), "no state_dict of an optimizer"),
    "fraction": (lambda s: s["state"][3].update(step=2.5), "nothing: step is 2.5"),
    "object": (lambda s: s["state"][3].update(step={"a": 1}), "nothing: step is {'a': 1}; it is a"),
    "none": (lambda s: s["state"][3].update(step=None), "nothing: step is None; it is a whole"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_does_not_fit_changes_nothing(kind: str) -> None:
    change, text = DAMAGE[kind]
    optimizer, state, before = damaged(change)
    with pytest.raises(lm.LoadError, match=text):
        optimizer.load_state_dict(state)
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for k, entry in before["state"].items():
        for slot, value in entry.items():
            np.testing.assert_array_equal(after["state"][k][slot], value)
