"""Operations written by hand: `custom_kernel`, and `t.diff(name)`, which writes to a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, GraphError, LuminalError, ShapeError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array, Operand, Shape, describe
from luminal.frontend.pointwise.binary import graph_of
from luminal.hlir.attributes import CustomKernel
from luminal.hlir.types import TensorType
from luminal.shape.expression import Expression, const, product_of

if TYPE_CHECKING:
    from luminal.frontend.graph import Recorder
    from luminal.frontend.tensor import Tensor

Rule: TypeAlias = Callable[..., Any] | Sequence[Any]
"""(shape, dtype) of the result, or a list of them; or a function that gives it from the operands'
types, each with a `shape` and a `dtype`."""
Count: TypeAlias = int | Expression | Callable[..., int | Expression]
"""A number that may depend on dims; or a function that gives it from the operands' types."""

SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")  # what names a function of LLVM IR unquoted


@dataclass(frozen=True, slots=True, eq=False)
class CustomOperation:
    """A hand-written kernel with its rules: called on Tensors, it records a call of the kernel."""

    kernel: CustomKernel
    results: Rule
    chunks: Count
    flops: Count | None

    def __call__(self, *operands: Operand) -> Any:
        """The result, or a tuple of several. Raises ShapeError or DTypeError where a rule fails."""
        name = self.kernel.name
        graph = graph_of(name, operands)
        # Numbers and arrays become constants: the kernel gets arrays of fixed types, whatever was
        # passed.
        values = [graph.bring(graph.constant(x)) for x in operands]
        types_in = [value.type for value in values]
        rule = self.results
        types = self._types(graph, rule(*types_in) if callable(rule) else rule)
        chunks = self._count(graph, "chunks", self.chunks, types_in)
        # An operation for each element of a result, where nobody says more: reports only.
        if self.flops is None:
            flops = sum((product_of(shape) for shape, _ in types), start=const(0))
        else:
            flops = self._count(graph, "flops", self.flops, types_in)
        results_of_kernel = graph.builder.custom(self.kernel, values, types, chunks, flops)
        tensors = tuple(map(graph.wrap, results_of_kernel))
        return tensors[0] if len(tensors) == 1 else tensors

    def _types(self, graph: Recorder, rule_result: Any) -> list[TensorType]:
        """What the rule says, as types with dims of the graph."""
        if not isinstance(rule_result, tuple | list) or not rule_result:
            raise self._unreadable(rule_result)
        single = len(rule_result) == 2 and not isinstance(rule_result[1], tuple | list)
        return [self._type(graph, result) for result in ([rule_result] if single else rule_result)]

    def _type(self, graph: Recorder, pair: Any) -> TensorType:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise self._unreadable(pair)
        try:
            dtype: DType = dtypes.dtype_of(pair[1])
            shape: Shape = graph.extents(pair[0])
        except LuminalError as error:
            raise type(error)(f"{self.kernel.name}: results: {error}") from None
        except TypeError:
            raise self._unreadable(pair) from None
        for extent in shape:
            graph.require(extent >= 0, f"{self.kernel.name}: results")
        return TensorType(shape, dtype)

    def _unreadable(self, rule_result: Any) -> ShapeError:
        return ShapeError(
            f"{self.kernel.name}: results gave {rule_result!r}; it gives (shape, dtype), as "
            '((2, "n"), "float32"), or a list of such pairs'
        )

    def _count(
        self, graph: Recorder, what: str, rule: Count, operands: list[TensorType]
    ) -> Expression:
        number = rule(*operands) if callable(rule) else rule
        try:
            count = graph.extent(number)
        except ShapeError:
            name = self.kernel.name
            raise ShapeError(
                f"{name}: {what} is {number!r}; give an int or an Expression"
            ) from None
        graph.require(count >= 0, f"{self.kernel.name}: {what}")
        return count


def custom_kernel(
    name: str,
    evaluate: Callable[..., None] | None = None,
    *,
    results: Rule,
    ir: str | None = None,
    chunks: Count = 1,
    flops: Count | None = None,
    vjp: Callable[..., Any] | None = None,
) -> CustomOperation:
    """An operation with a kernel of yours, called on Tensors; the compiler works around it.

    `evaluate(*operands, *results)` reads NumPy arrays (read-only, row-major, only valid during the
    call) and writes the last ones; it returns nothing. Without `ir` it is the kernel. It is a pure
    function: it may run on any thread that calls the executable, and not at all where no output
    needs it. If it raises, so does the run, and no State has changed.

    `ir` is LLVM IR that defines `void @NAME(ptr, ..., i64, ...)`: pointers to operands and results,
    their extents in that order, then `i64 chunk, i64 chunks`. The threads call it once for every
    chunk in 0..chunks-1, in any order; each call writes its part of the results. It must not fail.

    `results`: (shape, dtype), a list of them, or a function of the operands' types that gives it.
    `chunks` and `flops` (its operations, for reports): numbers, or functions of the types. `vjp`:
    `vjp(operands, results, cotangents)` gives a gradient or None for each operand, for training.
    """
    if not isinstance(name, str) or not name:
        raise GraphError(f"custom_kernel: {name!r} is no name; give a string")
    if evaluate is None and ir is None:
        raise GraphError(f"custom_kernel: {name} has no code; give a function or ir=")
    if evaluate is not None and not callable(evaluate):
        raise DTypeError(f"custom_kernel: {name}: {evaluate!r} is not a function; IR goes to ir=")
    if ir is not None and not SYMBOL.fullmatch(name):
        raise GraphError(
            f"custom_kernel: {name!r} names the function in ir; use letters, digits, _ and ."
        )
    return CustomOperation(CustomKernel(name, evaluate, ir, vjp), results, chunks, flops)


def to_file(x: Tensor, name: str) -> Tensor:
    """`x` itself; each run writes it to the file `name` + ".bin": raw, row-major, little-endian.

    There is no header, 16-bit floats are their bits, a bool is a byte; a folder in `name` is made.
    In the function of `scan` the last trip's value stays, and what this returns must be used there.
    Raises GraphError where another Tensor of the graph is written to the same file.
    """
    path = os.path.normpath(name) + ".bin"
    written = x.graph.diffs.get(path)
    if written is not None and written[0].value == x.value:
        return written[1]
    if written is not None:
        raise GraphError(
            f"diff: {path} is written by {describe(written[0])} and by {describe(x)}; "
            "give one of them another name"
        )

    operation = custom_kernel(f"diff {path}", _Writer(path), results=_same, vjp=_identity_vjp)
    same: Tensor = operation(x)
    x.graph.diffs[path] = x, same
    if x.graph.depth == 0:
        x.graph.output(same, hidden=True)  # it is written even if nothing reads what this returns
    return same


class _Writer:
    """Copies a value and writes it to a file. In the processes of a search it only copies."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, value: Array, same: Array) -> None:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        bits = value.view(f"u{value.itemsize}")
        bits.astype(f"<u{value.itemsize}", copy=False).tofile(self.path)
        _copy(value, same)

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        # A search runs candidates many times over made-up data, which must not overwrite the user's
        # file.
        return _copier, ()  # what travels to a search


def _copier() -> Callable[[Array, Array], None]:
    return _copy


def _copy(value: Array, same: Array) -> None:
    same[...] = value


def _same(operand: TensorType) -> TensorType:
    return operand


def _identity_vjp(operands: Any, results: Any, cotangents: Any) -> Any:
    return cotangents
