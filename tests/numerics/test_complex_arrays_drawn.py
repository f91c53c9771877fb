"""Drawn chains of `lm.array_api` with complex arrays: views, masks, axes, empty and 0-d arrays,
dtypes that meet. Each step is what NumPy makes of the same operands in twice the precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.array_api import deferred
from tests.numerics.draws import Draw

xp = lm.array_api
Row = Callable[[Any, Draw, Any, Any], Any]

ILLEGAL = (ValueError, IndexError, TypeError, np.linalg.LinAlgError)
"""What NumPy raises of operands that do not go together: such steps are left out."""


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chains run on the reference backend: nothing is compiled."""
    graph = lm.Graph("arrays")
    graph._backend = "reference"
    monkeypatch.setattr(deferred, "programs", graph._parts_on_demand(256))
    monkeypatch.setattr(deferred._of_thread, "chain", None, raising=False)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def here(n: Any, array: Any) -> Any:
    """A drawn mask or index as an array of the library."""
    return array if n is np else xp.asarray(array)


def small(n: Any, z: Any) -> Any:
    """Within the unit circle, so that functions stay small."""
    return z / (n.abs(z) + 1)


def subscript(n: Any, k: Draw, x: Any, y: Any) -> Any:
    key: list[Any] = []
    for extent in x.shape:
        entries = [slice(None), slice(None, None, -1), slice(1, None, 2), None, 0, -1]
        key.append(k.one(entries))
        if key[-1] is None:
            key.append(slice(None, -extent - 1, -1))
    return x[tuple(key)]


def written(n: Any, k: Draw, x: Any, y: Any) -> Any:
    """Of a copy and of what is computed; another name keeps the value that it had."""
    one = n.asarray(x, copy=True) if k.flag() else x + 0
    other = +one if n is xp else one.copy()
    key = slice(1, None, k.one([1, 2])) if k.flag() else here(n, k.mask(x))
    one[key] = k.one([2.5, 1 - 3j, 7])
    return one, other


def assigned(n: Any, k: Draw, x: Any, y: Any) -> Any:
    if np.result_type(*(np.dtype(str(z.dtype.name)) for z in (x, y))).name != x.dtype.name:
        raise TypeError  # NumPy would cast
    one = n.asarray(x, copy=True)
    if k.flag():
        one *= y
    else:
        one -= y
    return one


def square(n: Any, k: Draw, x: Any) -> Any:
    """Matrices in the dtype of x, far from singular, and a right side."""
    size = k.one([1, 2, 3])
    a, b = k.numbers(2, size, size) + 4 * np.eye(size), k.numbers(2, size, 2)
    return n.astype(here(n, a), x.dtype), n.astype(here(n, b), x.dtype)


def table(n: Any, x: Any) -> Any:
    return n.stack([n.reshape(x, (-1,)), n.reshape(x, (-1,))])


def hermitian(n: Any, a: Any) -> Any:
    return a @ n.conj(n.matrix_transpose(a))


ROWS: dict[str, Row] = {
    "add": lambda n, k, x, y: x + y,
    "subtract": lambda n, k, x, y: y - x,
    "multiply": lambda n, k, x, y: x * y,
    "divide": lambda n, k, x, y: x / y if k.flag() else y / x,
    "numbers": lambda n, k, x, y: k.one([2, 0.5, 3j, 1 - 2j]) - x * k.one([3, -1.5, 1j]),
    "number over": lambda n, k, x, y: k.one([1, 2j, -0.5]) / x,
    "powers": lambda n, k, x, y: small(n, x) ** k.one([0, 1, 2, 3]),
    "conj": lambda n, k, x, y: n.conj(x) + n.conj(y),
    "parts": lambda n, k, x, y: (n.real(x), n.imag(x), n.abs(x), abs(y), -x, +x),
    "sign": lambda n, k, x, y: n.sign(x),
    "squares": lambda n, k, x, y: n.square(x) - n.reciprocal(small(n, x) + 2),
    "functions": lambda n, k, x, y: n.exp(small(n, x)) + n.sqrt(x) + n.tanh(small(n, y)),
    "logarithms": lambda n, k, x, y: n.log(x + 9) - n.log1p(small(n, x)),
    "asked": lambda n, k, x, y: (n.isfinite(x), n.isnan(x), n.isinf(y)),
    "equal": lambda n, k, x, y: (x == x, n.equal(x, y), n.not_equal(x, y), x != 0),
    "round": lambda n, k, x, y: n.round(n.real(x) * 0 + 1) * n.round(x),
    "sum": lambda n, k, x, y: n.sum(x, axis=k.axes(x), keepdims=k.flag()),
    "wide sum": lambda n, k, x, y: n.sum(x, axis=k.axes(x), dtype=n.complex128),
    "prod": lambda n, k, x, y: n.prod(small(n, x) + 0.5, axis=k.axes(x), keepdims=k.flag()),
    "mean": lambda n, k, x, y: n.mean(x, axis=k.axes(x), keepdims=k.flag()),
    "var": lambda n, k, x, y: n.var(x, correction=k.one([0, 1]), axis=k.axes(x), keepdims=k.flag()),
    "std": lambda n, k, x, y: n.std(x, correction=k.one([0, 0.5]), axis=k.axes(x)),
    "truth": lambda n, k, x, y: n.any(x, axis=k.axes(x)) & n.all(x * 0 == 0),
    "counted": lambda n, k, x, y: n.count_nonzero(n.round(x), axis=k.axes(x), keepdims=k.flag()),
    "vector_norm": lambda n, k, x, y: n.linalg.vector_norm(
        x, axis=k.axes(x), keepdims=k.flag(), ord=k.one([2, 1, np.inf, -np.inf, 3, 0])
    ),
    "matrix_norm": lambda n, k, x, y: n.linalg.matrix_norm(
        x, keepdims=k.flag(), ord=k.one(["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
    ),
    "running sum": lambda n, k, x, y: n.cumulative_sum(
        x, axis=k.axis(x), include_initial=k.flag()
    ),
    "diff": lambda n, k, x, y: n.diff(x, axis=k.axis(x), n=k.one([0, 1, 2])),
    "diff behind": lambda n, k, x, y: n.diff(x, axis=k.axis(x), prepend=n.real(x), append=x),
    "subscript": subscript,
    "masked": lambda n, k, x, y: x[here(n, k.mask(x))],
    "written": written,
    "assigned": assigned,
    "where": lambda n, k, x, y: n.where(here(n, k.mask(x)), x, y),
    "where a number": lambda n, k, x, y: n.where(here(n, k.mask(x)), x, k.one([0, 1.5, 2j])),
    "concat": lambda n, k, x, y: n.concat([x, y, x], axis=k.one([None, 0, -1])),
    "stack": lambda n, k, x, y: n.stack([x, x + 1], axis=k.axis(x)),
    "reshape": lambda n, k, x, y: n.reshape(x, (-1, 1)),
    "permute_dims": lambda n, k, x, y: n.permute_dims(x, k.order(x)),
    "flip": lambda n, k, x, y: n.flip(x, axis=k.axes(x)),
    "roll": lambda n, k, x, y: n.roll(x, k.one([-2, 1, 3]), axis=k.axis(x)),
    "expand_dims": lambda n, k, x, y: n.expand_dims(x, axis=k.one([0, -1])),
    "triangles": lambda n, k, x, y: n.tril(table(n, x), k=k.one([-1, 0, 1])) - n.triu(table(n, x)),
    "tile": lambda n, k, x, y: n.tile(x, k.one([(2,), (1, 2), (0,), (2, 1, 1)])),
    "repeat": lambda n, k, x, y: n.repeat(x, 2, axis=k.axis(x)),
    "broadcast_to": lambda n, k, x, y: n.broadcast_to(x, (2, *x.shape)),
    "broadcast_arrays": lambda n, k, x, y: tuple(n.broadcast_arrays(x, y)),
    "meshgrid": lambda n, k, x, y: tuple(n.meshgrid(n.reshape(x, (-1,)), n.reshape(y, (-1,)))),
    "unstack": lambda n, k, x, y: tuple(n.unstack(x, axis=k.axis(x))),
    "take": lambda n, k, x, y: n.take(x, here(n, k.places(x.shape[0], 3)), axis=0),
    "take_along_axis": lambda n, k, x, y: n.take_along_axis(
        x, here(n, k.places(x.shape[-1], *x.shape[:-1], 2)), axis=-1
    ),
    "matmul": lambda n, k, x, y: n.matmul(x, n.matrix_transpose(n.conj(x))),
    "product": lambda n, k, x, y: x @ y if k.flag() else y @ x,
    "vecdot": lambda n, k, x, y: n.vecdot(x, y) + n.vecdot(x * 1j, x),
    "tensordot": lambda n, k, x, y: n.tensordot(x, n.conj(x), axes=([-1], [-1])),
    "outer": lambda n, k, x, y: n.linalg.outer(n.reshape(x, (-1,)), n.reshape(y, (-1,))),
    "inv": lambda n, k, x, y: n.linalg.inv(square(n, k, x)[0]),
    "det": lambda n, k, x, y: (n.linalg.det(square(n, k, x)[0]),),
    "slogdet": lambda n, k, x, y: tuple(n.linalg.slogdet(square(n, k, x)[0])),
    "solve": lambda n, k, x, y: n.linalg.solve(*square(n, k, x)),
    "cholesky": lambda n, k, x, y: n.linalg.cholesky(hermitian(n, square(n, k, x)[0])),
    "matrix_power": lambda n, k, x, y: n.linalg.matrix_power(square(n, k, x)[0], k.one([0, 2, -1])),
    "svdvals": lambda n, k, x, y: n.linalg.svdvals(x),
    "fft": lambda n, k, x, y: n.fft.fft(x, n=k.one([None, 2, 5]), axis=k.axis(x), norm="ortho"),
    "ifft": lambda n, k, x, y: n.fft.ifft(x, n=k.one([None, 3]), axis=k.axis(x)),
    "rfft": lambda n, k, x, y: n.fft.irfft(n.fft.rfft(n.real(x), axis=-1), n=x.shape[-1], axis=-1),
    "astype": lambda n, k, x, y: (n.astype(x, n.complex64), n.astype(y, n.complex128)),
    "astype bool": lambda n, k, x, y: n.astype(x, n.bool),
    "like": lambda n, k, x, y: n.zeros_like(x) + n.ones_like(y) * n.full_like(x, 2 - 1j),
}  # fmt: skip

ROUNDINGS = {**dict.fromkeys(("inv", "det", "slogdet", "solve", "matrix_power"), 1e3)}
"""Of the greatest element or operand, in epsilons of the dtype, where these are more than FEW:
matrices of a condition of some dozen.
"""
FEW = 64.0
EPSILON = dict.fromkeys(("float32", "complex64"), 2.0**-23)
EPSILON |= dict.fromkeys(("float64", "complex128", "int64"), 2.0**-52)


def wide(array: Any) -> Any:
    return array.astype({"c": complex, "f": float}.get(array.dtype.kind, array.dtype))


def parts(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


class Chain:
    """Steps that are drawn, each of two of the values so far."""

    def __init__(self, seed: int) -> None:
        self.draw, self.seed = Draw(seed), seed
        self.values: list[Any] = []
        self.steps: list[tuple[str, tuple[int, int], int, int] | None] = []

    def leaf(self, shape: tuple[int, ...]) -> None:
        """An array that lies anyhow: strided, backwards, turned, in shared memory or not."""
        dtype = self.draw.one(["complex64", "complex128", "float32", "float64"])
        array = self.draw.numbers(*(2 * n for n in shape[::-1]), dtype=dtype).T
        steps = [slice(None, n) for n in shape], [slice(None, -n - 1, -1) for n in shape]
        array = array[tuple(self.draw.one(both) for both in zip(*steps, strict=True))]
        array = array if self.draw.flag() else np.ascontiguousarray(array)
        self.values.append(xp.asarray(array, copy=self.draw.one([None, True])))
        self.steps.append(None)

    def step(self, number: int) -> None:
        """One row of two values, where NumPy takes them."""
        name = self.draw.one([*ROWS])
        x = self.draw.one([k for k, z in enumerate(self.values) if z.dtype.kind == "complex"])
        y = self.draw.one([k for k, z in enumerate(self.values) if z.dtype.kind != "bool"])
        if self.draw.flag():
            self.leaf(self.draw.beside(self.values[x]))
            y = len(self.values) - 1
        examples = [np.ones(z.shape, z.dtype.numpy) for z in (self.values[x], self.values[y])]
        try:
            expected = parts(ROWS[name](np, Draw(self.seed, number), *examples))
        except ILLEGAL:
            return
        found = parts(ROWS[name](xp, Draw(self.seed, number), self.values[x], self.values[y]))
        for k, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            where = f"{name} of {examples[0].dtype}{examples[0].shape}, {examples[1].dtype}"
            assert (ours.dtype.name, ours.shape) == (theirs.dtype.name, theirs.shape), where
            self.values.append(ours)
            self.steps.append((name, (x, y), number, k))

    def check(self) -> None:
        """Everything is computed, in any order, and each step compared by itself."""
        found: dict[int, Any] = {}
        for k in self.draw.order(np.empty((1,) * len(self.values))):
            found[k] = np.array(self.values[k])
        for k, step in enumerate(self.steps):
            if step is None:
                continue
            name, operands, number, part = step
            exact = (
                ROWS[name](np, Draw(self.seed, number), *(f(found[x]) for x in operands))
                for f in (wide, lambda x: x)
            )
            wanted, rounded = (np.asarray(parts(theirs)[part]) for theirs in exact)
            if found[k].dtype.kind in "bi":  # of values that are equal only as they are rounded
                assert (found[k] == wanted).all() or (found[k] == rounded).all(), (name, number)
                continue
            sizes = [np.abs(x[np.isfinite(x)]).max(initial=0) for x in (wanted, found[operands[0]])]
            epsilon = max(EPSILON[found[z].dtype.name] for z in (k, *operands))
            room = ROUNDINGS.get(name, FEW) * epsilon * max(sizes)
            is_near = np.abs(found[k] - wanted) <= room
            is_open = ~np.isfinite(wanted) | (np.abs(wanted) > 1e30)  # beyond float32, or nearly
            assert (is_near | is_open).all(), (name, number, found[k], wanted)


SHAPES: list[list[tuple[int, ...]]] = [
    [(3, 4)], [(2, 3, 3), (3,)], [(), (1,)], [(0, 3)], [(4,), (4, 1)]
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("seed", range(120))
def test_drawn_chains(seed: int) -> None:
    chain = Chain(seed)
    for shape in chain.draw.one(SHAPES):
        chain.leaf(shape)
    chain.values.append(xp.asarray(chain.draw.numbers(3, 3, dtype="complex64")))
    chain.steps.append(None)
    for number in range(16):
        chain.step(number)
    chain.check()
