"""Parameters whose rows lie in another order: whatever is asked of one, it is as the others are."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.errors import GraphError, LoadError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array
from luminal.frontend.packed import read_only
from luminal.frontend.tensor import Tensor
from luminal.hlir.row_order import Interleaved, Rows
from luminal.nn.init import DrawnParameter
from luminal.nn.linear import Linear

HEADS, ROWS, COLUMNS = 3, 24, 5
ORDER = Interleaved(HEADS)


def values(seed: int, dtype: type = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype(dtype)


def layers(value: Array) -> tuple[Linear, Linear]:
    """Two of the same value, of which the second's rows lie interleaved."""
    plain, other = (Linear(COLUMNS, ROWS, bias=False) for _ in range(2))
    plain.load_state_dict({"weight": value}, adopt_dtypes=True)
    rows = read_only(ORDER.rows(value))
    other.load_state_dict({"weight": Rows(rows, ORDER)}, adopt_dtypes=True)
    assert np.shares_memory(other.weight.memory, rows)
    return plain, other


def test_pairs_of_each_head() -> None:
    rows = np.arange(12)[:, None]
    assert Interleaved(2).value(rows).ravel().tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    np.testing.assert_array_equal(ORDER.value(ORDER.rows(values(0))), values(0))
    held = Rows(ORDER.rows(values(0)), ORDER)
    np.testing.assert_array_equal(np.asarray(held), values(0))
    assert (held.shape, held.ndim, held.dtype) == ((ROWS, COLUMNS), 2, np.float32)
    with pytest.raises(ValueError, match="only as a copy"):
        np.asarray(held, copy=False)


@pytest.mark.parametrize(
    "again",
    [
        lambda layer: layer,
        copy.copy,
        copy.deepcopy,
        lambda layer: pickle.loads(pickle.dumps(layer)),
        lambda layer: layer.to("float64").to("float32"),
        lambda layer: layer.to(device="cpu"),
    ],
)
def test_the_value_is_that_of_a_file_of_another_order(again: Callable[[Linear], Linear]) -> None:
    layer = again(layers(values(1))[1])
    np.testing.assert_array_equal(layer.weight.numpy(), values(1))
    np.testing.assert_array_equal(np.asarray(layer.weight), values(1))
    np.testing.assert_array_equal(np.from_dlpack(layer.weight), values(1))
    np.testing.assert_array_equal(layer.state_dict()["weight"], values(1))
    layer.weight.set(values(2))
    np.testing.assert_array_equal(layer.weight.numpy(), values(2))
    layer.load_state_dict({"weight": values(3)})
    x = np.eye(COLUMNS, dtype=np.float32)
    np.testing.assert_array_equal(lm.jit(layer)(x), values(3).T)
    with pytest.raises(ShapeError, match="expected shape"):
        layer.weight.set(values(2)[1:])
    np.testing.assert_array_equal(layer.weight.numpy(), values(3))


def test_other_modules_take_a_copy_in_the_usual_order() -> None:
    rows = Rows(ORDER.rows(values(1)), ORDER)
    layer = Linear(COLUMNS, ROWS, bias=False)
    layer.load_state_dict({"weight": rows})
    assert layer.weight.order is None
    np.testing.assert_array_equal(layer.weight.numpy(), values(1))
    with pytest.raises(LoadError, match="expected shape"):
        Linear(COLUMNS, ROWS + 1, bias=False).load_state_dict({"weight": rows}, adopt_dtypes=True)


def test_what_is_packed_is_its_value() -> None:
    for layer in layers(values(1)):
        lm.quantize(layer, "int8")
        found = layer.weight.numpy()
        np.testing.assert_allclose(found, values(1), atol=abs(values(1)).max() / 127)


def test_a_layer_draws_anew() -> None:
    both = layers(values(1))
    drawn = [each.initialize(7).weight.numpy() for each in both]
    np.testing.assert_array_equal(*drawn)
    assert isinstance(both[1].weight, DrawnParameter)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_programs_read_its_value(dtype: type, backend: str) -> None:
    x = np.random.default_rng(4).standard_normal((7, COLUMNS)).astype(np.float32)
    plain, other = layers(values(1, dtype))
    want, found = (lm.jit(each, backend=backend)(x) for each in (plain, other))
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("take", ["grad", "step"])
def test_gradients_are_of_its_value(take: str) -> None:
    x = np.random.default_rng(4).standard_normal((7, COLUMNS)).astype(np.float32)
    target = np.random.default_rng(5).standard_normal((7, ROWS)).astype(np.float32)

    def run(layer: Linear) -> list[Array]:
        adam = lm.optim.Adam(layer.parameters(), lr=0.1)

        @lm.jit
        def step(x: Tensor, target: Tensor) -> Tensor:
            loss = ((layer(x) - target) ** 2).sum() + (layer.read(layer.weight, x)[1] ** 3).sum()
            if take == "step":
                adam.step(loss)
                return x.graph.latest(layer.weight)
            return lm.grad(loss, layer.weight)

        found = [step(x, target) for _ in range(3)]
        return [*found, layer.weight.numpy(), copy.deepcopy(layer).weight.numpy()]

    for want, found in zip(*map(run, layers(values(1))), strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-5)


def test_a_tensor_that_reads_it_stands_for_it() -> None:
    layer = layers(values(1))[1]
    cx = Recorder()
    weight = cx.weight_of(layer.weight)
    cx.assign(weight, weight * 2)
    lm.compile(cx)()
    np.testing.assert_array_equal(layer.weight.numpy(), values(1) * 2)
    with pytest.raises(GraphError, match="does not read a State"):
        cx.assign(weight.mT, weight.mT)
    with pytest.raises(GraphError, match="make both types agree"):
        cx.assign(layers(values(1))[1].weight, weight.mT)


def test_a_scan_reads_its_value() -> None:
    layer = layers(values(1))[1]

    @lm.jit
    def run(x: Tensor) -> Tensor:
        def body(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            y = layer(row)
            return carry + y, y

        return lm.scan(body, x.graph.zeros(ROWS), x)[0]

    x = np.random.default_rng(4).standard_normal((7, COLUMNS)).astype(np.float32)
    np.testing.assert_allclose(run(x), (x @ values(1).T).sum(0), rtol=1e-5, atol=1e-5)
