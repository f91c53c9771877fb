"""Module: names, state_dict, loading and its errors, one Weight per Parameter and graph."""

from __future__ import annotations

import contextlib
import pickle
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.base.errors import DTypeError, LoadError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from tests.long_share import long_but


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU())])
        self.norm = nn.BatchNorm1d(4)
        self.scale = Parameter((4,))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) * self.read(self.scale, x)


NAMES = [
    "scale", "first.weight", "first.bias", "blocks.0.0.weight", "norm.weight", "norm.bias",
]  # fmt: skip
BUFFERS = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]


def values(net: nn.Module) -> dict[str, np.ndarray]:
    held = [*net.named_parameters(), *net.named_buffers()]
    return {name: np.ones(each.shape, each.dtype.numpy) for name, each in held}


def test_paths_are_those_of_pytorch() -> None:
    net = Net()
    assert sorted(name for name, _ in net.named_parameters()) == sorted(NAMES)
    assert len(net.parameters()) == len(NAMES)
    assert [name for name, _ in net.named_buffers()] == BUFFERS
    assert [name for name, _ in net.named_modules()][:3] == ["", "first", "blocks"]


def test_load_and_state_dict() -> None:
    net = Net()
    state = values(net) | {"norm.num_batches_tracked": np.int64(3)}
    net.load_state_dict(state)
    assert sorted(net.state_dict()) == sorted(NAMES + BUFFERS)
    assert net.norm.num_batches_tracked.numpy() == 3
    del state["norm.num_batches_tracked"]  # older checkpoints lack it
    net.load_state_dict(state)
    frozen = np.full((4,), 2, np.float32)
    frozen.flags.writeable = False
    net.load_state_dict(values(net) | {"scale": frozen})
    assert net.scale.memory is frozen
    with pytest.raises(ShapeError, match="no value yet"):
        Net().state_dict()


def test_errors_list_everything_and_change_nothing() -> None:
    net = Net()
    net.load_state_dict(values(net))
    state = {name: array * 2 for name, array in values(net).items()}
    state["scale"] = np.ones((5,), np.float32)
    state["extra"] = state.pop("first.bias")
    text = (
        "Net: the state_dict does not fit; missing: first.bias; unexpected: extra; "
        "scale: expected shape (4,), got (5,)"
    )
    with pytest.raises(LoadError, match=re.escape(text)):
        net.load_state_dict(state)
    assert net.first.weight.numpy().max() == 1
    del state["scale"]
    net.load_state_dict(state, strict=False)
    assert net.first.weight.numpy().max() == 2
    assert net.norm.running_mean.numpy().max() == 2
    lossy = values(net) | {"scale": np.full(4, 2**24 + 1)}
    with pytest.raises(LoadError, match="scale: expected float32, got int64"):
        net.load_state_dict(lossy)


def test_dtypes_are_adopted_on_request() -> None:
    net = nn.Linear(2, 2, bias=False)
    weight = np.ones((2, 2), ml_dtypes.bfloat16)
    net.load_state_dict({"weight": weight})
    assert net.weight.numpy().dtype == np.float32
    net.load_state_dict({"weight": weight}, adopt_dtypes=True)
    assert net.weight.dtype.name == "bfloat16"


def test_one_weight_per_parameter_and_graph() -> None:
    net, cx = Net().eval(), Recorder()
    x = cx.tensor((2, 3), name="x")
    first, second = net(x), net(x)
    assert first.value == second.value
    assert sorted(cx.leaves) == sorted([*NAMES, "x"])
    other = Recorder()
    net(other.tensor((2, 3), name="x"))
    assert sorted(other.leaves) == sorted([*NAMES, "x"])
    alone = Recorder()
    net.first(alone.tensor((2, 3), name="x"))
    assert sorted(alone.leaves) == ["bias", "weight", "x"]


def test_tied_parameters_have_one_weight() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids))

    net, cx = Tied(), Recorder()
    net(cx.tensor((2,), "int32", "ids"))
    assert list(cx.leaves) == ["ids", "embed.weight"]
    net.load_state_dict({"embed.weight": np.ones((5, 3), np.float32)})
    assert sorted(net.state_dict()) == ["embed.weight", "head.weight"]


def test_a_module_inside_scan() -> None:
    net, cx = nn.Linear(3, 3), Recorder()
    x = cx.tensor((4, 3), name="x")
    last, _ = scan(lambda h, row: (net(h + row), None), cx.zeros((3,)), x)
    assert last.value.node.op.name == "Loop"
    assert list(cx.leaves) == ["x", "weight", "bias"]


def test_forward_is_to_be_written() -> None:
    with pytest.raises(NotImplementedError, match=r"Module: has no forward, .*; write def forward"):
        nn.Module()(1)


def test_a_module_takes_tensors() -> None:
    with pytest.raises(
        DTypeError, match=r"Linear: takes Tensors, got a numpy\.ndarray; .*@lm\.jit"
    ):
        nn.Linear(3, 4)(np.zeros((2, 3), np.float32))


ARGUMENTS = (
    (), (4,), (4, 4), (4, 4, 3), (2, 4), (4, 2), (4, 8, 2), (2, 2, 3), ((4,),), (4, 4, 4),
    (4, 8, "relu2"), (4, 2, 2, 2), (1, (2, 2)),
)  # fmt: skip
MADE_OTHERWISE = {"Attention", "MoE"}  # of what models say: tests/models/test_modules.py


LAYERS = [
    each
    for name, each in vars(nn).items()
    if isinstance(each, type) and issubclass(each, nn.Module) and name not in MADE_OTHERWISE
]


@pytest.mark.parametrize(
    "kind",
    long_but(LAYERS, LAYERS[::4]),
)
def test_layers_are_pickled(kind: type[nn.Module]) -> None:
    made = []
    for arguments in ARGUMENTS:
        with contextlib.suppress(Exception):
            layer = kind(*arguments)
            layer.state_dict()
            made.append(layer)
    assert made, f"{kind.__name__}: none of ARGUMENTS makes one"
    for layer in made:
        again = pickle.loads(pickle.dumps(layer))
        assert repr(again) == repr(layer)
        state = again.state_dict()
        for name, held in layer.state_dict().items():
            np.testing.assert_array_equal(state[name], held, name)


def test_an_error_says_in_which_module_it_is_raised() -> None:
    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            self.up = nn.Linear(4, 8)
            self.down = nn.Linear(width, 4)

        def forward(self, x: Any) -> Any:
            return self.down(self.up(x).relu())

    model = nn.Sequential(nn.Identity(), Block(8), Block(9))
    with pytest.raises(
        lm.ShapeError, match=r" \(in 2\.down, a Linear of Sequential, at test"
    ) as caught:
        model(lm.ones((3, 4)))
    assert str(caught.value).count("(in ") == 1
    with pytest.raises(lm.ShapeError, match=r"\(in 2\.down, a Linear of Sequential, at test"):
        lm.jit(model)(np.ones((3, 4), np.float32))
    with pytest.raises(lm.ShapeError) as caught:
        nn.Linear(9, 4)(lm.ones((3, 4)))
    assert "(in " not in str(caught.value)


def test_parameters_take_another_float_dtype_and_no_integers() -> None:
    layer = nn.Linear(2, 3)
    assert layer.to(lm.float16).weight.dtype is lm.float16
    with pytest.raises(DTypeError, match="int32 is no float"):
        layer.to(lm.int32)


def test_a_layer_that_does_not_fit_says_what_would() -> None:
    layer = nn.Linear(3, 4)
    with pytest.raises(ShapeError, match=r"f32\[\] ends in nothing; give it what ends in 3$"):
        layer(lm.tensor(1.0))
    with pytest.raises(ShapeError, match=r"x: f32\[a, b\] ends in b; give it what ends in 3$"):
        layer(lm.Graph().tensor(("a", "b"), name="x"))
    with pytest.raises(ShapeError, match=r"normalized_shape is 2, 3, .*normalized_shape=3, 2"):
        nn.LayerNorm((2, 3))(lm.ones((3, 2)))


def test_parts_by_names_are_attributes() -> None:
    named = nn.ModuleDict({"a": nn.Linear(2, 3)})
    named.b = nn.Linear(3, 4)
    named.a = nn.Linear(5, 6)
    assert [*named.state_dict()] == ["a.weight", "a.bias", "b.weight", "b.bias"]
    assert named.a is named["a"]
    assert named.a.in_features == 5
    parameters = nn.ParameterDict()
    parameters.c = nn.Parameter(np.ones(2, np.float32))
    assert [*parameters.state_dict()] == ["c"]
    with pytest.raises(AttributeError, match="a ModuleDict has no attribute 'other'"):
        named.other  # noqa: B018
