"""Devices by their names: graphs, executables, States and modules move there and back."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.backends import registry
from luminal.memory.arrays import HOST
from luminal.nn import functional as F
from luminal.training import ArrayDataset, Batches, fit
from tests.backends.c_family.present import present
from tests.models.small_models import language_model

pytestmark = pytest.mark.parametrize("name", present())
X = np.arange(8, dtype=np.float32)


def counted(state: lm.State) -> lm.Graph:
    cx = lm.Graph()
    (cx.tensor((8,), name="x") + cx.read(state)).output("y")
    cx.assign(state, cx.read(state) + 1)
    return cx


def test_the_list_has_every_device_with_its_memory(name: str) -> None:
    rows = [row for row in lm.devices() if row.name.split(":")[0] == name]
    assert [row.name for row in rows] == [name, *(f"{name}:{k}" for k in range(1, len(rows)))]
    assert all(row.memory is not None and row.memory.total for row in rows)


def test_programs_of_the_cpu_and_of_the_device_take_turns_with_a_state(name: str) -> None:
    state = lm.State((8,), name="runs")
    here = counted(state).compile("cpu")
    there = here.to(f"{name}:0")
    for run, exe in enumerate((here, there, there, here, there)):
        np.testing.assert_array_equal(exe(x=X)["y"], X + run)
    assert state.buffer.space is registry.space(name)
    assert state.to("cpu").buffer.space is HOST
    np.testing.assert_array_equal(state.numpy(), np.full(8, 5))


def test_a_module_trains_where_it_was_moved(name: str) -> None:
    model = nn.Linear(8, 2).to(name)
    before = model.weight.numpy().copy()
    with lm.device(name):
        cx = lm.Graph()
        loss = (model(cx.tensor((3, 8), name="x")) ** 2).sum()
        gradient = lm.grad(loss, cx.weight_of(model.weight))
        cx.assign(model.weight, cx.weight_of(model.weight) - 0.01 * gradient)
        loss.output("loss")
        exe = cx.compile()
        losses = [float(exe(x=np.tile(X / 8, (3, 1)))["loss"]) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert model.weight.buffer.space is registry.space(name)
    assert not np.array_equal(model.weight.numpy(), before)


@pytest.mark.long
def test_models_and_training_follow_the_default_device(name: str) -> None:
    with lm.device(name):
        writer = language_model(backend=None)
        layer = nn.Linear(8, 2)
        data = Batches(ArrayDataset(np.stack([X / 8] * 3), np.ones((3, 2), np.float32)), 3)
        optimizer = optim.SGD(layer.parameters(), lr=0.1)
        losses = fit(layer, F.mse_loss, data, optimizer, epochs=3, progress=False).losses
    assert losses == sorted(losses, reverse=True)
    assert layer.weight.buffer.space is registry.space(name)
    assert writer.backend == name  # it compiles now, outside of the block
    assert writer.generate("1234", 8) == language_model(backend="reference").generate("1234", 8)
    assert writer.programs.caches[0].keys.buffer.space is registry.space(name)


@pytest.mark.long
def test_a_process_ends_with_values_on_the_device(name: str) -> None:
    program = """
import sys, numpy as np, luminal as lm
state = lm.State((8,))
cx = lm.Graph()
cx.assign(state, cx.read(state) + 1)
exe = cx.compile(sys.argv[1])
exe()
print(state.numpy().sum())
"""
    done = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "8.0", "")
