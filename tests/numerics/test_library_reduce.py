"""Reductions, statistics, running extremes, activations, norms and losses, on both backends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import DTypeError, ShapeError
from luminal.nn import functional
from tests.close import close, close_each
from tests.numerics.recording import run

Array = np.ndarray[Any, Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
F = torch.nn.functional
T = torch.from_numpy
INF, NAN = math.inf, math.nan
rng = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("each_backend")


def _flat(found: Any) -> list[Any]:
    many = isinstance(found, tuple | list)
    return [leaf for part in found for leaf in _flat(part)] if many else [found]


def _agree(
    ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: Array, ulp: float = 8
) -> None:
    """Ours of Tensors equals theirs of PyTorch's; both may give several results."""
    found = _flat(run(ours, *arrays))
    expected = _flat(theirs(*map(T, arrays)))
    assert len(found) == len(expected)
    for number, (result, exact) in enumerate(zip(found, expected, strict=True)):
        try:
            close(result, exact.numpy(), ulp=ulp)
        except AssertionError as error:
            raise AssertionError(f"result {number}: {error}") from None


X = rng.normal(0, 2, (3, 5, 4)).astype(np.float32)
HOLES = np.where(rng.uniform(size=X.shape) < 0.15, np.float32(NAN), X)


# --- reductions -----------------------------------------------------------------------------------


def test_nan_aware_and_paired_reductions_like_torch() -> None:
    _agree(
        lambda x: [x.nansum(1), x.nanmean((0, 2)), x.aminmax(1), x.amax((0, 1)), x.max(0)],
        lambda x: [
            x.nansum(1),
            x.nanmean((0, 2)),
            torch.aminmax(x, dim=1),
            x.amax((0, 1)),
            x.max(0),
        ],
        HOLES,
    )
    _agree(
        lambda x: [
            x.count_nonzero(1), x.var_mean(2), x.std_mean((0, 1)), x.var(1, False), x.std(0),
        ],
        lambda x: [
            x.count_nonzero(1), torch.var_mean(x, 2), torch.std_mean(x, (0, 1)),
            x.var(1, False), x.std(0),
        ],
        X,
    )  # fmt: skip


def test_medians_and_quantiles_like_torch() -> None:
    qs = [0.0, 0.3, 0.5, 1.0]
    _agree(
        lambda x: [x.median(1), x.nanmedian(2), x.median(), x.nanmedian(), x.quantile(qs, 1)],
        lambda x: [
            x.median(1), x.nanmedian(2), x.median(), x.nanmedian(),
            x.quantile(torch.tensor(qs), 1),
        ],
        HOLES,
    )  # fmt: skip
    for kind in ("linear", "lower", "higher", "nearest", "midpoint"):
        _agree(
            lambda x, k=kind: [x.quantile(0.35, 1, True, k), x.nanquantile(0.6, interpolation=k)],
            lambda x, k=kind: [
                x.quantile(0.35, 1, True, interpolation=k),
                x.nanquantile(0.6, interpolation=k),
            ],
            HOLES,
        )
    with pytest.raises(ShapeError, match=r"quantile: q is 1\.5; give a number in 0\.\.1"):
        run(lambda x: x.quantile(1.5), X)


def test_vector_and_matrix_norms() -> None:
    orders = [0, 1, 2, 3, 0.5, INF, -INF]
    _agree(
        lambda x: [x.norm(p, (0, 2)) for p in orders] + [x.norm(), x.norm("fro", 1, True)],
        lambda x: [
            *(torch.linalg.vector_norm(x, p, (0, 2)) for p in orders),
            x.norm(), x.norm("fro", 1, True),
        ],
        X,
        ulp=16,
    )  # fmt: skip
    matrix = lm.linalg.matrix_norm
    _agree(
        lambda x: [matrix(x, p, (0, 2)) for p in ("fro", 1, -1, INF, -INF)],
        lambda x: [torch.linalg.matrix_norm(x, p, (0, 2)) for p in ("fro", 1, -1, INF, -INF)],
        X,
    )
    _agree(
        lambda x: [x.normalize(), x.normalize(1, -1), x.normalize(3, 0)],
        lambda x: [F.normalize(x), F.normalize(x, 1, -1), F.normalize(x, 3, 0)],
        X,
        ulp=16,
    )
    with pytest.raises(ShapeError, match=r'norm: p="nuc" of .* takes two dims'):
        run(lambda x: x.norm("nuc"), X)


def test_argmax_gives_the_first_maximum_and_indices_above_2_to_24_are_exact() -> None:
    ties = np.array([[1, 3, 3, 0], [NAN, 1, NAN, 2], [-INF, -INF, -INF, -INF]], np.float32)
    np.testing.assert_array_equal(run(lambda x: x.argmax(1), ties), [1, 0, 0])
    np.testing.assert_array_equal(run(lambda x: x.argmin(1), ties), [3, 0, 0])
    large = np.zeros(2**24 + 8, np.int8)
    large[2**24 + 3] = 1
    assert run(lambda x: x.argmax(), large) == 2**24 + 3
    bits = np.array([True, False, True])
    assert run(lambda x: x.argmin(), bits) == 1


def test_reductions_of_nothing_and_of_one_element() -> None:
    empty = np.zeros((3, 0), np.float32)
    total = ("sum", "mean", "prod", "logsumexp", "softmax", "cumsum")

    def every(x: Any) -> list[Any]:
        return [x.norm(), *(getattr(x, name)(1) for name in total)]

    _agree(every, every, empty)
    for name in ("max", "amin", "argmax", "median"):
        with pytest.raises(ShapeError, match="is empty; give it an element"):
            run(lambda x, n=name: getattr(x, n)(1), empty)
    scalar = np.float32(2.5)
    names = ("sum", "mean", "amax", "argmax", "softmax", "cumsum", "median", "logsumexp", "cummax")
    found = run(lambda x: [getattr(x, name)(-1) for name in names], scalar)
    expected = [getattr(torch.tensor(2.5), name)(-1) for name in names]
    for result, exact in zip(_flat(found), _flat(expected), strict=True):
        close(result, exact.numpy())


def test_products_with_negatives_and_zeros() -> None:
    x = np.array([[-2, 3, -1], [0, -5, 2], [-0.5, -1, -2]], np.float32)
    close(run(lambda t: t.prod(1), x), x.prod(1))
    close(run(lambda t: t.cumprod(1), x), np.cumprod(x, 1))
    close(run(lambda t: t.prod(), x.astype(np.int32)), x.astype(np.int64).prod())


def test_16_bit_reductions_accumulate_in_float32() -> None:
    x = np.full(5000, 1.001, np.float32).astype(BF16)  # in bf16 the sum would stop at 256
    wide = x.astype(np.float32)
    found = run(lambda t: [t.sum(), t.mean(), t.var(), t.norm(), t.logsumexp(0), t.cumsum(0)], x)
    exact = [
        wide.sum(), wide.mean(), wide.var(ddof=1), np.sqrt((wide * wide).sum()),
        np.log(np.exp(wide).sum()), np.cumsum(wide),
    ]  # fmt: skip
    for result, expected in zip(found, exact, strict=True):
        assert result.dtype == BF16
        close(result, np.asarray(expected), ulp=1)


def test_the_array_api_gives_values_only_and_divides_by_n() -> None:
    api = lm.array_api
    found = run(
        lambda x: [
            api.max(x, axis=1), api.var(x, axis=0), api.std(x),
            api.sum(x, axis=(0, 2), keepdims=True),
            lm.cumulative_sum(x, axis=1, include_initial=True), lm.atan2(1.0, x), lm.pow(2, x),
        ],
        X,
    )  # fmt: skip
    led = np.concatenate([np.zeros((3, 1, 4), np.float32), np.cumsum(X, 1)], 1)
    expected = [
        X.max(1), X.var(0), X.std(), X.sum((0, 2), keepdims=True), led, np.arctan2(1, X), 2**X,
    ]  # fmt: skip
    for result, exact in zip(found, expected, strict=True):
        close(result, exact, ulp=8)


# --- running extremes -----------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_extremes_like_torch(dim: int) -> None:
    x = np.round(HOLES)  # ties: the last position counts
    _agree(lambda t: [t.cummax(dim), t.cummin(dim)], lambda t: [t.cummax(dim), t.cummin(dim)], x)
    i8 = rng.integers(-128, 128, (3, 5)).astype(np.int8)
    _agree(lambda t: [t.cummax(1), t.cummin(1)], lambda t: [t.cummax(1), t.cummin(1)], i8)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_running_extremes_are_elements_to_the_bit(dtype: str) -> None:
    """Zeros of both signs are equals, of which the last counts; values are those at the indices."""
    x = rng.choice([0.0, -0.0, 0.5, -0.5, 1.5e-7, -6e4], (6, 40))
    x[0, 7], x[1, 20], x[2, 30], x[3, 9] = INF, NAN, -INF, 6e4
    rounded = T(x).to(getattr(torch, dtype))
    for dim in (0, 1):
        found = run(lambda t, d=dim: [*t.cast(dtype).cummax(d), *t.cast(dtype).cummin(d)], x)
        exact = [*rounded.cummax(dim), *rounded.cummin(dim)]
        for result, wanted in zip(found, exact, strict=True):
            result, wanted = result.astype(np.float64), wanted.double().numpy()
            np.testing.assert_array_equal(result, wanted)
            known = wanted == wanted
            np.testing.assert_array_equal(np.signbit(result)[known], np.signbit(wanted)[known])


def test_logcumsumexp_neither_overflows_nor_underflows() -> None:
    x = np.array([[-1000, -999, 0, 5, 900, -INF], [-INF, -INF, 3, INF, 1, 2]], np.float32)
    _agree(lambda t: t.logcumsumexp(1), lambda t: t.logcumsumexp(1), x)
    long = rng.normal(0, 40, (2, 301)).astype(np.float32)
    expected = T(long.astype(np.float64)).logcumsumexp(1).numpy()
    found = run(lambda t: t.logcumsumexp(1), long, shapes=[(2, "n")], dims={"n": 301})
    close(found, expected.astype(np.float32))


def test_differences_and_integrals() -> None:
    y = np.linspace(0, 1, 5).astype(np.float32) ** 2
    _agree(
        lambda x, t: [
            x.diff(), x.diff(2, 0), x[0].cov(), x[1].corrcoef(),
            x.trapezoid(dim=1), x.cumulative_trapezoid(dx=0.5), x[0, :, :1].trapezoid(t, dim=0),
        ],
        lambda x, t: [
            x.diff(), x.diff(2, 0), x[0].cov(), x[1].corrcoef(),
            torch.trapezoid(x, dim=1), torch.cumulative_trapezoid(x, dx=0.5),
            torch.trapezoid(x[0, :, :1], t[:, None], dim=0),
        ],
        X, y,
        ulp=16,
    )  # fmt: skip


# --- activations ----------------------------------------------------------------------------------

ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "relu": (), "relu6": (), "leaky_relu": (0.2,), "elu": (0.7,), "selu": (), "celu": (1.5,),
    "gelu": (), "silu": (), "softplus": (2.0, 3.0), "softsign": (), "hardswish": (),
    "hardsigmoid": (), "hardtanh": (-0.5, 2.0), "mish": (), "tanhshrink": (), "softshrink": (0.3,),
    "hardshrink": (0.3,), "threshold": (0.1, -7.0), "logsigmoid": (), "glu": (), "sigmoid": (),
    "softmin": (-1,), "log_softmax": (1,),
}  # fmt: skip


def test_activations_like_torch() -> None:
    x = np.concatenate([rng.normal(0, 4, 60), [0, -0.0, 3, -3, 6, 1e-9]]).astype(np.float32)
    x = x.reshape(11, 6)

    def every(owner: Any, t: Any) -> list[Any]:
        return [getattr(owner, name)(t, *options) for name, options in ACTIVATIONS.items()]

    _agree(lambda t: every(functional, t), lambda t: every(F, t), x)
    weight = np.array([0.1, 0.2, -0.3, 0.4, 0.5, 0.6], np.float32)
    _agree(lambda t, w: functional.prelu(t, w), lambda t, w: F.prelu(t, w), x, weight)
    with pytest.raises(ShapeError, match=r"glu: dim 1 of x0: f32\[2, 3\] is not even"):
        run(lambda t: t.glu(), np.zeros((2, 3), np.float32))


def test_activations_at_infinity() -> None:
    x = np.array([INF, -INF, NAN], np.float32)
    names = ("relu", "relu6", "elu", "selu", "softplus", "hardsigmoid", "hardswish", "logsigmoid")
    found = run(lambda t: [getattr(functional, name)(t) for name in names], x)
    scale = 1.0507009873554805
    expected = [
        [INF, 0], [6, 0], [INF, -1], [INF, -scale * 1.6732632423543772], [INF, 0], [1, 0],
        [INF, 0], [0, -INF],
    ]  # fmt: skip
    for name, result, ends in zip(names, found, expected, strict=True):
        close_each(result, [*ends, NAN], err_msg=name)


# --- normalisations -------------------------------------------------------------------------------


def test_normalisations_like_torch() -> None:
    x = rng.normal(3, 2, (2, 6, 5, 4)).astype(np.float32)
    w, b, m = (rng.normal(0, 1, 6).astype(np.float32) for _ in range(3))
    v = rng.uniform(0.5, 2, 6).astype(np.float32)
    small = rng.normal(0, 1, (5, 4)).astype(np.float32)

    def every(f: Any, x: Any, w: Any, b: Any, m: Any, v: Any, s: Any) -> list[Any]:
        return [
            f.group_norm(x, 3, w, b), f.instance_norm(x, None, None, w, b),
            f.instance_norm(x, m, v, w, b, False), f.batch_norm(x, m, v, w, b),
            f.batch_norm(x, None, None, w, b, True), f.local_response_norm(x, 3, 0.3),
            f.local_response_norm(x, 4), f.layer_norm(x, (5, 4), s, s), f.rms_norm(x, (5, 4), s),
            f.rms_norm(x, (4,)), f.layer_norm(x, (6, 5, 4), eps=0.1),
        ]  # fmt: skip

    arrays = (x, w, b, m, v, small)
    _agree(lambda *a: every(functional, *a), lambda *a: every(F, *a), *arrays, ulp=64)
    with pytest.raises(ShapeError, match=r"group_norm: dim 1 of .* does not divide into 4 groups"):
        run(lambda t: t.group_norm(4), x)
    with pytest.raises(ShapeError, match=r"layer_norm: .* does not end in \(4, 5\)"):
        run(lambda t: functional.layer_norm(t, (4, 5)), x)


def test_norms_of_16_bit_floats_round_once() -> None:
    x = rng.normal(0, 1, (2, 4, 6)).astype(BF16)

    def every(t: Any) -> list[Any]:
        return [t.group_norm(2), t.instance_norm(), t.local_response_norm(2), t.layer_norm()]

    for low, high in zip(run(every, x), run(every, x.astype(np.float32)), strict=True):
        np.testing.assert_array_equal(low, high.astype(BF16))


# --- losses ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")  # PyTorch's kl_div
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_like_torch(reduction: str) -> None:
    a, b, c = (rng.normal(0, 1, (4, 6)).astype(np.float32) for _ in range(3))
    p, q = (rng.uniform(0.01, 0.99, (4, 6)).astype(np.float32) for _ in range(2))
    sign = np.where(rng.uniform(size=4) < 0.5, -1, 1).astype(np.float32)
    r = {"reduction": reduction}

    def every(f: Any, a: Any, b: Any, c: Any, p: Any, q: Any, s: Any) -> list[Any]:
        return [
            f.mse_loss(a, b, **r), f.l1_loss(a, b, **r), f.smooth_l1_loss(a, b, beta=0.5, **r),
            f.huber_loss(a, b, delta=0.7, **r), f.binary_cross_entropy(p, q, **r),
            f.binary_cross_entropy_with_logits(a, q, pos_weight=p, **r),
            f.kl_div(a, q, **r), f.kl_div(a, b, log_target=True, **r),
            f.poisson_nll_loss(a, q, full=True, **r), f.gaussian_nll_loss(a, b, p, **r),
            f.hinge_embedding_loss(a, b.sign(), **r), f.soft_margin_loss(a, b.sign(), **r),
            f.margin_ranking_loss(a, b, c.sign(), 0.2, **r),
            f.cosine_embedding_loss(a, b, s, 0.1, **r), f.triplet_margin_loss(a, b, c, **r),
            f.triplet_margin_loss(a, b, c, swap=True, p=1, **r),
            f.multilabel_soft_margin_loss(a, q, **r),
            f.cosine_similarity(a, b), f.pairwise_distance(a, b, 3),
        ]  # fmt: skip

    arrays = (a, b, c, p, q, sign)
    _agree(lambda *x: every(functional, *x), lambda *x: every(F, *x), *arrays, ulp=32)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_like_torch(reduction: str) -> None:
    x = rng.normal(0, 2, (4, 5, 3)).astype(np.float32)
    labels = rng.integers(0, 5, (4, 3))
    labels[1, 1] = labels[3, 0] = -100
    others = np.where(labels < 0, 2, labels)
    chances = rng.dirichlet(np.ones(5), (4, 3)).transpose(0, 2, 1).astype(np.float32)
    weight = rng.uniform(0.5, 2, 5).astype(np.float32)
    r = {"reduction": reduction}

    def every(f: Any, x: Any, y: Any, z: Any, p: Any, w: Any) -> list[Any]:
        return [
            f.cross_entropy(x, y, **r), f.cross_entropy(x, y, w, label_smoothing=0.1, **r),
            f.cross_entropy(x, z, w, ignore_index=2, **r), f.cross_entropy(x, p, w, **r),
            f.cross_entropy(x, p, label_smoothing=0.2, **r), f.nll_loss(x, y, w, **r),
            f.cross_entropy(x[:, :, 0], z[:, 0], **r), f.cross_entropy(x[0, :, 0], z[0, 0], **r),
            f.multi_margin_loss(x[:, :, 0], z[:, 0], weight=w, **r),
            f.multilabel_margin_loss(x[:, :3, 0], y % 4 - 1, **r),
        ]  # fmt: skip

    arrays = (x, labels, others, chances, weight)
    _agree(lambda *a: every(functional, *a), lambda *a: every(F, *a), *arrays, ulp=32)


def test_losses_say_what_does_not_fit() -> None:
    x, y = np.zeros((4, 5), np.float32), np.zeros(3, np.int64)
    with pytest.raises(ShapeError, match=r"cross_entropy: the target is .*; .* takes \(4\)"):
        run(lambda a, b: functional.cross_entropy(a, b), x, y)
    with pytest.raises(ShapeError, match=r'mse_loss: reduction=.max.; use "mean", "sum" or "none"'):
        run(lambda a: functional.mse_loss(a, a, "max"), x)
    with pytest.raises(DTypeError, match=r"nll_loss: the target is .*; pass class indices"):
        run(lambda a: functional.nll_loss(a, a[:, 0]), x)
