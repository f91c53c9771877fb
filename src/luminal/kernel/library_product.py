"""Kernels that are products of matrices as vendors' libraries take them, and calls of these.

The factors and the result lie anywhere in their tensors, with one step along each of their
dimensions, of which one is 1: parts of tensors, tensors with turned dimensions, batches between
rows. A bias along the columns may be added.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import field, replace
from typing import NamedTuple

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import At, Axes, Term
from luminal.base.dtypes import DType
from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.hlir.attributes import CustomKernel
from luminal.hlir.library_product import LibraryProduct
from luminal.kernel.cost import label
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused, Place
from luminal.kernel.knobs import Choices, Knobs
from luminal.kernel.layout import ROW_MAJOR
from luminal.kernel.tile_ir import Buffer, Call, Grid, Kernel, Role
from luminal.shape.expression import ONE, ZERO, Expression, Symbol, axis, symbol

LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of a batch in memory: its first element, and how many elements there are from one
    matrix, row or column to the next.
    """

    place: Place
    start: Expression = ZERO
    batch: Expression = ZERO
    row: Expression = ZERO
    column: Expression = ZERO

    @property
    def numbers(self) -> tuple[Expression, ...]:
        """What a library is told of it."""
        return self.start, self.batch, self.row, self.column


@dataclass(frozen=True, slots=True)
class Product:
    """`c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n] + bias[n]`, summed in the
    accumulator. Neighbours along n are neighbours in c. `rounds`: the sum is rounded to c's dtype
    before the bias is added, which a library does not do.
    """

    extents: tuple[Expression, ...]  # of batch, m, n, k
    a: Matrix
    b: Matrix
    c: Matrix
    bias: Matrix | None
    accumulator: DType
    rounds: bool

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtypes of a, b, the accumulator and c."""
        return self.a.place.dtype, self.b.place.dtype, self.accumulator, self.c.place.dtype


def product_of(fused: Fused) -> Product | None:
    """The product that the fused kernel is, if it is one."""
    store, *others = fused.stores
    place = store.place
    if others or store.index is not None or store.add or place.layout != ROW_MAJOR:
        return None
    if store.frame != place.frame:
        return None
    term, rounded, bias = _split(store.term, fused)
    if term is None or term.op != "Sum" or term in fused.reads:
        return None
    (factors,) = term.args
    if factors.op != "Mul" or factors in fused.reads or len(factors.args) != 2:
        return None
    steps = _steps(place)
    x, y = (_operand(factor, fused) for factor in factors.args)
    if x is None or y is None or not store.axes:
        return None
    # Factors commute: b is the one that has the innermost axis of the result.
    a, b = (x, y) if store.axes[-1] in y.steps else (y, x)
    plain = _matched(a, b, _Operand(place, ZERO, steps), store.axes, term)
    if plain is None or bias is None:
        return plain
    return _with_bias(plain, bias, fused, store.axes, rounded)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A value in memory as the product reads it: how many elements apart neighbours along each of
    the product's axes are.
    """

    place: Place
    start: Expression
    steps: Mapping[Symbol, Expression] = field(default_factory=dict)


def _split(term: Term, fused: Fused) -> tuple[Term | None, bool, Term | None]:
    """The sum of a result; whether it is rounded before a bias is added, and the bias if any."""

    def below(term: Term) -> Term:
        return term.args[0] if term.op == "Cast" and term not in fused.reads else term

    top = below(term)
    if top.op != "Add" or top in fused.reads:
        return top, False, None
    for total, bias in (top.args, top.args[::-1]):
        if total.op == "Sum":
            return total, False, bias
        narrow = below(total)
        if narrow is not total and narrow.dtype is term.dtype and below(narrow).op == "Sum":
            return below(narrow), True, bias
    return None, False, None


def _steps(place: Place) -> dict[Symbol, Expression]:
    """The step of each axis of a row-major place, the outermost first."""
    steps, step = {}, ONE
    for axis_ in reversed([axis_ for dimension in place.frame for axis_ in dimension]):
        assert axis_.extent is not None
        steps[axis_] = step
        step = step * axis_.extent
    return dict(reversed(steps.items()))


def _operand(factor: Term, fused: Fused) -> _Operand | None:
    """A factor as it lies in memory; None where it is computed, or read by indices from data."""
    read = _read(factor, fused)
    place = fused.reads.get(read.term) if read is not None else None
    if read is None or place is None or place.layout != ROW_MAJOR:
        return None
    if read.casts > (place.dtype is not factor.dtype):
        return None
    steps: dict[Symbol, Expression] = {}
    start = ZERO
    for axis_, step in _steps(place).items():
        name, first = read.at.get(axis_, (axis_, ZERO))
        start = start + first * step
        if name in steps:
            return None  # a diagonal
        if name is not None:
            steps[name] = step
    return _Operand(place, start, steps)


class _Read(NamedTuple):
    """A term below so many casts, and where it is read: of its axes that are not read as they are
    the axis that stands there, if one does, and where that begins.
    """

    term: Term
    casts: int
    at: Mapping[Symbol, tuple[Symbol | None, Expression]]


def _read(term: Term, fused: Fused) -> _Read | None:
    """What a factor reads; None where an index is more than a position behind a start."""
    at: dict[Symbol, tuple[Symbol | None, Expression]] = {}
    casts = 0
    while term not in fused.reads and term.op in ("Cast", "At"):
        if isinstance(term, At):
            inner = {a: at[a] for a in term.args[0].axes if a in at}
            for axis_, index in term.attrs:
                if isinstance(index, int):
                    return None  # data says where
                names = [symbol_ for symbol_ in index.symbols() if symbol_.extent is not None]
                if len(names) > 1:
                    return None
                start = index - names[0] if names else index
                if any(symbol_.extent is not None for symbol_ in start.symbols()):
                    return None
                name, before = at.get(names[0], (names[0], ZERO)) if names else (None, ZERO)
                inner[axis_] = name, start + before
            at = inner
        casts += term.op == "Cast"
        term = term.args[0]
    return _Read(term, casts, at)


def _matched(a: _Operand, b: _Operand, c: _Operand, axes: Axes, term: Term) -> Product | None:
    """The product if `a` has the rows of the result and `b` its columns."""
    batch = tuple(axis_ for axis_ in axes if axis_ in a.steps and axis_ in b.steps)
    m = tuple(axis_ for axis_ in axes if axis_ in a.steps and axis_ not in b.steps)
    n = tuple(axis_ for axis_ in axes if axis_ in b.steps and axis_ not in a.steps)
    k = tuple(axis_ for axis_ in a.steps if axis_ in frozenset(term.attrs))
    if {*batch, *m, *n} != {*axes} or {*k} != {*term.attrs} or not {*k} <= {*b.steps}:
        return None
    if any(not {*x.steps} <= {*axes, *k} for x in (a, b)):
        return None
    # Rows that do not follow each other, as those of parts of matrices, are batches of one b, and
    # columns of one a.
    for of_m, of_n in itertools.product(range(len(m) + 1), range(len(n) + 1)):
        outer = (*batch, *m[:of_m], *n[:of_n])
        matrices = _matrices((a, b, c), outer, m[of_m:], n[of_n:], k)
        if matrices:
            return _checked((outer, m[of_m:], n[of_n:], k), matrices, term.dtype)
    return None


def _checked(sides: tuple[Axes, ...], matrices: list[Matrix], accumulator: DType) -> Product | None:
    """The product, if the result's columns are neighbours and there is something to sum."""
    extents = tuple(map(extent_of, sides))
    lowest = extents[-1].interval.lo
    if lowest is None or lowest < 1 or (sides[2] and matrices[-1].column != 1):
        return None
    a, b, c = matrices
    return Product(extents, a, b, c, None, accumulator, False)


def _matrices(
    operands: tuple[_Operand, ...], batch: Axes, m: Axes, n: Axes, k: Axes
) -> list[Matrix]:
    """The factors and the result as matrices with these axes; none where one has no such steps."""
    matrices = []
    for operand, rows, columns in zip(operands, (m, k, m), (k, n, n), strict=True):
        steps = [_joined(along, operand.steps) for along in (batch, rows, columns)]
        if None in steps:
            return []
        in_batch, row, column = (step for step in steps if step is not None)
        if not any(step == 1 or not along for step, along in ((row, rows), (column, columns))):
            return []
        matrices.append(Matrix(operand.place, operand.start, in_batch, row, column))
    return matrices


def _joined(axes: Axes, steps: Mapping[Symbol, Expression]) -> Expression | None:
    """The one step of what these axes are together, the outermost first; 0 where there are none,
    and None where there is no such step.
    """
    for outer, inner in itertools.pairwise(axes):
        assert inner.extent is not None
        if steps.get(outer, ZERO) != steps.get(inner, ZERO) * inner.extent:
            return None
    return steps.get(axes[-1], ZERO) if axes else ZERO


def _with_bias(
    plain: Product, bias: Term, fused: Fused, axes: Axes, rounds: bool
) -> Product | None:
    """The product with a bias, if that is as long as its rows and lies in one piece."""
    operand = _operand(bias, fused)
    if operand is None or operand.place.dtype is not plain.c.place.dtype:
        return None
    columns = tuple(a for a in axes if a in operand.steps)
    if len(columns) < len(operand.steps) or not columns or axes[-len(columns) :] != columns:
        return None
    if extent_of(columns) != plain.extents[2] or _joined(columns, operand.steps) != 1:
        return None
    if bias.dtype is not plain.accumulator:
        return None
    matrix = Matrix(operand.place, operand.start, column=ONE)
    return replace(plain, bias=matrix, rounds=rounds)


def place(fused: Fused, library: str, knobs: Knobs, algorithms: int) -> Placed:
    """The kernel placed as one call of the library, by the one of so many algorithms that the knobs
    name.

    Raises CompileError if it is no product, and KnobError for other knobs.
    """
    choices = Choices(label(fused), knobs)
    algorithm = choices.pick("algorithm", 0, range(1, algorithms))
    choices.pick("call", library)
    choices.finish()
    product = product_of(fused)
    if product is None:
        raise CompileError(f"{label(fused)}: no call of {library}: it is no plain product")
    a, b, accumulator, c = product.dtypes
    has_bias = product.bias is not None
    called = LibraryProduct(library, algorithm, a, b, accumulator, c, has_bias)
    return _placed(product, _kernel(called))


@functools.cache
def _kernel(called: LibraryProduct) -> CustomKernel:
    """The one kernel of that text in this process."""
    return CustomKernel(called.library, called.evaluate, called.text, product=called)


def _placed(product: Product, kernel: CustomKernel) -> Placed:
    bias = () if product.bias is None else (product.bias,)
    matrices = (product.a, product.b, *bias, product.c)
    told = (
        *product.extents,
        *(number for x in (product.a, product.b, product.c) for number in x.numbers),
        *(x.start for x in bias or (Matrix(product.c.place),)),
    )
    values = (*told, *(matrix.place.size for matrix in matrices))
    params = tuple(symbol(f"p{number}", 0, LARGEST) for number in range(len(values)))
    sizes = params[len(told) :]
    roles = (*[Role.IN] * (len(matrices) - 1), Role.OUT)
    buffers = tuple(
        Buffer(f"b{number}", matrix.place.dtype, size, role=role)
        for number, (matrix, size, role) in enumerate(zip(matrices, sizes, roles, strict=True))
    )
    *read, written = ((buffer.name, (buffer.size,)) for buffer in buffers)
    chunk = axis("chunk", ONE)
    call = Call(kernel, tuple(read), (written,), chunk, ONE, params[: len(told)])
    tile = Kernel(params, buffers, (), (Grid(chunk, ONE),), (call,))
    return Placed(tile, tuple(matrix.place.operand for matrix in matrices), values, ONE)


def space(algorithms: int) -> tuple[Knobs, ...]:
    """The calls worth timing of a library with so many algorithms, the one that it thinks best
    first.
    """
    return ((), *((("algorithm", number),) for number in range(1, algorithms)))
