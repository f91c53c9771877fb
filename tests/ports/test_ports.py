"""Modules written for PyTorch run as they stand: each text is imported twice.

Once as it is, and once with Luminal's names in the place of PyTorch's: `torch` becomes `luminal` in
imports and `lm` elsewhere, and nothing else changes. With the same weights and the same batch both
predict the same, find the same gradients, and are alike after three steps of training.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import luminal as lm

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parent / "modules"
PORTS = sorted(path.stem for path in FOLDER.glob("*.py"))
QUICK = ("lora", "vae")
"""Those that compile in a second or two; the others are long."""

EDITS = {
    "contrastive": (
        "sim.masked_fill_(self_mask, -9e15)",
        "sim = sim.masked_fill(self_mask, -9e15)",
        "Tensors do not change; write x = x.masked_fill(...)",
    ),
    "wav2vec": (
        "torch.FloatTensor(dim).uniform_()",
        "torch.rand(dim)",
        "Tensors do not change; lm.rand draws",
    ),
}
"""By port the line that has to be written otherwise, how, and what the error of the line as it is
says. Tensors are values of a graph, so methods in place have nothing to change."""

FORWARD = 1e-5
"""How far predictions may be apart, as a share of the greatest: roundings of float32 in sums of
some hundred terms."""
STEPS = 1e-4
"""The same after three steps of training, and of gradients: these are sums over the whole batch."""


pytestmark = pytest.mark.usefixtures("new_default_graph")


def ported(text: str) -> str:
    """The text with Luminal's names for PyTorch's."""
    text = re.sub(r"^import torch$", "import luminal as lm", text, flags=re.M)
    text = re.sub(r"^(import|from) torch\b", r"\1 luminal", text, flags=re.M)
    return re.sub(r"\btorch\b(?=[.])", "lm", text)


def imported(name: str, ours: bool, as_it_is: bool = False) -> Any:
    """The port as a module of its own, for Luminal with its edit."""
    path = FOLDER / f"{name}.py"
    text = path.read_text()
    if ours and name in EDITS and not as_it_is:
        line, edited, _ = EDITS[name]
        assert text.count(line) == 1
        text = text.replace(line, edited)
    module = ModuleType(f"port_{name}_{'luminal' if ours else 'torch'}")
    exec(compile(ported(text) if ours else text, str(path), "exec"), module.__dict__)
    return module


def leaves(result: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of a result: a Tensor, or tuples and lists of them."""
    if isinstance(result, tuple | list):
        return [array for part in result for array in leaves(part)]
    return [np.asarray(result.detach().numpy())]


def alike(ours: Any, theirs: Any, share: float, what: str) -> None:
    """Asserts that arrays differ by at most a share of their greatest element."""
    mine, others = leaves(ours), leaves(theirs)
    assert len(mine) == len(others), what
    for a, b in zip(mine, others, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), what
        greatest = float(np.abs(b[np.isfinite(b)]).max(initial=0))
        np.testing.assert_allclose(a, b, rtol=0, atol=share * greatest, err_msg=what)


class Pair:
    """A port with PyTorch and with Luminal, with the same weights and the same data."""

    def __init__(self, name: str) -> None:
        arrays = imported(name, False).batch(np.random.default_rng(7))
        torch.manual_seed(3)
        self.ports = [imported(name, False), imported(name, True)]
        self.batches = [[torch.tensor(x) for x in arrays], [lm.tensor(x) for x in arrays]]
        self.models = [port.build() for port in self.ports]
        theirs, ours = self.models
        ours.load_state_dict(theirs.state_dict())

    def both(self, what: str, *extra: list[Any]) -> list[Any]:
        """A function of the port called for each: PyTorch's answer, then Luminal's."""
        return [
            getattr(self.ports[k], what)(self.models[k], *(x[k] for x in extra), *self.batches[k])
            for k in range(2)
        ]


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in PORTS],
)
def test_a_port_predicts_and_learns_as_in_pytorch(name: str) -> None:
    pair = Pair(name)
    theirs, ours = pair.both("predict")
    alike(ours, theirs, FORWARD, "predictions")
    optimizers = [pair.ports[k].optimizer(pair.models[k]) for k in range(2)]
    for step in range(3):
        losses = pair.both("train_step", optimizers)
        assert abs(losses[1] - losses[0]) <= STEPS * max(abs(losses[0]), 1.0), (step, losses)
        if step == 0:
            gradients_alike(pair)
    theirs, ours = pair.both("predict")
    alike(ours, theirs, STEPS, "predictions after training")
    if hasattr(pair.ports[0], "after"):
        theirs, ours = pair.both("after")
        alike(ours, theirs, STEPS, "after training")


@pytest.mark.parametrize("name", EDITS)
def test_a_line_that_needs_an_edit_says_which(name: str) -> None:
    port = imported(name, True, as_it_is=True)

    def run() -> None:
        model = port.build()
        batch = [lm.tensor(x) for x in port.batch(np.random.default_rng(7))]
        port.train_step(model, port.optimizer(model), *batch)

    with pytest.raises(AttributeError, match=re.escape(EDITS[name][2])):
        run()


def gradients_alike(pair: Pair) -> None:
    """Asserts that gradients differ by at most a share of the greatest of their Parameter, or by
    roundings of the greatest of all: some are zero but for these.
    """
    theirs, ours = (dict(model.named_parameters()) for model in pair.models)
    assert theirs.keys() == ours.keys()
    known = {name: p.grad.numpy() for name, p in theirs.items() if p.grad is not None}
    assert known.keys() == {name for name, p in ours.items() if p.grad is not None}
    greatest = max(float(np.abs(g).max()) for g in known.values())
    for name, g in known.items():
        room = STEPS * float(np.abs(g).max()) + 1e-6 * greatest
        np.testing.assert_allclose(ours[name].grad.numpy(), g, rtol=0, atol=room, err_msg=name)
