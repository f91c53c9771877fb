"""Twenty steps of every optimizer: as PyTorch's, or as the paper's formula in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import optim
from tests.close import close
from tests.long_share import long_rows, mostly_long
from tests.optim.pairs import Array, Ours, Theirs, assert_near, batches

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd-decay": ("SGD", {"lr": 0.002, "weight_decay": 0.1, "maximize": True}),
    "sgd-momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "sgd-dampening": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}),
    "sgd-nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    "adam": ("Adam", {"lr": 0.01}),
    "adam-decay": ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    "adam-amsgrad": ("Adam", {"lr": 0.05, "betas": (0.5, 0.6), "amsgrad": True}),
    "adam-maximize": ("Adam", {"lr": 0.01, "maximize": True}),
    "adam-no-beta1": ("Adam", {"lr": 0.01, "betas": (0.0, 0.99)}),
    "adamw": ("AdamW", {"lr": 0.01}),
    "adamw-decay": ("AdamW", {"lr": 0.02, "weight_decay": 0.3, "amsgrad": True}),
    "rmsprop": ("RMSprop", {"lr": 0.005}),
    "rmsprop-momentum": ("RMSprop", {"lr": 0.002, "momentum": 0.9, "alpha": 0.9, "eps": 1e-3}),
    "rmsprop-centered": ("RMSprop", {"lr": 0.005, "centered": True, "momentum": 0.5, "eps": 0.1}),
    "rmsprop-centered-only": ("RMSprop", {"lr": 0.005, "centered": True, "eps": 0.1}),
    "adagrad": ("Adagrad", {"lr": 0.05}),
    "adagrad-decay": (
        "Adagrad",
        {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
    ),
    "adamax": ("Adamax", {"lr": 0.01}),
    "adamax-decay": ("Adamax", {"lr": 0.02, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    "adadelta": ("Adadelta", {"lr": 1.0}),
    "adadelta-decay": ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    "nadam": ("NAdam", {"lr": 0.01}),
    "nadam-decay": (
        "NAdam",
        {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.1},
    ),
    "radam": ("RAdam", {"lr": 0.01}),
    "radam-decay": ("RAdam", {"lr": 0.01, "betas": (0.9, 0.9), "weight_decay": 0.1}),
    "radam-decoupled": ("RAdam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
}
FEW = (
    "sgd-nesterov",
    "adam-amsgrad",
    "rmsprop-momentum",
    "adagrad-decay",
    "adamax-decay",
    "adadelta-decay",
    "nadam-decay",
    "radam-decoupled",
)
ON_CPU = ("sgd-dampening", "adamw", "rmsprop-centered", "nadam", "radam", "adamax", "adadelta")
RUNS = [(name, "reference") for name in CASES] + [(name, "cpu") for name in ON_CPU]
SHORT = {(name, "reference") for name in FEW} | {(name, "cpu") for name in ON_CPU}


@pytest.mark.parametrize(
    ("case", "backend"), long_rows(RUNS, SHORT), ids=[f"{c}-{b}" for c, b in RUNS]
)
def test_twenty_steps_are_those_of_torch(case: str, backend: str) -> None:
    name, options = CASES[case]
    ours, theirs = Ours(), Theirs()
    optimizer = getattr(optim, name)(ours.params.values(), **options)
    expected = getattr(torch.optim, name)(theirs.params.values(), **options)
    optimizer.step(ours.loss)
    step = lm.compile(ours.graph, backend)
    for x, y in batches():
        loss = step({"x": x, "y": y})["loss"]
        close(loss, theirs.step(expected, x, y))
        assert_near(ours.numpy(), theirs.numpy())
    for p, q in zip(ours.params.values(), theirs.params.values(), strict=True):
        for slot, state in optimizer.state[p].items():
            if slot == "step" and slot not in expected.state[q]:
                continue  # SGD's, which knows its first step by a missing buffer
            value = np.asarray(expected.state[q][slot])  # PyTorch counts steps in floats
            value = value.astype(state.numpy().dtype) if slot == "step" else value
            close(state.numpy(), value, ulp=32, err_msg=slot)


def test_defaults_are_those_of_torch() -> None:
    for name in (
        "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adamax", "Adadelta", "NAdam", "RAdam",
        "Muon",
    ):  # fmt: skip
        p = lm.Parameter(np.ones((2, 2), np.float32))
        defaults = getattr(optim, name)([p]).defaults
        expected = getattr(torch.optim, name)([torch.nn.Parameter(torch.ones(2, 2))]).defaults
        ours = {key: value for key, value in defaults.items() if key in expected}
        assert ours == {key: expected[key] for key in ours}, name
        absent = {key for key in expected if key not in defaults}
        assert absent <= {"foreach", "fused", "capturable", "differentiable"}, name


# --- those that PyTorch has not -------------------------------------------------------------------


def lion(p: Array, g: Array, s: dict[str, Array], t: int) -> Array:
    """Chen et al. 2023, algorithm 2: lr 0.01, betas (0.9, 0.99), decay 0.1."""
    m = s.setdefault("exp_avg", np.zeros_like(p))
    direction = np.sign(0.9 * m + 0.1 * g) + 0.1 * p
    s["exp_avg"] = 0.99 * m + 0.01 * g
    return p - 0.01 * direction


def lamb(p: Array, g: Array, s: dict[str, Array], t: int) -> Array:
    """You et al. 2020, algorithm 2: lr 0.01, betas (0.9, 0.999), eps 1e-6, decay 0.1."""
    m = s["exp_avg"] = 0.9 * s.get("exp_avg", 0 * p) + 0.1 * g
    v = s["exp_avg_sq"] = 0.999 * s.get("exp_avg_sq", 0 * p) + 0.001 * g * g
    u = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + 0.1 * p
    own, moved = np.sqrt((p * p).sum()), np.sqrt((u * u).sum())
    return p - 0.01 * (own / moved if own > 0 and moved > 0 else 1.0) * u


def muon(p: Array, g: Array, s: dict[str, Array], t: int) -> Array:
    """Jordan 2024: lr 0.02, momentum 0.95, Nesterov, five steps, decay 0.1; AdamW elsewhere."""
    if p.ndim != 2:
        m = s["exp_avg"] = 0.9 * s.get("exp_avg", 0 * p) + 0.1 * g
        v = s["exp_avg_sq"] = 0.999 * s.get("exp_avg_sq", 0 * p) + 0.001 * g * g
        p = p * (1 - 0.02 * 0.1)
        return p - 0.02 * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-7)
    b = s["momentum_buffer"] = 0.95 * s.get("momentum_buffer", 0 * p) + 0.05 * g
    x = 0.05 * g + 0.95 * b
    tall = p.shape[0] > p.shape[1]
    x = x.T if tall else x
    x = x / max(np.sqrt((x * x).sum()), 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    x = x.T if tall else x
    return p * (1 - 0.02 * 0.1) - 0.02 * np.sqrt(max(1, p.shape[0] / max(1, p.shape[1]))) * x


def lion_of(params: list[lm.Parameter]) -> optim.Optimizer:
    return optim.Lion(params, lr=0.01, weight_decay=0.1)


def lamb_of(params: list[lm.Parameter]) -> optim.Optimizer:
    return optim.LAMB(params, lr=0.01, weight_decay=0.1)


def muon_of(params: list[lm.Parameter]) -> optim.Optimizer:
    matrices = [p for p in params if p.ndim == 2]
    others = [p for p in params if p.ndim != 2]
    return optim.Muon([{"params": matrices}, {"params": others, "use_muon": False}], lr=0.02)


@pytest.mark.parametrize("backend", mostly_long(["cpu", "reference"], 1))
@pytest.mark.parametrize(("build", "formula"), [(lion_of, lion), (lamb_of, lamb), (muon_of, muon)])
def test_twenty_steps_are_those_of_the_paper(build: Any, formula: Any, backend: str) -> None:
    ours, theirs = Ours(), Theirs(np.float64)
    optimizer = build([*ours.params.values()])
    optimizer.step(ours.loss)
    step = lm.compile(ours.graph, backend)
    states: dict[str, dict[str, Array]] = {name: {} for name in theirs.params}
    plain = torch.optim.SGD(theirs.params.values(), lr=0.0)  # gives gradients
    for t, (x, y) in enumerate(batches(), 1):
        step({"x": x, "y": y})
        theirs.step(plain, x.astype(np.float64), y.astype(np.float64))
        for name, p in theirs.params.items():
            assert p.grad is not None
            new = formula(p.detach().numpy(), p.grad.numpy(), states[name], t)
            p.data = torch.from_numpy(np.asarray(new))
        assert_near(ours.numpy(), theirs.numpy())
    for name, p in ours.params.items():
        for slot, value in states[name].items():
            found = optimizer.state[p][slot].numpy()
            close(found, value, ulp=32, err_msg=f"{name}.{slot}")


def test_muon_in_bfloat16_is_near_that_of_torch() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(0, 1, (8, 6)).astype(np.float32)
    p, q = lm.Parameter(first), torch.nn.Parameter(torch.from_numpy(first.copy()))
    options: dict[str, Any] = {"lr": 0.01, "adjust_lr_fn": "match_rms_adamw"}
    cx = lm.Graph()
    optimizer = optim.Muon([p], ns_dtype="bfloat16", **options)
    optimizer.apply([cx.tensor((8, 6), name="g")])
    step, expected = lm.compile(cx, "reference"), torch.optim.Muon([q], **options)
    for _ in range(20):
        g = rng.normal(0, 1, (8, 6)).astype(np.float32)
        step({"g": g})
        q.grad = torch.from_numpy(g)
        expected.step()
    moved = np.abs(q.detach().numpy() - first).max()
    # bfloat16 has 8 bits: sums in another order differ in the last ones, step by step
    assert np.abs(p.numpy() - q.detach().numpy()).max() < 0.05 * moved
