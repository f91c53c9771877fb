"""OneCycleLR cycles momenta and betas as PyTorch: values and training, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from luminal.optim import lr_scheduler as ours
from luminal.training import fit
from tests.close import close
from tests.optim.pairs import Ours, Theirs, assert_near, batches

theirs = torch.optim.lr_scheduler
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"momentum": 0.9}),
    "sgd-without": ("SGD", {}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "dampened": ("SGD", {"momentum": 0.9, "dampening": 0.2}),
    "rmsprop": ("RMSprop", {"momentum": 0.5}),
    "adam": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {"betas": (0.8, 0.99)}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
}
CYCLE: dict[str, Any] = {
    "total_steps": 21, "base_momentum": [0.6, 0.85], "max_momentum": 0.97, "max_lr": [0.02, 0.01],
}  # fmt: skip
MORE = {"three_phase": True, "anneal_strategy": "linear", "pct_start": 0.4}
FORMS: dict[str, dict[str, Any]] = {"cosine": CYCLE, "three-linear": CYCLE | MORE}


def grouped(params: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"params": [params["w"]]}, {"params": [params[k] for k in ("b", "scale", "nothing")]}]


def momenta(optimizer: Any) -> list[float]:
    groups = optimizer.param_groups
    return [g["betas"][0] if "betas" in g else g["momentum"] for g in groups]


def train(
    name: str, options: dict[str, Any], scheduler: tuple[Any, Any], steps: int = 20
) -> tuple[Any, Any]:
    """One recorded program for all steps; values and momenta are compared after each."""
    mine, other = Ours(), Theirs()
    optimizer = getattr(lm.optim, name)(grouped(mine.params), lr=0.01, **options)
    expected = getattr(torch.optim, name)(grouped(other.params), lr=0.01, **options)
    schedule, expected_schedule = scheduler[0](optimizer), scheduler[1](expected)
    optimizer.step(mine.loss)
    run = lm.compile(mine.graph, "reference")
    for k, (x, y) in enumerate(batches()):
        if k == steps:
            break
        close(momenta(optimizer), momenta(expected), ulp=64, err_msg=f"step {k}")
        run({"x": x, "y": y})
        other.step(expected, x, y)
        schedule.step()
        expected_schedule.step()
        assert_near(mine.numpy(), other.numpy(), 2e-5)
    return optimizer, schedule


QUICK = [("sgd-without", "cosine"), ("adam", "three-linear")]
CASES = [
    pytest.param(name, form, marks=[] if (name, form) in QUICK else [pytest.mark.long])
    for name in OPTIMIZERS
    for form in FORMS
]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_training_is_that_of_torch(name: str, form: str) -> None:
    kind, options = OPTIMIZERS[name]
    cycle = FORMS[form]
    train(
        kind, options,
        (lambda o: ours.OneCycleLR(o, **cycle), lambda o: theirs.OneCycleLR(o, **cycle)),
    )  # fmt: skip


def test_its_turn_in_a_sequence() -> None:
    def made(there: Any, optimizer: Any) -> Any:
        first = there.ConstantLR(optimizer, factor=0.5, total_iters=4)
        cycle = there.OneCycleLR(optimizer, [0.02, 0.01], total_steps=9)
        last = there.ExponentialLR(optimizer, 0.9)
        return there.SequentialLR(optimizer, [first, cycle, last], [4, 12])

    # PyTorch's starts from the rates that the last scheduler made left, so only momenta are alike.
    mine = lm.optim.SGD([{"params": [lm.Parameter((1,))]} for _ in "ab"], 0.01, 0.5)
    ones = [torch.nn.Parameter(torch.ones(1)) for _ in "ab"]
    other = torch.optim.SGD([{"params": [p]} for p in ones], 0.01, 0.5)
    schedule, expected = made(ours, mine), made(theirs, other)
    for k in range(15):
        close(momenta(mine), momenta(other), ulp=64, err_msg=f"step {k}")
        other.step()
        schedule.step()
        expected.step()
    assert momenta(mine) != [0.5, 0.5]


def test_steps_at_once_and_what_is_saved() -> None:
    mine, other = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    mine.load_state_dict({k: v.detach().numpy() for k, v in other.state_dict().items()})
    optimizers: list[Any] = [lm.optim.Adam(mine.parameters()), torch.optim.Adam(other.parameters())]
    kinds: list[Any] = [ours, theirs]
    models: list[Any] = [mine, other]
    cycles = [kind.OneCycleLR(o, 0.05, 7) for kind, o in zip(kinds, optimizers, strict=True)]
    rng = np.random.default_rng(3)
    for k in range(6):
        x = rng.normal(0, 1, (4, 3)).astype(np.float32)
        for model, optimizer, value in zip(
            models, optimizers, (lm.tensor(x), torch.from_numpy(x)), strict=True
        ):
            optimizer.zero_grad()
            (model(value) ** 2).mean().backward()
            optimizer.step()
        for cycle in cycles:
            cycle.step()
        assert_near(
            {"weight": mine.weight.numpy()}, {"weight": other.weight.detach().numpy()}, 1e-5
        )
        if k == 2:
            later = lm.optim.Adam(nn.Linear(3, 2).parameters())
            again = ours.OneCycleLR(later, 0.05, 7)
            again.load_state_dict(cycles[0].state_dict())
            assert momenta(later) == momenta(optimizers[0]) != [0.95]
    assert optimizers[0].state_dict()["param_groups"][0]["betas"] == pytest.approx(
        optimizers[1].state_dict()["param_groups"][0]["betas"]
    )


@pytest.mark.long
def test_fit_cycles_it_too() -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((8, 3), (8, 1)))
    mine, other = nn.Linear(3, 1), torch.nn.Linear(3, 1)
    mine.load_state_dict({k: v.detach().numpy() for k, v in other.state_dict().items()})
    sgd = lm.optim.SGD(mine.parameters(), momentum=0.9)
    fit(
        mine, nn.functional.mse_loss, [(x, y)], sgd, scheduler=ours.OneCycleLR(sgd, 0.2, 9),
        epochs=8, progress=False,
    )  # fmt: skip
    expected = torch.optim.SGD(other.parameters(), momentum=0.9)
    cycle = theirs.OneCycleLR(expected, 0.2, 9)
    for _ in range(8):
        expected.zero_grad()
        loss: Any = torch.nn.functional.mse_loss(other(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        expected.step()
        cycle.step()
    assert_near({"weight": mine.weight.numpy()}, {"weight": other.weight.detach().numpy()}, 1e-5)


def test_what_is_left_alone_and_refused() -> None:
    p = lm.Parameter((1,))
    sgd = lm.optim.SGD([p], lr=0.1, momentum=0.5)
    ours.OneCycleLR(sgd, 0.1, 9, cycle_momentum=False).step()
    assert sgd.param_groups[0]["momentum"] == 0.5
    assert ours.OneCycleLR(0.1, 9).momenta(0) == [0.95]
    with pytest.raises(lm.InputError, match=r"Adagrad has neither momentum nor betas; pass cycle_"):
        ours.OneCycleLR(lm.optim.Adagrad([p]), 0.1, 9)
    with pytest.raises(lm.InputError, match=r"2 values of base_momentum for 1 groups"):
        ours.OneCycleLR(0.1, 9, base_momentum=[0.1, 0.2])
    with pytest.raises(lm.InputError, match=r"max_momentum=\[1\].* a number above 0 and below 1"):
        ours.OneCycleLR(0.1, 9, max_momentum=1)
    cx = lm.Graph()
    late = lm.optim.SGD([p], lr=cx.tensor((), name="lr"), momentum=0.5)
    late.step(cx.weight_of(p).sum())
    late.param_groups[0]["lr"] = 0.1
    with pytest.raises(lm.InputError, match=r"recorded with a momentum that is a number of the pr"):
        ours.OneCycleLR(late, 0.1, 9)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_drawn_cycles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind, options = OPTIMIZERS[rng.choice([*OPTIMIZERS])]
    low, high = sorted(rng.uniform(0.05, 0.98, 2))
    steps = int(rng.integers(8, 40))
    cycle: dict[str, Any] = {
        "max_lr": [float(x) for x in rng.uniform(0.001, 0.02, 2)], "total_steps": steps,
        "pct_start": float(rng.uniform(0.25, 0.45)), "three_phase": bool(rng.integers(2)),
        "anneal_strategy": str(rng.choice(["cos", "linear"])),
        "base_momentum": float(low), "max_momentum": [float(high), float(low)],
        "div_factor": float(rng.uniform(2, 30)), "final_div_factor": float(rng.uniform(2, 1e4)),
    }  # fmt: skip
    train(
        kind, options,
        (lambda o: ours.OneCycleLR(o, **cycle), lambda o: theirs.OneCycleLR(o, **cycle)),
        min(steps, 20),
    )  # fmt: skip
