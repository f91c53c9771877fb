"""NaN, infinities, zeros of both signs and extreme numbers, and where an op differs on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch

from tests.numerics.recording import on, run

Array = np.ndarray[Any, Any]
BOTH = ("reference", "cpu")


class Op(NamedTuple):
    """`ours` and `theirs` of the same tensors, and the units in the last place between them."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    ulp: float = 0.0


def torch_of(x: Array) -> torch.Tensor:
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def numpy_of(x: torch.Tensor) -> Array:
    if x.dtype is torch.bfloat16:
        return np.asarray(x.view(torch.uint16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(x.numpy())


def units_apart(found: Array, wanted: Array) -> Array:
    """Distance of each element in units in the last place of PyTorch's, 0 where both are equal."""
    if found.dtype.kind in "biu":
        return np.where(found == wanted, 0.0, np.inf)
    limits = ml_dtypes.finfo(wanted.dtype)
    f, w = found.astype(np.float64), wanted.astype(np.float64)
    same = (f == w) | (np.isnan(f) & np.isnan(w))
    with np.errstate(all="ignore"):
        units = np.abs(f - w) / (np.maximum(np.abs(w), float(limits.tiny)) * float(limits.eps))
    return np.where(same, 0.0, np.where(np.isfinite(units), units, np.inf))


def difference(op: Op, found: Any, wanted: torch.Tensor, *operands: Any) -> str | None:
    """What is wrong with a result, in a line."""
    right = numpy_of(wanted)
    if found.dtype != right.dtype or found.shape != right.shape:
        return f"{op.name}: {found.dtype}{found.shape}, PyTorch has {right.dtype}{right.shape}"
    units = units_apart(found, right)
    if (units <= op.ulp).all():
        return None
    k = np.unravel_index(np.argmax(units), units.shape)
    seen = ", ".join(str(np.broadcast_to(x, units.shape)[k]) for x in operands)
    return f"{op.name}({seen}) of {operands[0].dtype}: {found[k]}, PyTorch has {right[k]}"


def failures(ops: list[Op], backend: str, *operands: Array) -> list[str]:
    """All the ops in one graph; those that PyTorch lacks for the dtype are left out."""
    wanted = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in ops:
            try:
                wanted[op] = op.theirs(*map(torch_of, operands))
            except (RuntimeError, TypeError, NotImplementedError):
                continue
    with on(backend):
        found = run(lambda *xs: [op.ours(*xs) for op in wanted], *operands)
    lines = (difference(op, f, wanted[op], *operands) for op, f in zip(wanted, found, strict=True))
    return [line for line in lines if line]
