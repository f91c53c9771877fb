"""Weights packed as floats of 8 and 4 bits: decoded as the formats are defined, anew here."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.nn.linear import Linear
from luminal.nn.packed_floats import PACKED
from tests.close import close
from tests.long_share import long_rows

Array = np.ndarray[Any, Any]
KINDS = [*PACKED]


def decoded_float8(bits: int, exponent_bits: int) -> float:
    """A code of a float with a sign, so many bits of exponent and the rest of mantissa."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << exponent_bits - 1) - 1
    exponent, mantissa = (bits & 127) >> mantissa_bits, bits & (1 << mantissa_bits) - 1
    share = mantissa / (1 << mantissa_bits)
    size = 2.0 ** (1 - bias) * share if exponent == 0 else 2.0 ** (exponent - bias) * (1 + share)
    return -size if bits & 128 else size


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def decoded_pairs(pairs: Array) -> Array:
    """Codes of e2m1, the first half of a block in the lower bits of its bytes."""
    codes = np.concatenate([pairs & 15, pairs >> 4], -1)
    return np.asarray(np.array([*E2M1, *(-v for v in E2M1)])[codes])


def by_definition(kind: str, data: dict[str, Array], shape: tuple[int, int]) -> Array:
    """The values of a packed weight, in float64."""
    arrays = {name.split(".")[1]: array for name, array in data.items()}
    if kind == "mxfp4":
        scales = 2.0 ** (arrays["scales"].astype(np.float64) - 127)
        return (decoded_pairs(arrays["codes"]) * scales[..., None]).reshape(shape)
    if kind == "mxfp8":
        e4m3 = np.array([decoded_float8(code, 4) for code in range(256)])
        scales = 2.0 ** (arrays["scales"].astype(np.float64) - 127)
        return e4m3[arrays["codes"].view(np.uint8)] * np.repeat(scales, 32, 1)
    if kind == "nvfp4":
        e4m3 = np.array([decoded_float8(code, 4) for code in range(256)])
        steps = e4m3[arrays["scales"].view(np.uint8)] * np.float64(arrays["scale"][0, 0])
        return (decoded_pairs(arrays["codes"]) * steps[..., None]).reshape(shape)
    table = np.array([decoded_float8(code, 4 if "e4m3" in kind else 5) for code in range(256)])
    values = table[arrays["codes"].view(np.uint8)]
    out = np.empty(shape)
    rows, columns = shape
    for i, j in itertools.product(range(rows), range(columns)):
        if kind.endswith("_tensor"):
            scale = arrays["scales"][0, 0]
        elif kind.endswith("_block"):
            scale = arrays["scales"][i // 128, j // 128]
        else:
            scale = arrays["scales"][i, 0]
        out[i, j] = values[i, j] * np.float64(scale)
    return out


def packed(kind: str, rows: int = 130, columns: int = 256) -> tuple[Linear, Array]:
    """A layer whose weight is packed, and the weight before."""
    lm.manual_seed(7)
    layer = Linear(columns, rows, bias=False)
    rng = np.random.default_rng(3)
    values = rng.standard_normal((rows, columns)) * 2.0 ** rng.integers(-9, 9, (rows, 1))
    values[5] = 0
    layer.weight.set(values.astype(np.float32))
    lm.quantize(layer, kind)
    return layer, values


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_definition(kind: str) -> None:
    layer, _ = packed(kind)
    want = by_definition(kind, layer.weight.data_dict, (130, 256))
    # The scale of NVFP4 is a product, which is rounded before it is multiplied.
    rtol = 2.0**-23 if kind == "nvfp4" else 0
    np.testing.assert_allclose(layer.weight.numpy(), want.astype(np.float32), rtol=rtol, atol=0)
    assert (layer.weight.numpy()[5] == 0).all()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("kind", KINDS)
def test_programs_decode_the_same_bits(kind: str, backend: str) -> None:
    layer, _ = packed(kind)
    cx = lm.Graph()
    (cx.weight_of(layer.weight) * 1).output("w")
    found = lm.compile(cx, backend=backend)({})["w"]
    np.testing.assert_array_equal(found, layer.weight.numpy())


PRODUCTS = [(kind, rows) for kind in KINDS for rows in (1, 3, 40)]


@pytest.mark.parametrize(
    ("kind", "rows"), long_rows(PRODUCTS, [("float8_e4m3fn_block", 3), ("mxfp4", 1)])
)
def test_products_read_the_codes(kind: str, rows: int) -> None:
    layer, _ = packed(kind)
    x = np.random.default_rng(1).standard_normal((rows, 256)).astype(np.float32)
    cx = lm.Graph()
    layer(cx.tensor(x.shape, name="x")).output("y")
    exe = lm.compile(cx)
    close(exe({"x": x})["y"], x.astype(np.float64) @ layer.weight.numpy().T.astype("f8"), ulp=16)
    assert exe.memory_report().derived_bytes <= layer.weight.nbytes + 64


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_within_the_format(kind: str) -> None:
    """Half a step of the mantissa, of values that no scale makes subnormal."""
    layer, values = packed(kind)
    errors = np.abs(layer.weight.numpy().astype(np.float64) - values)
    if "float8" in kind:
        greatest = np.abs(values).max(1)[:, None]
        if kind.endswith(("_tensor", "_block")):  # no block has a greater one
            greatest = np.abs(values).max()
        share = 2.0**-4 if "e4m3" in kind else 2.0**-3
        normal = np.abs(values) > greatest * (2.0**-14 if "e4m3" in kind else 2.0**-29)
        limits = share * (1 + 1e-5) * np.abs(values)
    elif kind == "mxfp8":
        # A step is a 16th at most, of what is a normal number under a block's scale; a power of two
        # leaves up to 512 for what becomes 448.
        greatest = np.abs(values).reshape(130, -1, 32).max(-1).repeat(32, -1)
        normal = np.abs(values) > greatest * 2.0**-13
        limits = np.abs(values) * 0.125
    else:
        # Between 4 and 6 a step is 2; a power of two leaves up to 8 for what becomes 6, and a scale
        # of 4 bits is itself rounded by a 16th.
        size = 32 if kind == "mxfp4" else 16
        greatest = np.abs(values).reshape(130, -1, size).max(-1).repeat(size, -1)
        normal = greatest > (0 if kind == "mxfp4" else np.abs(values).max() * 2.0**-14)
        limits = greatest * (0.25 + 1e-6)
    assert normal.mean() > 0.5
    assert (errors <= limits)[normal].all()


def test_a_packed_layer_is_saved_and_loaded() -> None:
    for kind in ("float8_e4m3fn_block", "nvfp4"):
        (layer, _), (other, _) = packed(kind), packed(kind)
        state = layer.state_dict()
        assert {name.split(".")[1] for name in state} == {kind}
        other.load_state_dict(state)
        np.testing.assert_array_equal(other.weight.numpy(), layer.weight.numpy())
