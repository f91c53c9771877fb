"""Parameters and States in `forward` are as Tensors: every public name and operator of Tensor's,
and every function of `lm` and `nn.functional`.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.frontend.tensor import Tensor
from luminal.memory.state import Assignable
from tests.close import close_each

pytestmark = pytest.mark.usefixtures("new_default_graph")

VALUE = np.arange(1, 7, dtype=np.float32).reshape(2, 3) / 8
KINDS: dict[str, Callable[[], Assignable]] = {
    "Parameter": lambda: nn.Parameter(VALUE, name="w"),
    "State": lambda: lm.State(VALUE.shape, "f32", VALUE, "w"),
}
OF_OBJECTS = {*dir(object), "__copy__", "__deepcopy__", "__module__", "__slots__", "__getattr__"}
ITS_OWN = {
    "requires_grad",
    "requires_grad_",
    "set",
    "__array_function__",
    "__dlpack__",
}  # these differ from a Tensor's
NAMES = [
    name
    for name in dir(Tensor)
    if name.startswith("__") * (name not in OF_OBJECTS) or not name.startswith("_")
]
ARGUMENTS: list[tuple[Any, ...]] = [
    (), (1,), (0.5,), ("held",), ("x",), (VALUE,), (1, 0), ((3, 2),), ("flipped",),
    (0, [0, 1]), (0, 1, 0.5), ((slice(None), 1),), (2, -1), ("f16",), (np.exp, "__call__", "held"),
]  # fmt: skip


def types(found: Any) -> list[str]:
    """What a call gives, Tensors by their types and operations."""
    many = found if isinstance(found, tuple | list) else [found]
    return [
        f"{each.value.type} {each.value.node.op.name}" if isinstance(each, Tensor) else repr(each)
        for each in many
    ]


def outcome(use: Callable[[Any], Any], held: Any) -> list[str] | None:
    """What it gives of `held`; None for an error."""
    try:
        return types(use(held))
    except Exception:  # whatever the arguments do not fit
        return None


def filled(arguments: Sequence[Any], held: Any, x: Tensor) -> list[Any]:
    """The arguments, with the operands that texts name in their places."""
    named = {"held": held, "x": x, "flipped": x.T, "row": x[0], "mask": x > 0}
    return [
        filled(each, held, x) if isinstance(each, list) else
        named.get(each, each) if isinstance(each, str) else each
        for each in arguments
    ]  # fmt: skip


def attribute(name: str, arguments: Sequence[Any], x: Tensor) -> Callable[[Any], Any]:
    """Asks an attribute; calls it where it is a method."""

    def use(held: Any) -> Any:
        found = getattr(held, name)
        return found(*filled(arguments, held, x)) if callable(found) else found

    return use


def test_every_name_of_a_tensor_is_there() -> None:
    """With several lists of arguments, what a Parameter gives is what its Tensor gives."""
    held = KINDS["Parameter"]()
    met = set()
    for name in NAMES:
        for arguments in ARGUMENTS:
            graph = lm.Graph("g")
            with lm.recording(graph):
                use = attribute(name, arguments, graph.tensor((2, 3)))
                ours, theirs = outcome(use, held), outcome(use, graph.read(held))
            if name == "pinverse" and "held" in map(str, arguments):
                continue  # as a tolerance
            both_sink = name in ("output", "retrieve", "keep") and theirs is None
            if name not in ITS_OWN and not both_sink:
                own = name == "cpu" or (name == "data" and "Detach" in str(ours))
                assert ours == theirs or own, (name, arguments, ours, theirs)
            if theirs is not None:
                met.add(name)
    assert len(met) > 330
    assert {"T", "mT", "expand", "__getitem__", "__rsub__", "__len__", "__divmod__"} <= met


FUNCTIONS: list[tuple[Any, ...]] = [
    ("held",), ("x", "held"), ("held", "x"), ("held", "held"), ("held", 1), ("held", 0, 1),
    (["held", "x"],), ("mask", "held", "x"), ("held", (3, 2)), ("held", "flipped"),
    ("x", "row", "held"), ("row", "held"),
]  # fmt: skip
NO_FUNCTIONS_OF_VALUES = {"assign", "read", "to_dlpack", "from_dlpack", "recording"}


def functions() -> dict[str, FunctionType]:
    """Of `lm` and `nn.functional`, those that give Tensors."""
    spaces = {"lm": lm, "F": nn.functional}
    return {
        f"{space}.{name}": function
        for space, owner in spaces.items()
        for name, function in vars(owner).items()
        if isinstance(function, FunctionType) and not name.startswith("_")
        if name not in NO_FUNCTIONS_OF_VALUES and "custom_vjp" not in name
    }


@pytest.mark.long
def test_functions_take_them() -> None:
    held = KINDS["State"]()
    met = set()
    for name, function in functions().items():
        for arguments in FUNCTIONS:
            graph = lm.Graph("g")
            with lm.recording(graph), warnings.catch_warnings(action="ignore"):
                x = graph.tensor((2, 3))

                def use(held: Any, arguments: Any = arguments, x: Any = x) -> Any:
                    return function(*filled(arguments, held, x))  # noqa: B023

                theirs = outcome(use, graph.read(held))
                if theirs is not None and "function" not in theirs[0]:
                    assert outcome(use, held) == theirs, (name, arguments)
                    met.add(name)
    assert len(met) > 350


class Token(nn.Module):
    """What ports of vision transformers write: no operand beside the Parameters is a Tensor."""

    def __init__(self) -> None:
        self.token = nn.Parameter(VALUE[None, :1])
        self.places = nn.Parameter(np.arange(30, dtype=np.float32).reshape(1, 10, 3))
        self.register_buffer("mask", np.eye(10, dtype=np.float32))

    def forward(self, x: lm.Tensor) -> lm.Tensor:
        b, n, _ = x.shape
        x = lm.cat([self.token.expand(b, -1, -1), x], dim=1)
        ids = lm.arange(n + 1)  # of the graph of x, too
        x = x + self.places[:, : n + 1] + self.places[0, ids] * 0
        return self.mask[: n + 1, : n + 1] @ x @ self.places.mT.detach()


def test_a_forward_with_subscripts_of_parameters() -> None:
    model, x = Token(), np.ones((2, 4, 3), np.float32)
    places = model.places.numpy()
    wanted = np.concatenate([np.broadcast_to(VALUE[None, :1], (2, 1, 3)), x], 1) + places[:, :5]
    wanted = wanted @ places.swapaxes(1, 2)
    close_each(lm.jit(model)(x), wanted)
    graph = lm.Graph()
    loss = model(graph.tensor((2, 4, 3), name="x")).sum()
    by_places = lm.grad(loss, [model.places])[0].output("gradient")
    assert by_places.shape == (1, 10, 3)
    found = lm.compile(graph)({"x": x})["gradient"]
    assert found[:, :5].all()
    assert not found[:, 5:].any()  # the detached use adds nothing


def test_in_the_function_of_a_scan() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            self.w = nn.Parameter(VALUE[:, :2])

        def forward(self, h: lm.Tensor, x: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
            h = h @ self.w.T + x * self.w[0] + lm.arange(2)
            return h, h

    cell, xs = Cell(), np.ones((3, 2), np.float32)
    made = lm.jit(lambda xs: lm.scan(cell, lm.zeros(2), xs)[1])
    h = np.zeros(2, np.float32)
    for found in made(xs):
        h = h @ VALUE[:, :2].T + VALUE[0, :2] + np.arange(2)
        close_each(found, h)


@pytest.mark.parametrize("kind", KINDS)
def test_outside_of_a_graph_they_are_arrays(kind: str) -> None:
    held = KINDS[kind]()
    assert held.detach() is held
    assert held.data is held
    assert held.to("cpu") is held
    assert bool(held)
    assert held == held and held != 1  # noqa: PT018
    np.testing.assert_array_equal(np.exp(held), np.exp(VALUE))
    np.testing.assert_array_equal(VALUE - held, 0 * VALUE)
    np.testing.assert_array_equal(np.concatenate([held, held]), np.concatenate([VALUE, VALUE]))
    for use in (lambda p: p[:1], lambda p: p + 1, lambda p: -p, lambda p: p.T, lambda p: 1 - p):
        np.testing.assert_array_equal(use(held).numpy(), use(VALUE))
    assert len(held) == len(VALUE)
    with pytest.raises(AttributeError, match=r"has no 'relo': .*cx\.read\("):
        held.relo()
    same = held
    held += 1
    held.mul_(2).clamp_(max=3)
    assert held is same
    np.testing.assert_array_equal(held.numpy(), np.minimum((VALUE + 1) * 2, 3))
    held.copy_(VALUE)
    with pytest.raises(AttributeError, match=r"write p\.set\(array\)"):
        held.cauchy_()
    lm.manual_seed(0)
    assert np.abs(held.normal_(5.0, 0.1).numpy() - 5).max() < 1
    assert 2 <= held.uniform_(2, 3).numpy().min() <= held.numpy().max() < 3
    with pytest.raises(TypeError, match=r"is set as a whole: x\.set\(array\)"):
        held[0] = 1


def test_while_recording_they_are_copied_and_compared_as_ever() -> None:
    first, second = KINDS["Parameter"](), KINDS["State"]()
    with lm.recording(lm.Graph()):
        assert isinstance(copy.deepcopy(first), nn.Parameter)
        assert isinstance(pickle.loads(pickle.dumps(second)), lm.State)
        assert second in [first, second]
        assert {first: 1, second: 2}[second] == 2
        assert types(first == 0.5) == types(first.abs() == 0.5)
