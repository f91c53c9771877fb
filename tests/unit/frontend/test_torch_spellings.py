"""Ways to write a thing that PyTorch has beside the usual one, and what it knows of dtypes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from luminal.nn import functional as F
from tests.close import close, close_each

DTYPES = ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
X = np.arange(6.0, dtype=np.float32).reshape(2, 3) - 2

SPELLINGS = {
    "flip(0, 1)": (lambda x: x.flip(0, 1), lambda x: x.flip(0, 1)),
    "flip((0, 1))": (lambda x: x.flip((0, 1)), lambda x: x.flip((0, 1))),
    "flip(dims=...)": (lambda x: lm.flip(x, dims=(1,)), lambda x: torch.flip(x, dims=(1,))),
    "einsum of lists": (
        lambda x: lm.einsum(x, [0, 1], x, [2, 1], [2, 0]),
        lambda x: torch.einsum(x, [0, 1], x, [2, 1], [2, 0]),
    ),
    "einsum of lists, no result": (
        lambda x: lm.einsum(x, [..., 0], x, [..., 0]),
        lambda x: torch.einsum(x, [..., 0], x, [..., 0]),
    ),
    "relu(inplace)": (
        lambda x: F.relu(x, inplace=True),
        lambda x: torch.nn.functional.relu(x, inplace=True),
    ),
    "where(condition)": (
        lambda x: lm.where(lm.constant(X > 0))[1],
        lambda x: torch.where(x > 0)[1],
    ),
    "x[None]": (lambda x: x[lm.newaxis], lambda x: x[None]),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_means_what_it_means_in_torch(name: str) -> None:
    ours, theirs = SPELLINGS[name]
    found = ours(lm.tensor(X)).numpy()
    expected = theirs(torch.tensor(X)).numpy()
    close_each(found, expected)
    assert found.dtype == expected.dtype


def theirs(name: str) -> Any:
    return getattr(torch, name)


def ours(name: str) -> Any:
    return getattr(lm, name)


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_dtypes_meet_as_in_torch(a: str, b: str) -> None:
    def name(dtype: Any) -> str:
        return str(dtype).removeprefix("torch.")

    expected = name(torch.promote_types(theirs(a), theirs(b)))
    assert lm.promote_types(ours(a), ours(b)).name == expected
    assert lm.can_cast(ours(a), ours(b)) == torch.can_cast(theirs(a), theirs(b))
    x = lm.zeros((2,), dtype=ours(a))
    assert lm.result_type(x, 1.5).name == name(
        torch.result_type(torch.zeros(2, dtype=theirs(a)), 1.5)
    )


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_limits_are_those_of_torch(dtype: str) -> None:
    if "float" in dtype:
        for name in ("bits", "eps", "max", "min", "tiny", "smallest_normal"):
            found, expected = (getattr(each, name) for each in (
                lm.finfo(ours(dtype)), torch.finfo(theirs(dtype))
            ))  # fmt: skip
            assert float(found) == float(expected), name
        with pytest.raises(lm.DTypeError, match=r"iinfo: .* is no integer; lm.finfo"):
            lm.iinfo(ours(dtype))
    else:
        for name in ("bits", "max", "min"):
            assert getattr(lm.iinfo(ours(dtype)), name) == getattr(torch.iinfo(theirs(dtype)), name)
        with pytest.raises(lm.DTypeError, match=r"finfo: .* is no float; lm.iinfo"):
            lm.finfo(ours(dtype))


def test_numbers_have_their_names() -> None:
    assert (lm.pi, lm.e, lm.inf) == (torch.pi, torch.e, torch.inf)
    assert lm.nan != lm.nan


@pytest.mark.parametrize(
    ("labels", "match"),
    [([0, 99], r"label 99 is not in 0..51"), ("ab", "'ab' is no list of labels")],
)
def test_labels_that_are_none_are_named(labels: object, match: str) -> None:
    with pytest.raises(lm.ShapeError, match=match):
        lm.einsum(lm.tensor(X), labels)


# --- what is no Tensor


@pytest.mark.parametrize(
    "call",
    [
        lambda x: lm.cat([lm.tensor(x), x]),
        lambda x: lm.cat([x, lm.tensor(x)]),
        lambda x: lm.sort(x),
        lambda x: lm.sum(x.tolist()),
        lambda x: F.relu(x),
    ],
)
def test_arrays_in_the_place_of_tensors_are_named(call: Any) -> None:
    with pytest.raises(lm.DTypeError, match=r"got a (ndarray|list) in the place of a Tensor"):
        call(X)


def test_a_tensor_of_an_array_is_a_copy() -> None:
    array = X.copy()
    x, shared = lm.tensor(array), lm.from_numpy(array)
    array[:] = 7
    np.testing.assert_array_equal(x.numpy(), X)
    np.testing.assert_array_equal(shared.numpy(), array)
    lm.tensor(array).numpy()[:] = 8
    assert array[0, 0] == 7


def test_copies_of_tensors_are_themselves_and_pickles_say_why_not() -> None:
    x = lm.tensor(X)
    assert copy.copy(x) is x
    assert copy.deepcopy(x) is x
    with pytest.raises(TypeError, match=r"pickle x.numpy\(\)"):
        pickle.dumps(x)


def test_numbers_that_no_dtype_holds_are_named() -> None:
    with pytest.raises(lm.DTypeError, match="does not fit int64 or uint64"):
        lm.tensor(2**70)
    with pytest.raises(lm.DTypeError, match="1j is complex"):
        lm.tensor(1j, dtype=lm.float32)


# --- modules and jit


def test_what_is_assigned_to_data_is_set() -> None:
    layer = nn.Linear(4, 2)
    layer.bias.data = lm.zeros(2) + 3
    np.testing.assert_array_equal(layer.bias.numpy(), [3, 3])
    norm = nn.BatchNorm1d(2)
    norm.running_mean.data = np.ones(2, np.float32)
    np.testing.assert_array_equal(norm.running_mean.numpy(), [1, 1])


@pytest.mark.parametrize("value", [np.zeros((2, 4), np.float32), lm.constant(1.0), 3.0])
def test_a_part_is_replaced_by_parts_only(value: Any) -> None:
    layer = nn.Linear(4, 2)
    before = layer.weight
    with pytest.raises(lm.InputError, match=r"Linear.weight is a Parameter, .* self.weight.set"):
        layer.weight = value
    assert layer.weight is before
    layer.weight = nn.Parameter(np.zeros((2, 4), np.float32))
    layer.bias = None


@pytest.mark.parametrize(
    ("layer", "count"),
    [
        (nn.MultiheadAttention(8, 2, batch_first=True), 3),
        (nn.TransformerEncoderLayer(8, 2, batch_first=True), 1),
        (nn.TransformerDecoderLayer(8, 2, batch_first=True), 2),
    ],
)
def test_layers_with_flags_compile_as_they_are(layer: nn.Module, count: int) -> None:
    layer.eval()
    x = np.ones((2, 3, 8), np.float32)
    found = lm.jit(layer)(*(x,) * count)
    expected = layer(*(lm.tensor(x),) * count)
    for ours, wanted in zip(*((e if isinstance(e, tuple) else (e,)) for e in (found, expected))):  # noqa: B905
        close(ours, wanted.numpy())


def test_flags_and_strings_are_passed_as_they_are() -> None:
    seen = []

    @lm.jit
    def f(x: Any, flag: bool = False, kind: str = "a", scale: float = 1.0) -> Any:
        seen.append((flag, kind))
        return x * x * scale if flag else x * scale

    np.testing.assert_array_equal(f(X), X)
    np.testing.assert_array_equal(f(X, True), X * X)
    np.testing.assert_array_equal(f(X, True, scale=3.0), X * X * 3)
    np.testing.assert_array_equal(f(X, True, kind="b"), X * X)
    assert seen == [(False, "a"), (True, "a"), (True, "b")]


def test_what_cannot_be_jitted_says_why() -> None:
    with pytest.raises(lm.ShapeError, match=r"sum: dim is a Tensor.*name the argument in static"):
        lm.jit(lambda x, n: x.sum(n))(X, 1)
    with pytest.raises(lm.InputError, match="returns no Tensor and assigns no State"):
        lm.jit(lambda x: None)(X)


def test_a_tensor_that_reads_a_state_stands_for_it() -> None:
    cx = lm.Graph()
    total = cx.state((2,))
    lm.assign(total, total + 1)
    lm.compile(cx)({})
    assert total.state.numpy().tolist() == [1, 1]
    with pytest.raises(lm.GraphError, match="does not read a State"):
        lm.assign(total + 1, total)
