"""From PyTorch's OpInfo names to functions over Luminal Tensors.

Looked up in this order: `CALLS`, one library call with the arguments in another order; the library
by the same name (a Tensor method, then `lm.nn.functional`, then `lm`); `opinfo_compose`, several
library calls. What is in none of them fails with its reason in `REASONS`, or as not in the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import luminal as lm
from tests.conformance import opinfo_compose
from tests.conformance.opinfo_samples import Check, same_type, within

INF = float("inf")


class Entry(NamedTuple):
    """How an op is called, and how its results are checked where not by value."""

    call: Callable[..., Any]
    check: Check | None = None


def entry(name: str, variant: str = "") -> Entry | str:
    """The function for an OpInfo name, or the reason why there is none."""
    if name in REASONS:
        return REASONS[name]
    call = CALLS.get(f"{name}/{variant}") or CALLS.get(name) or library(name) or composed(name)
    if call is None:
        return "not in the library"
    return Entry(call, CHECKS.get(f"{name}/{variant}") or CHECKS.get(name))


def library(name: str) -> Callable[..., Any] | None:
    """The library's function of this name; `nn.functional.relu` is also `Tensor.relu`."""
    *path, last = name.split(".")
    owners: list[Any] = [lm.Tensor, getattr(lm.nn, "functional", None), lm]
    if path and path[0] != "nn":
        owners = [getattr(lm, path[0], None)]
    for owner in owners:
        found = getattr(owner, last, None)
        if callable(found):
            return found
    return None


def composed(name: str) -> Callable[..., Any] | None:
    """The composition of this name, with `_` for `.`."""
    return getattr(opinfo_compose, name.strip("_").replace(".", "_"), None)


def is_composed(name: str) -> bool:
    """Whether `name` is no single call of the library."""
    return name not in CALLS and library(name) is None


# One library call, with the arguments in the library's order.
CALLS: dict[str, Callable[..., Any]] = {
    "T": lambda x: x.T,
    "H": lambda x: x.T,
    "mT": lambda x: x.mT,
    "mH": lambda x: x.mT,
    "__getitem__": lambda x, *key: x[key[0] if len(key) == 1 else key],
    "__radd__": lambda x, other: other + x,
    "__rdiv__": lambda x, other: other / x,
    "__rmatmul__": lambda x, other: other @ x,
    "__rmod__": lambda x, other: other % x,
    "__rmul__": lambda x, other: other * x,
    "__rpow__": lambda x, other: other**x,
    "__rsub__": lambda x, other: other - x,
    "bfloat16": lambda x: x.cast(lm.bfloat16),
    "bool": lambda x: x.cast(lm.bool_),
    "byte": lambda x: x.cast(lm.uint8),
    "char": lambda x: x.cast(lm.int8),
    "double": lambda x: x.cast(lm.float64),
    "float": lambda x: x.cast(lm.float32),
    "half": lambda x: x.cast(lm.float16),
    "int": lambda x: x.cast(lm.int32),
    "long": lambda x: x.cast(lm.int64),
    "short": lambda x: x.cast(lm.int16),
    "cat": lambda tensors, dim=0: lm.concat(tensors, dim),
    "stack": lambda tensors, dim=0: lm.stack(tensors, dim),
    "einsum": lambda tensors, equation: lm.einsum(equation, *tensors),
    "expand": lambda x, shape: x.expand(shape),
    "ge": lambda x, other: x >= other,
    "gt": lambda x, other: x > other,
    "max/binary": lambda x, other: x.maximum(other),
    "min/binary": lambda x, other: x.minimum(other),
    "neg": lambda x: -x,
    "nn.functional.embedding": lambda weight, ids, **how: lm.Tensor.embedding(ids, weight, **how),
    "repeat": lambda x, dims: x.repeat(dims),
    "where": lambda x, condition, other: lm.where(condition, x, other),
    "floor_divide": lambda x, other: x // other,
    "remainder": lambda x, other: x % other,
}

# Results that are not compared by value.
CHECKS: dict[str, Check] = {
    "empty": same_type,
    "empty_like": same_type,
    "empty_permuted": same_type,
    "empty_strided": same_type,
    "new_empty": same_type,
    "new_empty_strided": same_type,
    "bernoulli": within(0, 1),
    "cauchy": same_type,
    "exponential": within(0, INF),
    "geometric": within(1, INF),
    "log_normal": within(0, INF),
    "multinomial": same_type,
    "normal": same_type,
    "rand_like": within(0, 1),
    "randint": same_type,
    "randint_like": same_type,
    "randn": same_type,
    "randn_like": same_type,
    "uniform": same_type,
}


def _because(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


# Why a name cannot pass, where that is known.
REASONS: dict[str, str] = {
    **_because(
        "complex numbers: the library has no complex dtype",
        """cdouble cfloat chalf complex polar view_as_complex stft
        fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.rfft fft.rfft2 fft.rfftn
        fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn
        linalg.eig linalg.eigvals""",
    ),
    **_because(
        "the result's shape depends on values: graphs have static ranks and extents of dims",
        "argwhere masked_select nonzero unique unique_consecutive",
    ),
    **_because("sparse tensors: not in the library", "sparse.sampled_addmm sparse.mm to_sparse"),
    **_because(
        "matrix decomposition: not in the library",
        """cholesky cholesky_inverse cholesky_solve geqrf linalg.cholesky linalg.cholesky_ex
        linalg.cond linalg.det linalg.eigh linalg.eigvalsh linalg.householder_product linalg.inv
        linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.lstsq linalg.lu
        linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve linalg.matrix_rank linalg.pinv
        linalg.qr linalg.slogdet linalg.solve linalg.solve_ex linalg.solve_triangular linalg.svd
        linalg.svdvals linalg.tensorinv linalg.tensorsolve logdet lu lu_solve lu_unpack ormqr
        pca_lowrank pinverse qr svd svd_lowrank triangular_solve""",
    ),
    **_because(
        "a Python number from a lazy Tensor: it has no value before its graph runs", "item"
    ),
    **_because(
        "compiles CUDA source given as text",
        """jiterator_unary jiterator_binary jiterator_4inputs_with_extra_args
        jiterator_binary_return_by_ref jiterator_2inputs_2outputs""",
    ),
}
