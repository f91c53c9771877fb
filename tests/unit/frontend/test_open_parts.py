"""Parts and foldings of open dims, which must come out whole: right where they do, else refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from luminal.base.errors import DimError, ShapeError
from tests.close import close
from tests.long_share import mostly_long

Parts = Callable[[Any], Any]

# What each does to a matrix of (n, 6), by the name of a method that PyTorch's tensors have too.
BOTH: dict[str, Parts] = {
    "chunk 2": lambda x: x.chunk(2, 0),
    "chunk 4": lambda x: x.chunk(4, 0),
    "chunk behind": lambda x: x.T.chunk(3, -1),
    "split": lambda x: x.split([2, 4], 0),
    "tensor_split": lambda x: x.tensor_split(4, 0),
    "tensor_split at": lambda x: x.tensor_split([2, 5, -1], 0),
    "vsplit": lambda x: x.vsplit(3),
    "unflatten": lambda x: x.unflatten(0, (-1, 4)),
    "unflatten in front": lambda x: x.unflatten(0, (3, -1)),
    "unflatten all": lambda x: x.unflatten(0, (2, 4)),
    "reshape": lambda x: x.reshape(-1, 4),
    "reshape apart": lambda x: x.T.reshape(6, -1, 3),
    "fold and sum": lambda x: x.unflatten(0, (-1, 2)).sum(1),
    "fold and multiply": lambda x: x.unflatten(0, (-1, 3)).mT @ x.unflatten(0, (-1, 3)),
}


def listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


@pytest.mark.parametrize("early", mostly_long([False, True], 1), ids=["input", "computed"])
@pytest.mark.parametrize("name", BOTH)
def test_each_length_gives_pytorchs_parts_or_is_refused(name: str, early: bool) -> None:
    fn = BOTH[name]
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 1, 64), 6), name="x")
    parts = listed(fn(x * 2 + 1 if early else x))
    for k, part in enumerate(parts):
        part.output(f"y{k}")
    exe = lm.compile(cx)
    refused = 0
    for n in range(1, 26):
        given = np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)
        try:
            theirs = listed(fn(torch.from_numpy(given * 2 + 1 if early else given)))
        except (RuntimeError, IndexError):
            theirs = []
        if len(theirs) != len(parts):
            with pytest.raises(DimError, match="does not hold"):
                exe({"x": given})
            refused += 1
            continue
        found = exe({"x": given})
        for k, each in enumerate(theirs):
            close(found[f"y{k}"], each.numpy())
    assert refused < 25


@pytest.mark.parametrize("name", BOTH)
def test_gradients_of_parts(name: str) -> None:
    n = {"split": 6, "unflatten all": 8}.get(name, 12)
    given = np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 1, 64), 6), name="x")
    theirs = torch.from_numpy(given).requires_grad_()
    losses = [
        sum((k + 1) * (part * part).sum() for k, part in enumerate(listed(BOTH[name](each))))
        for each in (x, theirs)
    ]
    losses[1].backward()
    lm.grad(losses[0], [x])[0].output("dx")
    found = lm.compile(cx)({"x": given})["dx"]
    # gradients of 8 to 64 terms in another order
    np.testing.assert_allclose(found, theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shape", "fits", "fails"),
    [
        ("glu", ("n",), 6, 5),
        ("pixel_shuffle", (1, "n", 2, 2), 8, 6),
        ("pixel_unshuffle", (1, 2, "n", 4), 6, 5),
        ("channel_shuffle", (1, "n", 3), 8, 7),
        ("group_norm", (2, "n", 3), 6, 7),
    ],
)
def test_functions_of_groups(name: str, shape: Any, fits: int, fails: int) -> None:
    args = () if name == "glu" else (2,)
    cx = lm.Graph()
    cx.dim("n", 1, 64)
    getattr(nn.functional, name)(cx.tensor(shape, name="x"), *args).output("y")
    exe = lm.compile(cx)
    for n in (fits, fails):
        given = np.random.default_rng(n).standard_normal([n if e == "n" else e for e in shape])
        given = given.astype(np.float32)
        if n == fails:
            with pytest.raises(DimError, match="does not hold"):
                exe({"x": given})
        else:
            theirs = getattr(torch.nn.functional, name)(torch.from_numpy(given), *args)
            close(exe({"x": given})["y"], theirs)


def test_an_open_dim_as_a_wider_dtype() -> None:
    cx = lm.Graph()
    cx.tensor((2, cx.dim("n", 0, 64)), lm.int32, "x").view(lm.int64).output("y")
    exe = lm.compile(cx)
    for n in (6, 0, 4):
        x = np.arange(2 * n, dtype=np.int32).reshape(2, n)
        np.testing.assert_array_equal(exe({"x": x})["y"], x.view(np.int64))
    with pytest.raises(DimError, match="does not hold"):
        exe({"x": np.zeros((2, 3), np.int32)})


def test_what_no_dim_decides_is_refused_at_once() -> None:
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 2, 64), 6), name="x")
    with pytest.raises(ShapeError, match="the products must be the same"):
        x.reshape(x.shape[0], 7)
    with pytest.raises(DimError, match="never holds"):
        x.split([30, 40], 0)
    with pytest.raises(ShapeError, match=r"split: dim 0 of x: .* chunk or tensor_split"):
        x.split(2, 0)
    with pytest.raises(ShapeError, match=r"unbind: dim 0 of x: .* chunk or tensor_split"):
        x.unbind(0)
    x.chunk(2, 0)[0].output("y")
    assert not cx.requirements  # two parts of two rows or more are there always
