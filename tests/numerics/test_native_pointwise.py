"""Pointwise primitives in native code against NumPy: accuracy in ulp, totality, casts, bits."""

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from luminal.base.dtypes import ALL, COMPUTE, DType, bool_, float32, float64, uint8
from luminal.hlir import semantics
from tests.long_share import long_but
from tests.numerics.jit_lanes import AVX2, AVX512, BASELINE, assembly, host_has, run, text

Array = np.ndarray[Any, Any]

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "Exp": np.exp,
    "Exp2": np.exp2,
    "Log": np.log,
    "Log2": np.log2,
    "Sin": np.sin,
    "Cos": np.cos,
}
INTS = [d for d in COMPUTE if d.is_int]
FLOATS = [float32, float64]
TARGETS = {"avx512": (AVX512, 16), "avx2": (AVX2, 8), "baseline": (BASELINE, 4)}
SPECIAL = [0.0, 1.0, 0.5, 2.0, 3.5, 0.1, 1e-40, 1e-45, 2.0**-126, 88.7, 104.0, 1e6, 1e30, np.inf]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> tuple[tuple[str, ...], int]:
    features, lanes = TARGETS[request.param]
    if not host_has(features):
        pytest.skip(f"this machine lacks {request.param}")
    return features, lanes


def special_floats(dtype: DType) -> Array:
    values = [*SPECIAL, float(np.finfo(dtype.numpy).max), np.nan]
    with np.errstate(over="ignore"):
        return np.array([*values, *(-v for v in values)]).astype(dtype.numpy)


def sweep(count: int) -> Array:
    """Every 4096th f32 bit pattern, `count` random ones and the special values."""
    rng = np.random.default_rng(7)
    strided = np.arange(0, 2**32, 4096, dtype=np.uint64).astype(np.uint32)
    random = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    bits = np.concatenate([strided, random]).view(np.float32)
    return np.concatenate([bits, special_floats(float32)])


def same(got: Array, want: Array) -> Array:
    """Where the bits are equal, or both are NaN."""
    assert got.dtype == want.dtype
    width = got.dtype.itemsize
    equal = (got.view(np.uint8) == want.view(np.uint8)).reshape(-1, width).all(axis=1)
    if got.dtype.kind in "biu":
        return cast(Array, equal)
    with np.errstate(invalid="ignore"):
        return cast(Array, equal | (np.isnan(got) & np.isnan(want)))


def meaning(op: Callable[..., tuple[Array, ...]], *arrays: Array, to: DType = bool_) -> Array:
    """What HLIR says the op gives."""
    return op(cast(Any, SimpleNamespace(dtype=to)), {}, arrays)[0]


def assert_same(got: Array, want: Array, *inputs: Array) -> None:
    wrong = np.flatnonzero(~same(got, want))
    shown = [(*(x[i] for x in inputs), got[i], want[i]) for i in wrong[:5]]
    assert not len(wrong), f"{len(wrong)} wrong (inputs, got, want): {shown}"


def ulp_of(exact: Array) -> Array:
    """Distance of neighbouring f32 at each f64 value, subnormals included."""
    exponent = np.frexp(np.abs(exact))[1]
    return np.ldexp(1.0, np.maximum(exponent - 24, -149))


# ---- accuracy ----------------------------------------------------------------------------


@pytest.mark.parametrize("op", FUNCTIONS)
def test_f32_accuracy_over_all_magnitudes(op: str) -> None:
    features, lanes = (AVX512, 16) if host_has(AVX512) else (AVX2, 8)
    x = sweep(1 << 20)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[op](x.astype(np.float64))
        rounded = exact.astype(np.float32)
    got = run(op, [float32], float32, [x], lanes, features)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(rounded))
    finite = np.isfinite(got)
    error = np.abs(got[finite].astype(np.float64) - exact[finite])
    limit = 2 * ulp_of(exact[finite])
    if op in ("Sin", "Cos"):
        limit = np.maximum(limit, 2.0**-24)
    worst = np.argmax(error / limit)
    assert error[worst] <= limit[worst], (x[finite][worst], got[finite][worst])


@pytest.mark.parametrize("op", FUNCTIONS)
def test_f32_functions_give_the_same_bits_at_every_width_and_target(
    op: str, target: tuple[tuple[str, ...], int]
) -> None:
    features, lanes = target
    x = sweep(1 << 10)[:: 64 if features == BASELINE else 4]  # without FMA, fma is a libm call
    assert_same(
        run(op, [float32], float32, [x], lanes, features),
        run(op, [float32], float32, [x], 1, AVX2),
        x,
    )


def wide_sweep(count: int) -> Array:
    """f64 of random bits, of everyday size, subnormal, and nearest to multiples of pi/2."""
    rng = np.random.default_rng(3)
    uniform = [rng.uniform(-width, width, count) for width in (1, 10, 1100)]
    turns = rng.integers(1, 2**29, count) * (np.longdouble(np.pi) / 2 + 6.123233995736766e-17)
    bits = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    subnormal = rng.integers(0, 2**52, count).view(np.float64)
    parts = [bits, *uniform, subnormal, turns.astype(np.float64), special_floats(float64)]
    found: Array = np.concatenate(parts)
    return found


WIDE_BOUNDS = {"Exp": 1.0, "Exp2": 0.95, "Log": 0.9, "Log2": 1.1, "Sin": 1.6, "Cos": 1.6}
"""In ulp, as `polynomials.py` says."""


@pytest.mark.parametrize("op", FUNCTIONS)
def test_f64_accuracy_and_bits(op: str, target: tuple[tuple[str, ...], int]) -> None:
    """Within its bound of long double's, and one result at every width and target."""
    features, lanes = target
    x = wide_sweep(1 << 8 if features == BASELINE else 1 << 14)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[op](x.astype(np.longdouble))
        rounded = exact.astype(np.float64)
    got = run(op, [float64], float64, [x], lanes // 2, features)
    finite = np.isfinite(rounded)
    assert_same(got[~finite], rounded[~finite], x[~finite])
    apart = np.abs(got[finite] - exact[finite]) / np.spacing(np.abs(rounded[finite]))
    worst = np.argmax(apart)
    assert apart[worst] <= WIDE_BOUNDS[op], (x[finite][worst], got[finite][worst], apart[worst])
    assert_same(got, run(op, [float64], float64, [x], 1, AVX2), x)


@pytest.mark.parametrize(
    ("op", "x", "want"),
    [
        *(("Exp", v, w) for v, w in [(0.0, 1.0), (-0.0, 1.0), (np.inf, np.inf), (-np.inf, 0.0)]),
        *(("Exp2", v, 2.0**v) for v in (-149.0, -126.0, -1.0, 0.0, 10.0, 127.0)),
        *(("Exp2", v, w) for v, w in [(128.0, np.inf), (-150.0, 0.0), (-np.inf, 0.0)]),
        *(("Log", v, w) for v, w in [(1.0, 0.0), (-0.0, -np.inf), (-1.0, np.nan)]),
        *(("Log2", 2.0**k, float(k)) for k in (-149, -127, -1, 0, 1, 127)),
        *(("Sin", v, v) for v in (0.0, -0.0, 1e-45, -1e-40)),
        *(("Cos", v, 1.0) for v in (0.0, -0.0, 1e-40)),
        *(("Sqrt", v, w) for v, w in [(-0.0, -0.0), (4.0, 2.0), (-1.0, np.nan)]),
    ],
)
def test_exact_values(op: str, x: float, want: float) -> None:
    got = run(op, [float32], float32, [np.array([x], np.float32)], 8)
    assert_same(got, np.array([want], np.float32))


# ---- rounded and total arithmetic --------------------------------------------------------


def float_pairs(dtype: DType) -> tuple[Array, Array]:
    """Special values against each other, random magnitudes, near-multiples."""
    rng = np.random.default_rng(11)
    special = special_floats(dtype)
    a = rng.standard_normal(2000) * 10.0 ** rng.integers(-8, 8, 2000)
    b = rng.standard_normal(2000) * 10.0 ** rng.integers(-3, 3, 2000)
    near = np.round(a) * b
    x = np.concatenate([np.repeat(special, len(special)), a, near]).astype(dtype.numpy)
    y = np.concatenate([np.tile(special, len(special)), b, b]).astype(dtype.numpy)
    return x, y


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("op", "reference"),
    [
        ("Add", semantics.add),
        ("Mul", semantics.mul),
        ("Div", semantics.div),
        ("FloorDiv", semantics.floor_div),
        ("Mod", semantics.mod),
        ("Maximum", semantics.maximum),
        ("LessThan", semantics.less_than),
        ("Equal", semantics.equal),
    ],
)
def test_float_arithmetic_is_bit_equal_to_the_reference(
    op: str, reference: Callable[..., Any], dtype: DType, target: tuple[tuple[str, ...], int]
) -> None:
    features, lanes = target
    x, y = float_pairs(dtype)
    out = bool_ if op in ("LessThan", "Equal") else dtype
    got = run(op, [dtype, dtype], out, [x, y], lanes, features)
    assert_same(got, meaning(reference, x, y), x, y)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("op", "reference"),
    [("Sqrt", semantics.sqrt), ("Recip", semantics.recip), ("Floor", semantics.floor)],
)
def test_rounded_functions_are_bit_equal_to_the_reference(
    op: str, reference: Callable[..., Any], dtype: DType, target: tuple[tuple[str, ...], int]
) -> None:
    features, lanes = target
    x, _ = float_pairs(dtype)
    got = run(op, [dtype], dtype, [x], lanes, features)
    assert_same(got, meaning(reference, x), x)


def int_values(dtype: DType) -> Array:
    limits = np.iinfo(dtype.numpy)
    near = [limits.min, limits.min + 1, limits.max - 1, limits.max, limits.max // 2]
    small = [*range(-9 if dtype.is_signed else 0, 10), 31, 32, 33, 63, 64, 65, 100]
    random = np.random.default_rng(5).integers(limits.min, limits.max, 60, dtype.numpy, True)
    return np.concatenate([np.array([*near, *small], dtype.numpy), random])


def python_meaning(op: str, x: int, y: int, dtype: DType) -> int | bool:
    """DESIGN's totality rules in Python ints, before wrapping."""
    past_width = not 0 <= y < dtype.bits
    match op:
        case "FloorDiv":
            return x // y if y else 0
        case "Mod":
            return x % y if y else 0
        case "Shl":
            return 0 if past_width else x << y
        case "Shr":
            return (-1 if x < 0 else 0) if past_width else x >> y
        case "LessThan":
            return x < y
        case "Equal":
            return x == y
        case "Maximum":
            return max(x, y)
    return {"Add": x + y, "Mul": x * y, "And": x & y, "Or": x | y, "Xor": x ^ y}[op]


INT_OPS = ["Add", "Mul", "FloorDiv", "Mod", "Maximum", "LessThan", "Equal"]
INT_OPS += ["And", "Or", "Xor", "Shl", "Shr"]


@pytest.mark.parametrize("dtype", long_but(INTS, [d for d in INTS if d.bits in (8, 64)]), ids=str)
@pytest.mark.parametrize("op", INT_OPS)
def test_integer_arithmetic_is_total(op: str, dtype: DType) -> None:
    values = int_values(dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    out = bool_ if op in ("LessThan", "Equal") else dtype
    exact = [python_meaning(op, int(a), int(b), dtype) for a, b in product(values, values)]
    want = np.array([e & (1 << dtype.bits) - 1 for e in exact], np.uint64).astype(out.numpy)
    for lanes, features in ((1, AVX2), (8, AVX2), (16, AVX512)):
        if host_has(features):
            assert_same(run(op, [dtype, dtype], out, [x, y], lanes, features), want, x, y)


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal", "LessThan", "Maximum"])
def test_bool_operations(op: str) -> None:
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    want = [python_meaning(op, int(a), int(b), uint8) for a, b in zip(x, y, strict=True)]
    assert_same(run(op, [bool_, bool_], bool_, [x, y], 4), np.array(want, bool))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_select_takes_every_dtype(dtype: DType) -> None:
    chosen = np.arange(40) % 3 == 0
    x, y = np.arange(40).astype(dtype.numpy), (np.arange(40) * 2 + 1).astype(dtype.numpy)
    got = run("Select", [bool_, dtype, dtype], dtype, [chosen, x, y], 8)
    assert_same(got, np.where(chosen, x, y))


# ---- casts -------------------------------------------------------------------------------


def cast_values(dtype: DType) -> Array:
    """Random bit patterns, ends of ranges, halfway points of narrower types."""
    rng = np.random.default_rng(13)
    if dtype == bool_:
        return rng.integers(0, 2, 64).astype(bool)
    raw = rng.integers(0, 256, 4096 * dtype.size, dtype=np.uint8).view(dtype.numpy)
    if dtype.is_int:
        top = np.uint64(1) << rng.integers(0, 64, 2048, dtype=np.uint64)
        tie = top + (top >> np.uint64(8)) + rng.integers(0, 3, 2048).astype(np.uint64)
        return np.concatenate([raw, int_values(dtype), tie.astype(dtype.numpy)])
    ends = [
        s * 2.0**k + d for s in (1, -1) for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, 0)
    ]
    halfway = [65519.0, 65520.0, 2.0**-25, 2.0**-24, 2.0**-134, 3 * 2.0**-134, 1 + 2.0**-9]
    exact = [*ends, *halfway, *SPECIAL, -0.0, -np.inf, np.nan, 2.5, -0.9]
    spread = rng.standard_normal(2048) * 10.0 ** rng.integers(-9, 20, 2048)
    with np.errstate(all="ignore"):
        more = np.concatenate([exact, spread]).astype(dtype.numpy)
        return np.concatenate([raw, more])


@pytest.mark.parametrize("source", long_but(ALL, ALL[::4]), ids=str)
def test_cast_to_every_dtype(source: DType, target: tuple[tuple[str, ...], int]) -> None:
    features, lanes = target
    x = cast_values(source)
    for to in ALL:
        got = run("Cast", [source], to, [x], lanes, features)
        assert_same(got, meaning(semantics.cast, x, to=to), x)


@pytest.mark.parametrize(
    ("source", "to"), [(a, b) for a, b in product(ALL, ALL) if a.size == b.size], ids=str
)
def test_bitcast_between_equal_sizes(source: DType, to: DType) -> None:
    x = np.random.default_rng(1).integers(0, 256, 256 * source.size, dtype=np.uint8)
    x = (x & 1).astype(bool) if source == bool_ else x.view(source.numpy)
    got = run("Bitcast", [source], to, [x], 8)
    assert_same(got, meaning(semantics.bitcast, x, to=to), x)


# ---- manners -----------------------------------------------------------------------------


def test_no_fast_math_and_scalef_only_with_avx512() -> None:
    texts = {}
    for name in ("avx512", "avx2"):
        features, lanes = TARGETS[name]
        for op in ("Exp", "Log", "Sin", "Maximum"):
            inputs = (float32,) * (2 if op == "Maximum" else 1)
            texts[name, op] = text(op, inputs, float32, lanes, features)
    flags = (" fast ", "contract", "reassoc", " nnan", " ninf", " nsz", "afn", "arcp")
    assert not any(flag in each for flag in flags for each in texts.values())
    assert "avx512.mask.scalef" in texts["avx512", "Exp"]
    assert "avx512" not in texts["avx2", "Exp"]


@pytest.mark.skipif(not host_has(AVX512), reason="assembly of an AVX-512 machine")
def test_exp_is_a_short_loop_without_calls() -> None:
    found = assembly("Exp", (float32,), float32, 16, AVX512)
    assert "call" not in found
    assert found.count("zmm") < 60
