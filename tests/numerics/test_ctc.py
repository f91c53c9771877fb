"""ctc_loss against PyTorch and against the sum over all paths."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import DTypeError, LuminalError, ShapeError
from tests.close import close
from tests.long_share import mostly_long
from tests.numerics.batch import BACKENDS, Case, check
from tests.numerics.recording import run

Array = np.ndarray[Any, Any]
F, TF = lm.nn.functional, torch.nn.functional
rng = np.random.default_rng(0)
TIMES = [12, 9, 12, 7, 3]
COUNTS = [4, 3, 5, 0, 5]  # the last one does not fit into its time


def log_probs(*shape: int) -> Array:
    x = rng.normal(0, 2, shape).astype(np.float32)
    found: Array = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return found


PROBS = log_probs(12, 5, 6)
TARGETS = np.array([[1, 2, 2, 5, 0], [3, 3, 3, -1, 9], [1, 2, 3, 4, 5], [1] * 5, [1, 1, 1, 1, 1]])
IN_A_ROW = np.concatenate([row[:n] for row, n in zip(TARGETS, COUNTS, strict=True)])
HOPELESS = np.where(rng.uniform(size=PROBS.shape) < 0.3, -np.inf, PROBS).astype(np.float32)


REDUCTIONS = [(r, z) for r in ("none", "sum", "mean") for z in (False, True)]


def same(probs: Array, targets: Array, times: Any, counts: Any, **options: Any) -> Case:
    """All reductions of one loss; the lengths are lists."""

    def losses(function: Any, *given: Any) -> list[Any]:
        return [function(*given, reduction=r, zero_infinity=z, **options) for r, z in REDUCTIONS]

    label = f"ctc_loss{probs.shape}{targets.shape}{times}{counts}{options}"
    lengths = [torch.tensor(times), torch.tensor(counts)]
    return Case(
        label,
        lambda p, t: losses(F.ctc_loss, p, t, times, counts),
        lambda p, t: losses(TF.ctc_loss, p, t, *lengths),
        [probs, targets],
        ulp=64,
    )


CASES = [
    same(PROBS, TARGETS, TIMES, COUNTS),
    same(PROBS, IN_A_ROW, TIMES, COUNTS),
    same(PROBS, np.where(TARGETS == 5, 0, TARGETS), TIMES, COUNTS, blank=5),
    same(PROBS.astype(np.float64), TARGETS, TIMES, COUNTS),
    same(HOPELESS, TARGETS, TIMES, COUNTS),
    same(PROBS[:, 0], TARGETS[0, :4], 12, 4),
    same(PROBS[:, :3], TARGETS[:3].astype(np.int32), [12, 12, 12], [0, 0, 0]),
    same(PROBS[:, :1], TARGETS[:1, :0], [12], [0]),
    Case("lengths as tensors", lambda *x: F.ctc_loss(*x, zero_infinity=True),
         lambda *x: TF.ctc_loss(*x, zero_infinity=True),
         [PROBS, IN_A_ROW, np.array(TIMES), np.array(COUNTS)], 64),
]  # fmt: skip


@pytest.mark.parametrize("backend", mostly_long(BACKENDS, 1))
def test_like_torch(backend: str) -> None:
    check(CASES, backend)


def spells(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(k for k, _ in itertools.groupby(path) if k)


@pytest.mark.parametrize("target", [(), (1,), (1, 2), (2, 2), (1, 2, 1), (1, 1, 1)])
def test_it_is_the_sum_over_all_paths(target: tuple[int, ...]) -> None:
    probs = log_probs(4, 1, 3)
    total = sum(
        np.exp(sum(float(probs[t, 0, k]) for t, k in enumerate(path)))
        for path in itertools.product(range(3), repeat=4)
        if spells(path) == target
    )
    labels = np.array([[*target, 0]])
    found = run(lambda p, t: F.ctc_loss(p, t, [4], [len(target)], reduction="none"), probs, labels)
    with np.errstate(divide="ignore"):
        close(found, np.float32([-np.log(total)]), 32)


def test_over_dims_and_as_a_layer() -> None:
    loss = lm.nn.CTCLoss(blank=2, reduction="none", zero_infinity=True)
    wanted = torch.nn.CTCLoss(blank=2, reduction="none", zero_infinity=True)
    labels = np.where(TARGETS == 2, 1, TARGETS)
    given = [PROBS, labels, np.array(TIMES), np.array(COUNTS)]
    for count in (5, 2):
        part = [PROBS[:, :count], *(x[:count] for x in given[1:])]
        shapes = [("t", "n", 6), ("n", "s"), ("n",), ("n",)]
        found = run(loss, *part, shapes=shapes, dims={"t": 12, "n": count, "s": 5})
        close(found, wanted(*map(torch.from_numpy, part)).numpy(), 64)


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (lambda p, t: F.ctc_loss(p[0, 0], t, [1], [1]), ShapeError, r"it takes \(time, batch, cl"),
        (lambda p, t: F.ctc_loss(p, p, TIMES, COUNTS), DTypeError, "targets .* class indices"),
        (
            lambda p, t: F.ctc_loss(p, t, TIMES, COUNTS, blank=6),
            ShapeError,
            "blank is 6; .* the 6 c",
        ),
        (lambda p, t: F.ctc_loss(p, t, [13, *TIMES[1:]], COUNTS), ShapeError, "not lie in 0..12"),
        (lambda p, t: F.ctc_loss(p, t, TIMES, [-1, *COUNTS[1:]]), ShapeError, "target_lengths"),
        (lambda p, t: F.ctc_loss(p, t, TIMES[1:], COUNTS), ShapeError, r"it takes \(5,\)"),
        (lambda p, t: F.ctc_loss(p, t[1:], TIMES, COUNTS), ShapeError, r"they take \(5, ...\)"),
        (lambda p, t: F.ctc_loss(p, t, TIMES, p[0, :, 0]), DTypeError, "pass integers"),
        (
            lambda p, t: F.ctc_loss(p, t, TIMES, COUNTS, reduction="max"),
            ShapeError,
            "reduction='max'",
        ),
    ],
)
def test_errors(fn: Any, error: type[LuminalError], text: str) -> None:
    with pytest.raises(error, match=text):
        run(fn, PROBS, TARGETS)
