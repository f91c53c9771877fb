"""Which part of a training step may be computed again: what its gradients do not enter."""

from __future__ import annotations

import luminal as lm
from luminal.compiler.rematerialization import Step


def test_a_step_is_parted_by_what_was_recorded_for_gradients() -> None:
    cx = lm.Graph()
    x, w = cx.tensor((4, 6), name="x"), cx.tensor((6, 6), name="w")
    loss = (x @ w).sigmoid().sum().output("loss")
    lm.grad(loss, w).output("g")
    step = Step.of(cx.graph(), cx.pulled, cx.cotangents)
    assert loss.value.node in step.forward
    assert cx.pulled.keys().isdisjoint(step.forward)
    assert step.factors  # y (1 - y), by which the gradient of a sigmoid is multiplied
    assert cx.pulled.keys() >= {*step.factors}
    assert step.late.keys().isdisjoint((*step.forward, *step.factors))
