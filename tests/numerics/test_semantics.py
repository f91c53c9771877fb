"""The NumPy meaning of every op against an independent evaluation, scalar by scalar."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.hlir.attributes import (
    AxisAttrs,
    CastAttrs,
    GatherAttrs,
    IotaAttrs,
    ScanAttrs,
    ScatterAttrs,
    ViewAttrs,
)
from luminal.hlir.ops import FLOATS, INTEGERS, NUMBERS, OPS
from luminal.hlir.types import TensorType
from luminal.shape.expression import const, symbol
from luminal.shape.view import View, index

Array = np.ndarray[Any, Any]
Scalar = Callable[..., Any]


def run(name: str, *args: Array, attrs: Any = None, dims: dict[str, int] | None = None) -> Array:
    """The only result of op `name`."""
    meaning = OPS[name].evaluate
    assert meaning is not None
    (result,) = meaning(attrs, dims or {}, args)
    return result


def same(found: Array, expected: Array) -> None:
    """The same dtype, shape and values; NaN equals NaN and the sign of a zero counts."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if dtypes.dtype_of(found).is_float:
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        number = ~np.isnan(found)
        np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))
    np.testing.assert_array_equal(found, expected)


# --- integers -------------------------------------------------------------------------------------


def edges(dtype: DType) -> list[int]:
    lo, hi = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    values = {lo, lo + 1, hi, hi - 1, 0, 1, 2, 3, 7, 8, 31, 63, 64, 100}
    return sorted(values | ({-1, -2, -7, -100} if dtype.is_signed else set()))


def wrap(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def shift_right(a: int, n: int, bits: int) -> int:
    return a >> n if 0 <= n < bits else -int(a < 0)


INTEGER_OPS: dict[str, Callable[[int, int, int], int]] = {
    "Add": lambda a, b, bits: a + b,
    "Mul": lambda a, b, bits: a * b,
    "FloorDiv": lambda a, b, bits: a // b if b else 0,
    "Mod": lambda a, b, bits: a % b if b else 0,
    "Maximum": lambda a, b, bits: max(a, b),
    "And": lambda a, b, bits: a & b,
    "Or": lambda a, b, bits: a | b,
    "Xor": lambda a, b, bits: a ^ b,
    "Shl": lambda a, b, bits: a << b if 0 <= b < bits else 0,
    "Shr": shift_right,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", INTEGER_OPS)
def test_integer_ops_are_python_s_wrapped(name: str, dtype: DType) -> None:
    pairs = list(product(edges(dtype), repeat=2))
    a, b = (np.array(column, dtype.numpy) for column in zip(*pairs, strict=True))
    expected = [wrap(INTEGER_OPS[name](x, y, dtype.bits), dtype) for x, y in pairs]
    same(run(name, a, b), np.array(expected, dtype.numpy))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_comparisons(dtype: DType) -> None:
    values = [-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan]
    numbers: list[Any] = values if dtype.is_float else edges(dtype)
    pairs = list(product(numbers, repeat=2))
    a, b = (np.array(column, dtype.numpy) for column in zip(*pairs, strict=True))
    same(run("LessThan", a, b), np.array([x < y for x, y in pairs]))
    same(run("Equal", a, b), np.array([x == y for x, y in pairs]))


@pytest.mark.parametrize("name", ["And", "Or", "Xor"])
def test_bools_have_bitwise_ops(name: str) -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    expected = [bool(INTEGER_OPS[name](int(x), int(y), 1)) for x, y in zip(a, b, strict=True)]
    same(run(name, a, b), np.array(expected))


# --- floats ---------------------------------------------------------------------------------------

SPECIAL = [
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    3e38,
    1e-40,
    -1e-45,
    5.0,
    1e308,
]


def maximum(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if a == b == 0:
        return 0.0 if math.copysign(1, a) > 0 or math.copysign(1, b) > 0 else -0.0
    return max(a, b)


def divide(a: float, b: float) -> float:
    if b != 0 or math.isnan(b):
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)


def floor_divide(a: float, b: float) -> float:
    return float(np.floor_divide(a, b))


def remainder(a: float, b: float) -> float:
    return float(np.remainder(a, b))


FLOAT_OPS: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Div": divide,
    "Maximum": maximum,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", FLOAT_OPS)
def test_float_ops_round_once(name: str, dtype: DType) -> None:
    with np.errstate(over="ignore"):
        values = np.array(SPECIAL, dtype.numpy)
    pairs = list(product(values, repeat=2))
    a, b = (np.array(column, dtype.numpy) for column in zip(*pairs, strict=True))
    # float64 carries more than twice the bits of float32, so rounding its result again is right
    with np.errstate(over="ignore"):
        exact = [FLOAT_OPS[name](float(x), float(y)) for x, y in pairs]
        same(run(name, a, b), np.array(exact, dtype.numpy))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_floor_div_and_mod_are_numpy_s(dtype: DType) -> None:
    a, b = np.meshgrid(
        *[np.array([-7.5, -6, -0.0, 0, 0.3, 6, math.inf, math.nan], dtype.numpy)] * 2
    )
    with np.errstate(all="ignore"):
        same(run("FloorDiv", a, b), np.floor_divide(a, b))
        same(run("Mod", a, b), np.remainder(a, b))


UNARY: dict[str, Callable[[float], float]] = {
    "Exp": math.exp,
    "Log": math.log,
    "Exp2": lambda x: 2.0**x,
    "Log2": math.log2,
    "Sin": math.sin,
    "Cos": math.cos,
    "Sqrt": math.sqrt,
    "Recip": lambda x: 1 / x,
    "Floor": math.floor,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary_floats(name: str, dtype: DType) -> None:
    x = np.array([1e-30, 0.3, 1.0, 2.5, 20.0, 80.0], dtype.numpy)
    expected = np.array([UNARY[name](float(v)) for v in x])
    found = run(name, x)
    assert found.dtype == dtype.numpy
    ulp = np.spacing(np.abs(expected.astype(dtype.numpy))).astype(np.float64)
    assert np.all(
        np.abs(found.astype(np.float64) - expected) <= (0.5001 if dtype.size == 4 else 1) * ulp
    )


def test_unary_floats_at_the_ends() -> None:
    x = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0], np.float32)
    nan, inf = math.nan, math.inf
    ends = {
        "Exp": [nan, inf, 0.0, 1.0, 1.0, math.exp(-1)],
        "Exp2": [nan, inf, 0.0, 1.0, 1.0, 0.5],
        "Log": [nan, inf, nan, -inf, -inf, nan],
        "Log2": [nan, inf, nan, -inf, -inf, nan],
        "Sin": [nan, nan, nan, 0.0, -0.0, math.sin(-1)],
        "Cos": [nan, nan, nan, 1.0, 1.0, math.cos(-1)],
        "Sqrt": [nan, inf, nan, 0.0, -0.0, nan],
        "Recip": [nan, 0.0, -0.0, inf, -inf, -1.0],
        "Floor": [nan, inf, -inf, 0.0, -0.0, -1.0],
    }
    for name, expected in ends.items():
        same(run(name, x), np.array(expected, np.float32))


# --- casts ----------------------------------------------------------------------------------------


def round_to(value: Any, dtype: DType) -> float:
    """The nearest value of a float dtype, ties to even, by exact rationals."""
    number = float(value) if isinstance(value, float) else value
    limits = ml_dtypes.finfo(dtype.numpy)
    beyond = float(limits.max) if dtype is dtypes.float8_e4m3fn else math.inf
    if isinstance(number, float) and not math.isfinite(number):
        return number if math.isnan(number) else math.copysign(beyond, number)
    exact = Fraction(number)
    if exact == 0:
        return float(number)
    digits = int(limits.nmant)
    exponent = math.floor(math.log2(abs(exact)))
    exponent += (abs(exact) >= Fraction(2) ** (exponent + 1)) - (
        abs(exact) < Fraction(2) ** exponent
    )
    unit = Fraction(2) ** (max(exponent, int(limits.minexp)) - digits)
    rounded = round(exact / unit) * unit  # Fraction rounds ties to even
    if abs(rounded) > Fraction(float(limits.max)):
        return math.copysign(beyond, rounded)
    return math.copysign(float(rounded), exact)


def cast_scalar(value: Any, dtype: DType) -> Any:
    if dtype.kind == "bool":
        return bool(value != 0)
    if dtype.is_float:
        return round_to(value, dtype)
    if isinstance(value, int):
        return wrap(value, dtype)
    if math.isnan(value):
        return 0
    lo, hi = int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max)
    return (
        min(max(math.trunc(value), lo), hi) if math.isfinite(value) else (hi if value > 0 else lo)
    )


def cast_operands(dtype: DType) -> list[Any]:
    if dtype.kind == "bool":
        return [False, True]
    if dtype.is_int:
        close = [2**24 + 1, 2**32 + 2**24 + 1, 2**53 + 1, 2**62 + 2**54, 2**62 + 2**54 + 1]
        close += [-each for each in close]
        limits = np.iinfo(dtype.numpy)
        return edges(dtype) + [c for c in close if limits.min <= c <= limits.max]
    wide = [
        0.1,
        -0.5,
        1.9,
        -1.9,
        255.5,
        1e5,
        1e30,
        -1e30,
        65519.9,
        65520,
        2.0**63,
        2.0**64,
        3.396e38,
    ]
    ties = [1 + 2**-8, 1 + 2**-8 + 2**-30, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 2**-24 + 2**-50, 2**-149]
    with np.errstate(over="ignore"):
        values = np.array([*SPECIAL, *wide, *ties, *(-t for t in ties)], dtype.numpy)
    return [float(v) for v in values]


@pytest.mark.parametrize("to", dtypes.ALL, ids=str)
@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
def test_cast_of_every_pair(source: DType, to: DType) -> None:
    values = cast_operands(source)
    found = run("Cast", np.array(values, source.numpy), attrs=CastAttrs(to))
    with np.errstate(over="ignore"):
        same(found, np.array([cast_scalar(v, to) for v in values], to.numpy))


def test_bitcast() -> None:
    x = np.array([1.0, -0.0, math.inf], np.float32)
    bits = run("Bitcast", x, attrs=CastAttrs(dtypes.uint32))
    same(bits, np.array([0x3F800000, 0x80000000, 0x7F800000], np.uint32))
    same(run("Bitcast", bits, attrs=CastAttrs(dtypes.float32)), x)
    same(
        run("Bitcast", np.uint8([0, 1, 2]), attrs=CastAttrs(dtypes.bool_)), np.array([0, 1, 1], "?")
    )
    same(
        run("Bitcast", np.array(1.0, np.float16), attrs=CastAttrs(dtypes.int16)),
        np.array(15360, "h"),
    )


# --- reductions and their kin ---------------------------------------------------------------------

SHAPES = [(3,), (2, 5), (0, 3), (3, 0), (2, 3, 1), (1, 1)]


def draw(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if not dtype.is_float:
        limits = np.iinfo(dtype.numpy)
        return rng.integers(limits.min, limits.max, shape, dtype.numpy, endpoint=True)
    pool = np.array([0.0, -0.0, 1.5, -2.25, 3.0, 1e-3, math.inf, -7.0], dtype.numpy)
    return rng.choice(pool, shape)


def rows(x: Array, axis: int) -> Array:
    return np.moveaxis(x, axis, -1)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sum_max_and_scans(shape: tuple[int, ...], dtype: DType) -> None:
    for axis in range(len(shape)):
        x = draw(shape, dtype)
        total, largest = (run(name, x, attrs=AxisAttrs(axis)) for name in ("Sum", "Max"))
        scans = {k: run("Scan", x, attrs=ScanAttrs(k, axis)) for k in ("add", "mul", "max")}
        for place in np.ndindex(total.shape):
            row = [v.item() for v in rows(x, axis)[place]]
            expected = fold(row, dtype)
            assert total[place].dtype == dtype.numpy
            same(total[place], np.array(expected["add"][-1] if row else 0, dtype.numpy))
            same(
                largest[place], np.array(expected["max"][-1] if row else dtype.lowest, dtype.numpy)
            )
            for kind, found in scans.items():
                same(rows(found, axis)[place], np.array(expected[kind], dtype.numpy))


def fold(row: list[Any], dtype: DType) -> dict[str, list[Any]]:
    """The inclusive scans of one row in Python."""
    steps: dict[str, Scalar] = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b}
    steps["max"] = maximum if dtype.is_float else max
    return {kind: list(accumulate(row, rounded(step, dtype))) for kind, step in steps.items()}


def rounded(step: Scalar, dtype: DType) -> Scalar:
    return step if dtype.is_float else lambda a, b: wrap(step(a, b), dtype)


def test_sum_rounds_once() -> None:
    x = np.array([1e8] + [1.0] * 16 + [-1e8], np.float32)
    assert run("Sum", x, attrs=AxisAttrs(0)) == 16.0
    assert np.isnan(run("Max", np.float32([1, math.nan, 2]), attrs=AxisAttrs(0)))
    same(run("Max", np.float32([-0.0, 0.0, -0.0]), attrs=AxisAttrs(0)), np.array(0.0, np.float32))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_sort_is_stable_with_nan_last(dtype: DType) -> None:
    values: list[Any] = [3, 1, 2, 1, 0, 3]
    if dtype.is_float:
        values = [math.nan, 0.0, -0.0, math.inf, -1.0, math.nan, -math.inf, 0.0]
    x = np.array(values, dtype.numpy)
    meaning = OPS["Sort"].evaluate
    assert meaning is not None
    found, order = meaning(AxisAttrs(0), {}, (x,))
    expected = sorted(
        range(len(values)),
        key=lambda k: (values[k] != values[k], values[k] == values[k] and values[k], k),
    )
    same(order, np.array(expected, np.int64))
    same(found, x[expected])


# --- memory, views, iota --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_gather_reads_0_out_of_range(dtype: DType) -> None:
    source = np.arange(1, 7).reshape(2, 3).astype(dtype.numpy)
    picks = np.array([-1, 0, 1, 2, 2**62], np.int64)
    shape = (const(5), const(4))
    attrs = GatherAttrs(shape, (0, index(1, const(4)) + 1))
    found = run("Gather", source, np.repeat(picks[:, None], 4, 1), attrs=attrs)
    expected = np.zeros((5, 4), dtype.numpy)
    for (i, j), _ in np.ndenumerate(expected):
        if 0 <= picks[i] < 2 and j + 1 < 3:
            expected[i, j] = source[picks[i], j + 1]
    same(found, expected)
    empty = run("Gather", source[:0], np.zeros((5, 4), np.uint8), attrs=attrs)
    same(empty, np.zeros((5, 4), dtype.numpy))


@pytest.mark.parametrize("mode", ["set", "add"])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_scatter_in_row_major_order(dtype: DType, mode: str) -> None:
    dest = np.arange(5).astype(dtype.numpy)
    source = np.array([[10, 20, 30], [40, 50, 60]], dtype.numpy)
    places = np.array([[1, 4, 1], [7, 4, -1]], np.int32)
    expected = dest.copy()
    for at in np.ndindex(2, 3):
        if 0 <= places[at] < 5:
            expected[places[at]] = source[at] + (expected[places[at]] if mode == "add" else 0)
    same(run("Scatter", dest, source, places, attrs=ScatterAttrs((0,), mode)), expected)


def test_scatter_of_a_region() -> None:
    past = symbol("past", 0, 8)
    attrs = ScatterAttrs((past + index(0, const(2)), index(1, const(3))), "set")
    dest, source = np.zeros((4, 3), np.float32), np.ones((2, 3), np.float32)
    for start in (0, 2, 3, 7):
        expected = dest.copy()
        expected[start : start + 2] = source[: max(4 - start, 0)]
        same(run("Scatter", dest, source, attrs=attrs, dims={"past": start}), expected)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_view_reads_0_outside_its_domain_and_its_source(dtype: DType) -> None:
    source = np.arange(1, 13).reshape(3, 4).astype(dtype.numpy)
    shape = (const(5), const(3), const(2))
    i, j, k = (index(n, extent) for n, extent in enumerate(shape))
    domain = (i >= 1) & (j + k < 3)
    found = run("View", source, attrs=ViewAttrs(View(shape, (i - 1, 2 * j - k), domain)))
    expected = np.zeros((5, 3, 2), dtype.numpy)
    for a, b, c in np.ndindex(5, 3, 2):
        if a >= 1 and b + c < 3 and a - 1 < 3 and 0 <= 2 * b - c < 4:
            expected[a, b, c] = source[a - 1, 2 * b - c]
    same(found, expected)


def test_view_of_a_permuted_array() -> None:
    source = np.arange(24, dtype=np.int32).reshape(2, 3, 4).transpose(2, 0, 1)
    shape = (const(3), const(5), const(4), const(2))
    i0, _, i2, i3 = (index(n, extent) for n, extent in enumerate(shape))
    found = run("View", source, attrs=ViewAttrs(View(shape, (3 - i2, i3, i0), const(1))))
    expected = np.broadcast_to(source[::-1].transpose(2, 0, 1)[:, None], (3, 5, 4, 2))
    same(found, expected)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_iota_wraps(dtype: DType) -> None:
    s = symbol("s", 1, 9)
    shape = (s, const(2))
    expr = 100 * index(0, s) - index(1, const(2))
    found = run("Iota", attrs=IotaAttrs(expr, shape, dtype), dims={"s": 5})
    values = [[cast_scalar(100 * i - j, dtype) for j in range(2)] for i in range(5)]
    same(found, np.array(values, dtype.numpy))


def test_zero_dimensional_operands_stay_arrays() -> None:
    one = np.array(1, np.int8)
    for name in ("Add", "Mul", "FloorDiv", "Maximum", "Shl", "LessThan"):
        assert isinstance(run(name, one, one), np.ndarray)
        assert run(name, one, one).shape == ()
    same(run("Select", np.array(True), one, one + one), one)
    same(run("Add", np.array(127, np.int8), one), np.array(-128, np.int8))


@pytest.mark.parametrize("extents", [(), (0,), (1,), (7,), (2, 0, 3), (3, 5, 2)], ids=str)
@pytest.mark.parametrize("name", [op.name for op in OPS.values() if op.is_pointwise])
def test_pointwise_ops_take_every_shape_and_stride(name: str, extents: tuple[int, ...]) -> None:
    op = OPS[name]
    for dtype in op.takes:
        targets = [to for to in dtypes.ALL if name == "Cast" or to.size == dtype.size]
        for to in targets if op.attrs else [dtype]:
            args = [backwards(extents, dtype, seed) for seed in range(op.arity or 0)]
            if name == "Select":
                args[0] = backwards(extents, dtypes.bool_, 9)
            attrs = CastAttrs(to) if op.attrs else None
            types = [TensorType(tuple(map(const, extents)), dtypes.dtype_of(a)) for a in args]
            (expected,) = op.infer(types, attrs)
            found = run(name, *args, attrs=attrs)
            assert (found.shape, found.dtype) == (extents, expected.dtype.numpy)
            flat = run(name, *(a.reshape(-1).copy() for a in args), attrs=attrs)
            same(found.reshape(-1), flat)


def backwards(extents: tuple[int, ...], dtype: DType, seed: int) -> Array:
    """Random values in an array whose dimensions run backwards in memory."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 4, extents[::-1])
    with np.errstate(invalid="ignore"):
        return np.asarray(np.asarray(values).astype(dtype.numpy)).T[
            (slice(None, None, -1),) * len(extents)
        ]
