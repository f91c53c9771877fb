"""Parameters whose rows lie in another order: whatever is asked of one, it is as the others are."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import GraphError, LoadError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array
from luminal.frontend.matrices.packed import Packed, read_only
from luminal.frontend.tensor import Tensor
from luminal.loaders.ggml.packed import packed
from luminal.loaders.ggml.quantize import quantized
from luminal.memory.row_order import Interleaved, StoredRows
from luminal.nn.init import DrawnParameter
from luminal.nn.linear import Linear
from tests.close import close
from tests.long_share import long_rows

HEADS, ROWS, COLUMNS = 3, 24, 5
ORDER = Interleaved(HEADS)


def values(seed: int, dtype: type = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype(dtype)


def layers(value: Array) -> tuple[Linear, Linear]:
    """Two of the same value, of which the second's rows lie interleaved."""
    plain, other = (Linear(COLUMNS, ROWS, bias=False) for _ in range(2))
    plain.load_state_dict({"weight": value}, adopt_dtypes=True)
    rows = read_only(ORDER.rows(value))
    other.load_state_dict({"weight": StoredRows(rows, ORDER)}, adopt_dtypes=True)
    assert np.shares_memory(other.weight.memory, rows)
    return plain, other


def test_pairs_of_each_head() -> None:
    rows = np.arange(12)[:, None]
    assert Interleaved(2).value(rows).ravel().tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    np.testing.assert_array_equal(ORDER.value(ORDER.rows(values(0))), values(0))
    held = StoredRows(ORDER.rows(values(0)), ORDER)
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
    rows = StoredRows(ORDER.rows(values(1)), ORDER)
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


WIDE = 256  # of all types a row is whole blocks
PACKED = ("Q8_0", "Q4_0", "Q5_1", "Q6_K")


def packed_layers(kind: str, seed: int = 1) -> tuple[Linear, Linear]:
    """Two packed ones of the same value, of which the second's rows lie interleaved."""
    value = np.random.default_rng(seed).standard_normal((ROWS, WIDE)).astype(np.float32)
    plain, other = (Linear(WIDE, ROWS, bias=False) for _ in range(2))
    blocks = quantized("w", value, kind).reshape(ROWS, -1)
    plain.load_state_dict({"weight": packed(blocks, "w")})
    rows = read_only(ORDER.rows(blocks))
    other.load_state_dict({"weight": packed(StoredRows(rows, ORDER), "w")})
    assert isinstance(other.weight, Packed)
    assert all(np.shares_memory(part.memory, rows) for part in other.weight.parts.values())
    return plain, other


def same_bytes(one: Linear, other: Linear) -> None:
    np.testing.assert_array_equal(other.weight.numpy(), one.weight.numpy())
    states = one.state_dict(), other.state_dict()
    assert states[0].keys() == states[1].keys()
    for name, array in states[0].items():
        np.testing.assert_array_equal(states[1][name], array)


@pytest.mark.parametrize(
    ("kind", "computing"),
    long_rows(
        [(kind, how) for how in (None, "int8", "bfloat16") for kind in PACKED],
        [
            *((kind, None) for kind in PACKED),
            ("Q4_0", "int8"),
            ("Q6_K", "int8"),
            ("Q8_0", "bfloat16"),
        ],
    ),
)
def test_packed_rows_are_read_where_they_lie(kind: str, computing: str | None) -> None:
    layers = packed_layers(kind)
    same_bytes(*layers)
    for rows in (1, 7, 40):
        x = np.random.default_rng(rows).standard_normal((rows, WIDE)).astype(np.float32)
        found = [lm.jit(each.computing(computing))(x) for each in layers]
        # rows in another order: the same sums by other kernels, terms of which cancel
        np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)
        assert abs(found[0] - x @ layers[0].weight.numpy().T).max() < 0.5

    def gradient(layer: Linear) -> Array:
        return lm.jit(lambda x: lm.grad((layer(x) ** 2).sum(), x))(x)

    close(*map(gradient, layers))


@pytest.mark.parametrize(
    "again",
    [
        copy.copy,
        copy.deepcopy,
        lambda layer: pickle.loads(pickle.dumps(layer)),
        lambda layer: layer.to("bfloat16"),
        lambda layer: layer.to(device="cpu"),
    ],
)
def test_packed_rows_are_copied_and_set(again: Callable[[Linear], Linear]) -> None:
    plain, other = map(again, packed_layers("Q4_0"))
    same_bytes(plain, other)
    x = np.random.default_rng(4).standard_normal((7, WIDE)).astype(np.float32)
    run = lm.jit(other)
    run(x)
    third, fourth = packed_layers("Q4_0", 2)
    for source in (third, fourth):
        other.load_state_dict(packed_layers("Q4_0", 3)[0].state_dict())
        other.load_state_dict(source.state_dict())
        same_bytes(again(third), other)
        # rows in another order: the same sums by other kernels, terms of which cancel
        np.testing.assert_allclose(run(x), lm.jit(again(third))(x), rtol=1e-5, atol=1e-5)
    short = {name: array[1:] for name, array in third.state_dict().items()}
    with pytest.raises(LoadError, match="expected uint8"):
        other.load_state_dict(short)
    same_bytes(again(third), other)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_programs_read_its_value(dtype: type, backend: str) -> None:
    x = np.random.default_rng(4).standard_normal((7, COLUMNS)).astype(np.float32)
    plain, other = layers(values(1, dtype))
    want, found = (lm.jit(each, backend=backend)(x) for each in (plain, other))
    # rows in another order: the same sums by other kernels, terms of which cancel
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
        # rows in another order: the same sums by other kernels, terms of which cancel
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
    close(run(x), (x @ values(1).T).sum(0))
