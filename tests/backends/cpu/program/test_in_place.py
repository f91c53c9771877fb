"""Which States are overwritten where they lie, and that readers of the old value still can."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from luminal.backends import reference
from luminal.backends.cpu import backend, device, target
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Assign
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from tests.backends.cpu.frontend.custom_samples import scale, square
from tests.backends.cpu.skewed import both, skewed
from tests.fuzz.cpu_run import cut_small

ROWS = COLUMNS = 24
Build = Callable[[lm.Graph, lm.State], None]


def rows(cx: lm.Graph) -> tuple[lm.Tensor, lm.Tensor]:
    """(indices of all rows in another order, new rows)."""
    return cx.tensor((ROWS,), lm.int64, name="i"), cx.tensor((ROWS, COLUMNS), name="x")


def written(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    cx.assign(state, cx.read(state).index_copy(0, i, x))
    (x * 2.0).output("y")


def read_before(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    old = cx.read(state)
    (x @ old.T).output("y")
    cx.assign(state, old.index_copy(0, i, x))


def read_before_in_two_steps(cx: lm.Graph, state: lm.State) -> None:
    """The sums are stored, then read by rows: two kernels that both come before."""
    i, x = rows(cx)
    old = cx.read(state)
    scaled = (old * 2.0).softmax(0)
    ((scaled @ x.T).softmax(-1) @ scaled).output("y")
    cx.assign(state, old.index_copy(0, i, x))


def new_value_is_used(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    new = cx.read(state).index_copy(0, i, x)
    cx.assign(state, new)
    (x @ new.T).output("y")


def added(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    cx.assign(state, cx.read(state).index_add(0, i, x))


def both_are_used_apart(cx: lm.Graph, state: lm.State) -> None:
    """One kernel reads the old value, another the new one; neither needs the other."""
    i, x = rows(cx)
    old = cx.read(state)
    new = old.index_copy(0, i, x)
    cx.assign(state, new)
    (x @ old.T).softmax(-1).output("before")
    (x @ new.T).softmax(-1).output("after")


def both_are_used_together(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    old = cx.read(state)
    new = old.index_copy(0, i, x)
    cx.assign(state, new)
    (old @ new.T).output("y")


def old_value_meets_what_the_new_one_gave(cx: lm.Graph, state: lm.State) -> None:
    """The reader of the old value depends on the new one over a stored value between them."""
    i, x = rows(cx)
    old = cx.read(state)
    new = old.index_copy(0, i, x)
    cx.assign(state, new)
    weights = (x @ new.T).softmax(-1)
    (weights @ old).output("y")


def old_value_is_what_is_written(cx: lm.Graph, state: lm.State) -> None:
    i, _ = rows(cx)
    old = cx.read(state)
    cx.assign(state, old.index_copy(0, i, old))


def old_value_is_inlined_in_what_is_written(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    old = cx.read(state)
    cx.assign(state, old.index_copy(0, i, old.flip(0) + x))


def old_value_makes_what_is_written(cx: lm.Graph, state: lm.State) -> None:
    """By way of a stored value, which is complete before anything is overwritten."""
    i, x = rows(cx)
    old = cx.read(state)
    cx.assign(state, old.index_copy(0, i, (old @ x.T).softmax(-1) @ x))


def rows_are_written_twice(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    once = cx.read(state).index_copy(0, i, x)
    cx.assign(state, once.index_add(0, i, x * 3.0))


def turned(cx: lm.Graph, state: lm.State) -> None:
    """The transpose is written and turned back: as it lies in memory, no plain Scatter."""
    i, x = rows(cx)
    cx.assign(state, cx.read(state).T.index_copy(1, i, x.T).T)


def turned_before(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    cx.assign(state, cx.read(state).T.index_copy(0, i, x))


def turned_afterwards(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    cx.assign(state, cx.read(state).index_copy(0, i, x).T)


def readers_are_one_kernel(cx: lm.Graph, state: lm.State) -> None:
    """Sums of the same rows are merged: this kernel reads the old value and the new one."""
    i, x = rows(cx)
    old = cx.read(state)
    new = old.index_copy(0, i, x)
    cx.assign(state, new)
    (x * old).sum(-1).output("before")
    (x * new).sum(-1).output("after")


def readers_are_one_kernel_with_others(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    old = cx.read(state)
    cx.assign(state, old.index_copy(0, i, x))
    (x * old).sum(-1).output("before")
    (x + 2.0).sum(-1).output("beside")


def a_reader_over_many_paths(cx: lm.Graph, state: lm.State) -> None:
    """Each step is used twice by the next one: 2**40 paths from the State to its reader."""
    i, x = rows(cx)
    old = cx.read(state)
    step = old
    for _ in range(40):
        step = step.relu() * 0.5 - step
    step.output("y")
    cx.assign(state, old.index_copy(0, i, x))


def another_state_is_written_over(cx: lm.Graph, state: lm.State) -> None:
    """What is assigned comes from another State, which keeps its own value."""
    i, x = rows(cx)
    other = lm.State((ROWS, COLUMNS), init=3, name="other")
    cx.assign(state, cx.read(other).index_copy(0, i, x))
    cx.read(other).sum().output("y")


def by_a_python_kernel(cx: lm.Graph, state: lm.State) -> None:
    """It may raise: the State must keep its value then."""
    i, x = rows(cx)
    square(x).output("y")
    cx.assign(state, cx.read(state).index_copy(0, i, x))


def by_a_python_kernel_in_a_loop(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    last, _ = lm.scan(lambda c, r: (square(r) - c, None), cx.zeros((COLUMNS,)), x)
    last.output("y")
    cx.assign(state, cx.read(state).index_copy(0, i, x))


def by_a_native_kernel(cx: lm.Graph, state: lm.State) -> None:
    i, x = rows(cx)
    scale(x).output("y")
    cx.assign(state, cx.read(state).index_copy(0, i, x))


# --- by element


def by_element(cx: lm.Graph, state: lm.State) -> None:
    _, x = rows(cx)
    cx.assign(state, cx.read(state) * 0.9 + x)


def by_element_after_readers(cx: lm.Graph, state: lm.State) -> None:
    _, x = rows(cx)
    old = cx.read(state)
    (x @ old.T).softmax(-1).output("y")
    cx.assign(state, old - x.softmax(0))


def by_element_and_used(cx: lm.Graph, state: lm.State) -> None:
    """Both values, by element and in a product: the old one's readers go before."""
    _, x = rows(cx)
    old = cx.read(state)
    new = (old * x).exp()
    cx.assign(state, new)
    (new - old).output("y")
    (x @ old).output("z")
    (x @ new).output("w")


def by_element_behind_a_product(cx: lm.Graph, state: lm.State) -> None:
    """A step of gradient descent: the product of the gradient and the update are one kernel."""
    _, x = rows(cx)
    old = cx.read(state)
    cx.assign(state, old - 0.1 * (x.T @ x))


def by_element_of_a_moment(cx: lm.Graph, state: lm.State) -> None:
    """Two States in one kernel, each written where it is read."""
    _, x = rows(cx)
    mean = cx.state((ROWS, COLUMNS), init=1, name="mean")
    moved = mean * 0.9 + x
    cx.assign(mean, moved)
    cx.assign(state, cx.read(state) - moved / (x.square() + 1).sqrt())


def with_its_mean(cx: lm.Graph, state: lm.State) -> None:
    """Rows are read whole before any of their elements is written, but by the same kernel."""
    old = cx.read(state)
    cx.assign(state, old - old.mean(-1, keepdim=True))


def with_its_neighbour(cx: lm.Graph, state: lm.State) -> None:
    old = cx.read(state)
    cx.assign(state, old + old.roll(1, 0))


def with_its_transpose(cx: lm.Graph, state: lm.State) -> None:
    old = cx.read(state)
    cx.assign(state, old + old.T)


def two_that_change_places(cx: lm.Graph, state: lm.State) -> None:
    other = cx.state((ROWS, COLUMNS), init=1, name="other")
    old = cx.read(state)
    cx.assign(state, other * 2)
    cx.assign(other, old * 2)


def repeated_from_one_row(cx: lm.Graph, state: lm.State) -> None:
    old = cx.read(state)
    cx.assign(state, (old[:1] * 2).expand(ROWS, COLUMNS))


def in_a_loop_that_reads_all(cx: lm.Graph, state: lm.State) -> None:
    _, x = rows(cx)
    old = cx.read(state)
    lm.scan(lambda c, row: (c + row @ old, None), cx.zeros(COLUMNS), x)[0].output("y")
    cx.assign(state, old + x)


CASES: dict[Build, bool] = {
    by_element: True,
    by_element_after_readers: True,
    by_element_and_used: True,
    by_element_behind_a_product: True,
    by_element_of_a_moment: True,
    with_its_mean: False,
    with_its_neighbour: False,
    with_its_transpose: False,
    two_that_change_places: False,
    repeated_from_one_row: False,
    in_a_loop_that_reads_all: True,
    written: True,
    read_before: True,
    read_before_in_two_steps: True,
    new_value_is_used: True,
    added: True,
    both_are_used_apart: True,
    both_are_used_together: False,
    old_value_meets_what_the_new_one_gave: False,
    old_value_is_what_is_written: False,
    old_value_is_inlined_in_what_is_written: False,
    old_value_makes_what_is_written: True,
    rows_are_written_twice: False,
    turned: False,
    turned_before: False,
    turned_afterwards: False,
    readers_are_one_kernel: False,
    readers_are_one_kernel_with_others: True,
    a_reader_over_many_paths: True,
    another_state_is_written_over: False,
    by_a_python_kernel: False,
    by_a_python_kernel_in_a_loop: False,
    by_a_native_kernel: True,
}


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_states(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)
    rng = np.random.default_rng(0)
    first = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    state = lm.State((ROWS, COLUMNS), init=first)
    cx = lm.Graph()
    build(cx, state)
    states = {sink.state for sink in cx.sinks if isinstance(sink, Assign)}
    program = lower_to_program(cx.graph(), backend.current())
    assert (state not in program.swaps) == CASES[build]

    given = {
        "i": rng.permutation(ROWS),
        "x": rng.normal(size=(ROWS, COLUMNS)).astype(np.float32),
    }
    leaves = cx.graph().by_op().get("Input", ())
    inputs = {node.attrs.name: given[node.attrs.name] for node in leaves}
    expected = reference.evaluate(cx.graph(), inputs)
    after = {each: each.numpy() for each in states}
    runner = device.CpuRunner(program, target.current())
    for skew in both(3):
        for each in states:
            each.reset()
        with skewed(skew):
            found = Executable(cx.graph(), (Variant({}, runner),))(inputs)
        for name, array in expected.items():
            # sums of up to a hundred terms in another order, 100 ulp of what does not cancel
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
        for each, value in after.items():
            # sums of up to a hundred terms in another order, 100 ulp of what does not cancel
            np.testing.assert_allclose(each.numpy(), value, rtol=1e-4, atol=1e-5)


def test_states_that_one_pass_updates() -> None:
    """The last of a pass stores two new values, of which one is made of the other's old one."""
    rng = np.random.default_rng(0)
    x, w, y = (rng.normal(size=shape).astype(np.float32) for shape in ((36, 8), (15, 8), (36, 15)))
    cx = lm.Graph()
    scores = (cx.tensor(x.shape, name="x") @ cx.constant(w).T).gelu()
    gradient = (cx.tensor(y.shape, name="y") * scores).T @ cx.constant(x)
    mean, state = (cx.state(w.shape, init=1, name=name) for name in ("mean", "state"))
    moved = mean + gradient.square()
    cx.assign(mean, moved)
    cx.assign(state, state - gradient / moved.sqrt())
    program = lower_to_program(cx.graph(), backend.current())
    assert len(program.launches) == 1  # no scores are stored
    assert not program.swaps

    inputs = {"x": x, "y": y}
    states = [mean.state, state.state]
    reference.evaluate(cx.graph(), inputs)
    after = [each.numpy() for each in states]
    for each in states:
        each.reset()
    lm.compile(cx)(inputs)
    for each, value in zip(states, after, strict=True):
        # sums of up to a hundred terms in another order, 100 ulp of what does not cancel
        np.testing.assert_allclose(each.numpy(), value, rtol=1e-4, atol=1e-5)
