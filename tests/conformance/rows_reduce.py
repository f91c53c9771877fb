"""Rows of reductions, running sums and products, softmax, norms and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
import torch
import torch.nn.functional as F

from tests.conformance.rows import (
    FLOATS,
    ODD,
    Draw,
    Row,
    along,
    by_torch,
    function,
    several,
)

NUMBERS = ("float32", "float64", "float16", "bfloat16", "int32", "int8", "uint8")
WIDE = ("float32", "float64", "bfloat16")
NO_EMPTY: dict[str, Any] = {"empty": (0, 3, 2)}  # the empty dim is not the one reduced


def by(owner: Any, op: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """`expected` and `against` of a torch function with further arguments."""
    prefix = {torch: "torch", F: "torch.nn.functional", torch.linalg: "torch.linalg"}[owner]
    return {
        "expected": by_torch(lambda *x: getattr(owner, op)(*x, *args, **kwargs)),
        "against": f"{prefix}.{op}",
    }


def _wide_sum(x: np.ndarray[Any, Any], **how: Any) -> Any:
    return np.sum(x, **how)


SUMS = [
    along("sum", _wide_sum, dtypes=(*NUMBERS, "bool"), zero_d=True, largest=True,
          against="numpy.sum",
          note="0 of nothing; narrow integers give int64, unsigned ones uint64, as NumPy; "
          "PyTorch gives int64 for uint8"),
    along("sum over 1", lambda x: x.sum(1), dtypes=(*NUMBERS, "bool"), largest=True,
          call=lambda x: x.sum(1), against="numpy.sum"),
    along("sum over (0, -1)", lambda x: x.sum((0, -1), keepdims=True), dtypes=NUMBERS, largest=True,
          call=lambda x: x.sum((0, -1), keepdim=True), against="numpy.sum"),
    along("mean", np.mean, dtypes=(*FLOATS, "int32", "bool"), zero_d=True, empty=None, largest=True,
          note="integers give float32; PyTorch raises, NumPy gives float64"),
    along("mean over 1", lambda x: x.mean(1), dtypes=FLOATS, largest=True,
          call=lambda x: x.mean(1), against="numpy.mean", note="NaN of nothing, as both"),
    along("prod", lambda x: x.prod(1), (-2, 2), (*WIDE, "int32", "int8", "uint8"),
          call=lambda x: x.prod(1), against="numpy.prod",
          note="1 of nothing; dtypes as of sum; with one NaN all gradients are NaN, PyTorch gives "
               "that NaN's own the product of the others"),
    along("var", lambda x: x.var(1, ddof=1), dtypes=(*FLOATS, "int32"), largest=True, empty=None,
          call=lambda x: x.var(1), against="numpy.var(ddof=1)",
          note="correction=1, as PyTorch; NumPy's ddof is 0"),
    along("std", lambda x: x.std(1, ddof=1), dtypes=FLOATS, largest=True, empty=None,
          call=lambda x: x.std(1), against="numpy.std(ddof=1)",
          note="correction=1, as PyTorch; NumPy's ddof is 0"),
    along("logsumexp", lambda x: scipy.special.logsumexp(x, 1), dtypes=FLOATS, **NO_EMPTY,
          call=lambda x: x.logsumexp(1), against="scipy.special.logsumexp", largest=True),
    along("count_nonzero", lambda x: np.count_nonzero(x, 1), (-1, 1), ("float32", "int8", "bool"),
          call=lambda x: x.count_nonzero(1), against="numpy.count_nonzero"),
    along("nansum", lambda x: np.nansum(np.where(x > 0, x, np.nan), 1), dtypes=WIDE, largest=True,
          call=lambda x: (x.log() * 0 + x).nansum(1), against="numpy.nansum"),
]  # fmt: skip

EXTREMES = [
    along("amax", lambda x: x.max(1), dtypes=(*NUMBERS, "bool"), call=lambda x: x.amax(1),
          against="numpy.max", **NO_EMPTY,
          note="an empty dim raises, as in both; NaNs share the gradient, where PyTorch's amax "
               "gives NaN for all (its max(dim) gives it to a NaN, as ours)"),
    along("amin", lambda x: x.min(1), dtypes=(*NUMBERS, "bool"), call=lambda x: x.amin(1),
          against="numpy.min", **NO_EMPTY),
    along("max along a dim", lambda x: (x.max(1), x.argmax(1)), dtypes=(*NUMBERS, "bool"),
          call=lambda x: x.max(1), against="numpy.max, argmax", **NO_EMPTY,
          note="(values, indices), as PyTorch; the index is the first one's, as NumPy"),
    along("min along a dim", lambda x: (x.min(1), x.argmin(1)), dtypes=(*NUMBERS, "bool"),
          call=lambda x: x.min(1), against="numpy.min, argmin", **NO_EMPTY),
    along("argmax", lambda x: x.argmax(-1), dtypes=(*NUMBERS, "bool"), empty=None,
          call=lambda x: x.argmax(-1), against="numpy.argmax",
          note="the first of equals, as NumPy; PyTorch leaves it open"),
    along("argmin", lambda x: np.asarray(x.argmin()), dtypes=NUMBERS, empty=None, zero_d=True,
          call=lambda x: x.argmin(), against="numpy.argmin"),
    along("any", lambda x: x.any(1), (-1, 1), (*NUMBERS, "bool"), call=lambda x: x.any(1),
          against="numpy.any"),
    along("all", lambda x: x.all(1), (-1, 1), (*NUMBERS, "bool"), call=lambda x: x.all(1),
          against="numpy.all",
          note="bool for every dtype, as NumPy; PyTorch gives uint8 for uint8"),
    along("median", **by(torch, "median", 1), dtypes=WIDE, call=lambda x: x.median(1), **NO_EMPTY,
          note="the lower of two, as PyTorch; NumPy gives their mean"),
    along("quantile", **by(torch, "quantile", 0.3, 1), dtypes=("float32", "float64"), empty=None,
          call=lambda x: x.quantile(0.3, 1), largest=True),
]  # fmt: skip

RUNNING = [
    along("cumsum", lambda x: np.cumsum(x, 1), dtypes=(*NUMBERS, "bool"), largest=True,
          call=lambda x: x.cumsum(1), against="numpy.cumsum",
          note="narrow integers give int64, unsigned ones uint64, as NumPy; PyTorch gives int64"),
    along("cumprod", lambda x: np.cumprod(x, 1), (-2, 2), (*WIDE, "int32", "int8", "uint8"),
          call=lambda x: x.cumprod(1), against="numpy.cumprod", note="dtypes as of cumsum"),
    along("cummax", **by(torch, "cummax", 1), dtypes=(*WIDE, "int32"), call=lambda x: x.cummax(1),
          note="(values, indices), the last of equals, as PyTorch"),
    along("cummin", **by(torch, "cummin", 1), dtypes=(*WIDE, "int32"), call=lambda x: x.cummin(1)),
    along("logcumsumexp", **by(torch, "logcumsumexp", 1), dtypes=WIDE, largest=True,
          call=lambda x: x.logcumsumexp(1)),
]  # fmt: skip

SOFTMAX = [
    along("softmax", lambda x: scipy.special.softmax(x, 1), (-9, 9), FLOATS, **NO_EMPTY,
          call=lambda x: x.softmax(1), against="scipy.special.softmax", largest=True),
    along("log_softmax", lambda x: scipy.special.log_softmax(x, 1), (-9, 9), FLOATS, **NO_EMPTY,
          call=lambda x: x.log_softmax(1), against="scipy.special.log_softmax", largest=True),
    along("softmin", **by(F, "softmin", 1), over=(-9, 9), call=lambda x: x.softmin(1), **NO_EMPTY,
          largest=True),
]  # fmt: skip


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def _rms_norm(x: Any, weight: Any) -> Any:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight


def _batch_norm(x: Any, mean: Any, var: Any, weight: Any, bias: Any) -> Any:
    mean, var, weight, bias = (each[:, None] for each in (mean, var, weight, bias))
    return (x - mean) / np.sqrt(var + 1e-5) * weight + bias


def norm(p: float | str) -> Row:
    return along(f"norm {p}", by_torch(lambda x: torch.linalg.vector_norm(
        x, 2 if p == "fro" else p, 1)), dtypes=WIDE, call=lambda x: x.norm(p, 1),
        against="torch.linalg.vector_norm", empty=(0, 3, 2), largest=True)  # fmt: skip


STATISTICS = [
    *(norm(p) for p in (1, 2, float("inf"), -float("inf"), 0, 3, "fro")),
    along("normalize", **by(F, "normalize", 2.0, 1), dtypes=WIDE, largest=True,
          call=lambda x: x.normalize(2.0, 1), **NO_EMPTY),
    along("aminmax", by_torch(lambda x: tuple(torch.aminmax(x, dim=1))), dtypes=WIDE,
          call=lambda x: x.aminmax(dim=1), against="torch.aminmax", **NO_EMPTY),
    along("var_mean", **by(torch, "var_mean", 1), dtypes=WIDE, call=lambda x: x.var_mean(1),
          largest=True, empty=None),
    along("nanmean", lambda x: np.nanmean(np.where(x > 0, x, np.nan), 1), dtypes=WIDE, largest=True,
          call=lambda x: (x.log() * 0 + x).nanmean(1), against="numpy.nanmean", empty=None),
    along("diff", lambda x: np.diff(x, axis=1), dtypes=(*WIDE, "int32"), largest=True,
          call=lambda x: x.diff(dim=1), against="numpy.diff", empty=(0, 5, 7)),
    along("nanmedian", by_torch(lambda x: tuple(torch.nanmedian(x, 1))), dtypes=WIDE,
          call=lambda x: x.nanmedian(1), against="torch.nanmedian", **NO_EMPTY),
    along("glu", by_torch(lambda x: F.glu(x, 2)), dtypes=WIDE, call=lambda x: x.glu(2),
          shape=(3, 5, 6), empty=(0, 5, 6), against="torch.nn.functional.glu"),
]  # fmt: skip


def loss(op: str, *draws: Draw, **how: Any) -> Row:
    """A loss of two operands of one shape, reduced to its mean."""
    return several(op, by_torch(lambda *x: getattr(F, op)(*x, **how)), [(3, 5)] * len(draws), draws,
                   dtypes=WIDE, call=function(f"nn.functional.{op}", **how), largest=True,
                   against=f"torch.nn.functional.{op}")  # fmt: skip


CLASSES = Draw(0, 4, "int64")
ONE = Draw(0.01, 0.99)
LOSSES = [
    loss("mse_loss", Draw(), Draw()),
    loss("l1_loss", Draw(), Draw()),
    loss("smooth_l1_loss", Draw(), Draw(), beta=0.7),
    loss("huber_loss", Draw(), Draw(), delta=0.7),
    loss("binary_cross_entropy", ONE, ONE),
    loss("binary_cross_entropy_with_logits", Draw(), ONE),
    loss("kl_div", Draw(), ONE, reduction="sum"),
    loss("poisson_nll_loss", Draw(), Draw(0, 5)),
    loss("gaussian_nll_loss", Draw(), Draw(), Draw(0.5, 2)),
    loss("soft_margin_loss", Draw(), Draw()),
    loss("hinge_embedding_loss", Draw(), Draw(1, 1)),
    loss("cosine_similarity", Draw(), Draw()),
    loss("pairwise_distance", Draw(), Draw()),
    loss("triplet_margin_loss", Draw(), Draw(), Draw()),
    several("cross_entropy", by_torch(F.cross_entropy), [(3, 5), (3,)], [Draw(), CLASSES],
            dtypes=WIDE, call=function("nn.functional.cross_entropy"), largest=True,
            against="torch.nn.functional.cross_entropy"),
    several("nll_loss", by_torch(F.nll_loss), [(3, 5), (3,)], [Draw(), CLASSES], dtypes=WIDE,
            call=function("nn.functional.nll_loss"), largest=True,
            against="torch.nn.functional.nll_loss"),
]  # fmt: skip

NORMS = [
    several("group_norm", by_torch(lambda x, w, b: F.group_norm(x, 3, w, b)),
            [(2, 6, 5), (6,), (6,)], largest=True,
            call=lambda x, w, b: x.group_norm(3, w, b), against="torch.nn.functional.group_norm"),
    several("instance_norm", by_torch(lambda x: F.instance_norm(x)), [(2, 3, 5)], largest=True,
            against="torch.nn.functional.instance_norm"),
    several("local_response_norm", by_torch(lambda x: F.local_response_norm(x, 3)), [(2, 6, 5)],
            call=lambda x: x.local_response_norm(3),
            against="torch.nn.functional.local_response_norm"),
    several("layer_norm", _layer_norm, [ODD, (7,), (7,)], largest=True, dtypes=FLOATS,
            call=lambda x, w, b: x.layer_norm(-1, w, b), others={"empty": [(0, 7), (7,), (7,)]},
            against="numpy expression"),
    several("rms_norm", _rms_norm, [ODD, (7,)], largest=True, dtypes=FLOATS,
            call=lambda x, w: x.rms_norm(-1, w), others={"empty": [(0, 7), (7,)]},
            against="numpy expression"),
    several("batch_norm", _batch_norm, [ODD, (5,), (5,), (5,), (5,)], largest=True, dtypes=FLOATS,
            draws=[Draw(), Draw(), Draw(0.5, 2), Draw(), Draw()],
            others={"empty": [(0, 5, 7), (5,), (5,), (5,), (5,)]}, against="numpy expression"),
]  # fmt: skip

ROWS: list[Row] = [*SUMS, *EXTREMES, *RUNNING, *SOFTMAX, *STATISTICS, *NORMS, *LOSSES]
