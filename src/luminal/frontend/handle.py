"""What a Tensor is beneath its methods, a value of a graph; the families of methods use this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeAlias, TypeGuard, TypeVar

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, LuminalError, ShapeError
from luminal.base.near_names import NUMPYS, explained
from luminal.hlir.attributes import InputAttrs, WeightAttrs
from luminal.hlir.ops import Value
from luminal.memory.as_tensor import HOW_TO_READ, outside, recorder
from luminal.memory.data import is_array, is_list_of_numbers
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.shape.expression import Expression, const, product_of
from luminal.shape.view import index

if TYPE_CHECKING:
    from luminal.frontend.graph import Recorder
    from luminal.frontend.tensor import Tensor

Array: TypeAlias = np.ndarray[Any, Any]
Scalar: TypeAlias = bool | int | float
Extent: TypeAlias = int | str | Expression
"""One entry of a shape: an int, the name of a dim, or an Expression of dims."""
Shape: TypeAlias = tuple[Expression, ...]
Operand: TypeAlias = (
    "Tensor | Scalar | Expression | Array | np.generic | Sequence[Any] | Parameter | State"
)

P = ParamSpec("P")
R = TypeVar("R")


class Handle:
    """A value and the graph that records it. Immutable in effect: methods return new Tensors."""

    __slots__ = ("graph", "value")

    def __init__(self, value: Value, graph: Recorder | None = None) -> None:
        if graph is None:
            raise TypeError(
                "Tensor: a Tensor is a value of a graph; lm.tensor([1.0, 2.0]) makes one of data, "
                "lm.tensor((2, 3)) an input of a shape"
            )
        self.value = value
        self.graph: Recorder = graph

    def __copy__(self) -> Self:
        """Itself: Tensors do not change."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: Tensors do not change."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a Tensor is a value of a graph of this process; pickle x.numpy()")

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.value.dtype

    @property
    def extents(self) -> Shape:
        """The shape as Expressions."""
        return self.value.shape

    @property
    def shape(self) -> tuple[int | Expression, ...]:
        """The shape: ints where an extent is literal, Expressions of the graph's dims elsewhere."""
        return tuple(n.value if n.is_const else n for n in self.value.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.value.shape)

    def dim(self) -> int:
        """The number of dimensions, as torch.Tensor.dim."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the extent of one dim, as torch.Tensor.size; IndexError beyond the dims."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int | Expression:
        """The number of elements: an int where the shape is literal."""
        count = product_of(self.value.shape)
        return count.value if count.is_const else count

    def _paired(self) -> Any:
        """(..., 2) of floats as complex numbers."""
        this: Any = self
        return Pair.kind(this[..., 0], this[..., 1])

    def contiguous(self) -> Self:
        """Itself: a Tensor has no strides before it is compiled."""
        return self


class Branching:
    """What trees look into, though it is no tuple, list or dict: see `frontend/scan.py`."""

    __slots__ = ()

    def branches(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """What builds it again of its parts, one by one, and these by name."""
        raise NotImplementedError


class Pair(Branching):
    """What stands beside Tensors as an operand and is two of them: see `frontend/complex/`."""

    __slots__ = ()
    in_use = False  # was one made? So nobody looks for them where there are none
    kind: type[Any]  # the one that there is, for what lies below it

    if TYPE_CHECKING:

        @property
        def graph(self) -> Any: ...
        @property
        def parts(self) -> list[Any]: ...
        def _apart(self) -> Any: ...

    def __init_subclass__(cls) -> None:
        Pair.kind = cls

    @classmethod
    def of(cls, real: Any, imag: Any) -> Any:
        """The pair of two Tensors; of two arrays an array."""
        raise NotImplementedError

    def branches(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Itself of the two Tensors, or an array of two arrays."""
        return self.of, dict(zip(("real", "imag"), self.parts, strict=True))

    def apply(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function of Tensors, under this name, of arguments with Pairs among them."""
        raise NotImplementedError


def pair_among(args: Any, kwargs: Any) -> Pair | None:
    """The first Pair among the arguments of a call, also in lists."""
    for x in (*args, *kwargs.values()):
        for operand in x if isinstance(x, list | tuple) else (x,):
            if isinstance(operand, Pair):
                return operand
    return None


def along(dimension: int, extent: Expression) -> Expression:
    """The position along a dim of the result, for index maps; literally 0 where the extent is 1."""
    return const(0) if extent == const(1) else index(dimension, extent)


def is_tensor(x: object) -> TypeGuard[Tensor]:
    """Is `x` a Tensor?"""
    return isinstance(x, Handle)


def value_of(x: Any) -> Any:
    """A Parameter or State as the Tensor that it is in what is being recorded; else `x` itself."""
    value = x.value_here() if isinstance(x, State | Parameter) else None
    return x if value is None else value


def _values_of(x: Any) -> Any:
    """The value of an operand, or of each operand in a list or tuple; see `value_of`."""
    return type(x)(map(value_of, x)) if type(x) in (list, tuple) else value_of(x)


def describe(x: Handle) -> str:
    """`x: f32[s, 64]`, for an error text; without the name where it has none."""
    attrs = x.value.node.attrs
    if isinstance(attrs, InputAttrs | WeightAttrs):
        return f"{attrs.name}: {x.value.type}"
    return str(x.value.type)


def together(*tensors: Tensor) -> tuple[Recorder, list[Value]]:
    """The graph that records an operation on `tensors`, and their values in it.

    Inside `scan`, outer tensors come in as invariants. Raises GraphError where graphs are mixed.
    """
    graph = tensors[0].graph
    for x in tensors:
        if x.graph is not graph:  # mostly there is but one
            graph = max((x.graph for x in tensors), key=lambda graph: graph.depth)
            break
    return graph, [graph.bring(x) for x in tensors]


def apply(name: str, *tensors: Tensor) -> Tensor:
    """Records the HLIR op `name`, one without attributes, on operands of equal shape and dtype."""
    graph, values = together(*tensors)
    return graph.wrap(graph.builder.apply(name, *values))


def as_tensor_advice(x: Any) -> str:
    """What to write for a value that is no Tensor."""
    return HOW_TO_READ if isinstance(x, State | Parameter) else "pass lm.tensor(x)"


def of_tensors(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Says what is wrong where the function gets an array or a list of numbers for a Tensor; takes
    Parameters and States as the Tensors that they are in what is being recorded, and complex
    numbers. `name`: under which it is offered.
    """
    name = name or function.__name__

    @wraps(function)
    def saying(*positional: P.args, **named: P.kwargs) -> R:
        args: Any = positional
        kwargs: Any = named
        if recorder.get() is not None:
            args = [_values_of(x) for x in positional]
            kwargs = {name: _values_of(x) for name, x in named.items()}
        elif any(isinstance(x, State | Parameter) and x.is_paired for x in args):
            args = [x.as_tensor() if isinstance(x, State | Parameter) else x for x in args]
        if Pair.in_use and (pair := pair_among(args, kwargs)) is not None:
            return pair.apply(name, function, *args, **kwargs)  # type: ignore[no-any-return]
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            raise explained(error, function, named) from error.__cause__
        except AttributeError:
            all_given = [
                x for arg in args for x in (arg, *(arg if isinstance(arg, list | tuple) else ()))
            ]
            if recorder.get() is None and any(isinstance(x, State | Parameter) for x in all_given):
                graphs = [x.graph for x in all_given if is_tensor(x)]
                token = recorder.set(graphs[0] if graphs else outside())
                try:
                    return saying(*positional, **named)
                finally:
                    recorder.reset(token)
            wrong = [
                x for x in all_given if not is_tensor(x) and (is_array(x) or is_list_of_numbers(x))
            ]
            if not wrong:
                raise
        kind = type(wrong[0]).__name__
        raise DTypeError(
            f"{function.__name__}: got a {kind} in the place of a Tensor; "
            f"{as_tensor_advice(wrong[0])}"
        )

    return saying


def as_method(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function as a method of Tensors, under this name: it says which keyword was meant, and
    takes complex operands.
    """

    @wraps(function)
    def calling(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (AttributeError, LuminalError, TypeError) as raised:
            error: Exception = raised
        # Only here, so that other calls do not pay for it: of complex numbers functions raise.
        pair = pair_among(args, kwargs)
        if pair is not None:
            return pair.apply(name, function, *args, **kwargs)
        raise explained(error, function, kwargs) if isinstance(error, TypeError) else error

    # the names by which pickle finds it
    calling.__module__, calling.__qualname__ = "luminal.frontend.tensor", f"Tensor.{name}"
    return calling


def listed(shape: Sequence[Any]) -> tuple[Any, ...]:
    """`f(2, 3)` and `f((2, 3))` mean the same."""
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        return tuple(shape[0])
    return tuple(shape)


def axis_of(what: str, dim: int, rank: int) -> int:
    """`dim` counted from the front; raises ShapeError if it is not in -rank .. rank-1."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer):
        raise ShapeError(f"{what}: dim {dim!r} is not an int")
    if not -rank <= dim < rank:
        allowed = f"-{rank}..{rank - 1}" if rank else "empty: the tensor has no dimensions"
        raise ShapeError(f"{what}: dim {dim} is out of range; the range is {allowed}")
    return int(dim) % rank


def axes_of(what: str, dim: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Distinct dims in ascending order; None means all. Raises ShapeError as `axis_of`.

    A 0-d tensor has dims 0 and -1 too, as in PyTorch: they name its one element.
    """
    if dim is None:
        return tuple(range(rank))
    if is_tensor(dim):
        raise ShapeError(
            f"{what}: dim is a Tensor, and shapes are fixed before a run; pass an int (under "
            "lm.jit name the argument in static)"
        )
    dims = (dim,) if isinstance(dim, int | np.integer) else tuple(dim)
    if rank == 0 and all(d in (0, -1) for d in dims):
        return ()
    axes = sorted(axis_of(what, d, rank) for d in dims)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{what}: dims {dims} name one dimension twice; name each once")
    return tuple(axes)


def takes_0d(function: Callable[P, R]) -> Callable[P, R]:
    """Lets a function along one dim take a 0-d tensor, as one element along one dim."""

    @wraps(function)
    def accepting(*args: P.args, **kwargs: P.kwargs) -> R:
        first: Any = args[0]
        if first.ndim:
            return function(*args, **kwargs)
        one: Any = function(*(first.reshape(1), *args[1:]), **kwargs)
        parts: Any = type(one)(*(x.reshape(()) for x in one)) if isinstance(one, tuple) else None
        return one.reshape(()) if parts is None else parts  # type: ignore[no-any-return]

    return accepting


def numpy_names(function: Callable[P, R]) -> Callable[P, R]:
    """Lets callers write `axis` (NumPy's) or `dims` for `dim`, and `keepdims` for `keepdim`."""

    @wraps(function)
    def accepting(*args: P.args, **kwargs: P.kwargs) -> R:
        for theirs, ours in NUMPYS:
            if theirs in kwargs:
                if ours in kwargs:
                    raise ShapeError(f"{function.__name__}: give {ours} or {theirs}, not both")
                kwargs[ours] = kwargs.pop(theirs)
        return function(*args, **kwargs)

    return accepting


def work_dtype(dtype: DType) -> DType:
    """The float type that float functions compute in: f32, or f64 for f64. Raises DTypeError for a
    float of 8 bits.
    """
    return dtypes.float64 if dtype.compute is dtypes.float64 else dtypes.float32


def in_float(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Runs a float function in f32 or f64: one Cast up before, one down after for 16-bit floats.

    Integers and bools give f32. The first parameter decides; other tensors are cast alike.
    """

    @wraps(function)
    def cast_around(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        first = value_of(args[0])
        if isinstance(first, State | Parameter):
            first = first.as_tensor()
        if not is_tensor(first):
            raise DTypeError(
                f"{function.__name__.lstrip('_')}: {first!r} is no Tensor; "
                f"{as_tensor_advice(first)}"
            )
        work = work_dtype(first.dtype)
        rest = map(value_of, args[1:])
        up: list[Any] = [x.cast(work) if is_tensor(x) else x for x in (first, *rest)]
        options = {name: value_of(x) for name, x in kwargs.items()}
        named: dict[str, Any] = {k: x.cast(work) if is_tensor(x) else x for k, x in options.items()}
        result = function(*up, **named)
        return result.cast(first.dtype) if first.dtype.is_storage else result

    return cast_around
