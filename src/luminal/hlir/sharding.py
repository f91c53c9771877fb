"""The types of the two operations that say how values lie on ranks and what ranks do together, and
the dims that a rank's own place is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar

from luminal.base import dtypes
from luminal.base.errors import DTypeError, ShapeError
from luminal.hlir.attributes import COLLECTIVES, CollectiveAttrs, ShardAttrs
from luminal.hlir.types import TensorType, type_of
from luminal.shape.expression import Expression, Symbol, symbol

in_order: ContextVar[bool] = ContextVar("luminal_in_order", default=False)
"""Do collectives stay one by one in the order of the graph? Lists for unlike devices, whose kernels
differ and take other times, are alike in nothing else.
"""
NUMBERS = tuple(d for d in dtypes.COMPUTE if d.kind != "bool")


def shard(args: Sequence[TensorType], attrs: ShardAttrs) -> tuple[TensorType, ...]:
    """The type of a marked value: what is marked. Raises ShapeError where the mark does not fit."""
    if len(attrs.spec) != len(args[0].shape):
        raise ShapeError(
            f"Shard: {len(attrs.spec)} entries for {args[0]}; give one for each dimension"
        )
    names = [name for names in attrs.spec for name in names]
    for name in names:
        if names.count(name) > 1:
            raise ShapeError(
                f"Shard: the mesh axis {name!r} cuts {args[0]} twice; it can cut one dimension"
            )
    return (args[0],)


def collective(args: Sequence[TensorType], attrs: CollectiveAttrs) -> tuple[TensorType, ...]:
    """What a collective gives each rank. Raises ShapeError or DTypeError where it cannot be."""
    x = args[0]
    if attrs.kind not in COLLECTIVES:
        raise ShapeError(f"Collective: {attrs.kind!r} is not one of {', '.join(COLLECTIVES)}")
    if (attrs.reduction in ("Sum", "Max")) != (attrs.kind in ("all_reduce", "reduce_scatter")):
        raise ShapeError(f"Collective {attrs.kind}: the reduction {attrs.reduction!r} does not fit")
    if attrs.reduction and x.dtype not in NUMBERS:
        raise DTypeError(f"Collective {attrs.kind}: {x.dtype}; it takes {dtypes.names(NUMBERS)}")
    if attrs.kind in ("all_reduce", "permute"):
        return (x,)
    part = x.shape[0].exact_div(attrs.ranks) if x.shape else None
    if attrs.kind == "all_gather" and x.shape:
        return (type_of((x.shape[0] * attrs.ranks, *x.shape[1:]), x.dtype),)
    if part is None:
        raise ShapeError(
            f"Collective {attrs.kind}: the operand is {x}; its first dimension is that of the "
            f"parts of {attrs.ranks} ranks along {attrs.axis!r}"
        )
    return (type_of((part, *x.shape[1:]), x.dtype) if attrs.kind == "reduce_scatter" else x,)


def sent(kind: str, operand: Expression, ranks: int) -> Expression:
    """What a rank has to send of an operand of so many elements, or bytes, at least: by the best
    algorithm for the kind.
    """
    match kind:
        case "permute":
            return operand
        case "all_gather":
            return operand * (ranks - 1)
        case "all_reduce":
            return operand * (2 * (ranks - 1)) // ranks
    return operand * (ranks - 1) // ranks


_DIM = "rank_"


def coordinate(axis: str, ranks: int) -> Symbol:
    """The dim that stands for a rank's own place along a mesh axis."""
    return symbol(_DIM + axis, 0, ranks - 1)


def dims_at(coordinates: Mapping[str, int]) -> dict[str, int]:
    """The values of those dims, by name, for a rank's place along each mesh axis."""
    return {_DIM + axis: place for axis, place in coordinates.items()}
