"""Products of packed weights with activations in bytes: what NumPy computes of the same bytes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.special

import luminal as lm
from luminal.backends import registry
from luminal.base.dots import UINT8_BY_INT8
from luminal.base.errors import DTypeError
from luminal.compiler.compile import lower_by_stages
from luminal.kernel.tile_ir import Contract
from luminal.loaders.ggml.packed import RECORDED, packed
from luminal.nn.quantization import KINDS
from luminal.program.buffers import BufferKind
from tests.long_share import long_but, long_rows, mostly_long
from tests.numerics.byte_products import Array, in_bytes, recorded, some
from tests.numerics.packed_blocks import blocks_of, values_of


@pytest.mark.parametrize(
    ("kind", "rows"),
    long_rows(
        itertools.product(RECORDED, (1, 3, 40)),
        [*zip(RECORDED, itertools.cycle((1, 3, 40)))][::2],
    ),
)
def test_products_are_those_of_the_bytes(kind: str, rows: int) -> None:
    blocks = blocks_of(kind, 77, 1024)
    x = some(rows, 1024)
    want = in_bytes(x) @ values_of(kind, blocks).T.astype(np.float64)
    cx = recorded(packed(blocks), x.shape)
    for backend in ("cpu", "reference"):
        found = np.asarray(lm.compile(cx, backend=backend)({"x": x})["y"])
        # K kinds take least values off again: what is left is as exact as what it was taken from.
        size = in_bytes(np.abs(x)) @ np.abs(values_of(kind, blocks)).T.astype(np.float64)
        np.testing.assert_array_less(np.abs(found - want), 1e-5 * size + 1e-30)


@pytest.mark.parametrize("kind", long_but(KINDS, ("q8_0", "q4_0")))
def test_layers_take_any_shape(kind: str) -> None:
    lm.manual_seed(1)
    layer = lm.nn.Linear(256, 70)
    lm.quantize(layer, kind)
    layer.computing("int8")
    values = layer.weight.numpy().T.astype(np.float64)
    cx = lm.Graph()
    layer(cx.tensor((2, cx.dim("n", 1, 9), 256), name="x")).output("y")
    exe = lm.compile(cx)
    for length in (1, 6):
        x = some(2, length, 256)
        want = in_bytes(x) @ values + layer.bias.numpy()
        # sums of up to 1,024 terms of float32 in another order: 80 ulp of the largest
        np.testing.assert_allclose(
            exe({"x": x})["y"], want, rtol=1e-5, atol=1e-5 * np.abs(want).max()
        )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_so(value: float) -> None:
    x = some(3, 256)
    x[1, 100] = value
    exe = lm.compile(recorded(packed(blocks_of("Q8_0", 8, 256)), x.shape))
    assert np.isfinite(np.asarray(exe({"x": x})["y"])).all(-1).tolist() == [True, False, True]


@pytest.mark.parametrize("rows", mostly_long([1, 40], 1))
@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        ("Q8_0", 8.5),
        ("Q4_0", 4.5),
        ("Q4_1", 5),
        ("Q5_1", 9),
        ("Q2_K", 3.2),
        ("Q3_K", 3.6),
        ("Q4_K", 4.9),
        ("Q5_K", 5.9),
        ("Q6_K", 6.6),
    ],
)
def test_sums_of_dots_are_one_kernel(kind: str, bits: float, rows: int) -> None:
    """Bytes are read from memory and multiplied four at a time; no sums of blocks are stored.
    Codes of few bits and scales that are integers lie in the bytes of the format, `bits` in all.
    """
    weight = packed(blocks_of(kind, 96, 2048))
    cx = recorded(weight, (rows, 2048))
    backend = registry.compiling("cpu")
    program = lower_by_stages(cx.graph(), backend).program
    found = [s.dot for k in program.kernels for s in k.statements() if isinstance(s, Contract)]
    if UINT8_BY_INT8 in backend.target.dots:
        assert UINT8_BY_INT8 in found
    exe = lm.compile(cx)
    exe({"x": some(rows, 2048)})
    report = exe.memory_report()
    assert report.arena_bytes <= rows * (2048 + 4 * 2048 // 8 + 4 * 96) + 4096
    assert 0 < report.derived_bytes <= 96 * 2048 * bits / 8
    read = {b for k in program.launches for b, _ in program.accesses(k)}
    weights = {b.id for b in program.buffers if b.kind is BufferKind.WEIGHT}
    assert not read & weights  # as they lie in the file, scales would be a line of memory each


def test_who_takes_bytes_is_chosen() -> None:
    lm.manual_seed(0)
    model = lm.nn.Sequential(lm.nn.Linear(64, 32), lm.nn.Linear(32, 32))
    lm.quantize(model, "q8_0", skip=["1.weight"])
    with pytest.raises(DTypeError, match="compute_dtype: bool is not known"):
        model.computing("bool")
    x = some(5, 64)

    def computed() -> Array:
        cx = lm.Graph()
        model(cx.tensor(x.shape, name="x")).output("y")
        return np.asarray(lm.compile(cx)({"x": x})["y"])

    floats, in_8_bits = computed(), in_bytes(x) @ model[0].weight.numpy().T.astype(np.float64)
    model.computing("int8")
    first = in_8_bits + model[0].bias.numpy()
    want = first @ model[1].weight.numpy().T.astype(np.float64) + model[1].bias.numpy()
    # sums of up to 1,024 terms of float32 in another order: 80 ulp of the largest
    np.testing.assert_allclose(computed(), want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
    assert np.abs(floats - want).max() > 1e-4 * np.abs(want).max()


def test_rows_of_no_whole_blocks_are_decoded() -> None:
    lm.manual_seed(0)
    layer = lm.nn.Linear(40, 8, bias=False)
    lm.quantize(layer, "int8")
    layer.computing(lm.int8)
    x = some(5, 40)
    cx = lm.Graph()
    layer(cx.tensor(x.shape, name="x")).output("y")
    want = x.astype(np.float64) @ layer.weight.numpy().T
    # sums of up to 1,024 terms of float32 in another order: 80 ulp of the largest
    np.testing.assert_allclose(
        lm.compile(cx)({"x": x})["y"], want, rtol=1e-5, atol=1e-5 * np.abs(want).max()
    )


@pytest.mark.parametrize("kind", ["q8_0", "q4_1", "int4"])
def test_gradients_pass_over_the_rounding(kind: str) -> None:
    """Whose own are zero: what is trained below a packed matrix would learn nothing."""
    lm.manual_seed(0)
    layer = lm.nn.Linear(64, 8)
    lm.quantize(layer, kind)
    layer.computing("int8")
    found = lm.grad(lambda x: layer(x).sum())(lm.tensor(some(3, 64)))
    want = np.broadcast_to(layer.weight.numpy().sum(0), (3, 64))
    # sums of up to 1,024 terms of float32 in another order: 80 ulp of the largest
    np.testing.assert_allclose(np.asarray(found), want, rtol=1e-5, atol=1e-5)


def _normed(y: Any) -> Any:
    return y * ((y * y).mean(-1, keepdims=True) + 1e-5) ** -0.5


def _log_sum_exp(y: Any) -> Any:
    return y.logsumexp(-1) if isinstance(y, lm.Tensor) else scipy.special.logsumexp(y, -1)


CONSUMERS: dict[str, Any] = {
    "norm": _normed,
    "residual and norm": lambda y: (y + 1, _normed(y + 1)),
    "sum of columns": lambda y: (y * y).sum(-1),
    "sum of rows": lambda y: (y * y + y).sum(0),
    "two sums": lambda y: (y.sum(-1), (y * 2).sum(-1)),
    "sum and itself": lambda y: (y.sum(-1), y),
    "mean beside": lambda y: y - y.mean(-1, keepdims=True),
    "all": lambda y: (y * y).sum(),
    "log-sum-exp": lambda y: _log_sum_exp(y),
    "greatest": lambda y: y.argmax(-1),
    "sum of rows alone": lambda y: y.sum(0),
}


@pytest.mark.parametrize("rows", long_but([5, "n"], ("n",)))
@pytest.mark.parametrize("length", mostly_long([32, 96], 1))
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_sums_over_products_of_bytes_leave_them_whole(
    consumer: str, length: int, rows: int | str
) -> None:
    """A sum whose steps are products, and of which others read the products too: with one block
    to a row the product is itself a contraction of integers, scaled.
    """
    rng = np.random.default_rng(3)
    weight = packed(blocks_of("Q8_0", 48, length))
    x = rng.standard_normal((5, length)).astype(np.float32)
    cx = lm.Graph()
    found = CONSUMERS[consumer](weight.product(cx.tensor((rows, length), name="x")))
    for k, each in enumerate(found if isinstance(found, tuple) else (found,)):
        each.output(f"y{k}")
    wide = CONSUMERS[consumer](in_bytes(x) @ weight.numpy().T.astype(np.float64))
    outputs = lm.compile(cx)({"x": x})
    for k, want in enumerate(wide if isinstance(wide, tuple) else (wide,)):
        close = 2e-5 * np.abs(want).max()
        # twice what the products lose in float32, 1e-5 of the largest
        np.testing.assert_allclose(np.asarray(outputs[f"y{k}"]), want, rtol=2e-5, atol=close)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("outputs", [1, 2, 7])
def test_few_outputs_of_many_blocks(outputs: int, rows: int) -> None:
    """Lanes take blocks: what is summed of each stands inside them, and has none of its own."""
    blocks = blocks_of("Q8_0", outputs, 768)
    x = some(rows, 768)
    size = in_bytes(np.abs(x)) @ np.abs(values_of("Q8_0", blocks)).T.astype(np.float64)
    want = in_bytes(x) @ values_of("Q8_0", blocks).T.astype(np.float64)
    found = np.asarray(lm.compile(recorded(packed(blocks), x.shape))({"x": x})["y"])
    np.testing.assert_array_less(np.abs(found - want), 1e-5 * size + 1e-30)


def test_strips_hold_the_dtype_of_their_factor() -> None:
    """The factor of signed bytes is packed, beside codes that lie in panels."""
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (8, 8, 4), np.int8)
    scale, of_x = (rng.random(shape).astype(np.float32) for shape in ((33, 8), (8, 8)))
    codes = rng.integers(0, 256, (33, 8, 4), np.uint8)
    cx = lm.Graph()
    c = cx.weight(codes.shape, "uint8", "codes").cast("int32").permute(1, 2, 0)
    dots = (cx.tensor(x.shape, "int8", "x").cast("int32").unsqueeze(-2) @ c).squeeze(-2)
    steps = dots.cast("float32") * cx.tensor(of_x.shape, name="of_x").unsqueeze(-1)
    (steps * cx.tensor(scale.shape, name="scale").mT).sum(1).output("y")
    exe = lm.compile(cx)
    exe.set({"codes": codes})
    found = np.asarray(exe({"x": x, "of_x": of_x, "scale": scale})["y"])
    want = np.einsum("mgk,rgk,rg,mg->mr", *map(np.float64, (x, codes, scale, of_x)))
    # sums of up to 1,024 terms of float32 in another order: 80 ulp of the largest
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5 * np.abs(want).max())
