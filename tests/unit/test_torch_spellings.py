"""Ways to write a thing that PyTorch has beside the usual one, and what it knows of dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.nn import functional as F

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
    np.testing.assert_allclose(found, expected, rtol=1e-6)
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
