"""View maps: which source element each output position reads.

A `View` gives, for each dimension of its source, an index Expression in the output's dimensions
(`index(k, extent)`), and a domain condition; a position outside the domain reads 0. The functions
below make the view of one movement over a source shape; `compose` joins two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeAlias

from luminal.base.errors import ShapeError
from luminal.base.records import dataclass
from luminal.shape.arithmetic import CACHE
from luminal.shape.expression import (
    ONE,
    TRUE,
    ZERO,
    Expression,
    ExpressionLike,
    Symbol,
    all_of,
    as_expression,
    axis,
    product_of,
)
from luminal.shape.prove import prove, simplify

Shape: TypeAlias = tuple[Expression, ...]
ShapeLike: TypeAlias = Sequence[ExpressionLike]
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class View:
    """`out[i0, i1, ...] = source[map] if domain else 0`, for an output of `shape`."""

    shape: Shape
    map: tuple[Expression, ...]
    domain: Expression

    def __str__(self) -> str:
        indices = ", ".join(map(str, self.map))
        guard = "" if self.domain is TRUE else f" if {self.domain}"
        return f"{shape_text(self.shape)} <- [{indices}]{guard}"


def _remembered(make: Callable[P, View]) -> Callable[P, View]:
    """The function `make` with a memory: layers that repeat ask for the same views."""
    cached: Callable[..., View] = lru_cache(CACHE)(make)

    @wraps(make)
    def asked(*args: P.args, **kwargs: P.kwargs) -> View:
        hashable: tuple[Any, ...] = tuple([tuple(a) if isinstance(a, list) else a for a in args])
        return cached(*hashable, **kwargs)

    return asked


@lru_cache(CACHE)
def index(dimension: int, extent: ExpressionLike) -> Symbol:
    """The position along an output dimension, in the maps of every view."""
    return axis(f"i{dimension}", extent)


def shape_of(shape: ShapeLike) -> Shape:
    """The shape as Expressions."""
    return tuple(as_expression(extent) for extent in shape)


def shape_text(shape: ShapeLike) -> str:
    """A shape as Python prints a tuple."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _position(dimension: int, extent: Expression) -> Expression:
    """The index; 0 along a literal extent of 1."""
    return ZERO if extent is ONE else index(dimension, extent)


def made(
    source: Shape, shape: Shape, indices: Sequence[Expression], domain: Expression = TRUE
) -> View:
    """`out[...] = source[indices]` inside `domain`, its maps in simplest form.

    The indices are Expressions of `index(k, shape[k])`; in source dims of extent 1 they become 0.
    """
    # The only position there is: views that came to it in other ways are then equal.
    exact = [ZERO if n is ONE else i for n, i in zip(source, indices, strict=True)]
    return _simplified(shape, exact, domain)


def _simplified(shape: Shape, indices: Sequence[Expression], domain: Expression) -> View:
    """The view with each part of its domain simplified under the others, then the maps under the
    domain.
    """
    parts = list(domain.args) if domain.op == "and" else [domain]
    for part in list(parts):
        others = [other for other in parts if other is not part]
        # One at a time: of two that imply each other one has to stay.
        if prove(part, others):
            parts = others
    domain = all_of(parts)
    return View(shape, tuple(simplify(i, (domain,)) for i in indices), domain)


@_remembered
def identity(shape: ShapeLike) -> View:
    """Every position reads itself."""
    source = shape_of(shape)
    return made(source, source, [_position(k, n) for k, n in enumerate(source)])


@_remembered
def permute(shape: ShapeLike, order: Sequence[int]) -> View:
    """Output dimension k is source dimension `order[k]`; ShapeError if that is no permutation."""
    source = shape_of(shape)
    if sorted(order) != list(range(len(source))):
        raise ShapeError(
            f"permute: {tuple(order)} is no order of the {len(source)} dimensions of "
            f"{shape_text(source)}; name each of 0..{len(source) - 1} once"
        )
    indices: list[Expression] = [ZERO] * len(source)
    for k, dimension in enumerate(order):
        indices[dimension] = _position(k, source[dimension])
    return made(source, tuple(source[dimension] for dimension in order), indices)


@_remembered
def expand(shape: ShapeLike, new_shape: ShapeLike) -> View:
    """Broadcast to `new_shape`: new leading dimensions, and literal extents 1 stretched."""
    source, shape_out = shape_of(shape), shape_of(new_shape)
    lead = len(shape_out) - len(source)
    indices: list[Expression] = []
    for k, n in enumerate(source):
        # A dim that is 1 in this run may be 2 in the next: only what is always 1 stretches.
        if lead < 0 or (n is not ONE and n is not shape_out[k + lead]):
            wanted = "fewer dimensions" if lead < 0 else f"extent {shape_out[k + lead]}"
            raise ShapeError(
                f"expand: {shape_text(source)} to {shape_text(shape_out)}: dimension {k} has "
                f"extent {n} and cannot become {wanted}; only a literal extent 1 stretches"
            )
        indices.append(_position(k + lead, n))
    return made(source, shape_out, indices)


@_remembered
def slice_(
    shape: ShapeLike,
    starts: ShapeLike,
    steps: ShapeLike,
    new_extents: ShapeLike,
) -> View:
    """Position i of dimension k reads `starts[k] + steps[k]*i`; the caller knows it is inside."""
    source, shape_out = shape_of(shape), shape_of(new_extents)
    indices = [
        start + step * _position(k, shape_out[k])
        for k, (start, step) in enumerate(zip(shape_of(starts), shape_of(steps), strict=True))
    ]
    return made(source, shape_out, indices)


def flip(shape: ShapeLike, dimension: int) -> View:
    """The view that reads one dimension back to front."""
    source = shape_of(shape)
    indices = [_position(k, n) for k, n in enumerate(source)]
    indices[dimension] = source[dimension] - 1 - indices[dimension]
    return made(source, source, indices)


def pad(shape: ShapeLike, pairs: Sequence[tuple[ExpressionLike, ExpressionLike]]) -> View:
    """Zeros before and after each dimension (negative amounts crop)."""
    source = shape_of(shape)
    shape_out = tuple(n + before + after for n, (before, after) in zip(source, pairs, strict=True))
    indices: list[Expression] = []
    inside: list[Expression] = []
    for k, (n, (before, _)) in enumerate(zip(source, pairs, strict=True)):
        at = _position(k, shape_out[k]) - before
        indices.append(at)
        inside += [at >= 0, at < n]
    return made(source, shape_out, indices, all_of(inside))


def window(
    shape: ShapeLike,
    dimension: int,
    size: ExpressionLike,
    stride: ExpressionLike,
    dilation: ExpressionLike,
    out_extent: ExpressionLike,
) -> View:
    """Windows along one dimension: `i*stride + w*dilation`, w a new last dimension of `size`.

    The caller knows that the last window, `(out_extent-1)*stride + (size-1)*dilation`, is inside.
    """
    source = shape_of(shape)
    resized = list(source)
    resized[dimension] = as_expression(out_extent)
    shape_out = (*resized, as_expression(size))
    indices = [_position(k, n) for k, n in enumerate(resized)]
    offset = _position(len(source), shape_out[-1])
    indices[dimension] = indices[dimension] * stride + offset * dilation
    return made(source, shape_out, indices)


@_remembered
def reshape(shape: ShapeLike, new_shape: ShapeLike) -> View:
    """The elements in row-major order under new extents of the same product, or ShapeError."""
    source, shape_out = shape_of(shape), shape_of(new_shape)
    have, want = product_of(source), product_of(shape_out)
    # Polynomials have one form and are interned: equal ones are the same object.
    if have is not want:
        raise ShapeError(
            f"reshape: {shape_text(source)} has {have} elements, {shape_text(shape_out)} has "
            f"{want}; the products must be the same expression"
        )
    indices: list[Expression] = [ZERO] * len(source)
    # Nothing of an empty tensor is read, and its extents may be divisors that are 0.
    if have is not ZERO:
        for old, new in _groups(source, shape_out):
            _split_group(source, shape_out, old, new, indices)
    return made(source, shape_out, indices)


def _groups(source: Shape, shape_out: Shape) -> list[tuple[list[int], list[int]]]:
    """Runs of old and of new dimensions with equal products, each as short as can be seen."""
    old = [k for k, n in enumerate(source) if n is not ONE]
    new = [k for k, n in enumerate(shape_out) if n is not ONE]
    # Short groups keep dimensions apart that a reshape leaves
    # alone: only what it really splits or joins is divided.
    groups = []
    while old or new:
        taken_old, taken_new = old[:1], new[:1]
        while True:
            left = product_of(source[k] for k in taken_old)
            right = product_of(shape_out[k] for k in taken_new)
            if left is right:
                break
            if left.divides(right) and len(taken_old) < len(old):
                taken_old = old[: len(taken_old) + 1]
            elif right.divides(left) and len(taken_new) < len(new):
                taken_new = new[: len(taken_new) + 1]
            else:
                taken_old, taken_new = old, new
                break
        groups.append((taken_old, taken_new))
        old, new = old[len(taken_old) :], new[len(taken_new) :]
    return groups


def _split_group(
    source: Shape, shape_out: Shape, old: list[int], new: list[int], indices: list[Expression]
) -> None:
    """Sets the old dimensions' indices: digits of the new dimensions' row-major position."""
    flat: Expression = ZERO
    for k in new:
        flat = flat * shape_out[k] + index(k, shape_out[k])
    stride: Expression = ONE
    for k in reversed(old):
        digit = flat // stride
        # The products of a group are equal, so the outermost digit stays below its extent.
        indices[k] = digit if k == old[0] else digit % source[k]
        stride = stride * source[k]


@_remembered
def compose(outer: View, inner: View) -> View:
    """The view of a view: `outer` reads from `inner`'s output.

    Where outer's domain fails its map may point outside of inner's output; the joined domain
    fails there too.
    """
    if len(outer.map) != len(inner.shape):
        raise ShapeError(
            f"compose: the outer view reads {len(outer.map)} dimensions, the inner one has shape "
            f"{shape_text(inner.shape)}; the outer view's source must be the inner view's output"
        )
    positions = {
        index(k, n): value for k, (n, value) in enumerate(zip(inner.shape, outer.map, strict=True))
    }
    indices = [i.substitute(positions) for i in inner.map]
    domain = outer.domain & inner.domain.substitute(positions)
    return _simplified(outer.shape, indices, domain)


def broadcast_shapes(*shapes: ShapeLike) -> Shape:
    """The common shape of operands, aligned at the last dimension; only a literal 1 stretches."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Expression] = [ONE] * rank
    for shape in map(shape_of, shapes):
        for k, n in enumerate(shape, rank - len(shape)):
            if result[k] is ONE:
                result[k] = n
            elif n is not ONE and n is not result[k]:
                raise ShapeError(_mismatch(shapes, result[k], n))
    return tuple(result)


def _mismatch(shapes: Sequence[ShapeLike], a: Expression, b: Expression) -> str:
    listed = " and ".join(shape_text(shape_of(shape)) for shape in shapes)
    if a.is_const and b.is_const:
        return f"broadcast: {listed} do not fit: {a} != {b}; make them equal or one of them 1"
    return (
        f"broadcast: {listed} do not fit: {a} and {b} are not the same expression; "
        "declare one of them in terms of the other"
    )
