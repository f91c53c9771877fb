"""Losses and their gradients: as PyTorch's, or as the paper's formula where it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as TF

import luminal as lm
from luminal import nn
from luminal.nn import functional as F
from tests.close import close, close_each

rng = np.random.default_rng(0)
X = rng.normal(0, 2, (6, 4)).astype(np.float32)
MAP = rng.normal(0, 2, (2, 4, 3)).astype(np.float32)
Y = rng.normal(0, 2, (6, 4)).astype(np.float32)
CHANCES = rng.dirichlet(np.ones(4), 6).astype(np.float32)
HITS = (rng.random((6, 4)) > 0.5).astype(np.float32)
CLASSES = np.array([0, 3, 1, -100, 2, 3])
PIXELS = rng.integers(0, 4, (2, 3))
WEIGHT = np.array([0.5, 2.0, 1.0, 0.25], np.float32)
LABELS = np.array([[1, 2, 2], [3, 1, 0], [1, 1, 1], [2, 2, 2]])
SOUND = rng.normal(0, 1, (9, 4, 5)).astype(np.float32)


def rmse(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x - y) ** 2).mean().sqrt()


def focal(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, gamma: float) -> torch.Tensor:
    """Lin et al. 2017, equation 5, over classes; the mean is cross_entropy's."""
    kept = y != -100
    logs = x.log_softmax(1)[kept, y[kept]]
    weights = w[y[kept]]
    return (-((1 - logs.exp()) ** gamma) * logs * weights).sum() / weights.sum()


def binary_focal(x: torch.Tensor, t: torch.Tensor, alpha: float, gamma: float) -> torch.Tensor:
    """Lin et al. 2017, equation 5."""
    p = x.sigmoid()
    hit = -alpha * (1 - p) ** gamma * p.log()
    miss = -(1 - alpha) * p**gamma * (1 - p).log()
    return (t * hit + (1 - t) * miss).mean()


def smoothed(F: Any, reduction: str) -> Callable[..., Any]:
    options: dict[str, Any] = {"label_smoothing": 0.1, "reduction": reduction}
    return lambda x, y, w: F.cross_entropy(x, y, w, **options).sum()


def ctc(F: Any, reduction: str, **options: Any) -> Callable[..., Any]:
    options |= {"zero_infinity": True, "reduction": reduction}
    times, counts = [9, 7, 4, 9], [3, 2, 3, 0]

    def loss(x: Any, labels: Any) -> Any:
        lengths = (times, counts) if F is not TF else map(torch.tensor, (times, counts))
        return F.ctc_loss(x.log_softmax(-1), labels, *lengths, **options).sum()

    return loss


Row = tuple[Callable[..., Any], Callable[..., Any], list[Any]]
ROWS: dict[str, Row] = {
    "rmse": (F.rmse_loss, rmse, [X, Y]),
    "focal": (F.focal_loss, lambda x, y, w: focal(x, y, w, 2.0), [X, CLASSES, WEIGHT]),
    "focal-half": (
        lambda x, y, w: F.focal_loss(x, y, w, gamma=0.5),
        lambda x, y, w: focal(x, y, w, 0.5),
        [X, CLASSES, WEIGHT],
    ),
    "focal-0": (
        lambda x, y: F.focal_loss(x, y, gamma=0, reduction="sum"),
        lambda x, y: TF.cross_entropy(x, y, reduction="sum"),
        [MAP, PIXELS],
    ),
    "sigmoid-focal": (
        F.sigmoid_focal_loss,
        lambda x, t: binary_focal(x, t, 0.25, 2.0),
        [X, HITS],
    ),
    "sigmoid-focal-0": (
        lambda x, t: F.sigmoid_focal_loss(x, t, None, 0.0),
        TF.binary_cross_entropy_with_logits,
        [X, HITS],
    ),
}
for reduction in ("mean", "sum", "none"):
    options = (smoothed(F, reduction), smoothed(TF, reduction))
    ROWS[f"smoothed-classes-{reduction}"] = (*options, [X, CLASSES, WEIGHT])
    ROWS[f"smoothed-chances-{reduction}"] = (*options, [X, CHANCES, WEIGHT])
    ROWS[f"smoothed-map-{reduction}"] = (*options, [MAP, PIXELS, WEIGHT])
    ROWS[f"ctc-{reduction}"] = (ctc(F, reduction), ctc(TF, reduction), [SOUND, LABELS])
ROWS["ctc-blank"] = (ctc(F, "mean", blank=4), ctc(TF, "mean", blank=4), [SOUND, LABELS])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_values_and_gradients(backend: str) -> None:
    cx = lm.Graph()
    for name, (ours, _, arrays) in ROWS.items():
        x, *rest = map(cx.constant, arrays)
        loss = ours(x, *rest).output(name)
        lm.grad(loss, x).output(f"{name} gradient")
    found = lm.compile(cx, backend)()
    for name, (_, theirs, arrays) in ROWS.items():
        x, *rest = map(torch.from_numpy, arrays)
        x = x.clone().requires_grad_()
        loss = theirs(x, *rest)
        loss.backward()
        close(found[name], loss.detach(), err_msg=name)
        gradient = found[f"{name} gradient"]
        # sums of logarithms that cancel: gradients keep four digits where the loss is flat
        np.testing.assert_allclose(gradient, x.grad, 1e-4, 1e-6, err_msg=name)


def test_gradients_where_the_loss_is_0_or_nearly() -> None:
    cx = lm.Graph()
    x = cx.constant(np.ones(3, np.float32))
    np.testing.assert_array_equal(lm.grad(F.rmse_loss(x, x + 0), x).numpy(), 0)
    far = cx.constant(np.asarray([[200, -200]], np.float32))
    for hit in (0, 1):
        loss = F.focal_loss(far, cx.constant(np.asarray([hit])))
        np.testing.assert_allclose(loss.numpy(), 400 * hit)
        assert np.isfinite(lm.grad(loss, far).numpy()).all()
        binary = F.sigmoid_focal_loss(far[0, :1], cx.constant(np.float32([hit])), None)
        np.testing.assert_allclose(binary.numpy(), 200 * (1 - hit))


def test_layers() -> None:
    cx = lm.Graph()
    x, y, hits, classes = map(cx.constant, (X, Y, HITS, CLASSES))
    pairs = [
        (nn.RMSELoss()(x, y), F.rmse_loss(x, y)),
        (nn.RMSELoss(reduction="sum")(x, y), ((x - y) ** 2).sum().sqrt()),
        (nn.FocalLoss(WEIGHT, 1.5)(x, classes), F.focal_loss(x, classes, cx.constant(WEIGHT), 1.5)),
        (nn.SigmoidFocalLoss(0.5, 1.0)(x, hits), F.sigmoid_focal_loss(x, hits, 0.5, 1.0)),
    ]
    for layer, function in pairs:
        close_each(layer.numpy(), function.numpy())
    assert F.rmse_loss(x.cast("bfloat16"), y).dtype is lm.float32
    assert F.focal_loss(x.cast("float16"), classes).dtype is lm.float16


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_saturated_probabilities_are_finite(dtype: str) -> None:
    logits = np.array([800.0, -800.0, 40.0, -3.0, 0.0, 40.0, -800.0], dtype)
    wanted = np.array([1.0, 0.0, 1.0, 1.0, 0.5, 0.0, 1.0], dtype)
    found = lm.jit(lm.grad(lambda x, t: F.binary_cross_entropy(x.sigmoid(), t)))(logits, wanted)
    leaf = torch.tensor(logits, requires_grad=True)
    TF.binary_cross_entropy(leaf.sigmoid(), torch.tensor(wanted)).backward()
    close(found, leaf.grad)


BROADCAST = [
    *"mse_loss rmse_loss l1_loss smooth_l1_loss huber_loss".split(),
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
]


@pytest.mark.parametrize("name", BROADCAST)
def test_targets_that_are_broadcast_are_warned_of(name: str) -> None:
    cx = lm.Graph()
    column, row = cx.tensor((8, 1), name="column"), cx.tensor((8,), name="row")
    loss = getattr(F, name)
    said = rf"^{name}: the input has the shape \(8, 1\), the target \(8\); .* reshape one"
    with pytest.warns(UserWarning, match=said) as found:
        loss(column, row)
    assert len(found) == 1
    loss(column, row.unsqueeze(1))
    loss(column, cx.tensor((), name="number"))
    loss(row, np.ones(8, np.float32))


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_a_target_that_is_no_class_is_refused_and_an_ignored_one_is_not(loss: Any) -> None:
    cx = lm.Graph()
    x, t = cx.tensor((6, 4), name="x"), cx.tensor((6,), lm.int64, "t")
    loss(x, t, ignore_index=9).output("y")
    exe = lm.compile(cx, "reference")
    allowed = np.array([0, 3, 9, 9, 1, 2])
    expected = getattr(TF, loss.__name__)(torch.tensor(X), torch.tensor(allowed), ignore_index=9)
    close(exe({"x": X, "t": allowed})["y"], expected.numpy())
    for wrong in (4, 10, -100):
        with pytest.raises(lm.InputError, match=rf"t: index {wrong} is out of range .* of 4"):
            exe({"x": X, "t": np.array([0, 3, 9, wrong, 1, 2])})
