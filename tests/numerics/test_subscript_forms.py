"""Every mixture of ints, slices, None, Ellipsis and tensors as an index, against PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from luminal.base.errors import ShapeError
from luminal.frontend.graph import Recorder
from tests.numerics.recording import on, results, run

X = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
# Extents that no dim of X has, so that a dim in a wrong place shows; positions that all dims have.
ROW, TABLE, POINT = np.arange(7) % 3 - 1, np.arange(42).reshape(6, 7) % 2, np.array(1)
PICKS = {"row": ROW, "table": TABLE, "point": POINT}

ENTRIES = [0, -1, slice(None), slice(1, None, 2), slice(0, -1), None, Ellipsis, *PICKS, "mask"]
PUT_ENTRIES = [None, *PICKS]


def forms(entries: Sequence[Any], longest: int) -> Iterator[tuple[Any, ...]]:
    """All sequences of the entries that PyTorch takes as an index of X."""
    for length in range(1, longest + 1):
        for form in itertools.product(entries, repeat=length):
            fits = form.count(Ellipsis) <= 1 and form.count("mask") <= 1
            # a mask picks as many positions as it has: it meets no other tensor
            if fits and not ("mask" in form and any(e in ("row", "table") for e in form)):
                yield form


FORMS = list(forms(ENTRIES, 3))


def key_of(form: Sequence[Any], tensors: dict[str, Any]) -> tuple[Any, ...]:
    """The form with its tensors, and a mask of the extent of the dim that it meets."""
    used = sum(e is not None and e is not Ellipsis for e in form)
    key: list[Any] = []
    dim = 0
    for entry in form:
        if isinstance(entry, str):
            key.append(np.arange(X.shape[dim]) != 1 if entry == "mask" else tensors[entry])
        else:
            key.append(entry)
        dim += X.ndim - used if entry is Ellipsis else entry is not None
    return tuple(key)


def expected(form: Sequence[Any]) -> np.ndarray[Any, Any]:
    key = key_of(form, {name: torch.from_numpy(pick) for name, pick in PICKS.items()})
    mask = [torch.from_numpy(e) if isinstance(e, np.ndarray) else e for e in key]
    return torch.from_numpy(X)[tuple(mask)].numpy()


def differences(
    forms: Sequence[tuple[Any, ...]], found: Sequence[Any], wanted: Sequence[Any]
) -> list[str]:
    return [
        f"{form}: {actual.shape}, PyTorch has {right.shape}"
        for form, actual, right in zip(forms, found, wanted, strict=True)
        if actual.shape != right.shape or not np.array_equal(actual, right)
    ]


def all_forms(x: Any, picks: Sequence[Any], forms: Sequence[tuple[Any, ...]]) -> list[Any]:
    tensors = dict(zip(PICKS, picks, strict=True))
    return [x[key_of(form, tensors)] for form in forms]


def test_every_form_like_torch() -> None:
    assert len(FORMS) > 1000
    found = run(lambda x, *picks: all_forms(x, picks, FORMS), X, *PICKS.values())
    assert differences(FORMS, found, [expected(form) for form in FORMS]) == []


def test_every_form_over_dynamic_dims() -> None:
    some = [form for form in FORMS if "mask" not in form]  # a mask's extent is literal
    found = run(
        lambda x, *picks: all_forms(x, picks, some), X, *PICKS.values(),
        shapes=[("a", "b", "c", "d"), ("r",), ("q", "r"), ()],
        dims={"a": 2, "b": 3, "c": 4, "d": 5, "q": 6, "r": 7},
    )  # fmt: skip
    assert differences(some, found, [expected(form) for form in some]) == []


def test_some_forms_on_the_cpu() -> None:
    rng = np.random.default_rng(0)
    some = [FORMS[k] for k in rng.choice(len(FORMS), 40, replace=False)]
    some += [(0, slice(None), "row"), (slice(None), 0, slice(None), "row")]
    with on("cpu"):
        found = run(lambda x, *picks: all_forms(x, picks, some), X, *PICKS.values())
    assert differences(some, found, [expected(form) for form in some]) == []


def test_an_int_before_a_tensor_leaves_it_in_place() -> None:
    """`x[0, :, idx]`: NumPy would put idx's dim first."""
    found = run(lambda x, idx: x[0, :, idx], X, ROW)
    assert found.shape == (3, 7, 5)
    np.testing.assert_array_equal(found, torch.from_numpy(X)[0, :, torch.from_numpy(ROW)].numpy())


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_at_every_form(accumulate: bool) -> None:
    picks = {"row": np.array([1, 0]), "table": np.array([[1], [0]]), "point": POINT}
    some = [f for f in forms(PUT_ENTRIES, 3) if any(f)]

    tensors = {name: torch.from_numpy(pick) for name, pick in picks.items()}
    wanted, values = [], []
    for form in some:
        key = [tensors.get(e) for e in form]
        part = torch.ops.aten.index(torch.from_numpy(X), key)  # 0-d tensors count here
        values.append(1000 + torch.arange(part.numel(), dtype=torch.float32).reshape(part.shape))
        wanted.append(torch.ops.aten.index_put(torch.from_numpy(X), key, values[-1], accumulate))

    def put(x: Any, *given: Any) -> list[Any]:
        named = dict(zip(picks, given, strict=True))
        keys = [[named.get(e) for e in form] for form in some]
        return [
            x.index_put(key, value.numpy(), accumulate)
            for key, value in zip(keys, values, strict=True)
        ]

    found = run(put, X, *picks.values())
    assert differences(some, found, [y.numpy() for y in wanted]) == []


# --- slices that hold nothing ---------------------------------------------------------------------

EMPTY = [np.s_[2:0], np.s_[1:-1], np.s_[3:], np.s_[3:1:2], np.s_[4:-3], np.s_[-1:0], np.s_[-1:1]]


@pytest.mark.parametrize("length", [0, 1, 2, 5])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_slices_of_a_dynamic_dim_may_be_empty(length: int, backend: str) -> None:
    x = np.arange(length, dtype=np.float32)
    keys = [k for k in EMPTY if length or k.start >= 0]  # a negative start needs its element
    wanted = [torch.from_numpy(x)[key].numpy() for key in keys]
    cx = Recorder()
    cx.dim("s", 0, 9)
    t = cx.tensor(("s",), name="x")
    leaves = [t[key] for key in keys]
    for leaf in leaves:
        leaf.output()
    with on(backend):
        found = results(cx, leaves, {"x": x}, {"s": length})
    assert [f"{k}: {f}" for k, f in zip(keys, found, strict=True)] == [
        f"{k}: {w}" for k, w in zip(keys, wanted, strict=True)
    ]


def test_index_put_takes_no_slices() -> None:
    with pytest.raises(ShapeError, match="index_put: an index is a slice"):
        run(lambda x, i: x.index_put((slice(0, 1), i), 0.5), X, ROW)
