"""What users of PyTorch write: taken where it means nothing, else an error says what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from luminal.frontend import foreign
from luminal.frontend.names.table import homes
from tests.close import close_each

pytestmark = pytest.mark.usefixtures("new_default_graph")

F32 = np.float32


# --- names that are not there ---------------------------------------------------------------------


def test_methods_that_write_in_place_name_the_one_that_does_not() -> None:
    x = lm.ones(2)
    names = [n for n in dir(torch.Tensor) if n.endswith("_") and not n.startswith("_")]
    names.remove("requires_grad_")  # changes nothing
    explained = 0
    for name in names:
        with pytest.raises(AttributeError, match=f"^a Tensor has no attribute '{name}'") as caught:
            getattr(x, name)
        if hasattr(x, name[:-1]) and name not in foreign.WHY:
            assert f"write x = x.{name[:-1]}(...)" in str(caught.value)
            explained += 1
    assert explained > 80


def test_what_is_explained_is_not_there() -> None:
    x, model = lm.ones(2), nn.Linear(2, 2)
    optimizer = lm.optim.SGD(model.parameters(), lr=0.1)
    for name, why in foreign.WHY.items():
        lack = [owner for owner in (x, model, lm, optimizer) if not hasattr(owner, name)]
        assert lack, f"{name} is there now: drop its row in WHY"
        for owner in lack:
            with pytest.raises(AttributeError, match=re.escape(why) + "$"):
                getattr(owner, name)


def test_other_names_are_plain_attribute_errors() -> None:
    for owner, kind in ((lm.ones(2), "a Tensor"), (nn.Linear(2, 2), "a Linear"), (lm, "luminal")):
        assert not hasattr(owner, "qqqq")
        with pytest.raises(AttributeError, match=f"^{kind} has no attribute 'qqqq'$"):
            _ = owner.qqqq  # type: ignore[attr-defined]


def test_older_names_of_dtypes() -> None:
    for name, dtype in foreign.DTYPES.items():
        assert getattr(lm, name) is dtype
        assert str(getattr(torch, name)) == f"torch.{dtype.name}"
        assert name not in lm.__all__


# --- devices and gradients ------------------------------------------------------------------------

MAKERS: dict[str, Callable[..., lm.Tensor]] = {
    "tensor": lambda **o: lm.tensor([1.0], **o),
    "as_tensor": lambda **o: lm.as_tensor([1.0], **o),
    "zeros": lambda **o: lm.zeros(2, **o),
    "ones": lambda **o: lm.ones((2,), **o),
    "empty": lambda **o: lm.empty(2, **o),
    "full": lambda **o: lm.full((2,), 1.0, **o),
    "eye": lambda **o: lm.eye(2, **o),
    "arange": lambda **o: lm.arange(2, **o),
    "linspace": lambda **o: lm.linspace(0, 1, 3, **o),
    "rand": lambda **o: lm.rand(2, **o),
    "randn": lambda **o: lm.randn(2, **o),
    "randint": lambda **o: lm.randint(5, (2,), **o),
    "randperm": lambda **o: lm.randperm(2, **o),
    "zeros_like": lambda **o: lm.zeros_like(lm.ones(2), **o),
    "ones_like": lambda **o: lm.ones_like(lm.ones(2), **o),
    "full_like": lambda **o: lm.full_like(lm.ones(2), 3, **o),
    "rand_like": lambda **o: lm.rand_like(lm.ones(2), **o),
    "randn_like": lambda **o: lm.randn_like(lm.ones(2), **o),
    "to": lambda **o: lm.ones(2).to(**o),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_host_may_be_named(name: str) -> None:
    make = MAKERS[name]
    for device in ("cpu", "cpu:0", torch.device("cpu"), None, lm.ones(1).device):
        assert make(device=device).shape == make().shape
    for device in ("cuda:99", torch.device("cuda:98"), 0, "float32"):
        with pytest.raises(lm.InputError, match=rf"{name}: device '{device}': backend '"):
            make(device=device)
    if name != "to":
        make(requires_grad=False)
        make(requires_grad=True)


def test_to_takes_dtypes_tensors_and_the_cpu() -> None:
    x = lm.ones(2)
    assert x.to("cpu") is x.cpu() is x.data is x
    for dtype in (lm.int8, "int8", np.int8, torch.int8, lm.ones(1, dtype="int8")):
        assert x.to(dtype).dtype is x.to("cpu", dtype).dtype is lm.int8
        assert x.to(dtype, non_blocking=True, copy=True).dtype is lm.int8
    assert x.to(dtype=lm.int8, device="cpu").dtype is lm.int8
    assert (x.device, x.is_cuda, x.requires_grad, x.is_contiguous()) == ("cpu", False, False, True)
    with pytest.raises(lm.InputError, match="to: device 'cuda:97'"):
        x.to("cuda:97")
    with pytest.raises(lm.DTypeError, match="'float8' is not an element type"):
        x.to("float8")


def test_requires_grad_says_what_has_a_gradient() -> None:
    x, z = lm.tensor([1.0, 2.0]), lm.tensor([1j, 2.0])
    layer = nn.Linear(2, 2)
    for value in (x, z):
        value = value * 1
        assert not value.requires_grad
        assert value.requires_grad_().requires_grad
        doubled = value * 2
        assert doubled.requires_grad
        assert not doubled.detach().requires_grad
        assert not (doubled.abs() > 1).requires_grad
        value.requires_grad = False
        assert not value.requires_grad
    assert not x.requires_grad
    assert lm.tensor([1.0], requires_grad=True).requires_grad
    assert lm.zeros(2, requires_grad=True).requires_grad
    assert layer(x).requires_grad
    with lm.no_grad():
        assert not layer(x).requires_grad
    layer.requires_grad_(False)
    assert not layer(x).requires_grad


def test_what_is_recorded_in_no_grad_is_constant_for_derivatives() -> None:
    x = lm.tensor([2.0])

    def slope(part: Any) -> float:
        return float(lm.grad(lambda x: (x * part(x)).sum())(x).item())

    def square(x: Any) -> Any:
        return (x * x).relu()  # relu has a derivative of its own

    def block(x: Any) -> Any:
        with lm.inference_mode():
            return square(x)

    def inner(x: Any) -> Any:
        with lm.no_grad(), lm.enable_grad():
            return square(x)

    assert slope(square) == slope(inner) == 12.0
    assert slope(block) == slope(lm.no_grad()(square)) == slope(lm.no_grad(square)) == 4.0
    assert slope(lambda x: lm.no_grad(square)(x) + square(x)) == 16.0  # equal, and apart
    assert lm.no_grad(lm.grad(lambda x: square(x).sum()))(x).item() == 4.0


# --- modules --------------------------------------------------------------------------------------


class Scaled(nn.Module):
    """As one writes it in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.tied = self.inner
        self.norm = nn.BatchNorm1d(2)
        self.register_parameter("scale", nn.Parameter(lm.ones(2)))
        self.register_buffer("shift", torch.tensor([1.0, 2.0]))
        self.register_buffer("fixed", lm.ones(2), persistent=False)
        self.register_buffer("nothing", None)
        self.add_module("more", nn.ModuleList([nn.Linear(2, 2)]))

    def forward(self, x: Any) -> Any:
        x = self.norm(self.more[0](self.tied(x)))  # type: ignore[attr-defined]
        return x * self.scale + self.shift + self.fixed  # type: ignore[attr-defined]


def test_what_is_registered_is_an_attribute() -> None:
    model = Scaled()
    names = set(model.state_dict())
    assert {"scale", "shift", "more.0.weight"} <= names
    assert not {"fixed", "nothing"} & names
    assert model.nothing is None  # type: ignore[attr-defined]
    model.load_state_dict(model.state_dict())
    expected = {n: tuple(p.shape) for n, p in torch.nn.Linear(2, 2).named_parameters()}
    assert {n: p.shape for n, p in model.inner.named_parameters()} == expected
    assert sum(p.numel() for p in model.parameters()) == 6 + 6 + 4 + 2
    assert (model.inner.weight.ndim, model.inner.weight.size(0)) == (2, 2)
    y = model.eval()(lm.ones(3, 2)).numpy()
    model.shift.set([5, 5])  # type: ignore[attr-defined]
    close_each(model(lm.ones(3, 2)).numpy() - y, [[4, 3]] * 3)


@pytest.mark.parametrize("name", ["half", "bfloat16", "double", "float"])
def test_a_module_of_another_dtype_has_other_parameters(name: str) -> None:
    model, dtype = Scaled().eval(), foreign.DTYPES.get(name, lm.bfloat16)
    f, x = lm.jit(model), np.ones((3, 2), F32)
    before, held = f(x), model.inner.weight
    assert getattr(model, name)() is model.to("cpu") is model.cpu() is model
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert model.shift.dtype is dtype  # type: ignore[attr-defined]
    assert model.norm.num_batches_tracked.dtype is lm.int64  # type: ignore[union-attr]
    assert model.tied.weight is model.inner.weight
    assert (model.inner.weight is held) == (dtype is lm.float32)
    assert held.dtype is lm.float32
    after = f(x.astype(dtype.numpy))
    assert after.dtype == dtype.numpy
    # bfloat16's digits in two layers
    np.testing.assert_allclose(after.astype(F32), before, rtol=0.05, atol=0.05)
    with pytest.raises(lm.InputError, match="to: device 'cuda:97'"):
        model.to("cuda:97")
    with pytest.raises(lm.DTypeError, match=r"Scaled\.to: int8 is no float"):
        model.to(lm.int8)


# --- NumPy's functions ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*homes("numpy")])
def test_numpys_functions_record(name: str) -> None:
    function = getattr(np, name)
    ints = name.startswith(("bitwise", "left", "right")) or name == "invert"
    data = np.array([[3, 1], [2, 5]], np.int64 if ints else F32)
    other = np.array([[1, 2], [2, 1]], data.dtype)
    if name in ("arccos", "arcsin", "arctanh"):
        data = data / 10
    x = lm.tensor(data)
    x.graph._backend = "reference"  # type: ignore[attr-defined]  # five programs each: compile none
    before = lm.compile_count()
    if function.nin == 1:
        pairs = [(function(x), function(data))]
    else:
        pairs = [
            (function(x, lm.tensor(other)), function(data, other)),
            (function(x, other), function(data, other)),
            (function(other, x), function(other, data)),
        ]
        if name != "matmul":
            pairs += [(function(x, 2), function(data, 2)), (function(2, x), function(2, data))]
    assert lm.compile_count() == before
    for ours, theirs in pairs:
        many = isinstance(theirs, tuple)
        for found, wanted in zip(ours, theirs, strict=True) if many else [(ours, theirs)]:
            assert isinstance(found, lm.Tensor)
            close_each(found.numpy(), wanted, ulp=8)


def test_what_cannot_be_recorded_reads_the_elements() -> None:
    x = lm.tensor([[1.0, 2.0], [3.0, 4.0]])
    for found, wanted in (
        (np.sum(x), 10),
        (np.mean(x, axis=0), [2, 3]),
        (np.concatenate([x, x * 2]).shape, (4, 2)),
        (np.stack((x, np.zeros((2, 2)))).max(), 4),
        (np.add.reduce(x), [4, 6]),
        (np.linalg.norm(x), np.sqrt(30)),
        (np.where(x > 2, 1, 0), [[0, 0], [1, 1]]),
        (np.spacing(x).shape, (2, 2)),
    ):
        assert not isinstance(found, lm.Tensor)
        np.testing.assert_allclose(found, wanted)
    array = np.ones((2, 2), F32)
    array += x
    assert array.tolist() == [[2, 3], [4, 5]]
    np.testing.assert_array_equal(x, x.numpy())


def test_operators_with_arrays_and_scalars_of_numpy() -> None:
    x, a = lm.tensor([1.0, 2.0]), np.array([3, 5], F32)
    for made, wanted in (
        (a - x, [2, 3]),
        (a / x, [3, 2.5]),
        (a @ x, 13),
        (a**x, [3, 25]),
        (np.float32(2) - x, [1, 0]),
        (np.float64(2) * x, [2, 4]),
        (np.int64(2) + x, [3, 4]),
        (torch.tensor([3.0, 5.0]) - x, [2, 3]),
        (2 - x, [1, 0]),
    ):
        assert made.dtype is lm.float32
        assert made.tolist() == wanted
    assert ((a > x) == [True, True]).all()
    assert (a == x).tolist() == [False, False]


def test_a_step_of_pytorchs_says_what_is_written_here() -> None:
    model = nn.Linear(2, 2)
    optimizer = lm.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    with pytest.raises(lm.GraphError, match=r"SGD.step: its 2 parameters have no gradients: call"):
        optimizer.step()
    assert model.weight.grad is None
    model(lm.ones((1, 2))).sum().backward()
    np.testing.assert_array_equal(lm.read(model.weight).grad, np.ones((2, 2)))
    np.testing.assert_array_equal(model.weight.grad, np.ones((2, 2)))
    model.zero_grad()
    assert model.weight.grad is None


def test_names_that_are_nearly_right_are_said() -> None:
    with pytest.raises(
        AttributeError, match=r"a Tensor has no attribute 'softmx'; did you mean 's"
    ):
        _ = lm.ones(2).softmx
    with pytest.raises(
        AttributeError, match=r"luminal has no attribute 'sofmax'; did you mean 'so"
    ):
        _ = lm.sofmax
    with pytest.raises(AttributeError, match=r"a SGD has no attribute 'stp'; did you mean 'step'"):
        _ = lm.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1).stp
    with pytest.raises(TypeError, match=r"Tensor: a Tensor is a value of a graph; lm\.tensor\(\["):
        lm.Tensor([1, 2])
