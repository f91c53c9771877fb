"""View maps against NumPy, alone and in chains, with literal and symbolic extents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.base.errors import ShapeError
from luminal.shape import view
from luminal.shape.expression import TRUE, symbol
from luminal.shape.view import View, broadcast_shapes, compose, index

s = symbol("s", 1, 512)
h = symbol("h", 1, 64)
past = symbol("past", 0, 511)
Array = np.ndarray[Any, Any]


def read(array: Array, v: View, dims: dict[str, int] | None = None) -> Array:
    """What the view of the array holds, by its definition."""
    env: dict[str, Any] = dict(dims or {})
    shape = tuple(extent.evaluate(env) for extent in v.shape)
    count = int(np.prod(shape))
    positions = np.indices(shape).reshape(len(shape), count)
    env |= {f"i{k}": position for k, position in enumerate(positions)}
    inside = np.broadcast_to(v.domain.evaluate(env), (count,)).astype(bool)
    result = np.zeros(count, array.dtype)
    maps = [np.broadcast_to(e.evaluate(env), (count,))[inside] for e in v.map]
    result[inside] = array[tuple(maps)] if maps else array[()]
    return result.reshape(shape)


def filled(shape: tuple[int, ...]) -> Array:
    return np.arange(1, int(np.prod(shape)) + 1).reshape(shape)


def check(shape: tuple[int, ...], v: View, expected: Array) -> None:
    np.testing.assert_array_equal(read(filled(shape), v), expected)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 3), (2, 1, 3), (2, 0, 3)])
def test_identity_permute_flip(shape: tuple[int, ...]) -> None:
    a = filled(shape)
    check(shape, view.identity(shape), a)
    order = tuple(reversed(range(len(shape))))
    check(shape, view.permute(shape, order), a.transpose())
    for k in range(len(shape)):
        check(shape, view.flip(shape, k), np.flip(a, k))


@pytest.mark.parametrize(
    ("shape", "new"),
    [((), ()), ((), (2, 3)), ((1,), (4,)), ((3, 1), (2, 3, 5)), ((1, 0), (3, 0)), ((1,), (0,))],
)
def test_expand(shape: tuple[int, ...], new: tuple[int, ...]) -> None:
    check(shape, view.expand(shape, new), np.broadcast_to(filled(shape), new))


@pytest.mark.parametrize(
    ("shape", "new"),
    [
        ((), (1, 1)),
        ((1,), ()),
        ((12,), (3, 4)),
        ((3, 4), (12,)),
        ((2, 3, 4), (4, 6)),
        ((4, 6), (2, 3, 4)),
        ((2, 6, 1, 5), (3, 4, 5)),
        ((0, 3), (3, 0, 2)),
        ((6, 35), (14, 15)),
    ],
)
def test_reshape(shape: tuple[int, ...], new: tuple[int, ...]) -> None:
    check(shape, view.reshape(shape, new), filled(shape).reshape(new))


def test_slices_pads_windows() -> None:
    a = filled((5, 7))
    check((5, 7), view.slice_((5, 7), (1, 6), (2, -2), (2, 4)), a[1:5:2, 6::-2])
    check((5, 7), view.slice_((5, 7), (4, 0), (1, 1), (0, 1)), a[4:4, :1])
    check((5, 7), view.pad((5, 7), [(2, 1), (0, 3)]), np.pad(a, [(2, 1), (0, 3)]))
    check((5, 7), view.pad((5, 7), [(-1, -2), (1, -3)]), np.pad(a[1:3, :4], [(0, 0), (1, 0)]))
    check((0, 2), view.pad((0, 2), [(2, 1), (0, 0)]), np.zeros((3, 2)))
    windows = np.stack([a[k : k + 3 : 2] for k in range(0, 3, 2)]).transpose(0, 2, 1)
    check((5, 7), view.window((5, 7), 0, 2, 2, 2, 2), windows)


def step(v: View, a: Array, choice: int, k: int, x: int) -> tuple[View, Array]:
    """One more movement, and what NumPy makes of it."""
    shape = a.shape
    k = k % len(shape) if shape else 0
    if choice == 0 or not shape:
        new = (*shape, 1)
        return view.reshape(shape, new), a.reshape(new)
    if choice == 1:
        order = tuple(np.roll(range(len(shape)), k))
        return view.permute(shape, order), a.transpose(order)
    if choice == 2:
        return view.flip(shape, k), np.flip(a, k)
    if choice == 3:
        pairs = [(x, 1) if d == k else (0, 0) for d in range(len(shape))]
        return view.pad(shape, pairs), np.pad(a, pairs)
    if choice == 4:
        new = (int(np.prod(shape)),)
        return view.reshape(shape, new), a.reshape(new)
    if choice == 5 and shape[k] % 2 == 0:
        new = (*shape[:k], 2, shape[k] // 2, *shape[k + 1 :])
        return view.reshape(shape, new), a.reshape(new)
    if choice == 6 and shape[k] == 1:
        new = tuple(3 if d == k else n for d, n in enumerate(shape))
        return view.expand(shape, new), np.broadcast_to(a, new)
    start = min(x, shape[k])
    slices = tuple(slice(start, None, 2) if d == k else slice(None) for d in range(len(shape)))
    result = a[slices]
    starts = [start if d == k else 0 for d in range(len(shape))]
    steps = [2 if d == k else 1 for d in range(len(shape))]
    return view.slice_(shape, starts, steps, result.shape), result


@settings(max_examples=250)
@given(
    st.lists(st.integers(0, 4), max_size=3),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 2)), max_size=6),
)
def test_chains_compose(shape: list[int], moves: list[tuple[int, int, int]]) -> None:
    a = filled(tuple(shape))
    joined, expected = view.identity(tuple(shape)), a
    for choice, k, x in moves:
        if expected.size > 2000:
            break
        following, expected = step(joined, expected, choice, k, x)
        joined = compose(following, joined)
    np.testing.assert_array_equal(read(a, joined), expected)


SYMBOLIC: list[tuple[tuple[Any, ...], tuple[Any, ...], str]] = [
    ((s, 64), (s, 8, 8), "(s, 8, 8) <- [i0, i1 * 8 + i2]"),
    ((s, 8, 8), (s, 64), "(s, 64) <- [i0, i1 // 8, i1 % 8]"),
    ((2, s, h * 4), (2 * s, h, 4), "(s * 2, h, 4) <- [i0 // s, i0 % s, i1 * 4 + i2]"),
    ((s * h,), (s, h), "(s, h) <- [h * i0 + i1]"),
    ((s, h), (s * h,), "(h * s,) <- [i0 // h, i0 % h]"),
    ((past + s, 4), (2, 2, past + s), "(2, 2, past + s) <- [{}]"),
    (
        (h, past + s),
        (h * past + h * s,),
        "(h * past + h * s,) <- [i0 // (past + s), i0 % (past + s)]",
    ),
    ((past, s), (past * s,), "(past * s,) <- [i0 // s, i0 % s]"),
    ((past * s,), (s, past), "(s, past) <- [i0 * past + i1]"),
]


@pytest.mark.parametrize(("old", "new", "text"), SYMBOLIC)
def test_symbolic_reshape_and_back(old: Any, new: Any, text: str) -> None:
    v = view.reshape(old, new)
    if "{}" not in text:
        assert str(v) == text
    for dims in ({"s": 3, "h": 2, "past": 5}, {"s": 4, "h": 1, "past": 0}):
        shape = tuple(n.evaluate(dims) for n in view.shape_of(old))
        wanted = tuple(n.evaluate(dims) for n in v.shape)
        np.testing.assert_array_equal(read(filled(shape), v, dims), filled(shape).reshape(wanted))
    back = compose(v, view.reshape(new, old))
    assert back == view.identity(new) or "{}" in text


def test_compositions_simplify() -> None:
    heads = compose(view.permute((s, 8, 8), (1, 0, 2)), view.reshape((s, 64), (s, 8, 8)))
    assert str(heads) == "(8, s, 8) <- [i1, i0 * 8 + i2]"
    merged = compose(view.reshape((s, 8, 8), (s, 64)), view.permute((8, s, 8), (1, 0, 2)))
    assert str(compose(merged, heads)) == "(s, 64) <- [i0, i1]"
    padded = view.pad((s,), [(2, 1)])
    assert str(padded) == "(s + 3,) <- [i0 - 2] if i0 >= 2 & i0 <= s + 1"
    cropped = compose(view.slice_((s + 3,), (2,), (1,), (s,)), padded)
    assert cropped == view.identity((s,))
    assert cropped.domain is TRUE
    prefix = view.slice_((512,), (0,), (1,), (past + s,))
    assert str(prefix) == "(past + s,) <- [i0]"


def test_index_is_one_symbol_per_dimension() -> None:
    assert index(0, s) is index(0, s)
    assert view.permute((s, h), (1, 0)).map == (index(1, s), index(0, h))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: view.reshape((s, 3), (s, 4)),
            "reshape: (s, 3) has s * 3 elements, (s, 4) has s * 4; "
            "the products must be the same expression",
        ),
        (
            lambda: view.expand((s, 4), (5, 4)),
            "expand: (s, 4) to (5, 4): dimension 0 has extent s and cannot become extent 5; "
            "only a literal extent 1 stretches",
        ),
        (
            lambda: view.expand((2, 3), (3,)),
            "expand: (2, 3) to (3,): dimension 0 has extent 2 and cannot become fewer dimensions; "
            "only a literal extent 1 stretches",
        ),
        (
            lambda: view.permute((2, 3), (0, 0)),
            "permute: (0, 0) is no order of the 2 dimensions of (2, 3); name each of 0..1 once",
        ),
        (
            lambda: broadcast_shapes((s, 4), (past + s, 4)),
            "broadcast: (s, 4) and (past + s, 4) do not fit: s and past + s are not the same "
            "expression; declare one of them in terms of the other",
        ),
        (
            lambda: broadcast_shapes((2, 3), (4,)),
            "broadcast: (2, 3) and (4,) do not fit: 3 != 4; make them equal or one of them 1",
        ),
        (
            lambda: compose(view.identity((3,)), view.identity((3, 4))),
            "compose: the outer view reads 1 dimensions, the inner one has shape (3, 4); "
            "the outer view's source must be the inner view's output",
        ),
    ],
)
def test_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        make()
    assert str(error.value) == message


def test_broadcast_shapes() -> None:
    assert broadcast_shapes((s, 1), (4,), ()) == (s, 4)
    assert broadcast_shapes((1, 0), (3, 1)) == (3, 0)
    assert broadcast_shapes() == ()
