"""PyTorch's training loops as they stand, on the default graph, beside PyTorch's own."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.errors import GraphError, InputError, ShapeError
from luminal.session.eager import SWEPT
from luminal.training import GradScaler
from tests.close import close
from tests.long_share import mostly_long

torch = pytest.importorskip("torch")

rng = np.random.default_rng(0)
X = rng.standard_normal((8, 6)).astype(np.float32)
Y = rng.standard_normal((8, 3)).astype(np.float32)
LABELS = rng.integers(0, 3, 8)


pytestmark = pytest.mark.usefixtures("new_default_graph")


class Names:
    """What a script imports: all of PyTorch's, or all of Luminal's."""

    def __init__(self, ours: bool) -> None:
        self.lib: Any = lm if ours else torch
        self.nn: Any = nn if ours else torch.nn
        self.optim: Any = optim if ours else torch.optim
        self.tensor = self.lib.tensor
        self._array: Callable[[Any], Any] = np.asarray if ours else torch.as_tensor

    def linear(self, inputs: int, outputs: int) -> Any:
        """A layer that starts alike on both sides."""
        weight = np.random.default_rng([inputs, outputs]).standard_normal((outputs, inputs)) * 0.3
        layer = self.nn.Linear(inputs, outputs)
        values = {"weight": weight.astype(np.float32), "bias": np.zeros(outputs, np.float32)}
        layer.load_state_dict({name: self._array(value) for name, value in values.items()})
        return layer

    def error(self, model: Any) -> Any:
        return ((model(self.tensor(X)) - self.tensor(Y)) ** 2).mean()


def usual(t: Names) -> list[float]:
    """Batches, a norm over channels, clipping, a schedule, what is read after the step."""
    model = t.nn.Sequential(
        t.linear(6, 16), t.nn.ReLU(), t.nn.BatchNorm1d(16, affine=False), t.linear(16, 3)
    )
    opt = t.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = t.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)
    criterion, seen = t.nn.CrossEntropyLoss(), list[float]()
    for k in range(4):
        opt.zero_grad()
        logits = model(t.tensor(X * (k + 1)))
        loss = criterion(logits, t.tensor(LABELS))
        loss.backward()
        norm = t.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        schedule.step()
        right = (logits.argmax(1) == t.tensor(LABELS)).float().mean()
        seen += [loss.item(), norm.item(), right.item(), logits.sum().item()]
        seen += [model[3].weight.grad.norm().item(), schedule.get_last_lr()[0]]
    model.eval()
    return [*seen, model(t.tensor(X)).sum().item()]


def full_batch(t: Names) -> list[float]:
    """One batch that stays, and what was computed of it before."""
    model, x, seen = t.linear(6, 3), t.tensor(X), list[float]()
    features, opt = x * 2 + 1, t.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        opt.zero_grad()
        loss = ((model(features) - t.tensor(Y)) ** 2).mean()
        loss.backward()
        opt.step()
        seen += [loss.item(), model(x).sum().item()]
    return seen


def by_hand(t: Names) -> list[float]:
    """Parameters that the loop itself changes, in three ways."""
    model, seen = t.nn.Sequential(t.linear(6, 5), t.nn.Tanh(), t.linear(5, 3)), list[float]()
    for k in range(6):
        loss = t.error(model)
        loss.backward()
        with t.lib.no_grad():
            for p in model.parameters():
                if k % 3 == 0:
                    p.data = p.data - 0.1 * p.grad
                elif k % 3 == 1:
                    p -= 0.1 * p.grad
                else:
                    p.add_(p.grad, alpha=-0.1)
                p.grad = None
        seen.append(loss.item())
    return seen


def accumulated(t: Names) -> list[float]:
    """Two backward passes a step, then a loop that never clears."""
    model, seen = t.linear(6, 3), list[float]()
    opt = t.optim.SGD(model.parameters(), lr=0.02)
    for k in range(7):
        loss = t.error(model)
        loss.backward()
        if k % 2 or k > 3:
            opt.step()
            if k < 4:
                opt.zero_grad()
        seen.append(loss.item())
    return seen


def adversaries(t: Names) -> list[float]:
    """Two models and two optimizers, of which one reads what the other changes."""
    maker, judge, seen = t.linear(6, 3), t.linear(3, 1), list[float]()
    of_maker = t.optim.Adam(maker.parameters(), lr=0.01)
    of_judge = t.optim.Adam(judge.parameters(), lr=0.01)
    criterion, ones = t.nn.BCEWithLogitsLoss(), t.lib.ones(8, 1)
    for _ in range(3):
        made = maker(t.tensor(X))
        of_judge.zero_grad()
        real = criterion(judge(t.tensor(Y)), ones)
        loss = real + criterion(judge(made.detach()), t.lib.zeros(8, 1))
        loss.backward()
        of_judge.step()
        of_maker.zero_grad()
        other = criterion(judge(made), ones)
        other.backward()
        of_maker.step()
        seen += [loss.item(), other.item(), made.sum().item()]
    return seen


def averaged(t: Names) -> list[float]:
    """A running average of the weights, and of the losses."""
    model, mean, total, seen = t.linear(6, 3), t.linear(6, 3), 0, list[float]()
    opt = t.optim.RMSprop(model.parameters(), lr=0.01)
    for k in range(4):
        for group in opt.param_groups:
            group["lr"] = 0.01 / (k + 1)
        opt.zero_grad()
        loss = t.error(model)
        loss.backward()
        opt.step()
        with t.lib.no_grad():
            for a, b in zip(mean.parameters(), model.parameters(), strict=True):
                a.mul_(0.9).add_(b, alpha=0.1)
        total = total + loss
        seen += [mean(t.tensor(X)).sum().item(), model.weight.sum().item()]
        seen += [model.weight.grad.abs().sum().item()]
    return [*seen, total.item()]


def frozen_and_closed(t: Names) -> list[float]:
    """Layers that are not trained, groups, clipping by value, a closure."""
    body, head, seen = t.linear(6, 6), t.linear(6, 3), list[float]()
    for p in body.parameters():
        p.requires_grad_(False)
    model = t.nn.Sequential(body, t.nn.Tanh(), head)
    groups = [{"params": [head.weight], "lr": 0.1}, {"params": [head.bias], "weight_decay": 0.1}]
    opt = t.optim.SGD(groups, lr=0.2)
    schedule = t.optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.5)

    def closure() -> Any:
        opt.zero_grad()
        loss = t.error(model)
        loss.backward()
        t.nn.utils.clip_grad_value_(head.parameters(), 0.05)
        return loss

    for _ in range(4):
        seen.append(opt.step(closure).item())
        schedule.step()
        seen += [group["lr"] for group in opt.param_groups]
    return [*seen, head.weight.sum().item(), body.weight.sum().item()]


@pytest.mark.parametrize(
    "script",
    [
        *(usual, full_batch, by_hand),
        *(
            pytest.param(script, marks=pytest.mark.long)
            for script in (accumulated, adversaries, averaged, frozen_and_closed)
        ),
    ],
)
def test_scripts_of_pytorch_run_as_they_stand(script: Callable[[Names], list[float]]) -> None:
    expected, found = script(Names(ours=False)), script(Names(ours=True))
    # Steps multiply what sums of some dozen floats in another order are off by.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_loop_compiles_once_and_forgets() -> None:
    t = Names(ours=True)
    model = nn.Sequential(t.linear(6, 8), nn.Dropout(0.5), t.linear(8, 3))
    opt = optim.Adam(model.parameters(), lr=1e-3)
    lm.manual_seed(0)
    graph, losses, sizes, compiled = lm.default_graph(), list[float](), list[int](), list[int]()
    for _ in range(12):
        opt.zero_grad()
        loss = t.error(model)
        loss.backward()
        opt.step()
        losses.append(loss.item())
        gc.collect()
        sizes.append(len(graph.leaves) + len(graph.values) + len(graph.derivatives))
        compiled.append(lm.compile_count())
    assert compiled[1] == compiled[-1]
    assert sizes[2] == sizes[-1]
    assert len(set(losses)) == len(losses)  # each step has a mask of its own


def test_a_long_loop_that_only_reads_forgets_its_inputs() -> None:
    layer = Names(ours=True).linear(6, 3)
    kept = lm.tensor(X)
    graph, first = lm.default_graph(), layer(kept)
    for _ in range(SWEPT + 8):
        layer(lm.tensor(X))
    assert len(graph.leaves) < SWEPT
    close(layer(kept).numpy(), first.numpy())


def test_statistics_of_a_forward_without_a_step_are_in_the_state_dict() -> None:
    expected = list[Any]()
    for t in (Names(ours=False), Names(ours=True)):
        model = t.nn.Sequential(t.nn.BatchNorm1d(6), t.nn.BatchNorm1d(6, momentum=0.5))
        opt = t.optim.SGD(model.parameters(), lr=0.1)
        seen = list[Any]()
        for k in range(4):
            loss = model(t.tensor(X * (k + 1))).square().mean()
            seen += [np.asarray(value).copy() for value in model.state_dict().values()]
            if k == 2:
                loss.backward()
                opt.step()
                seen += [np.asarray(value).copy() for value in model.state_dict().values()]
        for found, wanted in zip(seen, expected, strict=bool(expected)):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)  # sums of eight rows
        expected = seen
    model = nn.Sequential(nn.BatchNorm1d(6))
    model(lm.tensor((8, 6), name="x"))  # of a graph that is still to be compiled
    assert not np.any(model.state_dict()["0.running_mean"])


def test_values_keep_to_their_time() -> None:
    layer = Names(ours=True).linear(6, 3)
    before = layer(lm.tensor(X))
    old = layer.weight.numpy() @ X.T
    layer.weight.set(np.ones((3, 6), np.float32))
    close(before.numpy(), old.T)
    close(layer(lm.tensor(X)).numpy(), np.repeat(X.sum(1, keepdims=True), 3, 1))


def test_a_step_that_fails_changes_nothing() -> None:
    t = Names(ours=True)
    model = t.linear(6, 3)
    opt = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(GraphError, match=r"SGD\.step: its 2 parameters have no gradients: call"):
        opt.step()
    model(lm.tensor((8, 6), name="x")).sum().backward()
    with pytest.raises(InputError, match="needs x, which has no value yet"):
        opt.step()
    opt.zero_grad()
    loss = t.error(model)
    loss.backward()
    opt.step()
    assert t.error(model).item() < loss.item()
    with pytest.raises(ShapeError, match=r"grad: expected shape \(3,\), got \(2,\)"):
        model.bias.grad = np.zeros(2)


def test_a_key_that_all_runs_would_have_is_refused() -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    model(lm.tensor((8, 6), name="x")).output("y")
    with pytest.raises(GraphError, match="it draws random numbers and has no random key"):
        lm.compile()


def test_a_scheduler_reaches_programs_that_are_recorded() -> None:
    model = nn.Linear(6, 3)
    opt = optim.SGD(model.parameters(), lr=1.0)
    schedule = optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
    cx = lm.Graph()
    x = cx.tensor((8, 6), name="x")
    opt.step(model(x).sum())
    step, changes = lm.compile(cx), list[Any]()
    for _ in range(3):
        before = model.bias.numpy().copy()
        step({"x": X})
        changes.append(before - model.bias.numpy())
        schedule.step()
    close(np.array(changes), np.repeat(np.float32([[8], [4], [2]]), 3, 1), ulp=16)

    late = optim.SGD(model.parameters(), lr=1.0)
    cx = lm.Graph()
    late.step(model(cx.tensor((8, 6), name="x")).sum())
    with pytest.raises(InputError, match=r"StepLR: SGD\.step was recorded with a rate that"):
        optim.lr_scheduler.StepLR(late, 1)


def halves(t: Names) -> list[float]:
    """float16 products, a scaler of losses whose gradients overflow once, clipping now and then."""
    model, seen = t.nn.Sequential(t.linear(6, 5), t.nn.Tanh(), t.linear(5, 3)), list[float]()
    opt = t.optim.SGD(model.parameters(), lr=0.1)
    options = {"init_scale": 2.0**14, "growth_interval": 3}
    scaler: Any = GradScaler(**options) if t.lib is lm else torch.amp.GradScaler("cpu", **options)
    for k in range(8):
        opt.zero_grad()
        with t.lib.autocast("cpu", dtype=t.lib.float16):
            y = model(t.tensor(X))
            loss = ((y.float() * (1e30 if k == 4 else 1.0) - t.tensor(Y)) ** 2).mean()
        scaler.scale(loss).backward()
        if k % 2:
            scaler.unscale_(opt)
            t.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(opt)
        scaler.update()
        seen += [loss.item(), scaler.get_scale()]
    return seen


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the overflow
def test_a_scaled_loop_of_pytorch_runs_as_it_stands() -> None:
    expected, found = halves(Names(ours=False)), halves(Names(ours=True))
    assert found[1::2] == expected[1::2]  # scales
    assert expected[9] < expected[7]  # one step is skipped
    np.testing.assert_allclose(found[::2], expected[::2], rtol=1e-3)  # roundings to float16
    scaler = GradScaler()
    with pytest.raises(GraphError, match=r"update: there was no step\(optimizer\) since the last"):
        scaler.update()


OPTIONS: dict[str, dict[str, Any]] = {
    "AdamW": {}, "Adam": {"amsgrad": True}, "SGD": {"momentum": 0.9, "nesterov": True},
    "RMSprop": {"momentum": 0.9, "centered": True}, "Adagrad": {}, "NAdam": {}, "RAdam": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", mostly_long([*OPTIONS], 1))
def test_a_run_goes_on_here_and_there(kind: str) -> None:
    from torch.utils._pytree import tree_map_only

    def begun(t: Names, values: Any = None) -> tuple[Any, Any]:
        """A layer with these values, and an optimizer with a group for each Parameter."""
        layer = t.linear(6, 3)
        if values is not None:
            array: Any = np.asarray if t.lib is lm else torch.tensor
            layer.load_state_dict({k: array(np.asarray(value)) for k, value in values.items()})
        groups = [{"params": [layer.weight], "lr": 0.02}, {"params": [layer.bias]}]
        options = {"lr": 0.01} | OPTIONS[kind]
        return layer, getattr(t.optim, kind)(groups, weight_decay=0.1, **options)

    def steps(t: Names, layer: Any, opt: Any) -> list[float]:
        losses = list[float]()
        for k in range(3):
            opt.zero_grad()
            loss = ((layer(t.tensor(X * (k + 1))) - t.tensor(Y)) ** 2).mean()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return losses

    theirs, ours = Names(ours=False), Names(ours=True)
    layer, opt = begun(theirs)
    steps(theirs, layer, opt)
    moved, here = begun(ours, {name: p.detach() for name, p in layer.named_parameters()})
    here.param_groups[0]["lr"] = 5.0
    here.load_state_dict(opt.state_dict())
    # three steps of sums in another order
    np.testing.assert_allclose(steps(ours, moved, here), steps(theirs, layer, opt), rtol=1e-5)
    back, there = begun(theirs, moved.state_dict())
    there.load_state_dict(tree_map_only(np.ndarray, torch.tensor, here.state_dict()))
    # what the steps there were off by
    np.testing.assert_allclose(steps(theirs, back, there), steps(theirs, layer, opt), rtol=1e-5)
