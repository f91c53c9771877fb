"""What the conformance tests of `lm.array_api` call: expressions that NumPy 2 understands as well.

NumPy's main namespace follows the array API standard, so one expression of a namespace and arrays
is run twice. A row says which dtypes it takes, and which shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Memory = np.ndarray[Any, Any]
Shape = tuple[int, ...]

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGER = SIGNED + UNSIGNED
FLOAT = ("float32", "float64")
NUMERIC = INTEGER + FLOAT
ANY = ("bool", *NUMERIC)
BITS = ("bool", *INTEGER)
BOOL = ("bool",)

SHAPES: tuple[Shape, ...] = ((), (0,), (1,), (3,), (2, 3), (3, 0, 2), (2, 1, 3))
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5, 2.0)


@dataclass(frozen=True)
class Row:
    """One expression; `operands` are the shapes it is called with, one tuple a call.

    `values` limits what integers are drawn from; `ulp` is the tolerance, in steps of the greatest
    result; `specials`: NaN, infinities and zeros of both signs among the floats.
    """

    call: Callable[..., Any]
    dtypes: Sequence[str] = NUMERIC
    operands: Sequence[tuple[Shape, ...]] = tuple((shape,) for shape in SHAPES)
    values: tuple[int, int] = (-9, 10)
    ulp: float = 8
    specials: bool = True


def of_rank(least: int, most: int = 3) -> tuple[tuple[Shape, ...], ...]:
    """The shapes of so many dims."""
    return tuple((shape,) for shape in SHAPES if least <= len(shape) <= most)


PAIRS: tuple[tuple[Shape, ...], ...] = (
    ((), ()), ((3,), ()), ((), (0,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0,), (1,)),
    ((2, 3), (2, 3)),
)  # fmt: skip
NOT_EMPTY = tuple((shape,) for shape in SHAPES if 0 not in shape)
MATRICES: tuple[tuple[Shape, ...], ...] = (((2, 3),), ((3, 2),), ((2, 2, 3),), ((2, 0),))
SQUARE: tuple[tuple[Shape, ...], ...] = (((3, 3),), ((2, 2, 2),), ((0, 2, 2),))


def _by_name(names: str, dtypes: Sequence[str], **options: Any) -> dict[str, Row]:
    """Rows of functions that are called with their operands alone."""
    return {name: Row(_calling(name), dtypes, **options) for name in names.split()}


def _calling(name: str) -> Callable[..., Any]:
    return lambda xp, *arrays: getattr(xp, name)(*arrays)


def _reductions(names: str, dtypes: Sequence[str], **options: Any) -> dict[str, Row]:
    rows = {}
    for name in names.split():
        call = _calling(name)
        rows[name] = Row(call, dtypes, **options)
        named = (("last", {"axis": -1}), ("kept", {"axis": 0, "keepdims": True}))
        least = of_rank(1) if "operands" not in options else options["operands"][1:]
        for case, chosen in named:
            rows[f"{name} {case}"] = Row(
                lambda xp, x, f=name, o=chosen: getattr(xp, f)(x, **o),
                dtypes,
                **{**options, "operands": least},
            )
    return rows


ELEMENTWISE: dict[str, Row] = {
    **_by_name("abs negative positive square sign ceil floor trunc round", NUMERIC),
    **_by_name("isfinite isinf isnan", NUMERIC),
    **_by_name(
        "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal sin "
        "sinh sqrt tan tanh signbit",
        FLOAT,
    ),
    **_by_name("bitwise_invert", BITS),
    **_by_name("logical_not", BOOL),
    **_by_name("conj", NUMERIC),
    "real": Row(lambda xp, x: xp.real(x), FLOAT),
    **_by_name("add subtract multiply maximum minimum", NUMERIC, operands=PAIRS),
    **_by_name("less less_equal greater greater_equal", NUMERIC, operands=PAIRS),
    **_by_name("equal not_equal", ANY, operands=PAIRS),
    **_by_name("atan2 copysign divide hypot logaddexp nextafter", FLOAT, operands=PAIRS),
    **_by_name("floor_divide remainder", NUMERIC, operands=PAIRS, values=(1, 10)),
    **_by_name("pow", NUMERIC, operands=PAIRS, values=(0, 4)),
    **_by_name("bitwise_and bitwise_or bitwise_xor", BITS, operands=PAIRS),
    **_by_name("bitwise_left_shift bitwise_right_shift", INTEGER, operands=PAIRS, values=(0, 7)),
    **_by_name("logical_and logical_or logical_xor", BOOL, operands=PAIRS),
    "where": Row(lambda xp, x, y: xp.where(x > y, x, y), NUMERIC, PAIRS),
    "clip": Row(lambda xp, x, low: xp.clip(x, low, low + 2), NUMERIC, PAIRS[3:], (0, 9)),
    "clip above": Row(lambda xp, x: xp.clip(x, max=3), NUMERIC),
}

OPERATORS: dict[str, Row] = {
    "+": Row(lambda xp, x, y: x + y, NUMERIC, PAIRS),
    "-": Row(lambda xp, x, y: x - y, NUMERIC, PAIRS),
    "*": Row(lambda xp, x, y: x * y, NUMERIC, PAIRS),
    "/": Row(lambda xp, x, y: x / y, FLOAT, PAIRS),
    "//": Row(lambda xp, x, y: x // y, NUMERIC, PAIRS, (1, 9)),
    "%": Row(lambda xp, x, y: x % y, NUMERIC, PAIRS, (1, 9)),
    "**": Row(lambda xp, x, y: x**y, NUMERIC, PAIRS, (0, 4)),
    "@": Row(lambda xp, x, y: x @ y, NUMERIC, (((2, 3), (3,)), ((3,), (3,))), specials=False),
    "&": Row(lambda xp, x, y: x & y, BITS, PAIRS),
    "|": Row(lambda xp, x, y: x | y, BITS, PAIRS),
    "^": Row(lambda xp, x, y: x ^ y, BITS, PAIRS),
    "<<": Row(lambda xp, x, y: x << y, INTEGER, PAIRS, (0, 6)),
    ">>": Row(lambda xp, x, y: x >> y, INTEGER, PAIRS, (0, 6)),
    "compare": Row(lambda xp, x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), NUMERIC, PAIRS),
    "unary": Row(lambda xp, x: (+x, -x, abs(x)), NUMERIC),
    "~": Row(lambda xp, x: ~x, BITS),
    "a number on the right": Row(
        lambda xp, x: (x + 2, x - 2, x * 2, x // 2, x % 2, x**2, x == 2, x < 2), NUMERIC
    ),
    "a number on the left": Row(
        lambda xp, x: (2 + x, 2 - x, 2 * x, 2 // x, 2 % x, 2**x), NUMERIC,
        values=(1, 5),
    ),
    "a float": Row(lambda xp, x: (x + 0.5, 0.5 / x, x / 0.5, x**0.5, x > 0.5), FLOAT),
}  # fmt: skip

STATISTICAL: dict[str, Row] = {
    **_reductions("sum prod", NUMERIC, specials=False, ulp=64),
    **_reductions("mean std var", FLOAT, specials=False, ulp=64, operands=NOT_EMPTY),
    **_reductions("max min", NUMERIC, operands=NOT_EMPTY),
    **_reductions("all any count_nonzero", ANY),
    **_reductions("argmax argmin", NUMERIC, operands=NOT_EMPTY),
    "sum of a dtype": Row(lambda xp, x: xp.sum(x, dtype=xp.float64), NUMERIC, specials=False),
    "std corrected": Row(lambda xp, x: xp.std(x, correction=1), FLOAT, (((3,),), ((2, 3),))),
    "cumulative_sum": Row(
        lambda xp, x: xp.cumulative_sum(x, axis=-1), NUMERIC, of_rank(1), specials=False, ulp=64
    ),
    "cumulative_prod": Row(
        lambda xp, x: xp.cumulative_prod(x, axis=0, include_initial=True),
        NUMERIC, of_rank(1), specials=False, ulp=64,
    ),
    "diff": Row(lambda xp, x: xp.diff(x, axis=-1), NUMERIC, of_rank(1)),
    "diff twice": Row(
        lambda xp, x: xp.diff(x, axis=0, n=2, prepend=x, append=x), NUMERIC, of_rank(1)
    ),
}  # fmt: skip

MANIPULATION: dict[str, Row] = {
    "broadcast_to": Row(lambda xp, x: xp.broadcast_to(x, (2, *x.shape)), ANY),
    "broadcast_arrays": Row(lambda xp, x, y: tuple(xp.broadcast_arrays(x, y)), ANY, PAIRS),
    "concat": Row(lambda xp, x: xp.concat([x, x], axis=-1), ANY, of_rank(1)),
    "concat flattened": Row(lambda xp, x, y: xp.concat((x, y), axis=None), ANY, PAIRS),
    "stack": Row(lambda xp, x: xp.stack([x, x, x], axis=-1), ANY),
    "expand_dims": Row(lambda xp, x: xp.expand_dims(x, axis=-1), ANY),
    "flip": Row(lambda xp, x: (xp.flip(x), xp.flip(x, axis=-1)), ANY, of_rank(1)),
    "moveaxis": Row(lambda xp, x: xp.moveaxis(x, 0, -1), ANY, of_rank(2)),
    "permute_dims": Row(lambda xp, x: xp.permute_dims(x, (*range(x.ndim),)[::-1]), ANY),
    "reshape": Row(lambda xp, x: (xp.reshape(x, (-1,)), xp.reshape(x, (x.size, 1))), ANY),
    "roll": Row(lambda xp, x: xp.roll(x, 2), ANY),
    "roll along": Row(lambda xp, x: xp.roll(x, (1, -1), axis=(0, -1)), ANY, of_rank(1)),
    "squeeze": Row(lambda xp, x: xp.squeeze(x, axis=1), ANY, (((2, 1, 3),), ((0, 1),))),
    "tile": Row(lambda xp, x: (xp.tile(x, (2,)), xp.tile(x, (2, 1, 2))), ANY),
    "unstack": Row(lambda xp, x: tuple(xp.unstack(x, axis=-1)), ANY, of_rank(1)),
    "repeat": Row(lambda xp, x: (xp.repeat(x, 2), xp.repeat(x, 0, axis=0)), ANY, of_rank(1)),
    "repeat by arrays": Row(
        lambda xp, x: xp.repeat(x, xp.arange(x.shape[0]), axis=0), ANY, of_rank(1)
    ),
    "meshgrid": Row(lambda xp, x, y: tuple(xp.meshgrid(x, y)), ANY, (((2,), (3,)), ((0,), (1,)))),
    "meshgrid ij": Row(lambda xp, x: tuple(xp.meshgrid(x, x, indexing="ij")), ANY, (((2,),),)),
    "tril": Row(lambda xp, x: (xp.tril(x), xp.tril(x, k=1)), ANY, of_rank(2)),
    "triu": Row(lambda xp, x: (xp.triu(x), xp.triu(x, k=-1)), ANY, of_rank(2)),
    "mT": Row(lambda xp, x: (x.mT, xp.matrix_transpose(x)), ANY, of_rank(2)),
    "T": Row(lambda xp, x: x.T, ANY, of_rank(2, 2)),
}  # fmt: skip

SEARCHING: dict[str, Row] = {
    "nonzero": Row(lambda xp, x: xp.nonzero(x), ANY, of_rank(1)),
    "searchsorted": Row(
        lambda xp, x, y: (xp.searchsorted(xp.sort(x), y), xp.searchsorted(x, y, side="right",
                                                                         sorter=xp.argsort(x))),
        NUMERIC, (((5,), (2, 3)), ((0,), (2,)), ((4,), ())), specials=False,
    ),
    "sort": Row(lambda xp, x: (xp.sort(x), xp.sort(x, axis=0)), NUMERIC, of_rank(1)),
    "argsort": Row(lambda xp, x: xp.argsort(x, stable=True), NUMERIC, of_rank(1), specials=False),
    "take": Row(
        lambda xp, x: xp.take(x, xp.asarray([0, -1, 0]), axis=-1), ANY,
        tuple(s for s in of_rank(1) if s[0][-1]),
    ),
    "take_along_axis": Row(
        lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=0), axis=0), NUMERIC, of_rank(1)
    ),
    "isin": Row(lambda xp, x, y: (xp.isin(x, y), xp.isin(x, y, invert=True)), ANY, PAIRS),
    **_by_name("unique_all unique_counts unique_inverse unique_values", ANY),
}  # fmt: skip

LINALG: dict[str, Row] = {
    "matmul": Row(
        lambda xp, x, y: xp.matmul(x, y), NUMERIC,
        (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 2, 3), (3, 1)), ((2, 0), (0, 3)),
         ((2, 1, 2, 3), (3, 3, 2))),
        specials=False, ulp=64,
    ),
    "vecdot": Row(
        lambda xp, x, y: (xp.vecdot(x, y), xp.linalg.vecdot(x, y, axis=-1)), NUMERIC,
        (((2, 3), (3,)), ((2, 3), (2, 3)), ((0,), (0,))), specials=False, ulp=64,
    ),
    "tensordot": Row(
        lambda xp, x, y: (xp.tensordot(x, y, axes=1), xp.tensordot(x, y, axes=0),
                          xp.tensordot(x, y, axes=((0, 1), (1, 0)))),
        NUMERIC, (((2, 3), (3, 2)), ((2, 0), (0, 2))), specials=False, ulp=64,
    ),
    "linalg.cross": Row(
        lambda xp, x, y: xp.linalg.cross(x, y), NUMERIC, (((3,), (3,)), ((2, 3), (2, 3))),
        specials=False,
    ),
    "linalg.outer": Row(
        lambda xp, x, y: xp.linalg.outer(x, y), NUMERIC, (((2,), (3,)), ((0,), (3,)))
    ),
    "linalg.matrix_power": Row(
        lambda xp, x: (xp.linalg.matrix_power(x, 3), xp.linalg.matrix_power(x, 0)), FLOAT, SQUARE,
        specials=False, ulp=512,
    ),
    "linalg.det": Row(lambda xp, x: xp.linalg.det(x), FLOAT, SQUARE, specials=False, ulp=512),
    "linalg.inv": Row(lambda xp, x: xp.linalg.inv(x), FLOAT, SQUARE, specials=False, ulp=4096),
    "linalg.slogdet": Row(
        lambda xp, x: tuple(xp.linalg.slogdet(x)), FLOAT, SQUARE, specials=False, ulp=512
    ),
    "linalg.solve": Row(
        lambda xp, x, y: xp.linalg.solve(x, y), FLOAT,
        (((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3,)), ((2, 2, 2), (2, 2))),
        specials=False, ulp=4096,
    ),
    "linalg.cholesky": Row(
        lambda xp, x: (xp.linalg.cholesky(_definite(xp, x)),
                       xp.linalg.cholesky(_definite(xp, x), upper=True)),
        FLOAT, SQUARE, specials=False, ulp=512,
    ),
    "linalg.eigh": Row(
        lambda xp, x: _rebuilt(*xp.linalg.eigh(x + x.mT)), FLOAT, SQUARE, specials=False, ulp=512
    ),
    "linalg.eigvalsh": Row(
        lambda xp, x: xp.linalg.eigvalsh(x + x.mT), FLOAT, SQUARE, specials=False, ulp=512
    ),
    "linalg.qr": Row(
        lambda xp, x: (_product(xp.linalg.qr(x)), _product(xp.linalg.qr(x, mode="complete"))),
        FLOAT, MATRICES[:3], specials=False, ulp=512,
    ),
    "linalg.svd": Row(
        lambda xp, x: xp.linalg.svd(x, full_matrices=False)[1], FLOAT, MATRICES[:3],
        specials=False, ulp=512,
    ),
    "linalg.svdvals": Row(
        lambda xp, x: xp.linalg.svdvals(x), FLOAT, MATRICES, specials=False, ulp=512
    ),
    "linalg.pinv": Row(
        lambda xp, x: xp.linalg.pinv(x), FLOAT, MATRICES, specials=False, ulp=4096
    ),
    "linalg.matrix_rank": Row(
        lambda xp, x: xp.linalg.matrix_rank(x), FLOAT, MATRICES[:3], specials=False
    ),
    "linalg.matrix_norm": Row(
        lambda xp, x: tuple(xp.linalg.matrix_norm(x, ord=o, keepdims=o == 1)
                            for o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)),
        FLOAT, MATRICES[:3], specials=False, ulp=512,
    ),
    "linalg.vector_norm": Row(
        lambda xp, x: tuple(xp.linalg.vector_norm(x, ord=o, axis=a, keepdims=o == 1)
                            for o in (0, 1, 2, 3, -1, np.inf, -np.inf) for a in (None, -1)),
        FLOAT, (((3,),), ((2, 3),)), specials=False, ulp=512,
    ),
    "linalg.trace": Row(
        lambda xp, x: (xp.linalg.trace(x), xp.linalg.trace(x, offset=1)), NUMERIC, of_rank(2),
        specials=False,
    ),
    "linalg.diagonal": Row(
        lambda xp, x: (xp.linalg.diagonal(x), xp.linalg.diagonal(x, offset=-1)), ANY, of_rank(2)
    ),
    "linalg.matrix_transpose": Row(lambda xp, x: xp.linalg.matrix_transpose(x), ANY, of_rank(2)),
    "linalg.matmul": Row(
        lambda xp, x, y: xp.linalg.matmul(x, y), FLOAT, (((2, 3), (3, 2)),), specials=False, ulp=64
    ),
    "linalg.tensordot": Row(
        lambda xp, x, y: xp.linalg.tensordot(x, y, axes=1), FLOAT, (((2, 3), (3, 2)),),
        specials=False, ulp=64,
    ),
    "linalg.vecdot": Row(
        lambda xp, x, y: xp.linalg.vecdot(x, y), FLOAT, (((2, 3), (2, 3)),), specials=False, ulp=64
    ),
}  # fmt: skip

INDEXING: dict[str, Row] = {
    "a slice": Row(lambda xp, x: (x[::2], x[::-1], x[1:], x[:-1], x[5:]), ANY, of_rank(1)),
    "an ellipsis": Row(lambda xp, x: (x[...], x[None, ...], x[..., None]), ANY),
    "an int": Row(lambda xp, x: (x[0], x[-1], x[..., 0]), ANY, (((3,),), ((2, 3),))),
    "all ints": Row(lambda xp, x: (x[1, 2], x[-1, 0]), ANY, (((2, 3),),)),
    "an array": Row(lambda xp, x: x[xp.asarray([1, -1, 0])], ANY, (((3,),), ((2, 3),))),
    "arrays": Row(lambda xp, x: x[xp.asarray([1, 0]), xp.asarray([2, 0])], ANY, (((2, 3),),)),
    "a mask": Row(lambda xp, x: x[x == x], ANY),
    "a mask of rows": Row(lambda xp, x: x[xp.asarray([True, False])], ANY, (((2, 3),),)),
    "writing": Row(lambda xp, x: _written(xp, x, ..., 1), ANY),
    "writing a slice": Row(
        lambda xp, x: _written(xp, x, slice(None, None, 2), x[::2]), ANY, of_rank(1)
    ),
    "writing under a mask": Row(lambda xp, x: _written(xp, x, x == x, 0), ANY),
}


def _definite(xp: Any, x: Any) -> Any:
    return x @ x.mT + xp.eye(x.shape[-1], dtype=x.dtype)


def _rebuilt(values: Any, vectors: Any) -> Any:
    return (vectors * values[..., None, :]) @ vectors.mT


def _product(parts: Any) -> Any:
    return parts[0] @ parts[1]


def _written(xp: Any, x: Any, key: Any, value: Any) -> Any:
    """A copy of x, written to."""
    y = xp.asarray(x, copy=True)
    y[key] = value
    return y


TABLES = {
    "elementwise": ELEMENTWISE,
    "operators": OPERATORS,
    "statistical": STATISTICAL,
    "manipulation": MANIPULATION,
    "searching": SEARCHING,
    "linalg": LINALG,
    "indexing": INDEXING,
}


def operands_of(row: Row, dtype: str, rng: np.random.Generator) -> Iterator[tuple[Memory, ...]]:
    """The operands of each call, in one dtype."""
    for shapes in row.operands:
        yield tuple(draw(shape, dtype, row, rng) for shape in shapes)


def draw(shape: Shape, dtype: str, row: Row, rng: np.random.Generator) -> Memory:
    """An array; integers within `row.values`, floats with specials."""
    low, high = row.values
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype in INTEGER:
        return np.asarray(
            rng.integers(max(low, 0) if dtype in UNSIGNED else low, high, shape)
        ).astype(dtype)
    array = np.asarray(rng.normal(size=shape) * 3).astype(dtype)
    if row.specials and array.size > 1:
        chosen = rng.random(shape) < 0.5
        array[chosen] = rng.choice(SPECIAL, size=int(chosen.sum()))
    return array
