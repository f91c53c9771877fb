"""The kernel of a hand-written operation: one Call over whole buffers."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.hlir.attributes import CustomAttrs
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Place
from luminal.kernel.tile_ir import Buffer, Call, Grid, Kernel, Role
from luminal.shape.expression import ONE, ZERO, Expression, Symbol, axis, product_of, symbol

LARGEST = 2**62


def place_custom(attrs: CustomAttrs, operands: Sequence[Place], results: Sequence[Place]) -> Placed:
    """The kernel and its launch; all places are row-major.

    Its parameters are the extents of operands and results, dimension by dimension, and the number
    of chunks: the same code serves all shapes.
    """
    params: list[Symbol] = []
    values: list[Expression] = []
    buffers: list[Buffer] = []

    def param(value: Expression) -> Symbol:
        params.append(symbol(f"p{len(params)}", 0, LARGEST))
        values.append(value)
        return params[-1]

    def buffer(place: Place, role: Role) -> tuple[str, tuple[Expression, ...]]:
        shape = tuple(map(param, place.shape))
        name = f"b{len(buffers)}"
        buffers.append(Buffer(name, place.dtype, product_of(shape), role=role))
        return name, shape

    read = tuple(buffer(place, Role.IN) for place in operands)
    written = tuple(buffer(place, Role.OUT) for place in results)
    # A Python function is called once for all: the interpreter's lock would let in one chunk after
    # the other anyway.
    count = ONE if attrs.kernel.ir is None else attrs.chunks
    chunks = param(count)
    chunk = axis("chunk", chunks)
    call = Call(attrs.kernel, read, written, chunk, chunks)
    kernel = Kernel(tuple(params), tuple(buffers), (), (Grid(chunk, chunks),), (call,))
    places = (*operands, *results)
    return Placed(kernel, tuple(place.operand for place in places), tuple(values), count)


def bytes_of(places: Sequence[Place]) -> Expression:
    """The memory of all these places."""
    return sum((place.size * place.dtype.size for place in places), start=ZERO)
