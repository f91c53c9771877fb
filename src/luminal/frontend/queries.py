"""What is known of a Tensor without a run: its kind, its strides; and whether two are equal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from luminal import dtypes
from luminal.errors import ShapeError
from luminal.frontend.binary import equal as same
from luminal.frontend.binary import where
from luminal.frontend.handle import Operand, axis_of, describe, in_float
from luminal.frontend.reduce import all
from luminal.shape.expression import Expression, product_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def is_floating_point(x: Tensor) -> bool:
    """Is the dtype one of floats?"""
    return x.dtype.is_float


def is_complex(x: Tensor) -> bool:
    """False: there are no complex dtypes."""
    return False


def is_signed(x: Tensor) -> bool:
    """Does the dtype hold negative numbers?"""
    return x.dtype.is_float or x.dtype.is_signed


def is_same_size(x: Tensor, other: Tensor) -> bool:
    """Are the shapes the same? Extents of dims are, where they are the same Expression."""
    return x.extents == other.extents


def numel(x: Tensor) -> int | Expression:
    """The number of elements: an int where the shape is literal."""
    return x.numel()


def element_size(x: Tensor) -> int:
    """The bytes of an element."""
    return x.dtype.size


def nbytes(x: Tensor) -> int | Expression:
    """The bytes of all elements."""
    return x.numel() * x.dtype.size


def stride(x: Tensor, dim: int | None = None) -> Any:
    """How many elements lie between neighbours along each dim, or along one, in row-major order.

    A lazy Tensor has no storage: these are the strides of the array that a run gives. PyTorch's
    views have those of what they view.
    """
    extents = x.extents
    steps = [product_of(extents[k + 1 :]) for k in range(x.ndim)]
    found = tuple(n.value if n.is_const else n for n in steps)
    return found if dim is None else found[axis_of("stride", dim, x.ndim)]


def equal(x: Tensor, other: Operand) -> Tensor:
    """True (0-d) where the shapes are the same and all elements equal, as torch.equal.

    By element: `eq`. Raises ShapeError where shapes of dims may or may not be the same.
    """
    y = x.graph.constant(other)
    if x.extents != y.extents:
        known = [
            n.is_const and m.is_const and n != m for n, m in zip(x.extents, y.extents, strict=False)
        ]
        if x.ndim == y.ndim and not any(known):
            raise ShapeError(
                f"equal: {describe(x)} and {describe(y)} may have the same shape or not, as their "
                "dims are bound; reshape one of them"
            )
        return x.graph.constant(False)
    return all(same(x, y))


def isreal(x: Tensor) -> Tensor:
    """True everywhere: there are no complex dtypes."""
    return x.graph.full(x.extents, True, dtypes.bool_)


@in_float
def angle(x: Tensor) -> Tensor:
    """pi below 0, else 0: the angle of a complex number without an imaginary part; NaN stays."""
    return where(x < 0, math.pi, where(x == x, 0, x))


def real(x: Tensor) -> Tensor:
    """x itself, as `conj`, `conj_physical`, `resolve_conj` and `resolve_neg`: no complex dtypes."""
    return x


conj = conj_physical = resolve_conj = resolve_neg = real
