"""PyTorch's functions: which of its names `lm` has, and that they mean the same there."""

from __future__ import annotations

import inspect
import itertools
import pkgutil
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import functions
from tests.conformance import opinfo_map
from tests.conformance.opinfo_run import database
from tests.conformance.opinfo_samples import equal, luminal_results, torch_result
from tests.numerics.batch import Case, check
from tests.numerics.recording import run

# What torch.Tensor has and Tensor has not, by reason.
REASONS: dict[str, str] = {
    "complex numbers": "cdouble cfloat chalf imag is_conj is_neg istft stft",
    "sparse, nested and quantised tensors": """
        ccol_indices coalesce col_indices crow_indices dense_dim dequantize indices int_repr
        is_coalesced is_nested is_quantized is_sparse is_sparse_csr q_per_channel_axis
        q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme row_indices smm
        sparse_dim sparse_mask sspaddmm to_dense to_padded_tensor to_sparse to_sparse_bsc
        to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values""",
    "storage and devices: a lazy value has none": """
        const_data_ptr cuda data_ptr dim_order get_device hash_tensor ipu
        is_cpu is_distributed is_inference is_ipu is_maia is_meta is_mkldnn
        is_mps is_mtia is_pinned is_set_to is_shared is_vulkan is_xla is_xpu layout mtia new
        new_empty_strided new_tensor pin_memory record_stream resize resize_as slice_inverse storage
        storage_offset storage_type to_mkldnn type untyped_storage xpu""",
    "PyTorch's tape: gradients are values of the graph": """grad_dtype grad_fn is_leaf output_nr
        register_hook register_post_accumulate_grad_hook reinforce retain_grad
        retains_grad volatile""",
    "PyTorch's own machinery": "as_subclass index module_load name",
    "removed from PyTorch, they only raise": "eig lstsq symeig",
    "values from a run": "is_nonzero",
    "not in the library": "geqrf i0 igamma igammac lu orgqr ormqr polygamma",
}


def _is_function(found: object) -> bool:
    return callable(found) and not inspect.isclass(found)


def _public(owner: Any) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


METHODS = {name for name in _public(lm.Tensor) if _is_function(getattr(lm.Tensor, name))}
TORCH = {name for name in _public(torch) if _is_function(getattr(torch, name))}
# `compile`, `load` and `save` have names of PyTorch's and are about graphs and files.
SHARED = TORCH & _public(lm) - {"compile", "load", "save"}


def test_every_method_that_pytorch_has_as_a_function_is_one() -> None:
    missing = {name for name in METHODS & TORCH if not _is_function(getattr(lm, name, None))}
    assert missing == set(), "add `lm` to their rows in src/luminal/frontend/names/table.py"
    own = METHODS & TORCH & _public(torch.Tensor) - {"numel", "where"}
    pairs = {name: (getattr(lm, name), getattr(lm.Tensor, name)) for name in own}
    others = {name for name, pair in pairs.items() if len(set(map(inspect.unwrap, pair))) > 1}
    assert others == set(), "these functions of lm are not the methods"


def test_the_list_of_functions_is_what_the_module_defines() -> None:
    own = {name for name in _public(functions) if _is_function(getattr(functions, name))}
    assert own == set(functions.__all__)
    for name in own:
        assert getattr(lm, name) is getattr(functions, name), f"lm.{name} is another thing"


def test_no_module_takes_a_functions_name() -> None:
    """A module binds its name in the package at its first import, which may come late."""
    modules = {module.name for module in pkgutil.iter_modules(lm.__path__)}
    assert not modules & {name for name in lm.__all__ if callable(getattr(lm, name))}


def test_what_tensors_of_pytorch_have_beyond_is_listed_with_its_reason() -> None:
    beyond = _public(torch.Tensor) - _public(lm.Tensor)
    missing = {name for name in beyond if not name.endswith("_")}
    listed = {name for names in REASONS.values() for name in names.split()}
    assert missing - listed == set(), "implement these, or say here why not"
    assert listed & _public(lm.Tensor) == set(), "these are there now: drop them here"


# --- values ---------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(0, 1, (3, 5)).astype(np.float32)
V = np.array([1, -2, 2, 0, 3], np.float32)

# Calls whose meaning PyTorch and the array API, or PyTorch's own two namespaces, do not share.
CALLS: dict[str, Any] = {
    "max of a dim": lambda f, x, v: list(f.max(x, 1)),
    "max of two": lambda f, x, v: f.max(x, v),
    "min of a dim": lambda f, x, v: list(f.min(x, dim=0, keepdim=True)),
    "std, var": lambda f, x, v: [f.std(x), f.var(x, 1), f.var(x, 0, unbiased=False)],
    "std_mean": lambda f, x, v: list(f.std_mean(x, 0)),
    "sums": lambda f, x, v: [f.sum(x, 1, True), f.prod(x, 1), f.mean(x, (0, 1)), f.cumsum(x, 1)],
    "where": lambda f, x, v: [f.argmax(x), f.argmin(x, 1), f.any(x, 1), f.all(x, 0)],
    "equal": lambda f, x, v: [f.eq(x, v), f.not_equal(x, v)],
    "meshgrid": lambda f, x, v: list(f.meshgrid(v, x[0], indexing="ij")),
    "divide": lambda f, x, v: [f.divide(x, v, rounding_mode="floor"), f.div(x, v)],
    "add": lambda f, x, v: [f.add(x, v, alpha=2), f.sub(x, v, alpha=3), f.rsub(x, v)],
    "norms": lambda f, x, v: [f.layer_norm(x, (5,), v), f.rms_norm(x, [5], v)],
    "batch_norm": lambda f, x, v: f.nn.functional.batch_norm(x, v, f.abs(v) + 1),
    "splits": lambda f, x, v: [*f.split(x, 2, 1), *f.chunk(x, 2, 1)],
    "sizes": lambda f, x, v: [*f.split_with_sizes(v, [1, 4]), *f.split(x, [2, 1])],
    "tiles": lambda f, x, v: [f.tile(v, (2, 2)), f.repeat_interleave(v, 2)],
    "sort": lambda f, x, v: [*f.sort(x, 1, descending=True), *f.topk(v, 2), *f.median(x, 1)],
    "clip": lambda f, x, v: [f.clip(x, -0.5, 0.5), f.clamp(x, min=v), f.round(x, decimals=1)],
    "take": lambda f, x, v: [f.take(x, f.argsort(v)), f.index_select(x, 1, f.argsort(v))],
    "cross": lambda f, x, v: [f.cross(x, x * 2 + 1, 0), f.linalg.norm(x, 1), f.norm(x, 1)],
}


@pytest.mark.parametrize("name", CALLS)
def test_what_names_mean_is_pytorchs(name: str) -> None:
    check([Case(name, *(partial(CALLS[name], f) for f in (lm, torch)), [X, V])], "reference")


def test_meshgrid_and_repeat_have_no_other_sense() -> None:
    found = run(lambda v: [*lm.meshgrid(v, v[:2]), lm.repeat(v, 2), v.repeat(2)], V)
    grids = np.meshgrid(V, V[:2], indexing="ij")
    for mine, wanted in zip(found, [*grids, np.tile(V, 2), np.tile(V, 2)], strict=True):
        np.testing.assert_array_equal(mine, wanted)


SAMPLES = 12

# OpInfo's samples that say something else here, by name (and variant), with the reason.
OTHERWISE = {
    "arange": "bools as ends",
    "as_strided/partial_views": "positions beyond the tensor, which PyTorch finds in its storage",
    "randint": "floats as dtype",
    "randint_like": "floats as dtype",
    "where": "OpInfo calls it with the condition second",
    "einsum": "OpInfo calls it with the operands first",
    "embedding": "torch.nn.functional's order of arguments",
    "nn.functional.embedding": "OpInfo calls it with the weight first",
    "nn.functional.embedding_bag": "OpInfo calls it with the weight first",
    **dict.fromkeys(
        ("masked_select", "unique", "unique_consecutive", "nonzero", "argwhere"),
        "the values would decide the shape",
    ),
}
LINALG = ("linalg.det", "linalg.slogdet", "linalg.inv", "linalg.solve", "linalg.matrix_power")


def _operations() -> list[tuple[str, Any, str]]:
    """OpInfos with samples for a function of `lm` that PyTorch has too, with its name there."""
    found = []
    for op in database():
        full = f"{op.name}/{op.variant_test_name}".strip("/")
        last = op.name.removeprefix("nn.functional.")
        last = last.removeprefix("linalg.") if op.name in LINALG else last
        if last not in SHARED or op.name in OTHERWISE or full in OTHERWISE:
            continue
        found.append((full, op, last))
    return found


@pytest.mark.long
def test_a_function_of_pytorchs_name_means_the_same() -> None:
    """In one test, since PyTorch's list of operations takes seconds to import."""
    failed = []
    for label, op, name in _operations():
        try:
            _agrees(op, name)
        except Exception as error:  # every function that is wrong is listed
            failed.append(f"{label}: {type(error).__name__}: {str(error)[:200]}")
    assert not failed, "\n".join(failed)


def _agrees(op: Any, name: str) -> None:
    def call(*args: Any, **named: Any) -> Any:
        with lm.nn.keyed(lm.random.key(0)):
            return getattr(lm, name)(*args, **named)

    full = f"{op.name}/{op.variant_test_name}"
    wanted = opinfo_map.CHECKS.get(full) or opinfo_map.CHECKS.get(op.name) or equal
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=False)
    for sample in itertools.islice(samples, SAMPLES):
        constant = op.name in opinfo_map.CONSTANTS
        found = luminal_results(call, sample, "reference", constant=constant)
        wanted(found, torch_result(op.op, sample))


# --- what else PyTorch has ------------------------------------------------------------------------

# What the namespaces of PyTorch have and ours have not, by reason.
BEYOND: dict[str, dict[str, str]] = {
    "nn.functional": {
        "not tensors' functions": """Optional assert_int_or_pair boolean_dispatch
            handle_torch_function has_torch_function has_torch_function_unary
            has_torch_function_variadic""",
        "return_indices=True says it": """adaptive_max_pool1d_with_indices
            adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
            max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices""",
        "internal, or of one kind of device": """conv_tbc grouped_mm native_channel_shuffle
            scaled_grouped_mm scaled_mm""",
        "nn.MultiheadAttention has it": "multi_head_attention_forward",
        "not in the library": """fractional_max_pool2d fractional_max_pool2d_with_indices
            fractional_max_pool3d fractional_max_pool3d_with_indices linear_cross_entropy""",
    },
    "nn": {
        "parts whose shapes come with the first input": """LazyBatchNorm1d LazyBatchNorm2d
            LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d
            LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear
            UninitializedBuffer UninitializedParameter""",
        "of several devices": "DataParallel SyncBatchNorm",
        "other names, bases": "Buffer Container NLLLoss2d RNNBase RNNCellBase",
        "not in the library": """AdaptiveLogSoftmaxWithLoss CrossMapLRN2d FractionalMaxPool2d
            FractionalMaxPool3d LinearCrossEntropyLoss LinearCrossEntropyOptions""",
    },
    "linalg": {
        "complex numbers": "eig eigvals",
        "not in the library": "householder_product ldl_factor ldl_factor_ex ldl_solve "
                              "lu_factor_ex",
    },
}  # fmt: skip


@pytest.mark.parametrize("path", BEYOND)
def test_what_namespaces_of_pytorch_have_beyond_is_listed(path: str) -> None:
    theirs, ours = torch, lm
    for part in path.split("."):
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    wanted = inspect.isclass if path == "nn" else _is_function
    names = {name for name in _public(theirs) if wanted(getattr(theirs, name))}
    missing = {name for name in names - _public(ours) if not name.endswith("_")}
    listed = {name for text in BEYOND[path].values() for name in text.split()}
    assert missing - listed == set(), "implement these, or say here why not"
    assert listed & _public(ours) == set(), "these are there now: drop them here"
