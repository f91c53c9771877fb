"""The attributes an HLIR node carries beside its operands, one record per kind of op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from luminal.base.dtypes import DType
from luminal.base.errors import CompileError, InputError
from luminal.base.records import dataclass
from luminal.hlir.library_product import LibraryProduct
from luminal.shape.expression import Expression
from luminal.shape.view import View

if TYPE_CHECKING:
    from luminal.hlir.ops import Node, Value
    from luminal.memory.parameter import Parameter
    from luminal.memory.state import Assignable, State

Shape = tuple[Expression, ...]
Array: TypeAlias = np.ndarray[Any, Any]
T = TypeVar("T")


class Slot(int):
    """The number of an index tensor among the operands, in an index map. It equals no Expression,
    so that maps with the literal index 0 and with tensor 0 in one place are different keys.

    `inside`: what the tensor holds is known to be positions that exist.
    """

    inside: bool

    def __new__(cls, number: int, *, inside: bool = False) -> Slot:
        slot = super().__new__(cls, number)
        slot.inside = inside
        return slot


class InputAttrs(NamedTuple):
    """A tensor given per run; inside a Loop body, an argument of the body."""

    name: str
    shape: Shape
    dtype: DType


class WeightAttrs(NamedTuple):
    """A tensor set rarely; its array lives in the Parameter, outside every graph."""

    name: str
    parameter: Parameter


class StateAttrs(NamedTuple):
    """The value a State holds at the start of the run."""

    state: State


class ConstantAttrs(NamedTuple):
    """An exact literal: row-major little-endian bytes of a tensor with a static shape."""

    shape: tuple[int, ...]
    dtype: DType
    data: bytes

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The literal as a read-only array."""
        return np.frombuffer(self.data, self.dtype.numpy).reshape(self.shape)


class IotaAttrs(NamedTuple):
    """An Expression of the output's indices `i0, i1, ...` and dims, evaluated and cast to dtype."""

    expr: Expression
    shape: Shape
    dtype: DType


class CastAttrs(NamedTuple):
    """The dtype that Cast converts to or Bitcast reinterprets as (of the same width)."""

    dtype: DType


class MarkAttrs(NamedTuple):
    """What tells one Detach from others: the derivative of its own that it belongs to."""

    key: Any


class AxisAttrs(NamedTuple):
    """The dimension that a reduction or a sort runs along."""

    axis: int


class ScanAttrs(NamedTuple):
    """An inclusive scan of `kind` (add, mul or max) along `axis`."""

    kind: str
    axis: int


class GatherAttrs(NamedTuple):
    """Elements of a source read at computed positions: `out[i...] = src[map(i...)]`.

    Each entry of `map`, one per source dimension, is an Expression in the output's indices, or a
    Slot k: the integer tensor `args[1 + k]`, of the output's shape.
    """

    shape: Shape
    map: tuple[Expression | int, ...]


class ScatterAttrs(NamedTuple):
    """`out = dest; out[map(i...)] (=|+=) src[i...]` in row-major order; args: dest, src, maps.

    Each entry of `map`, one per dest dimension, is an Expression in src's indices or a Slot k: the
    integer tensor `args[2 + k]`, of src's shape. `mode` is "set" or "add".
    """

    map: tuple[Expression | int, ...]
    mode: str


class ViewAttrs(NamedTuple):
    """An index map with a domain; positions outside the domain read 0."""

    view: View


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The program of one Loop iteration: its arguments (Input nodes) and results.

    Arguments: carried values, then streams (one slice each), then invariants. Results: the next
    carried values, then ys.
    """

    arguments: tuple[Node, ...]
    results: tuple[Value, ...]


class LoopAttrs(NamedTuple):
    """`trips` iterations of `body`.

    Operands: `carried` initial values; then, per entry n of `streams`, one tensor with leading axis
    trips (n = 0) or n leaves (n = trips); then invariants. Results: final carried values, then ys,
    each with leading axis trips. `assigned[k]`, if not None, binds y k to a list of States or
    Parameters: number i takes the y of iteration i.
    """

    trips: Expression
    body: Body
    carried: int
    streams: tuple[int, ...]
    assigned: tuple[tuple[Assignable, ...] | None, ...]

    # Every reader of a Loop needs this cut, and one that counts operands by itself gets streams of
    # several leaves wrong: such a stream takes as many operands as it has leaves.
    def split(self, operands: Sequence[T]) -> tuple[Sequence[T], list[Sequence[T]], Sequence[T]]:
        """Operands as (carried, the tensor or the leaves of each stream, invariants)."""
        streams: list[Sequence[T]] = []
        position = self.carried
        for leaves in self.streams:
            width = max(leaves, 1)
            streams.append(operands[position : position + width])
            position += width
        return operands[: self.carried], streams, operands[position:]


@dataclass(frozen=True, slots=True, eq=False)
class CustomKernel:
    """A hand-written operation, equal to no other one whatever its name and code.

    `evaluate(*operands, *results)` is its meaning: it reads NumPy arrays and writes the results.
    `ir` is code that a backend runs instead; None: `evaluate` itself is the kernel. `vjp` is for
    training: `vjp(operands, results, cotangents)` gives a gradient or None for each operand.
    `product`: a library computes it, and is told numbers, as `evaluate` then is behind the results.
    """

    name: str
    evaluate: Callable[..., None] | None
    ir: str | None = None
    vjp: Callable[..., Any] | None = None
    product: LibraryProduct | None = None

    def run(
        self, operands: Sequence[Array], results: Sequence[Array], numbers: Sequence[int] = ()
    ) -> None:
        """Calls `evaluate`, which sees the operands read-only. Raises what it raises."""
        if self.evaluate is None:
            raise CompileError(
                f"{self.name}: this custom kernel has native code only; give "
                "custom_kernel(evaluate=) a NumPy function to run it here"
            )
        # Views of their own, so that making them read-only leaves the caller's arrays as they are.
        views = [np.asarray(x, order="C").view() for x in operands]
        for view in views:
            view.flags.writeable = False
        returned: Any = self.evaluate(*views, *results, *numbers)
        if returned is not None and all(returned is not result for result in results):
            raise InputError(
                f"{self.name}: the custom kernel returned a {type(returned).__name__}; it writes "
                "into its last arguments (out[...] = x * x) and returns nothing"
            )


class ShardAttrs(NamedTuple):
    """How a value lies from here on: for each dimension the mesh axes over which it is cut, the
    outermost first.
    """

    spec: tuple[tuple[str, ...], ...]


COLLECTIVES = ("all_gather", "all_to_all", "all_reduce", "reduce_scatter", "permute")


@dataclass(frozen=True, slots=True)
class CollectiveAttrs:
    """What the `ranks` ranks along one mesh axis do together, each with an operand of its own.

    `all_gather`: the operands of all, one after the other along the first dimension. `all_to_all`:
    of equal parts along that dimension, part k of the result is this rank's part of rank k's.
    `all_reduce` and `reduce_scatter` combine by `reduction` (Sum or Max). `permute`: the operand of
    the rank that `pairs` (source, target) names, zeros where none does. Those that differ in `turn`
    are done each, of one operand too. `label` says which value it is, for reports and errors.
    """

    kind: str
    axis: str
    ranks: int
    reduction: str = ""
    pairs: tuple[tuple[int, int], ...] = ()
    turn: int = 0
    # The same operation in each layer of a model must be equal, or layers would not roll.
    label: str = field(default="", compare=False)


class CustomAttrs(NamedTuple):
    """A call of `kernel`: the types of its results, the chunks its work is cut into, its work."""

    kernel: CustomKernel
    types: tuple[tuple[Shape, DType], ...]
    chunks: Expression
    flops: Expression
