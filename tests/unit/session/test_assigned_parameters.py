"""Parameters that a program assigns: a training step writes them, other programs see it."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest

import luminal as lm
from tests.close import close

BACKENDS = ("reference", "cpu")


def doubling(parameter: lm.Parameter, backend: str = "cpu") -> lm.Executable:
    """Assigns twice the value; outputs what it was."""
    cx = lm.Graph()
    w = cx.weight_of(parameter)
    cx.assign(parameter, w * 2)
    (w + 0).output("was")
    return lm.compile(cx, backend)


def product(parameter: lm.Parameter) -> lm.Executable:
    """x @ w, where w is read in panels of its own."""
    cx = lm.Graph()
    (cx.tensor((2, parameter.shape[0]), name="x") @ cx.weight_of(parameter)).output("y")
    return lm.compile(cx)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_writes_and_others_see_it(backend: str) -> None:
    first = np.random.default_rng(0).standard_normal((300, 256), np.float32)
    p = lm.Parameter(first)
    step, other = doubling(p, backend), product(p)
    x = np.random.default_rng(1).standard_normal((2, 300), np.float32)
    for k in range(3):
        np.testing.assert_array_equal(step()["was"], first * 2**k)
        np.testing.assert_array_equal(p.numpy(), first * 2 ** (k + 1))
        expected = x.astype(np.float64) @ p.numpy()
        close(other({"x": x})["y"], expected, ulp=16)
    p.set(first)
    np.testing.assert_array_equal(step()["was"], first)


@pytest.mark.parametrize("backend", BACKENDS)
def test_arrays_given_and_taken_keep_their_values(backend: str) -> None:
    given = np.ones((2, 3), np.float32)
    given.flags.writeable = False  # kept by reference, as a file's memory map
    p = lm.Parameter(given)
    taken, twin = p.numpy(), copy.deepcopy(p)
    step = doubling(p, backend)
    step()
    during, second_twin = p.numpy(), copy.deepcopy(p)
    step()
    assert given.max() == taken.max() == twin.numpy().max() == 1
    assert during.max() == second_twin.numpy().max() == 2
    assert p.numpy().max() == 4
    doubling(second_twin, backend)()
    assert (second_twin.numpy().max(), p.numpy().max()) == (4, 4)


def test_a_value_in_two_graphs_and_two_steps() -> None:
    p = lm.Parameter(np.ones(4, np.float32))
    one, two = doubling(p), doubling(p)
    for k, step in enumerate((one, two, two, one)):
        assert step()["was"].max() == 2**k


def test_a_run_never_reads_half_a_step() -> None:
    p = lm.Parameter(np.ones(1 << 16, np.float32))
    step = doubling(p)
    cx = lm.Graph()
    w = cx.weight_of(p)
    (w.amax() - w.amin()).output("spread")
    reader = lm.compile(cx)
    spreads = []

    def read() -> None:
        spreads.extend(float(reader()["spread"]) for _ in range(60))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        step()
    for thread in threads:
        thread.join()
    assert max(spreads) == 0


def test_what_cannot_be_assigned() -> None:
    cx, p = lm.Graph(), lm.Parameter(np.ones(4, np.float32), name="w")
    w = cx.weight_of(p)
    with pytest.raises(lm.GraphError, match=r"w.*cannot hold f32\[2\]"):
        cx.assign(p, w[:2])
    cx.assign(w, w + 1)
    with pytest.raises(lm.GraphError, match="assigned twice"):
        cx.assign(p, w)
    assert cx.latest(p).value == (w + 1).value
    empty = lm.Parameter((3,), name="empty")
    with pytest.raises(lm.InputError, match="empty"):
        doubling(empty)()


def test_what_holds_weights_in_memory() -> None:
    p = lm.Parameter(np.ones(1024, np.float32))
    step = doubling(p)
    step()
    report = step.memory_report()
    assert (report.weight_bytes, report.derived_bytes) == (4096, 0)
    assert "assigns 1 of them" in repr(step)
