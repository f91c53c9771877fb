"""lm.jit: trees in and out, static arguments, symbolic lengths, what it refuses."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import warnings
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from luminal.base.errors import GraphError
from tests.close import close_each

F32 = np.float32


@pytest.fixture(params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """The backend that functions are compiled for."""
    return str(request.param)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, F32)


def test_jit_takes_and_returns_trees(backend: str) -> None:
    calls = []

    @lm.jit(backend=backend)
    def f(x: Any, params: Any, scale: float = 2.0) -> Any:
        calls.append(1)
        return {"y": (x @ params["w"]) * scale, "pair": (x.sum(), [params["b"]], "text")}

    params = {"w": np.eye(2, dtype=F32), "b": ones(3)}
    for _ in range(3):
        result = f(ones(2, 2), params)
    assert result["y"].tolist() == [[2, 2], [2, 2]]
    assert result["pair"][0] == 4
    assert result["pair"][1][0].tolist() == [1, 1, 1]
    assert result["pair"][2] == "text"
    assert isinstance(result["y"], np.ndarray)
    assert len(calls) == 1
    f(ones(2, 2), params, scale=3.0)
    assert len(calls) == 1  # a number is an input
    f(ones(5, 2), params)
    assert len(calls) == f.entries == 2


def test_jit_static_arguments_compile_anew(backend: str) -> None:
    @lm.jit(static="axis", max_entries=2, backend=backend)
    def total(x: Any, axis: int) -> Any:
        return x.sum(axis)

    x = np.arange(6, dtype=F32).reshape(2, 3)
    assert total(x, 0).tolist() == [3, 5, 7]
    assert total(x, axis=1).tolist() == [3, 12]
    assert total(x, -1).tolist() == [3, 12]
    assert total.entries == 2
    with pytest.raises(lm.InputError, match="static axis: a list is not hashable; pass a tuple"):
        total(x, [0])


def test_jit_symbolic_lengths_compile_once(backend: str) -> None:
    @lm.jit(shapes={"x": ("s", 2)}, backend=backend)
    def f(x: Any) -> Any:
        return x.softmax(0)

    for n in range(1, 9):
        assert f(ones(n, 2)).shape == (n, 2)
    assert f.entries == 1


def test_jit_warns_on_the_third_recompile_for_a_new_length(backend: str) -> None:
    @lm.jit(backend=backend)
    def f(x: Any) -> Any:
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (1, 2, 3):
            f(ones(n, 2))
    with pytest.warns(UserWarning, match=r"shapes=\{\"x\": \('s', 2,\)\}"):
        f(ones(4, 2))


def test_jit_takes_arguments_it_does_not_use(backend: str) -> None:
    f = lm.jit(lambda x, mask: x * 2, backend=backend)  # type: ignore[call-overload]
    assert f(ones(2), mask=ones(3)).tolist() == [2, 2]


def test_jit_takes_complex_arrays(backend: str) -> None:
    f = lm.jit(  # type: ignore[call-overload]
        lambda tree, x: (tree["z"] * x + tree["w"], tree["z"].real), backend=backend,
        shapes={"x": ("s",), "tree['z']": ("s",)},
    )  # fmt: skip
    for n in (2, 3):
        z = np.arange(2 * n)[::-2] * np.complex64(1 + 2j)  # strided, and backwards
        total, real = f({"z": z, "w": 1j}, ones(n) * 3)
        assert np.array_equal(total, z * 3 + 1j)
        assert np.array_equal(real, z.real)
    assert f.entries == 1
    double = f({"z": z.astype(complex), "w": 0j}, ones(n))[0]
    assert double.dtype == np.complex128
    pulled = lm.jit(lm.grad(lambda z: (abs(z) ** 2).sum()), backend=backend)(z)  # type: ignore[call-overload]
    assert np.allclose(pulled, 2 * z)


def test_jit_refuses_what_is_no_array(backend: str) -> None:
    f = lm.jit(lambda x: x, backend=backend)  # type: ignore[call-overload]
    with pytest.raises(lm.InputError, match="jit: x is a State; pass arrays"):
        f(lm.State((2,)))
    with pytest.raises(lm.DTypeError, match="jit: x: b'text' is not an array"):
        f(b"text")
    with pytest.raises(lm.DTypeError, match="jit: x: Luminal has no dtype datetime64"):
        f(np.array(["2026-11-30"], "datetime64[D]"))
    with pytest.raises(lm.InputError, match=r"shapes \['y\[0\]'\] are no parameters of"):
        lm.jit(shapes={"y[0]": ("s",)})(lambda x: x)


def test_jit_records_default_graph_functions_into_its_own(backend: str) -> None:
    state = lm.State((3,))

    @lm.jit(backend=backend)
    def count(x: Any) -> Any:
        lm.assign(state, lm.read(state) + x)
        return lm.arange(3) * 2

    assert count(ones(3)).tolist() == [0, 2, 4]
    count(ones(3))
    assert state.numpy().tolist() == [2, 2, 2]


# --- modules and methods --------------------------------------------------------------------------


class Net(nn.Module):
    """A layer, a number, a layer that is switched by the mode, and a list."""

    def __init__(self) -> None:
        self.layer = nn.Linear(2, 2)
        self.layer.weight.set(np.eye(2))
        self.layer.bias.set([0, 0])
        self.norm = nn.BatchNorm1d(2)
        self.scale = 2.0
        self.steps = [1.0]

    def forward(self, x: Any, more: float = 0.0) -> Any:
        self.calls = getattr(self, "calls", 0) + 1  # what it changes itself does not count
        return self.norm(self.layer(x) * self.scale + sum(self.steps) + more)

    @lm.jit
    def doubled(self, x: Any) -> Any:
        """Twice."""
        return self.layer(x) * (2 * self.scale)

    @lm.jit(static="n", backend="reference")
    def times(self, x: Any, n: int) -> Any:
        return self.doubled(x) * n


def test_jit_of_a_module_is_the_module(backend: str) -> None:
    net = Net().eval()
    f = lm.jit(net, backend=backend)
    x = ones(3, 2)
    expected = 3 / np.sqrt(1 + 1e-5)
    close_each(f(x), np.full((3, 2), expected))
    close_each(f(x, more=1.0), np.full((3, 2), expected / 3 * 4))
    assert f.entries == 1
    assert f.layer is net.layer
    assert list(f.state_dict()) == list(net.state_dict())
    assert isinstance(f(lm.tensor(x)), lm.Tensor)
    net.layer.bias.set([1, 1])  # a Parameter is read by each run
    np.testing.assert_allclose(f(x), np.full((3, 2), expected / 3 * 5), rtol=1e-6)
    assert f.entries == 1
    outer = nn.Sequential()
    outer.net = f  # type: ignore[attr-defined]
    assert outer.net is net  # type: ignore[attr-defined]


def test_jit_follows_what_its_modules_are_set_to(backend: str) -> None:
    net = Net()
    closed = lm.jit(lambda x: net(x), backend=backend)
    whole, x = lm.jit(net, backend=backend), ones(4, 2)

    def both(entries: int) -> np.ndarray:
        a, b = closed(x), whole(x)
        np.testing.assert_array_equal(a, b)
        assert closed.entries == whole.entries == entries
        return np.asarray(a)

    assert both(1).max() == 0  # batch statistics: all rows are equal
    assert whole.eval() is whole
    net.norm.running_mean.reset()  # type: ignore[attr-defined]
    assert both(2).max() > 0
    net.train()
    assert both(2).max() == 0
    net.eval().norm = nn.Identity()  # type: ignore[assignment]
    assert both(3).tolist() == [[3, 3]] * 4
    net.scale = 4.0
    assert both(4).tolist() == [[5, 5]] * 4
    net.steps.append(10.0)
    assert both(5).tolist() == [[15, 15]] * 4
    net.layer = nn.Linear(2, 2, bias=False)
    net.layer.weight.set(np.zeros((2, 2)))
    assert both(6).tolist() == [[11, 11]] * 4
    assert both(6).tolist() == [[11, 11]] * 4


def test_jit_before_a_method_keeps_forms_for_each_object() -> None:
    first, second = Net(), Net()
    second.scale = 5.0
    for _ in range(2):
        assert first.doubled(ones(1, 2)).tolist() == [[4, 4]]
        assert second.doubled(x=ones(1, 2)).tolist() == [[10, 10]]
    assert first.doubled.entries == second.doubled.entries == 1
    assert first.times(ones(1, 2), 3).tolist() == [[12, 12]]
    assert first.doubled.entries == 1  # called with Tensors it records
    first.scale = 1.0
    assert first.doubled(ones(1, 2)).tolist() == [[2, 2]]
    assert first.times(ones(1, 2), 3).tolist() == [[6, 6]]
    assert Net.doubled.__doc__ == "Twice."
    gone, table = weakref.ref(first), Net.doubled._methods
    assert len(table) >= 2
    del first
    gc.collect()
    assert gone() is None
    assert id(second) in table


def test_jit_before_forward() -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            self.weight = lm.Parameter((2,))
            self.weight.set([2, 3])

        @lm.jit
        def forward(self, x: Any) -> Any:
            return x * self.weight

    small = Small()
    assert small(ones(2)).tolist() == small.forward(ones(2)).tolist() == [2, 3]
    cx = lm.Graph()
    nn.Sequential(small)(cx.tensor((2,), name="x")).output("y")
    assert list(cx.leaves) == ["x", "0.weight"]  # Parameters are operands under their paths
    assert lm.compile(cx)(x=[1, 1])["y"].tolist() == [2, 3]


def test_jit_of_objects_that_are_no_modules() -> None:
    @dataclass
    class Scaled:  # neither hashable nor a module
        by: float

        @lm.jit
        def of(self, x: Any) -> Any:
            return x * self.by

    class Slotted:  # cannot be referenced weakly
        __slots__ = ("by",)

        @lm.jit
        def of(self, x: Any) -> Any:
            return x * 3

        def plain(self, x: Any) -> Any:
            return x * 4

        @staticmethod
        @lm.jit
        def free(x: Any) -> Any:
            return x * 5

    scaled = Scaled(2.0)
    assert scaled.of(ones(1)).tolist() == [2]
    scaled.by = 7.0
    assert scaled.of(ones(1)).tolist() == [7]
    assert Slotted().of(ones(1)).tolist() == [3]
    assert lm.jit(Slotted().plain)(ones(1)).tolist() == [4]
    assert Slotted.free(ones(1)).tolist() == Slotted().free(ones(1)).tolist() == [5]
    assert lm.jit(functools.partial(lambda x, y: x - y, y=3))(ones(1)).tolist() == [-2]


def test_jit_of_jit_is_one_program() -> None:
    inner = lm.jit(lambda x: x.relu())
    outer = lm.jit(lambda x: inner(x) + inner(-x))
    before = lm.compile_count()
    assert outer(np.array([-2, 3], F32)).tolist() == [2, 3]
    assert lm.compile_count() == before + 1
    assert inner.entries == 0


def test_jit_refuses_what_it_cannot_record() -> None:
    with pytest.raises(lm.InputError, match=r"a function, .* got a Graph; .* there is lm\.compile"):
        lm.jit(lm.Graph())  # type: ignore[call-overload]
    with pytest.raises(lm.InputError, match="Linear is a module of PyTorch; write it with luminal"):
        lm.jit(torch.nn.Linear(2, 2))
    for read in (bool, float, lambda t: t.item(), lambda t: f"{t:.2f}", np.asarray):
        f = lm.jit(functools.partial(lambda x, read: read(x.sum()), read=read), static="read")
        with pytest.raises(lm.GraphError, match=r"f32\[\] has no value while jit records partial"):
            f(ones(2))
    held = lm.weight((1,)).set([1])
    state = lm.State((1,))
    for leaf in (
        lambda: lm.read(state).item(),
        lambda: lm.default_graph().constant(held.parameter).item(),
    ):
        with pytest.raises(lm.GraphError, match="has no value while jit records"):
            lm.jit(leaf)()
    assert lm.jit(lambda x: x * lm.constant([2.0]).item())(ones(1)).tolist() == [2]


def test_jit_says_what_it_has_compiled() -> None:
    f = lm.jit(lambda x, y=2.0: x * y)
    assert repr(f) == "<jit of <lambda>(x, y=2.0): 0 compiled forms>"
    f(ones(2))
    form = "x: f32[2], y: f32[] -> out0: f32[2]"
    assert repr(f) == f"<jit of <lambda>(x, y=2.0): 1 compiled form, the latest {form}>"
    assert repr(lm.jit(nn.Linear(2, 2))) == "<jit of Linear(x): 0 compiled forms>"


# --- what a function closes over, and lists -------------------------------------------------------


def test_jit_reads_what_it_closes_over_at_each_call(backend: str) -> None:
    cx = lm.Graph("outer")
    w, rows = cx.tensor([1.0, 2.0]), cx.tensor(("n", 2), name="x")
    held, state = cx.weight((2,), name="held").set([1, 1]), lm.State((2,), init=2)
    computed = (w * 10).relu() + cx.arange(2) + held + cx.read(state)

    @lm.jit(backend=backend)
    def f(x: Any) -> Any:
        _, sums = lm.scan(lambda c, row: (c + row.sum() * w.sum(), c), x[0] * 0, rows)
        return x + w + computed, rows.sum() + sums[-1]

    with pytest.raises(lm.InputError, match=r"f32\[n, 2\] of outer, which has no value yet; call"):
        f(ones(2))
    rows.set(ones(1, 2))
    before = lm.compile_count()
    assert [y.tolist() for y in f(ones(2))] == [[15, 27], 2]
    assert lm.compile_count() == before
    w.set([0, 1]), held.set([0, 0]), state.set([0, 5]), rows.set(ones(3, 2))
    assert [y.tolist() for y in f(ones(2))] == [[1, 18], 6 + 2 * 2]
    assert f.entries == 1
    assert lm.jit(lambda: lm.arange(3) * w.sum(), backend=backend)().tolist() == [0, 1, 2]


def test_jit_tells_where_a_tensor_left_its_function() -> None:
    left: list[Any] = []
    lm.jit(lambda x: left.append(x) or x)(ones(2))
    text = "a Tensor that jit recorded in <lambda> is used after <lambda> has returned; return it"
    for use in (
        lambda: lm.jit(lambda x: x + left[0])(ones(2)),
        lambda: lm.ones(2) + left[0],
        lambda: left[0].exp(),
        lambda: left[0].numpy(),
        lambda: f"{left[0].sum():.2f}",
    ):
        with pytest.raises(lm.GraphError, match=text):
            use()


def test_a_list_of_numbers_is_an_array() -> None:
    @lm.jit
    def f(x: Any, pair: Any = (1.0, 2.0), trees: Any = None) -> Any:
        a, b = pair
        return x * a + b, trees

    assert f([1, 2])[0].tolist() == [3, 4]
    assert f([[1.5], [2]], [3, 4])[0].tolist() == [[8.5], [10]]
    assert f([1.0], trees=[[1, 2], {"k": [3.0]}])[1][1]["k"].tolist() == [3]
    assert f([1.0], trees=[])[1] == []
    assert len(f([1.0], trees=[ones(1), 2.0])[1]) == 2
    with pytest.raises(lm.ShapeError, match="jit: x: rows of unequal lengths"):
        f([[1.0], [1.0, 2.0]])


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_is_compiled_or_recorded_is_neither_pickled_nor_copied(copied: Any) -> None:
    jitted = lm.jit(lambda x: x + 1)
    assert jitted(np.ones(1, np.float32)) == 2
    module = lm.jit(lm.nn.Linear(2, 2))
    for held in (jitted, module):
        with pytest.raises(TypeError, match=r"jit: .*\(f\.__wrapped__\), and call lm\.jit on"):
            copied(held)
    with pytest.raises(TypeError, match=r"g: a Graph cannot be pickled or copied, .* record it"):
        copied(lm.Graph("g"))
    assert copied(module.__wrapped__)


def test_jit_compiles_for_what_it_is_called_in() -> None:
    """Products round as the `autocast` around the call says, whichever call came first."""
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    modes: list[Any] = [None, lm.bfloat16, lm.float16]
    for first in modes:
        f = lm.jit(lambda a: a @ a)
        for dtype in [first, *modes]:
            with lm.autocast("cpu", dtype or lm.bfloat16, enabled=dtype is not None):
                got = f(x)
            assert got.dtype == (dtype or lm.float32).numpy
        assert f.entries == 3
    g = lm.jit(lambda a: lm.grad((a * a).sum(), a))
    for recorder in (lm.no_grad, lm.enable_grad):
        with recorder():
            got = g(x)
        np.testing.assert_array_equal(got, 2 * x * (recorder is lm.enable_grad))


def test_jit_draws_from_keys_that_are_arguments() -> None:
    """A key around the call would be that of the first call for good."""
    x = np.ones((64,), np.float32)
    f = lm.jit(lambda a: nn.functional.dropout(a, training=True))
    with nn.keyed(lm.random.key(1)), pytest.raises(GraphError, match="with the key as an argument"):
        f(x)

    @lm.jit
    def g(a: Any, key: Any) -> Any:
        with nn.keyed(key):
            return nn.functional.dropout(a, training=True)

    keys = [lm.random.key(k).numpy() for k in (1, 2, 1)]
    with nn.keyed(lm.random.key(3)):
        one, other, again = (g(x, key) for key in keys)
    assert (one == again).all()
    assert (one != other).any()
