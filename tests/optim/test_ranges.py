"""Every number that is given to optimizers, schedules and training is checked where it is given."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.errors import InputError, LoadError
from luminal.nn import functional as F
from luminal.optim import lr_scheduler as schedules
from luminal.training import (
    EMA,
    ArrayDataset,
    Batches,
    CheckpointManager,
    GradientAccumulator,
    GradScaler,
    TextDataset,
    fit,
)

X = np.ones((6, 3), np.float32)


def parameters() -> list[lm.Parameter]:
    return [lm.Parameter(np.ones((2, 2), np.float32))]


def adam(**options: Any) -> Any:
    return optim.Adam(parameters(), **options)


def accumulator(steps: Any) -> Any:
    return GradientAccumulator(adam(), steps)


def fitted(**options: Any) -> Any:
    model = nn.Linear(3, 1)
    data = Batches(ArrayDataset(X, X[:, :1]), 3)
    given = {"data": data, "optimizer": optim.SGD(model.parameters())} | options
    return fit(given.pop("model", model), F.mse_loss, progress=False, **given)


def chained(**how: Any) -> Any:
    return schedules.SequentialLR([schedules.StepLR(0.1, 2), schedules.StepLR(0.1, 2)], **how)


NOT_NUMBERS = (None, "0.1", True, 1j)
BAD: dict[Callable[..., Any], dict[str, tuple[Any, ...]]] = {
    adam: {
        "lr": (-1, math.nan, math.inf, *NOT_NUMBERS),
        "betas": (0.9, (0.9,), (0.9, 0.9, 0.9), (0.9, 1.0), (-0.1, 0.9), ("a", 0.9), None),
        "eps": (-1e-8, math.nan, *NOT_NUMBERS),
        "weight_decay": (-1, math.inf, *NOT_NUMBERS),
        "amsgrad": ("no", None, 0.5),
    },
    lambda **how: optim.SGD(parameters(), **how): {"momentum": (-1, "a", None)},
    lambda **how: optim.RMSprop(parameters(), **how): {"alpha": (1.0, -1, "a")},
    lambda **how: optim.Muon(parameters(), **how): {
        "ns_steps": (0, 2.5), "ns_coefficients": ((1, 2), (1, 2, math.nan)), "ns_dtype": (3,),
    },
    lambda **how: optim.clip_grad_norm([lm.Graph().ones(2)], **how): {
        "max_norm": (-1, math.nan, *NOT_NUMBERS[1:]),
    },
    lambda **how: optim.clip_grad_value([lm.Graph().ones(2)], **how): {
        "clip_value": (-1, math.nan, *NOT_NUMBERS[1:]),
    },
    lambda **how: schedules.StepLR(**({"lr": 0.1, "step_size": 2} | how)): {
        "lr": (-0.1, math.nan), "step_size": (0, -2, 1.5, "a"), "gamma": (-1, math.nan, "a"),
    },
    lambda **how: schedules.MultiStepLR(0.1, **how): {"milestones": ([-1], ["a"], [1.5], 3)},
    lambda **how: schedules.ExponentialLR(0.1, **how): {"gamma": (-0.5, math.inf)},
    lambda **how: schedules.ConstantLR(0.1, **how): {"factor": (2, -1), "total_iters": (-1, 0.5)},
    lambda **how: schedules.LinearLR(0.1, **how): {
        "start_factor": (0, 2), "end_factor": (-1, 2), "total_iters": (-1, 2.5),
    },
    lambda **how: schedules.PolynomialLR(0.1, **how): {"total_iters": (0, -1), "power": (-1,)},
    lambda **how: schedules.LambdaLR(0.1, **how): {"lr_lambda": (None, 3)},
    lambda **how: schedules.MultiplicativeLR(0.1, **how): {"lr_lambda": (None, 3)},
    lambda **how: schedules.CosineAnnealingLR(0.1, **({"T_max": 3} | how)): {
        "T_max": (0, -1, 1.5), "eta_min": (-1, math.nan),
    },
    lambda **how: schedules.CosineAnnealingWarmRestarts(0.1, **({"T_0": 3} | how)): {
        "T_0": (0, 1.5), "T_mult": (0, 1.5),
    },
    lambda **how: schedules.OneCycleLR(0.1, **({"total_steps": 9} | how)): {
        "total_steps": (0, 2.5), "pct_start": (-1, 2), "div_factor": (0, -1),
        "final_div_factor": (0,),
    },
    lambda **how: schedules.ReduceLROnPlateau(0.1, **how): {
        "factor": (1.0, -0.5), "patience": (-1, 0.5), "cooldown": (-1,), "threshold": (math.nan,),
    },
    chained: {"milestones": ([-1], [1.5])},
    lambda **how: EMA(parameters(), **how): {"decay": (-1, 1, math.nan, "a")},
    GradScaler: {
        "init_scale": (0, -1, math.inf, math.nan, "a"), "growth_factor": (1, 0.5),
        "backoff_factor": (0, 1, 2), "growth_interval": (0, 1.5),
    },
    accumulator: {"steps": (0, -1, 1.5, "a")},
    lambda **how: CheckpointManager("unused", **how): {
        "keep_last": (0, 1.5), "keep_best": (-1, 0.5),
    },
    lambda **how: Batches(ArrayDataset(X), **({"size": 2} | how)): {
        "size": (0, -1, 2.5, True), "prefetch": (-1, 0.5),
    },
    lambda **how: TextDataset(list(range(9)), **({"length": 2} | how)): {
        "length": (0, 2.5), "stride": (0, -1, 0.5),
    },
    fitted: {
        "epochs": (0, -1, 1.5, True), "steps": (0, 2.5), "accumulate": (0, 1.5),
        "clip_norm": (-1, math.nan, "1"), "statistics": (0, -1),
    },
}  # fmt: skip

CELLS = [
    (call, name, value)
    for call, options in BAD.items()
    for name, values in options.items()
    for value in values
]


@pytest.mark.parametrize("k", range(len(CELLS)))
def test_the_error_names_the_option_the_value_and_the_rule(k: int) -> None:
    call, name, value = CELLS[k]
    with pytest.raises(InputError) as error:
        call(**{name: value})
    assert f"{name}={value!r}; it must be " in str(error.value)


def test_infinite_bounds_only_report() -> None:
    fitted(clip_norm=math.inf, steps=1)
    optim.clip_grad_norm([lm.Graph().ones(2)], math.inf)


# --- parts of other kinds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"data": (X, X), "steps": 1}, "fit: a batch of one array has no target"),
        ({"data": {"x": X}}, r"fit: data is a dict; it must be Batches\(dataset, size\), or what"),
        (
            {"data": ArrayDataset(X, X)},
            r"fit: data is a [A-Za-z]+; it must be Batches\(dataset, size\)",
        ),
        ({"model": lambda x: x}, "fit: model is a function; it must be an nn.Module"),
        ({"optimizer": "adam"}, "fit: optimizer is a str; it must be one of luminal.optim"),
        ({"scheduler": "cosine"}, "fit: scheduler is a str; it must be one of optim.lr_sch"),
        ({"amp": True}, 'AMPContext: True; use "bfloat16" or "float16"'),
        ({"amp": "float8"}, "AMPContext: 'float8'; use \"bfloat16\" or"),
        ({"validate": 3}, "fit: validate is a int; it must be Batches, what gives batches, or a f"),
        ({"checkpoint": 3}, "fit: checkpoint is a int; it must be a folder"),
        ({"checkpoint": __file__}, "test_ranges.py: is no folder; give one, or a path that is"),
        ({"validate_every": 2}, "fit: validate_every=2, but there is no validate; give both"),
        ({"checkpoint_every": 2}, "fit: checkpoint_every=2, but there is no checkpoint; give both"),
        ({"scheduler": schedules.ReduceLROnPlateau(0.1)}, "follows the validation loss; give val"),
        ({"accumulate": 9}, "1 epochs of 2 batches make no step of accumulate=9; accumulate fewer"),
        ({"validate": lambda model: 3.0}, "fit: validate gave 3.0; it must give numbers by name"),
        ({"validate": lambda model: None}, "fit: validate gave None; it must give numbers by name"),
        ({"validate": lambda model: {"a": "b"}}, "fit: validate: a='b'; it must be a number"),
        ({"validate": lambda model: {"loss": 1.0}}, "gave 'loss', which is a name of the step's"),
        (
            {
                "scheduler": schedules.ReduceLROnPlateau(0.1),
                "validate": lambda model: {"right": 1.0},
            },
            "follows the validation_loss, but validate gave right; give it that name too",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_fit_names_what_does_not_belong(options: dict[str, Any], wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        fitted(**options)


@pytest.mark.parametrize("number", [np.float32(0.5), np.array(0.5), lm.tensor(0.5), 1, True])
def test_numbers_of_any_library_validate(number: Any, tmp_path: Path) -> None:
    record = fitted(
        validate=lambda model: {"validation_loss": number},
        log=tmp_path / "log.jsonl",
        checkpoint=tmp_path / "checkpoints",
    )
    assert record.validation_loss == float(number)
    assert type(record.validation_loss) is float


def test_optimizers_name_what_does_not_belong() -> None:
    p, cx = lm.Parameter(np.ones(2, np.float32), name="p"), lm.Graph()
    assert optim.SGD(p).parameters == [p]
    with pytest.raises(InputError, match=r"SGD: got .*; pass model.parameters\(\), or a list"):
        optim.SGD(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match='SGD: a group has no "params"; give it a list of them'):
        optim.SGD([{"lr": 0.1}])
    sgd, loss = optim.SGD([p]), (cx.weight_of(p) ** 2).sum()
    with pytest.raises(lm.GraphError, match=r"SGD.step: the loss is 1\.0; it must be a 0-d Tensor"):
        sgd.step(1.0)  # type: ignore[arg-type]
    with pytest.raises(lm.GraphError, match=r"SGD: when=.*; it must be a 0-d bool: compare it"):
        sgd.step(loss, when=cx.tensor((), name="weight"))
    with pytest.raises(InputError, match=r"gradient of p is 1\.0; it must be a Tensor: lm.grad"):
        sgd.apply({p: 1.0})  # type: ignore[dict-item]
    p.requires_grad = False
    with pytest.raises(lm.GraphError, match=r"1 parameters that are trained: .* requires_grad=F"):
        sgd.step(loss)


# --- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "change"),
    [
        (GradScaler(), {"scale": -1.0}),
        (GradScaler(), {"scale": math.nan}),
        (GradScaler(), {"scale": "a"}),
        (GradScaler(), {"growth_tracker": 1.5}),
        (schedules.StepLR(0.1, 2), {"last_epoch": -5}),
        (schedules.StepLR(0.1, 2), {"last_epoch": "x"}),
        (schedules.StepLR(0.1, 2), {"last_lr": "x"}),
        (schedules.OneCycleLR(0.1, 5), {"last_epoch": 30}),
        (schedules.ReduceLROnPlateau(0.1), {"best": None}),
        (schedules.ReduceLROnPlateau(0.1), {"cooldown_counter": 0.5}),
        (adam(), {"param_groups": [{**adam().state_dict()["param_groups"][0], "lr": "x"}]}),
        (EMA(parameters()), {"count": -1}),
        (EMA(parameters()), {"averages": []}),
        (accumulator(2), {"count": "x"}),
        (Batches(ArrayDataset(X), 2), {"epoch": -1}),
        (Batches(ArrayDataset(X), 2), {"taken": 10**9}),
        (Batches(ArrayDataset(X), 2), {"taken": "x"}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else str([*value]),
)
def test_a_damaged_state_is_refused_and_changes_nothing(target: Any, change: Any) -> None:
    before = target.state_dict()
    with pytest.raises((LoadError, InputError)):
        target.load_state_dict({**before, **change})
    assert str(target.state_dict()) == str(before)
    for given in ({}, None):
        with pytest.raises((LoadError, InputError)):
            target.load_state_dict(given)


def test_checkpoints_are_of_steps_and_metrics_of_numbers(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    for step in (-1, 1.5, "a", True):
        with pytest.raises(InputError, match=f"save: step={step!r}; it must be an int of at"):
            manager.save(step, {})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="save: metric='a'; it must be a number"):
        manager.save(1, {}, "a")  # type: ignore[arg-type]
    manager.save(1, {}, np.float32(0.5))  # type: ignore[arg-type]
    assert (manager.steps(), manager.best()) == ([1], 1)
