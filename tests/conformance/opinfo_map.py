"""From PyTorch's OpInfo names to functions over Luminal Tensors.

Looked up in this order: `CALLS`, one library call with the arguments in another order; the library
by the same name; `opinfo_compose` and its like, several library calls. What is in none of them
fails with its reason in `REASONS`, or as not in the library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import luminal as lm
from tests.conformance import opinfo_compose, opinfo_masked, opinfo_windows
from tests.conformance.opinfo_samples import (
    Check,
    equal_at,
    equal_where_kept,
    same_type,
    within,
)

INF = float("inf")


class Entry(NamedTuple):
    """How an op is called, and how its results are checked where not by value.

    `constant`: integer and bool tensors among the arguments are passed as constants, since they
    decide the result's shape.
    """

    call: Callable[..., Any]
    check: Check | None = None
    constant: bool = False


def entry(name: str, variant: str = "") -> Entry | str:
    """The function for an OpInfo name, or the reason why there is none."""
    call = CALLS.get(f"{name}/{variant}") or CALLS.get(name) or library(name) or composed(name)
    if call is None:
        return REASONS.get(name, "not in the library")
    check = CHECKS.get(f"{name}/{variant}") or CHECKS.get(name)
    return Entry(call, check, name in CONSTANTS)


def library(name: str) -> Callable[..., Any] | None:
    """The library's function of this name: a Tensor method, one of `lm`, `lm.nn.functional`, ..."""
    *path, last = name.strip("_").split(".")
    functional = getattr(lm.nn, "functional", None)
    owners: list[Any] = [lm.Tensor, lm]
    if path == ["nn", "functional"]:
        owners = [functional, lm.Tensor, lm]
    elif path:
        owners = [getattr(lm, path[0], None)]
    for owner in owners:
        found = getattr(owner, last, None)
        if inspect.isroutine(found) and str(found.__module__).startswith("luminal"):
            return cast("Callable[..., Any]", found)
    return None


def composed(name: str) -> Callable[..., Any] | None:
    """The composition of this name, with `_` for `.`."""
    for prefix, module in (("masked.", opinfo_masked), ("signal.windows.", opinfo_windows)):
        if name.startswith(prefix):
            return getattr(module, name.removeprefix(prefix), None)
    python_name = name.replace(".", "_")
    return getattr(opinfo_compose, python_name, None) or getattr(
        opinfo_compose, python_name.strip("_"), None
    )


def is_composed(name: str) -> bool:
    """Whether `name` is no single call of the library."""
    call = CALLS.get(name) or library(name)
    return call is None or call.__module__ == opinfo_compose.__name__


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
    "expand": lambda x, shape: x.expand(shape),
    "ge": lambda x, other: x >= other,
    "gt": lambda x, other: x > other,
    "max/binary": lambda x, other: x.maximum(other),
    "min/binary": lambda x, other: x.minimum(other),
    "neg": lambda x: -x,
    "nn.functional.embedding": lambda weight, ids, **how: lm.Tensor.embedding(ids, weight, **how),
    "i0": lm.special.i0,
    "polygamma": lambda x, n: lm.special.polygamma(n, x),
    "special.polygamma": lambda x, n: lm.special.polygamma(n, x),
    "repeat": lambda x, dims: x.repeat(dims),
    "where": lambda x, condition, other: lm.where(condition, x, other),
    "normal": lambda mean, std, **how: lm.random.normal(lm.random.key(0), mean.shape, mean, std),
    "normal/number_mean": lambda std, mean, shape=(), **how: lm.random.normal(
        lm.random.key(0), getattr(mean, "shape", shape), mean, std
    ),
    "normal/in_place": lambda x, mean, std: lm.random.normal(lm.random.key(0), x.shape, mean, std),
    "rand_like": lambda x, dtype=None: lm.random.uniform(
        lm.random.key(0), x.shape, dtype=dtype or x.dtype
    ),
    "randn": lambda *shape, dtype=None: lm.random.normal(
        lm.random.key(0), shape[0], dtype=dtype or lm.float32
    ),
    "randn_like": lambda x, dtype=None: lm.random.normal(
        lm.random.key(0), x.shape, dtype=dtype or x.dtype
    ),
    "randint": lambda *how, dtype=lm.int64: lm.random.randint(
        lm.random.key(0), how[-1], *((0, how[0]) if len(how) == 2 else how[:2])
    ).cast(dtype),
    "randint_like": lambda x, *ends, dtype=None: lm.random.randint(
        lm.random.key(0), x.shape, *((0, *ends) if len(ends) == 1 else ends)
    ).cast(dtype or x.dtype),
    "uniform": lambda x, low, high: lm.random.uniform(lm.random.key(0), x.shape, low, high),
    "cdist": lambda x, other, p=2.0, compute_mode=None: lm.cdist(x, other, p),
    "einsum": lambda tensors, equation: lm.einsum(equation, *tensors),
    "linalg.cross": lambda x, other, dim=-1: lm.linalg.cross(x, other, dim),
    "nn.functional.embedding_bag": lambda weight, ids, **how: lm.embedding_bag(ids, weight, **how),
    "empty_permuted": lambda shape, order, **how: lm.empty(shape, **how),
    "empty_strided": lambda shape, stride, **how: lm.empty(shape, **how),
    "new_empty_strided": lambda x, shape, stride, dtype=None: lm.empty(shape, dtype or x.dtype),
    "scalar_tensor": lambda value, dtype=None: lm.constant(float(value), dtype),
    "as_strided_copy": lambda x, *how, **named: x.as_strided(*how, **named),
    "expand_copy": lambda x, shape: x.expand(shape),
    "diagonal_copy": lambda x, *how, **named: x.diagonal(*how, **named),
    "narrow_copy": lambda x, *how: x.narrow(*how),
    "squeeze_copy": lambda x, *how: x.squeeze(*how),
    "t_copy": lambda x: x.t(),
    "transpose_copy": lambda x, *how: x.transpose(*how),
    "unbind_copy": lambda x, *how: x.unbind(*how),
    "unsqueeze_copy": lambda x, *how: x.unsqueeze(*how),
    "view_copy": lambda x, shape: x.view(shape),
    "cauchy": opinfo_compose.cauchy,
    "to": opinfo_compose.to,
    "slice": opinfo_compose.slice,
    "unfold": opinfo_compose.unfold,
    "meshgrid/list_of_tensors": lambda tensors, **how: lm.meshgrid(*tensors, **how),
    "multinomial": opinfo_compose.with_key(lm.multinomial),
    "bernoulli": opinfo_compose.with_key(lm.bernoulli),
    "nn.functional.rrelu": opinfo_compose.with_key(lm.nn.functional.rrelu),
    **{
        f"nn.functional.{name}": opinfo_compose.with_key(getattr(lm.nn.functional, name))
        for name in (
            "dropout",
            "dropout1d",
            "dropout2d",
            "dropout3d",
            "alpha_dropout",
            "feature_alpha_dropout",
        )
    },
    "linalg.diagonal": lm.linalg.diagonal,
    "floor_divide": lambda x, other: x // other,
    "remainder": lambda x, other: x % other,
}

# Ops with integer or bool tensors that decide the result's shape.
CONSTANTS = frozenset("__getitem__ index_put narrow repeat_interleave tensor_split".split())

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
    "nn.functional.dropout": equal_where_kept,
    "nn.functional.dropout2d": equal_where_kept,
    "nn.functional.dropout3d": equal_where_kept,
    "nn.functional.alpha_dropout": same_type,
    "nn.functional.feature_alpha_dropout": same_type,
    "nn.functional.rrelu": same_type,
    "normal": same_type,
    "rand_like": within(0, 1),
    "randint": same_type,
    "randint_like": same_type,
    "randn": same_type,
    "randn_like": same_type,
    "uniform": same_type,
    "svd": equal_at(1),
    "linalg.svd": equal_at(1),
    "linalg.eigh": equal_at(0),
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
        """geqrf linalg.householder_product linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve
        linalg.lu_factor_ex lu ormqr pca_lowrank svd_lowrank""",
    ),
    **_because("a Python number from a lazy Tensor: it has no value before its graph runs", "item"),
    **_because(
        "compiles CUDA source given as text",
        """jiterator_unary jiterator_binary jiterator_4inputs_with_extra_args
        jiterator_binary_return_by_ref jiterator_2inputs_2outputs""",
    ),
    **_because(
        "special function: not in the library",
        "igamma igammac signal.windows.kaiser special.airy_ai",
    ),
    **_because(
        "degrees in a tensor: the library's recurrences take an int",
        """special.hermite_polynomial_h special.hermite_polynomial_he
        special.laguerre_polynomial_l special.legendre_polynomial_p""",
    ),
    **_because(
        "PyTorch's internal form of an op: not in the library",
        """_batch_norm_with_update _native_batch_norm_legit _segment_reduce _unsafe_masked_index
        _unsafe_masked_index_put_accumulate _upsample_bilinear2d_aa hash_tensor
        max_pool2d_with_indices_backward native_batch_norm""",
    ),
}
