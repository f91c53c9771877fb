"""Values that are asked for before any run: what is compiled for them, how often, and for what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn

pytestmark = pytest.mark.usefixtures("new_default_graph")

F32 = np.float32


def compiles(action: Callable[[], Any]) -> int:
    """How many programs an action compiles."""
    before = lm.compile_count()
    action()
    return lm.compile_count() - before


READERS: dict[str, tuple[Callable[[lm.Tensor], Any], Any]] = {
    "numpy": (lambda t: t.numpy().tolist(), 54.0),
    "item": (lambda t: t.item(), 54.0),
    "tolist": (lambda t: t.tolist(), 54.0),
    "float": (float, 54.0),
    "int": (int, 54),
    "bool": (bool, True),
    "format": (lambda t: f"{t:.2f}", "54.00"),
    "asarray": (lambda t: np.asarray(t).tolist(), 54.0),
    "asarray of a dtype": (lambda t: np.asarray(t, np.int8).tolist(), 54),
    "numpy's tests": (lambda t: np.testing.assert_allclose(t, 54), None),
    "in": (lambda t: 54 in t, True),
    "torch": (lambda t: torch.from_dlpack(t).item(), 54.0),
    "bfloat16 to torch": (lambda t: torch.from_dlpack(t.bfloat16()).item(), 54.0),
    "index": (lambda t: [*range(60)][t.int()], 54),
    "range": (lambda t: len(range(t.int())), 54),
    "an input": (lambda t: lm.jit(lambda x: x + 1)(np.asarray(t)).item(), 55.0),
}


@pytest.mark.parametrize("name", READERS)
def test_whatever_reads_a_tensor_computes_it(name: str) -> None:
    read, expected = READERS[name]
    x = lm.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert read((x @ x).sum()) == expected


def test_leaves_are_read_without_a_compile() -> None:
    state = lm.State((2,), init=3)
    read = [
        lm.tensor([1.0, 2.0]),
        lm.constant([1.0, 2.0]),
        lm.weight((2,)).set([1, 2]),
        lm.read(state),
    ]
    assert compiles(lambda: [t.numpy() for t in read]) == 0
    assert [t.tolist() for t in read] == [[1, 2], [1, 2], [1, 2], [3, 3]]
    assert compiles(lambda: (repr(read), repr(read[0] + 1), str(read[0]))) == 0


def test_one_structure_is_one_program_whatever_its_inputs() -> None:
    w = lm.weight((4, 4)).set(np.eye(4, dtype=F32))
    layer = nn.GRUCell(4, 4)

    def step(n: int) -> None:
        x = lm.tensor(np.full((3, 4), n, F32))
        assert ((x @ w) * 2).sum().item() == 24 * n
        _, total = lm.scan(lambda c, row: (c + row, c), x[0], x)
        assert total.tolist()[1] == [2 * n] * 4
        layer(x).numpy()

    step(1)
    assert compiles(lambda: [step(n) for n in range(2, 10)]) == 0


def test_what_differs_in_anything_but_inputs_is_another_program() -> None:
    """Each is computed, after the one before, in the same graph."""
    x, y = lm.tensor([3.0, 4.0]), lm.tensor([1.0, 1.0])
    v, w = (lm.weight((2,)).set([n, n]) for n in (5, 7))
    first, second = lm.State((2,), init=1), lm.State((2,), init=2)
    found = [
        (x + y, [4, 5]),
        (y - x, [-2, -3]),
        (x - y, [2, 3]),
        (x - x, [0, 0]),
        (x + 2, [5, 6]),
        (x + 3, [6, 7]),
        (x + v, [8, 9]),
        (x + w, [10, 11]),
        (x + lm.read(first), [4, 5]),
        (x + lm.read(second), [5, 6]),
        (x.cumsum(0), [3, 7]),
        (x.cumprod(0), [3, 12]),
        (x.flip(0), [4, 3]),
        (lm.tensor([[3.0, 4.0]]).sum(0) + 0, [3, 4]),
        (lm.tensor(np.array([3.0, 4.0])) + 2, [5, 6]),
        (lm.scan(lambda c, r: (c + r, c * 2), x[0] * 0, x)[1], [0, 6]),
        (lm.scan(lambda c, r: (c + r, c * 3), x[0] * 0, x)[1], [0, 9]),
        (lm.scan(lambda c, r: (c * r, c + r), x[0] * 0, x)[1], [3, 4]),
        (x.sort().values, [3, 4]),
        (x.sort().indices, [0, 1]),
    ]
    for value, expected in [*found, *found]:
        assert value.tolist() == expected


def test_inputs_set_anew_count_and_the_graph_may_grow() -> None:
    cx = lm.Graph()
    x = cx.tensor(("s", 2), name="x")
    y = x * 10
    x.set(np.ones((3, 2)))
    assert y.sum().item() == 60
    x.set(np.ones((5, 2)))
    assert y.sum().item() == 100
    z = y + 1
    z.output("z")
    assert compiles(y.numpy) == 1
    cx.require(cx.dims["s"] <= 5)
    assert y.shape == (cx.dims["s"], 2)
    x.set(np.ones((6, 2)))
    with pytest.raises(lm.DimError, match="requirement s <= 5 does not hold"):
        y.numpy()


def test_the_last_execution_stays_what_it_was() -> None:
    cx = lm.Graph()
    x = cx.tensor((2,), name="x").set([1, 2])
    y, z = (x * 10).output("y"), x + 1
    cx.compile("reference")
    cx.execute()
    x.set([5, 5])
    assert y.tolist() == [10, 20]
    assert z.tolist() == [6, 6]
    assert "reference" in repr(next(iter(cx._on_demand._programs.values())).executable)


def test_states_are_read_and_not_assigned() -> None:
    state = lm.State((), lm.int64)
    more = lm.read(state) + 1
    lm.assign(state, more)
    assert [more.item(), more.item(), int(state.numpy())] == [1, 1, 0]


def test_programs_that_are_not_asked_for_again_go() -> None:
    from luminal.runtime import on_demand

    x = lm.tensor([1.0])
    for n in range(on_demand.MAX_PROGRAMS + 5):
        assert (x + n).item() == n + 1
    programs = lm.default_graph()._on_demand._programs
    assert len(programs) == on_demand.MAX_PROGRAMS
    assert compiles((x + 7).item) == 0
    assert compiles((x + 0).item) == 1


# --- what has no value ----------------------------------------------------------------------------


def test_what_lacks_a_value_says_what_it_needs() -> None:
    cx = lm.Graph("net")
    x = cx.tensor((2, 3), name="x")
    with pytest.raises(
        lm.InputError, match=r"^f32\[\] of net needs x, .* call set\(array\) on x: f"
    ):
        x.sum().item()
    for data in ((1.0, 2.0), (True, False)):
        with pytest.raises(
            lm.ShapeError, match=r"a tuple is a shape, data is a list: \[1.0, 2.0\]"
        ):
            lm.tensor(data)
    with pytest.raises(lm.ShapeError, match="w: no value yet; call set"):
        cx.weight((2,), name="w").numpy()
    n = cx.dim("n")
    with pytest.raises(lm.DimError, match=r"i64\[n\] of net needs n, .* with dims=\{\"n\": n\}"):
        (cx.arange(n) + 1).numpy()
    with pytest.raises(lm.ShapeError, match=r"bool of bool\[2, 3\]: it has 6 elements, .* any\(\)"):
        bool(x == 3)
    with pytest.raises(lm.ShapeError, match=r"item of .*: it has 0 elements, not one; use tolist"):
        cx.zeros((0,)).item()
    with pytest.raises(TypeError, match=r"f32\[\] is no integer, so it is no index"):
        [1, 2][cx.tensor(1.0)]
    with pytest.raises(lm.DTypeError, match=r"a list that holds Tensors; .* lm\.stack"):
        x * [x.sum(), x.mean()]


def test_inside_scan_nothing_has_a_value() -> None:
    x = lm.tensor([1.0, 2.0])
    with pytest.raises(lm.GraphError, match=r"has no value while the function of scan is recorded"):
        lm.scan(lambda c, row: (c + row if row > 0 else c, None), x[0], x)


# --- DLPack in and out ----------------------------------------------------------------------------


def test_results_weights_and_states_go_to_torch() -> None:
    state, parameter = lm.State((2,), lm.bfloat16, 3), lm.Parameter((2,))
    parameter.set([1, 2])
    for held, expected in ((state, [3, 3]), (parameter, [1, 2])):
        taken = torch.from_dlpack(held)
        assert taken.tolist() == np.asarray(held).tolist() == expected
        taken += 5
        assert held.numpy().tolist() == expected
    results = np.array([1.5, 2.5], lm.bfloat16.numpy)
    taken = torch.from_dlpack(lm.to_dlpack(results))
    assert (taken.dtype, taken.tolist()) == (torch.bfloat16, [1.5, 2.5])
    taken += 1
    assert results.tolist() == [2.5, 3.5]  # one memory
    assert torch.from_dlpack(lm.to_dlpack(np.broadcast_to(F32(1), (2,)))).tolist() == [1, 1]


@pytest.mark.parametrize("make", [lm.from_dlpack, lm.as_tensor, lm.asarray])
def test_arrays_of_others_come_in_without_a_copy(make: Callable[[Any], lm.Tensor]) -> None:
    data = torch.ones(2, 3)
    x = make(data)
    data += 1
    assert (x * 2).tolist() == [[4] * 3] * 2
    assert make(torch.ones(2, dtype=torch.bfloat16)).dtype is lm.bfloat16


def test_what_comes_in_keeps_its_rules() -> None:
    assert lm.from_numpy(np.ones(2)).dtype is lm.float64
    assert lm.as_tensor(3.5, lm.float64).dtype is lm.float64
    assert lm.as_tensor((1, 2)).tolist() == [1, 2]
    x = lm.zeros((2,))
    assert lm.as_tensor(x) is lm.asarray(x) is x
    assert lm.as_tensor(x, lm.int8).dtype is lm.int8
    with pytest.raises(lm.DTypeError, match="from_numpy: a list is no NumPy array"):
        lm.from_numpy([1.0])  # type: ignore[arg-type]
    with pytest.raises(
        lm.DTypeError, match=r"from_dlpack: a list has no __dlpack__; .* lm\.tensor"
    ):
        lm.from_dlpack([1.0])


# --- what is printed ------------------------------------------------------------------------------


def test_reprs_say_shape_dtype_graph_and_state() -> None:
    cx = lm.Graph("net")
    x = cx.tensor(("s", 2), name="x")
    assert repr(x) == "Tensor(x: f32[s, 2], input of net, no value yet)"
    x.set([[1, 2]])
    assert repr(x) == "Tensor([[1., 2.]], x: f32[s, 2], input of net)"
    w = cx.weight((2, 2), name="w")
    assert repr(w) == "Tensor(w: f32[2, 2], weight of net, no value yet)"
    assert repr(w.set(np.eye(2))) == "Tensor(w: f32[2, 2], weight of net)"
    assert repr(cx.read(lm.State((2,), name="k"))) == "Tensor(f32[2], state k in net)"
    assert repr(cx.constant(2)) == "Tensor(2, i64[], constant of net)"
    y = (x @ w).exp().output("y")
    assert repr(y) == "Tensor(f32[s, 2], Exp of net, not computed)"
    assert repr(cx).startswith("<Graph net: ")
    assert repr(cx).endswith(" nodes, 1 weights; x: f32[s, 2] -> y: f32[s, 2]>")
    exe = cx.compile("reference")
    known = "Executable(x: f32[s, 2] -> y: f32[s, 2]; net, reference, fast; weights: 1"
    assert repr(exe) == f"{known}; has not run)"
    cx.execute()
    assert repr(exe) == f"{known}; ran last at s = 1)"
    assert repr(y) == "Tensor([[2.7183, 7.3891]], f32[s, 2], Exp of net, computed)"
    assert "..." in repr(cx.tensor(np.zeros((50, 50))))


def test_reprs_of_modules_say_what_they_hold() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))
    assert repr(model).endswith(")  # 40 parameters, 160 bytes, training mode")
    assert "(0): Linear(weight f32[8, 4], bias f32[8])\n" in repr(model)
    model[1].eval()
    assert repr(model).endswith("partly training mode")
    assert repr(model.eval()).endswith("eval mode")
    model.bias = lm.Parameter((3,), lm.float16)  # type: ignore[attr-defined]
    assert repr(model.bias).endswith(": f16[3], no value yet)")  # type: ignore[attr-defined]
