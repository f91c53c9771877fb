"""First derivatives at kinks, zeros, poles and far out are PyTorch's, in float64 and float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base import dtypes
from tests.long_share import mostly_long

F, TF = lm.nn.functional, torch.nn.functional
INF = math.inf
POINTS = (
    -1e4,
    -100,
    -20,
    -6,
    -3,
    -2,
    -1,
    -0.5,
    -1e-3,
    -0.0,
    0,
    1e-3,
    0.5,
    1,
    2,
    3,
    6,
    20,
    100,
    1e4,
)
RELATIVE = {"float64": 1e-9, "float32": 2e-5}
# Digits below this are lost where terms cancel or vanish; PyTorch's formulas differ there.
ABSOLUTE = {"float64": 1e-12, "float32": 2e-6}

Function = Callable[..., Any]

OF_BOTH = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan tanh sinh cosh asinh "
    "acosh atan asin acos atanh sigmoid logit erf erfc erfinv square abs sign floor ceil round "
    "trunc frac sinc nan_to_num lgamma digamma"
).split()
LAYERS = (
    "relu relu6 leaky_relu elu selu celu silu gelu mish softplus logsigmoid softsign tanhshrink "
    "hardtanh hardswish softshrink hardshrink"
).split()
UNARY: dict[str, tuple[Function, Function]] = {
    **{name: (getattr(lm, name), getattr(torch, name)) for name in OF_BOTH},
    **{name: (getattr(F, name), getattr(TF, name)) for name in LAYERS},
    "hardsigmoid": (F.hardsigmoid, lambda x: TF.relu6(x + 3) / 6),  # PyTorch's 1/6 is float32's
    "gelu tanh": (lambda x: F.gelu(x, "tanh"), lambda x: TF.gelu(x, approximate="tanh")),
    "threshold": (lambda x: F.threshold(x, 0.5, 2.0), lambda x: TF.threshold(x, 0.5, 2.0)),
    "clip": (lambda x: x.clip(-1, 1), lambda x: x.clip(-1, 1)),
    "clamp_min": (lambda x: x.clamp_min(0), lambda x: x.clamp_min(0)),
    "clamp_max": (lambda x: x.clamp_max(0), lambda x: x.clamp_max(0)),
    "logit with eps": (lambda x: x.logit(0.1), lambda x: x.logit(0.1)),
    "softplus of beta 3": (lambda x: F.softplus(x, 3, 10), lambda x: TF.softplus(x, 3, 10)),
    "entr": (lm.special.entr, torch.special.entr),
    "erfcx": (lm.special.erfcx, torch.special.erfcx),
    "ndtr": (lm.special.ndtr, torch.special.ndtr),
    "log_ndtr": (lm.special.log_ndtr, torch.special.log_ndtr),
    **{
        f"pow {p}": (lambda x, p=p: x**p, lambda x, p=p: x**p)
        for p in (0, 1, 2, 3, 0.5, 1.5, 2.5, -1, -2, -0.5)
    },
    "2 ** x": (lambda x: 2.0**x, lambda x: 2.0**x),
    "0 ** x": (lambda x: 0.0**x, lambda x: 0.0**x),
    "maximum with 0": (lambda x: x.maximum(0.0), lambda x: torch.maximum(x, x.new_zeros(()))),
    "norm of one": (lambda x: x.unsqueeze(1).norm(2, 1), lambda x: x.unsqueeze(1).norm(2, 1)),
    "norm of a pair": (
        lambda x: lm.stack([x, x * 0.5], 1).norm(2, 1),
        lambda x: torch.stack([x, x * 0.5], 1).norm(2, 1),
    ),
    **{
        f"norm of order {p}": (
            lambda x, p=p: lm.stack([x, x * 0.5], 1).norm(p, 1),
            lambda x, p=p: torch.stack([x, x * 0.5], 1).norm(p, 1),
        )
        for p in (0.5, 1, 1.5, 3, np.inf)
    },
    "std of equals": (
        lambda x: lm.stack([x, x], 1).std(1), lambda x: torch.stack([x, x], 1).std(1)
    ),
}  # fmt: skip
BINARY: dict[str, tuple[Function, Function]] = {
    name: (getattr(lm, name), getattr(torch, name))
    for name in (
        "maximum minimum fmax fmin pow atan2 hypot xlogy logaddexp logaddexp2 fmod remainder "
        "copysign float_power ldexp"
    ).split()
} | {
    "clip by tensors": (lambda x, y: x.clip(y, 1 - y), lambda x, y: x.clip(y, 1 - y)),
    "xlog1py": (lm.special.xlog1py, torch.special.xlog1py),
    "relu of a difference": (lambda x, y: (x - y).relu(), lambda x, y: (x - y).relu()),
}
# Where what PyTorch gives is not compared: a reason, and the points that are.
ELSEWHERE: dict[str, tuple[str, Function]] = {
    "logit": ("the sign of an infinite derivative at -0.0", lambda x: x != 0),
    "sinc": ("PyTorch's cancels beside 0", lambda x: (abs(x) > 0.1) | (x == 0)),
    "digamma": ("at poles PyTorch divides by a rounded 0", lambda x: (x > 0) | (x % 1 != 0)),
    "log_ndtr": ("PyTorch's is wrong far out: below, it is |x| + 1 / |x|", lambda x: x > -50),
    "hypot": ("at the origin 0, as of a norm; PyTorch: NaN", lambda x, y: (x != 0) | (y != 0)),
    "fmod": ("NaN", lambda x, y: y != 0),
}

OVERFLOWING = ("norm of order 1.5", "norm of order 3")  # PyTorch's powers do; ours are scaled


def gradients(function: Function, dtype: str, arrays: list[Any]) -> list[Any]:
    cx = lm.Graph()
    inputs = [cx.tensor(x.shape, dtype, f"x{k}") for k, x in enumerate(arrays)]
    for k, g in enumerate(lm.grad(function(*inputs).sum(), inputs)):
        g.output(f"g{k}")
        inputs[k].output(f"x{k}")  # so that every input is read
    with np.errstate(all="ignore"):
        found = lm.compile(cx, "reference")({f"x{k}": x for k, x in enumerate(arrays)})
    return [found[f"g{k}"] for k in range(len(arrays))]


def torch_gradients(function: Function, arrays: list[Any]) -> list[Any]:
    inputs = [torch.from_numpy(x).requires_grad_() for x in arrays]
    y = function(*inputs)
    if not y.requires_grad:
        return [np.zeros_like(x) for x in arrays]
    found = torch.autograd.grad(y.sum(), inputs, allow_unused=True, materialize_grads=True)
    return [np.zeros(g.shape, x.dtype) if g._is_zerotensor() else g.numpy()
            for g, x in zip(found, arrays, strict=True)]  # fmt: skip


def check(name: str, pair: tuple[Function, Function], dtype: str, arrays: list[Any]) -> None:
    if name in ELSEWHERE:
        kept = ELSEWHERE[name][1](*arrays)
        arrays = [x[kept] for x in arrays]
    found = gradients(pair[0], dtype, arrays)
    for x, y in zip(found, torch_gradients(pair[1], arrays), strict=True):
        np.testing.assert_allclose(x, y, rtol=RELATIVE[dtype], atol=ABSOLUTE[dtype])


@pytest.mark.parametrize("dtype", mostly_long(["float64", "float32"], 1))
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(name: str, dtype: str) -> None:
    check(name, UNARY[name], dtype, [np.array(POINTS, dtype)])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", [name for name in UNARY if name not in OVERFLOWING])
def test_far_out(name: str, dtype: str) -> None:
    """At infinities, near the greatest and the least numbers: where PyTorch's are finite."""
    limits = np.finfo(dtype)
    points = [np.array([INF, limits.max / 2, limits.tiny, limits.smallest_subnormal * 9], dtype)]
    points = [np.concatenate([x, -x]) for x in points]
    function, other = UNARY[name]
    (wanted,) = torch_gradients(other, points)
    finite = np.isfinite(wanted)
    (found,) = gradients(function, dtype, points)
    np.testing.assert_allclose(
        found[finite], wanted[finite], rtol=RELATIVE[dtype], atol=ABSOLUTE[dtype]
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name: str, dtype: str) -> None:
    line = np.array([-30, -2, -1, -0.5, 0, 0.5, 1, 2, 30], dtype)
    check(name, BINARY[name], dtype, [np.repeat(line, line.size), np.tile(line, line.size)])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin", "atan2", "hypot"])
def test_pairs_of_subnormal_numbers(name: str, dtype: str) -> None:
    line = np.finfo(dtype).smallest_subnormal * np.array([-90, -30, 0, 60, 120], dtype)
    check(name, BINARY[name], dtype, [np.repeat(line, line.size), np.tile(line, line.size)])


@pytest.mark.parametrize("dtype", mostly_long(["float16", "bfloat16"], 1))
@pytest.mark.parametrize("name", [*OF_BOTH, *LAYERS])
def test_sixteen_bits_are_rounded_once(name: str, dtype: str) -> None:
    """The gradient is that in float64, rounded."""
    function = UNARY[name][0]
    points = np.array([0.1, 0.3, 0.5, 0.9, 1.5, 2.5]).astype(dtypes.dtype_of(dtype).numpy)
    (found,) = gradients(function, dtype, [points])
    (wanted,) = gradients(function, "float64", [points.astype(np.float64)])
    assert found.dtype == points.dtype
    unit = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    # the last digit of 16 bits, where the points are rounded, too; near 0 what that leaves
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2 * unit, atol=1e-4)


def test_powers_of_zero_are_flat_again() -> None:
    """x ** y and all its derivatives in x are 0 at x = 0 for y = 0 and beyond the order."""
    cx = lm.Graph()
    x, y = (cx.tensor((4,), "float64", name) for name in "xy")
    g = (x**y).sum()
    for order in range(3):
        g = lm.grad(g.sum(), x)
        g.output(f"g{order}")
    zeros = np.zeros(4)
    found = lm.compile(cx, "reference")({"x": zeros, "y": np.array([0.0, 4.0, 5.0, 7.5])})
    for order in range(3):
        np.testing.assert_array_equal(found[f"g{order}"], zeros)


@pytest.mark.parametrize("dropped", [0.0, 0.5])
def test_a_row_of_attention_that_is_hidden_has_no_gradient(dropped: float) -> None:
    """The weights of its softmax are NaN, with dropout on them too."""
    cx = lm.Graph()
    q = cx.tensor((2, 3), name="q")
    seen = cx.constant(np.array([[True, False], [False, False]]))
    key = lm.random.key(cx.constant(0)) if dropped else None
    y = lm.nn.functional.scaled_dot_product_attention(q, q, q, seen, dropped, key_of_dropout=key)
    lm.grad(y.sum(), q).output("g")
    found = lm.compile(cx)({"q": np.arange(6, dtype=np.float32).reshape(2, 3)})["g"]
    np.testing.assert_array_equal(found[1], 0)
    assert np.isfinite(found).all()
