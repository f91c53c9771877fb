"""Views, concatenation and `x[...]` against NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from luminal.base.errors import DimError, DTypeError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.movement.views import concat, stack
from tests.close import close
from tests.numerics.recording import results, run

pytestmark = pytest.mark.usefixtures("every_backend")

X = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
T = torch.from_numpy(X)

VIEWS = {
    "reshape": lambda x: x.reshape(6, -1),
    "reshape-tuple": lambda x: x.reshape((3, 40)),
    "permute": lambda x: x.permute(3, 1, 0, 2),
    "permute-negative": lambda x: x.permute((-1, 0, 1, -2)),
    "transpose": lambda x: x.transpose(-1, 1),
    "mT": lambda x: x.mT,
    "flatten": lambda x: x.flatten(),
    "flatten-part": lambda x: x.flatten(1, -2),
    "unflatten": lambda x: x.unflatten(2, (2, -1)),
    "unsqueeze": lambda x: x.unsqueeze(-2),
    "squeeze": lambda x: x[:1, :, 2:3].squeeze(),
    "squeeze-dim": lambda x: x[:1].squeeze(0).squeeze(0),
    "expand": lambda x: x[:1].expand(7, -1, 4, 5),
    "expand-front": lambda x: x.expand(2, 2, 3, 4, 5),
    "narrow": lambda x: x.narrow(3, 1, 2),
    "select": lambda x: x.select(1, -1),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "repeat": lambda x: x.repeat(2, 1, 3, 1, 2),
    "chain": lambda x: x.permute(2, 0, 3, 1).reshape(8, 15).T[::2, 1:7],
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_views_like_torch(name: str) -> None:
    close(run(VIEWS[name], X), VIEWS[name](T).contiguous().numpy())


def test_flip_pad_and_interleave() -> None:
    close(run(lambda x: x.flip(1), X), np.flip(X, 1))
    close(run(lambda x: x.flip((0, -1)), X), np.flip(X, (0, -1)))
    close(run(lambda x: x.flip(), X), np.flip(X))
    pairs = [(0, 0), (1, 2), (0, 1), (3, 0)]
    close(run(lambda x: x.pad(pairs), X), np.pad(X, pairs))
    close(run(lambda x: x.pad(pairs, value=-1.5), X), np.pad(X, pairs, constant_values=-1.5))
    close(run(lambda x: x.repeat_interleave(3, 1), X), np.repeat(X, 3, 1))


def test_concat_stack_and_split() -> None:
    a, b, c = X[:1], X[:, :, :2], X.astype(np.int32)
    close(run(lambda x, y: concat([x, y, x], 0), X, a), np.concatenate([X, a, X]))
    close(run(lambda x, y: concat([y, x], -2), X, b), np.concatenate([b, X], 2))
    assert run(lambda x, y: concat([x, y]), X, c).dtype == np.float32
    close(run(lambda x: stack([x, x * 2, -x], 1), X), np.stack([X, X * 2, -X], 1))
    for size in (2, [1, 3], 4):
        for found, expected in zip(
            run(lambda x, n=size: x.split(n, 2), X), T.split(size, 2), strict=True
        ):
            close(found, expected.numpy())
    first, second = run(lambda x: x.chunk(2, -2), X)
    close(first, X[:, :, :2])
    close(second, X[:, :, 2:])


def test_empty_parts() -> None:
    close(run(lambda x: concat([x[:0], x, x[:0]]), X), X)
    close(run(lambda x: x[:, 3:], X), X[:, 3:])
    close(run(lambda x: x[1:1].reshape(0, 60), X), X[1:1].reshape(0, 60))


KEYS: dict[str, Any] = {
    "int": np.s_[1], "negative int": np.s_[:, -1], "slice": np.s_[:, 1:, ::2],
    "step": np.s_[..., ::-1], "negative step": np.s_[:, 2:0:-1, -1:-4:-2],
    "clamped": np.s_[:, -9:99],
    "none": np.s_[None, :, None, 1], "ellipsis": np.s_[0, ..., 1, None], "empty": np.s_[:, 2:1],
    "all": np.s_[...], "0-d": np.s_[1, 2, 3, 4],
    "array": np.s_[:, [2, 0, -1]], "array 2-d": np.s_[:, :, np.array([[0, -1], [1, 1]])],
    "array and slice": np.s_[1:, np.array([0, 2]), ::2], "array first": np.s_[np.array([1, 0, 1])],
    "next to an int": np.s_[:, 1, np.array([1, 2])],
    "array and none": np.s_[:, None, np.array([1, 2]), None], "apart": np.s_[:, [0, 1], :, [1, 2]],
    "together": np.s_[:, [[0], [2]], [1, 2]], "none between": np.s_[[0], None, [1, 2]],
    "empty array": np.s_[:, np.zeros(0, np.int64)],
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_subscript_like_numpy(name: str) -> None:
    close(run(lambda x: x[KEYS[name]], X), X[KEYS[name]])


def test_subscript_by_tensor() -> None:
    for dtype in (np.int64, np.int8, np.uint32):
        i = np.array([[1, 2], [0, 2]]).astype(dtype)
        close(run(lambda x, i: x[:, i, 1], X, i), X[:, i.astype(np.int64), 1])
    close(run(lambda x, i: x[i], X, np.array([-1, 0, -2])), X[[-1, 0, -2]])
    close(run(lambda x, i: x[:, i], X, np.array(-1)), X[:, -1])


def test_subscript_errors() -> None:
    cases = [
        (np.s_[2], ShapeError, r"index: 2 is out of range for dim 0 of x0: f32\[2, 3, 4, 5\]"),
        (np.s_[:, [0, 3]], ShapeError, "index: 3 is out of range for an extent of 3"),
        (np.s_[0, 0, 0, 0, 0], ShapeError, "index: 5 entries for x0"),
        (np.s_[..., 0, ...], ShapeError, "more than one Ellipsis"),
        (np.s_[1.0], DTypeError, "index: 1.0 is not an int, slice"),
        (np.s_[True], DTypeError, "index: True is not an int"),
        (np.s_[::0], ShapeError, "the step 0 of a slice"),
        (X[0, 0, 0] > 0, ShapeError, "a mask has 5 elements along dim 0 of x0"),
    ]
    for key, error, text in cases:
        with pytest.raises(error, match=text):
            run(lambda x, k=key: x[k], X)


# --- symbolic -------------------------------------------------------------------------------------


def test_symbolic_slices_require_what_is_not_proved() -> None:
    cx = Recorder()
    s, past = cx.dim("s", 1, 8), cx.dim("past", 0, 7)
    x = cx.tensor((16, 3), name="x")
    y = x[: past + s]
    assert y.shape == (past + s, 3)
    assert not cx.requirements  # past + s <= 15
    z = cx.tensor((10, 3), name="z")[past : past + s]
    assert [str(r) for r in cx.requirements] == ["past + s <= 10"]
    assert z.shape == (s, 3)
    last = y[-1]
    odd = y[::-2]
    for each in (y, z, last, odd):
        cx.output(each)
    a, b = (np.random.default_rng(0).normal(0, 1, (n, 3)).astype(np.float32) for n in (16, 10))
    inputs, dims = {"x": a, "z": b}, {"s": 4, "past": 3}
    found = results(cx, [y, z, last, odd], inputs, dims)
    for array, expected in zip(found, [a[:7], b[3:7], a[6], a[6::-2]], strict=True):
        close(array, expected)


def test_slice_that_cannot_fit_raises() -> None:
    cx = Recorder()
    s = cx.dim("s", 5, 9)
    with pytest.raises(DimError, match="never holds"):
        cx.tensor((4,))[:s]


def test_symbolic_concat_reshape_and_pad() -> None:
    a, b = np.ones((3, 4), np.float32), np.zeros((2, 4), np.float32)
    shapes, dims = [("m", 4), ("n", 4)], {"m": 3, "n": 2}
    found = run(lambda x, y: concat([x, y]), a, b, shapes=shapes, dims=dims)
    close(found, np.concatenate([a, b]))
    found = run(lambda x, y: x.reshape(-1, 2, 2).flatten(), a, b, shapes=shapes, dims=dims)
    close(found, a.reshape(-1))
    found = run(lambda x, y: x.pad([("n", 1), (0, 0)], value=2), a, b, shapes=shapes, dims=dims)
    close(found, np.pad(a, [(2, 1), (0, 0)], constant_values=2))


def test_movement_errors() -> None:
    cases = [
        (lambda x: x.reshape(7, -1), r"reshape: x0: f32\[2, 3, 4, 5\] does not divide into"),
        (lambda x: x.reshape(-1, -1), "more than one -1"),
        (lambda x: x.reshape(7, 7), "reshape: .*120 elements"),
        (lambda x: x.permute(0, 1, 1, 2), "does not name each dim"),
        (lambda x: x.transpose(0, 4), r"transpose: dim 4 is out of range; the range is -4..3"),
        (lambda x: x.expand(2, 3, 4, 6), "expand: .*dimension 3 has extent 5"),
        (lambda x: x.split([1, 1], 1), "split: sizes .* add up to 2, dim 1 has 3"),
        (lambda x: concat([x, x[0]]), "concat: .* differ outside of dim 0"),
        (lambda x: x.sum((0, -4)), "name one dimension twice"),
        (lambda x: x + x[:, :2], "add.*3 != 2"),
        (lambda x: x.pad([(1, 1)]), "pad: .* is not a"),
    ]
    for fn, text in cases:
        with pytest.raises(ShapeError, match=text):
            run(fn, X)
