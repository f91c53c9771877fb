"""Kernels that are one product of matrices as a BLAS takes it, which a library may compute instead.

`c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]`, each operand row-major, either of
`a` and `b` with its last two dimensions turned, nothing before the product and nothing after it.
"""

from __future__ import annotations

from dataclasses import replace

from luminal.algebra.frames import extent_of, most
from luminal.algebra.terms import Axes, Frame, Term
from luminal.backends.cpu.libraries import BLAS
from luminal.base.dtypes import float32, float64
from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.base.target import Target
from luminal.codegen.llvm_product import gemm
from luminal.hlir.attributes import CustomAttrs, CustomKernel
from luminal.kernel.cost import label
from luminal.kernel.custom import place_custom
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused, Place
from luminal.kernel.layout import ROW_MAJOR
from luminal.kernel.source import source_of
from luminal.program.steps import CallStep, CustomStep, KernelStep, NestStep
from luminal.shape.expression import ZERO, ceil_div, maximum

SHARE = 256  # rows or columns of one call: much of the library's time goes into packing the rest
LARGEST = 2**31 - 1  # extent that the library's integers hold


@dataclass(frozen=True, slots=True)
class Product:
    """The matrices, each with three dimensions as it lies in memory: of `a` (batch, m, k), or
    (batch, k, m) where turned; of `b` (batch, k, n) or (batch, n, k); of `c` (batch, m, n).
    """

    a: Place
    b: Place
    c: Place
    turned: tuple[bool, bool]


def product_of(fused: Fused) -> Product | None:
    """The product that the fused kernel is, if it is one."""
    (store, *others), term = fused.stores, fused.stores[0].term
    if others or store.index is not None or store.add or store.place.layout != ROW_MAJOR:
        return None
    if term.op != "Sum" or term in fused.reads or term.dtype not in (float32, float64):
        return None
    (factors,) = term.args
    if factors.op != "Mul" or factors in fused.reads or store.frame != store.place.frame:
        return None
    x, y = (_matrix(factor, fused) for factor in factors.args)
    if x is None or y is None:
        return None
    c = replace(store.place, frame=(store.axes,))
    # Factors commute: either may be the one that has the rows.
    return _matched(x, y, c, term) or _matched(y, x, c, term)


def place_call(fused: Fused, library: str) -> Placed:
    """The kernel placed as calls of the library's gemm; CompileError if it is no product."""
    product = product_of(fused)
    if product is None:
        raise CompileError(f"{label(fused)}: no call of {library}: it is no plain product")
    return place_product(product, gemm(product.c.dtype, product.turned))


def place_product(product: Product, kernel: CustomKernel) -> Placed:
    """One call of `kernel` for every share of the rows, or of the columns where these are more."""
    batch, rows, columns = map(extent_of, product.c.frame)
    chunks = batch * ceil_div(maximum(rows, columns), SHARE)
    attrs = CustomAttrs(kernel, (), chunks, ZERO)
    return place_custom(attrs, (product.a, product.b), (product.c,))


def _matrix(factor: Term, fused: Fused) -> Place | None:
    """The place of a factor, as one dimension of the contraction's axes; None if it is computed."""
    # A library takes whole matrices with one leading dimension: a factor that is a part of a
    # tensor, or is computed, has none.
    source = source_of(factor, fused.reads.__contains__)
    place = fused.reads.get(source.term) if source is not None and not source.casts else None
    if source is None or place is None or place.layout != ROW_MAJOR:
        return None
    stored_axes, axes = _joined(place.frame), _joined(source.renamed(place.frame))
    if any(a.extent != b.extent for a, b in zip(stored_axes, axes, strict=True)):
        return None  # a part of the tensor, whose rows do not follow each other
    return replace(place, frame=(axes,)) if len(set(axes)) == len(axes) else None


def _matched(a: Place, b: Place, c: Place, term: Term) -> Product | None:
    """The product if `a` has the rows of the result and `b` its columns."""
    (left,), (right,), (out,) = a.frame, b.frame, c.frame
    bound = frozenset(term.attrs)
    # Axes have names, so which dimension is which follows from where each occurs; no pattern of
    # transposes is looked for.
    batch = tuple(axis for axis in out if axis in left and axis in right)
    m = tuple(axis for axis in out if axis in left and axis not in right)
    n = tuple(axis for axis in out if axis in right and axis not in left)
    k = tuple(axis for axis in left if axis in bound)
    if (*batch, *m, *n) != out or frozenset(k) != bound or not (m or n):
        return None
    if any(most(extent_of(axes)) > LARGEST for axes in (m, n, k)):
        return None
    forms_a, forms_b = ((batch, m, k), (batch, k, m)), ((batch, k, n), (batch, n, k))
    for turned_a, frame_a in enumerate(forms_a):
        for turned_b, frame_b in enumerate(forms_b):
            if _joined(frame_a) == left and _joined(frame_b) == right:
                return Product(
                    replace(a, frame=frame_a),
                    replace(b, frame=frame_b),
                    replace(c, frame=(batch, m, n)),
                    (bool(turned_a), bool(turned_b)),
                )
    return None


def _joined(frame: Frame) -> Axes:
    return tuple(axis for dimension in frame for axis in dimension)


def calls(step: KernelStep | CustomStep, target: Target) -> tuple[str, ...]:
    """The libraries of a machine that may compute a kernel."""
    if not isinstance(step, NestStep | CallStep) or BLAS not in target.libraries:
        return ()
    return () if product_of(step.fused) is None else (BLAS,)
