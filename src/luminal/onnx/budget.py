"""What a model may ask for beside what it is given: in relation to the size of the file and of the
inputs, since a file of a hundred bytes can name functions of 2 ** 39 nodes, or windows of 2 ** 36.

The bounds are far above what networks need: a convolution computes each byte of a weight a million
times over only where its picture has more elements than that, which are bytes of the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import LoopAttrs
from luminal.hlir.graph import topological
from luminal.hlir.ops import Node, Value
from luminal.onnx.errors import OnnxError
from luminal.shape.expression import Expression

NODES = 10_000
"""That any model may make."""
NODES_EACH = 64
"""More of them for each node in the file: as often may one of a function or body be recorded."""
WORK = 1 << 30
"""Elements that any model may compute, those that a sum takes included: a second or two."""
WORK_EACH = 1 << 20
"""More of them for each byte of the file and the inputs."""
BYTES = 1 << 29
"""Of a value that any model may make."""
BYTES_EACH = 1 << 16
"""More of them for each byte of the file and the inputs."""
TABLE = 1 << 25
"""Elements of a table that is made while a model is read: a Fourier transform of 5,792 samples that
is not taken in two steps has as many."""
ELEMENTS = 1 << 44
"""Of a tensor, be it only seen: of 16 TiB in bytes."""
DEPTH = 64
"""Functions and bodies within each other."""
LEAST = 1 << 10
"""Elements that a node of a loop counts at least, each time: its launch takes as long."""


class Steps:
    """The nodes that one reading of a model may still record."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._most = NODES + NODES_EACH * nodes
        self._made = 0

    def count(self, number: int = 1) -> None:
        """Notes nodes or parts of a sequence. Raises OnnxError where there are too many."""
        self._made += number
        if self._made > self._most:
            raise OnnxError(
                f"the {self._nodes:,} nodes of the model make more than {self._most:,}: a "
                "function, a loop or a sequence multiplies them; models may make "
                f"{NODES:,} and {NODES_EACH} for each node of the file, so write them out in it"
            )


def check_depth(depth: int) -> None:
    """Raises OnnxError where functions and bodies lie too deep within each other."""
    if depth > DEPTH:
        raise OnnxError(
            f"functions and bodies lie more than {DEPTH} deep within each other; inline them"
        )


def check_sizes(values: Iterable[Any]) -> None:
    """Raises OnnxError for a tensor that no machine holds, on whatever way it is computed, and for
    one of less than no elements.
    """
    for value in values:
        if isinstance(value, Tensor) and any(n.is_const and n.value < 0 for n in value.extents):
            raise OnnxError(f"the result {value.value.type} has an extent below 0")
        if isinstance(value, Tensor) and _count(value.extents) > ELEMENTS:
            raise OnnxError(
                f"makes a tensor of {_count(value.extents):.3g} elements; there may be {ELEMENTS:,}"
            )


def check_table(*shape: int) -> None:
    """Raises OnnxError where a table of numbers would be too large to be made on reading."""
    if any(n > TABLE for n in shape) or prod(shape) > TABLE:
        raise OnnxError(
            f"takes a table of {' x '.join(f'{n:,}' for n in shape)} numbers; at most {TABLE:,} "
            "are made while a model is read"
        )


def check_work(roots: Sequence[Value], data: int) -> None:
    """Raises OnnxError where computing `roots` takes more than `data` bytes account for."""
    nodes = topological(roots)
    work, most = _work(nodes), WORK + WORK_EACH * data
    if work > most:
        raise OnnxError(
            f"the model computes {work:.3g} elements, of {data:,} bytes of its own and of inputs; "
            f"it may {most:.3g}: {WORK:,} and {WORK_EACH:,} for each byte; is an extent, a window "
            "or a number of trips too large?"
        )
    largest = max((_bytes(value) for value in _kept(nodes, roots)), default=0)
    most = BYTES + BYTES_EACH * data
    if largest > most:
        raise OnnxError(
            f"the model makes a value of {largest:.3g} bytes, of {data:,} bytes of its own and of "
            f"inputs; it may {most:.3g}: {BYTES:,} and {BYTES_EACH:,} for each byte; is an extent "
            "too large?"
        )


def _work(nodes: Iterable[Node]) -> int:
    """The elements that nodes compute: of the largest of their operands and results."""
    return sum(_work_of(node) for node in nodes if node.op.group not in ("leaf", "view"))


def _work_of(node: Node) -> int:
    elements = max(_count(shape) for shape, _ in (*node.types, *(arg.type for arg in node.args)))
    if isinstance(node.attrs, LoopAttrs):
        body = topological(node.attrs.body.results)
        per_trip = sum(max(_work_of(inner), LEAST) for inner in body if inner.op.group != "leaf")
        return elements + _count((node.attrs.trips,)) * max(per_trip, LEAST)
    return elements


def _kept(nodes: Iterable[Node], roots: Iterable[Value]) -> Iterator[Value]:
    """What is stored: the roots, and what is not computed where it is read."""
    yield from roots
    # Pointwise values are counted out: kernels compute them where they are read, and a graph may
    # have any number of large ones without storing any.
    for node in nodes:
        if node.op.group not in ("leaf", "view") and not node.op.is_pointwise:
            yield from (Value(node, k) for k in range(len(node.types)))


def _bytes(value: Value) -> int:
    return _count(value.shape) * value.dtype.size


def _count(shape: Sequence[Expression]) -> int:
    """Elements; one along dims, whose sizes are those of inputs."""
    # A dim's size comes with an array that somebody has sent, so it is paid for; a constant extent
    # is free to write.
    return prod(n.value for n in shape if n.is_const)
