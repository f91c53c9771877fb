"""Schedules have PyTorch's values over 30 steps, alone and combined."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.optim import lr_scheduler as ours
from tests.close import close, close_each

theirs = torch.optim.lr_scheduler
BASES = [0.3, 0.05]
STEPS = 30

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "constant": ("ConstantLR", {"factor": 0.25, "total_iters": 7}),
    "linear": ("LinearLR", {"start_factor": 0.1, "end_factor": 0.9, "total_iters": 11}),
    "linear-to-0": ("LinearLR", {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 9}),
    "step": ("StepLR", {"step_size": 4, "gamma": 0.5}),
    "multi-step": ("MultiStepLR", {"milestones": [9, 3, 9, 20], "gamma": 0.3}),
    "exponential": ("ExponentialLR", {"gamma": 0.9}),
    "polynomial": ("PolynomialLR", {"total_iters": 17, "power": 2.5}),
    "cosine": ("CosineAnnealingLR", {"T_max": 10}),
    "cosine-floor": ("CosineAnnealingLR", {"T_max": 25, "eta_min": 0.01}),
    "restarts": ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
    "restarts-even": ("CosineAnnealingWarmRestarts", {"T_0": 7}),
    "multiplicative": ("MultiplicativeLR", {"lr_lambda": lambda k: 1 - 1 / (k + 4)}),
    "lambda": ("LambdaLR", {"lr_lambda": [lambda k: 1 / (k + 1), lambda k: 0.9**k]}),
    "one-cycle": ("OneCycleLR", {"max_lr": BASES, "total_steps": 31}),
    "one-cycle-linear": (
        "OneCycleLR",
        {"max_lr": BASES, "epochs": 4, "steps_per_epoch": 8, "anneal_strategy": "linear",
         "pct_start": 0.2, "div_factor": 5.0, "final_div_factor": 50.0},
    ),
    "one-cycle-three": (
        "OneCycleLR", {"max_lr": BASES, "total_steps": 40, "three_phase": True, "pct_start": 0.25}
    ),
}  # fmt: skip


def optimizer() -> torch.optim.Optimizer:
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in BASES]
    return torch.optim.SGD(groups, lr=1.0)


def of_ours(case: str) -> Any:
    name, options = CASES[case]
    return getattr(ours, name)(*(() if "max_lr" in options else (BASES,)), **options)


def of_theirs(case: str, optimizer: torch.optim.Optimizer) -> Any:
    name, options = CASES[case]
    more = {"cycle_momentum": False} if name == "OneCycleLR" else {}
    return getattr(theirs, name)(optimizer, **options, **more)


def check(found: Any, expected: Any, optimizer: torch.optim.Optimizer, steps: int = STEPS) -> None:
    for k in range(steps):
        rates = [group["lr"] for group in optimizer.param_groups]
        close(found.get_last_lr(), rates, ulp=128, err_msg=f"step {k}")
        optimizer.step()
        expected.step()
        found.step()


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_torch(case: str) -> None:
    sgd = optimizer()
    check(of_ours(case), of_theirs(case, sgd), sgd)


@pytest.mark.parametrize(
    ("cases", "milestones"),
    [
        (("linear", "cosine-floor"), [5]),
        (("constant", "exponential", "restarts"), [4, 12]),
        (("linear", "polynomial"), [11]),
    ],
    ids=["warm-up", "three", "to-zero"],
)
def test_one_after_the_other(cases: tuple[str, ...], milestones: list[int]) -> None:
    sgd = optimizer()
    expected = theirs.SequentialLR(sgd, [of_theirs(case, sgd) for case in cases], milestones)
    check(ours.SequentialLR([of_ours(case) for case in cases], milestones), expected, sgd)


@pytest.mark.parametrize(
    "cases",
    [("constant", "exponential"), ("linear", "cosine-floor", "step"), ("multiplicative", "cosine")],
    ids="-".join,
)
def test_all_at_once(cases: tuple[str, ...]) -> None:
    sgd = optimizer()
    expected = theirs.ChainedScheduler([of_theirs(case, sgd) for case in cases])
    check(ours.ChainedScheduler([of_ours(case) for case in cases]), expected, sgd)


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 2, "factor": 0.5},
        {"patience": 1, "cooldown": 3, "min_lr": [0.05, 0.001], "threshold": 0.1},
        {"mode": "max", "patience": 0, "threshold": 0.05, "threshold_mode": "abs"},
        {"mode": "max", "patience": 1, "threshold": 0.2, "eps": 1e-3},
        {"patience": 1, "threshold": 0.3, "threshold_mode": "abs"},
    ],
    ids=["plain", "cooldown", "max-abs", "max-rel", "min-abs"],
)
def test_a_plateau(options: dict[str, Any]) -> None:
    sgd = optimizer()
    found, expected = ours.ReduceLROnPlateau(BASES, **options), None
    expected = theirs.ReduceLROnPlateau(sgd, **options)
    rng = np.random.default_rng(0)
    for k in range(STEPS):
        metric = float(2 / (1 + k // 4) + rng.normal(0, 0.2))
        found.step(metric)
        expected.step(metric)
        rates = [group["lr"] for group in sgd.param_groups]
        close_each(found.get_last_lr(), rates)
    assert rates != BASES


RESUMED = ["cosine-floor", "multiplicative", "plateau", "sequential", "chained"]


@pytest.mark.parametrize("kind", RESUMED)
def test_states_go_through_json_and_go_on(kind: str) -> None:
    def made() -> Any:
        if kind == "plateau":
            return ours.ReduceLROnPlateau(0.1, patience=1)
        parts = [ours.LinearLR(0.1), ours.ExponentialLR(0.1, 0.5)]
        if kind == "sequential":
            return ours.SequentialLR(parts, [4])
        return ours.ChainedScheduler(parts) if kind == "chained" else of_ours(kind)

    def step(scheduler: Any) -> list[float]:
        scheduler.step(*([1.0] if kind == "plateau" else []))
        rates: list[float] = scheduler.get_last_lr()
        return rates

    first, second = made(), made()
    for _ in range(6):
        step(first)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.get_last_lr() == first.get_last_lr()
    for _ in range(6):
        assert step(second) == step(first)
    assert made().get_last_lr() != first.get_last_lr()


def test_the_rate_is_an_input_of_the_step() -> None:
    scheduler = ours.StepLR(0.5, 1, 0.5)
    p = lm.Parameter(np.zeros(1, np.float32))
    cx = lm.Graph()
    lm.optim.SGD([p], lr=cx.tensor((), name="lr")).apply([cx.ones(1)])
    step = lm.compile(cx, "reference")
    for _ in range(3):
        step({"lr": scheduler.lr})
        scheduler.step()
    np.testing.assert_array_equal(p.numpy(), [-0.875])


def test_what_is_refused() -> None:
    with pytest.raises(lm.InputError, match=r"StepLR: 'fast' is no learning rate; pass an optim"):
        ours.StepLR("fast", 2)  # type: ignore[arg-type]
    rate = lm.Graph().tensor((), name="lr")
    sgd = lm.optim.SGD([lm.Parameter((1,))], lr=rate)
    with pytest.raises(
        lm.InputError, match=r"StepLR: the optimizer's rate is .*give the optimizer"
    ):
        ours.StepLR(sgd, 2)
    with pytest.raises(lm.InputError, match="got no max_lr; give the highest rate"):
        ours.OneCycleLR(lm.optim.SGD([lm.Parameter((1,))], lr=0.1), total_steps=3)
    with pytest.raises(lm.InputError, match="2 values of max_lr for 1 groups"):
        ours.OneCycleLR(lm.optim.SGD([lm.Parameter((1,))], lr=0.1), [0.1, 0.2], total_steps=3)
    with pytest.raises(lm.InputError, match=r"StepLR\.lr: there are 2 groups; use get_last_lr"):
        _ = ours.StepLR([0.1, 0.2], 2).lr
    with pytest.raises(lm.InputError, match="step 3 of 2; it is over"):
        ours.OneCycleLR(0.1, 2).rates(3)
    with pytest.raises(lm.InputError, match="got no total_steps; give it, or epochs"):
        ours.OneCycleLR(0.1)
    with pytest.raises(lm.InputError, match="2 functions for 1 groups"):
        ours.LambdaLR(0.1, [abs, abs])
    with pytest.raises(lm.InputError, match="2 milestones for 2 schedulers"):
        ours.SequentialLR([ours.StepLR(0.1, 1)] * 2, [1, 2])
    with pytest.raises(lm.InputError, match=r"have \[1, 2\] groups"):
        ours.ChainedScheduler([ours.StepLR(0.1, 1), ours.StepLR([0.1, 0.2], 1)])
    with pytest.raises(lm.InputError, match=r"factor=1\.5; it must be a number of at least 0 and"):
        ours.ReduceLROnPlateau(0.1, factor=1.5)
    scheduler = ours.StepLR(0.1, 1)
    with pytest.raises(lm.LoadError, match="of 2 groups, the scheduler of 1"):
        scheduler.load_state_dict(ours.StepLR([0.1, 0.2], 1).state_dict())
    with pytest.raises(lm.LoadError, match="no 'last_epoch'"):
        scheduler.load_state_dict({})
