"""Tensor, a value of a lazy graph. Its methods record operations; family modules define them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from luminal.base.errors import GraphError, ShapeError
from luminal.base.markup import card
from luminal.base.near_names import methods_with_suggestions
from luminal.frontend import conversion
from luminal.frontend.complex.beside import beside_complex
from luminal.frontend.foreign import absent
from luminal.frontend.handle import Array, Handle, Operand, describe, is_tensor
from luminal.frontend.matrices import matmul
from luminal.frontend.movement import views
from luminal.frontend.movement.subscript import subscript
from luminal.frontend.names.methods import Methods
from luminal.frontend.names.table import offered
from luminal.frontend.pointwise import binary, combine, exponential, unary
from luminal.frontend.pointwise.binary import graph_of
from luminal.frontend.pointwise.derivatives import as_variable, has_gradient
from luminal.frontend.reduce import reductions
from luminal.hlir.attributes import StateAttrs, WeightAttrs
from luminal.memory import dlpack
from luminal.memory.data import is_array, shown_elements
from luminal.memory.parameter import Parameter
from luminal.memory.state import State


class Tensor(Methods):
    """One value of a graph: known shape and dtype, no elements before the graph has run.

    Methods follow torch.Tensor in names and defaults; `axis` and `keepdims` are accepted too.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    # --- setting, keeping, reading

    def set(self, value: Any) -> Tensor:
        """Sets an Input, Weight or State; raises ShapeError or DTypeError if it does not fit."""
        attrs = self.value.node.attrs
        if isinstance(attrs, WeightAttrs):
            attrs.parameter.set(value)
        elif isinstance(attrs, StateAttrs):
            attrs.state.set(value)
        else:
            self.graph.set_value(self.value, value)
        return self

    def output(self, name: str | None = None) -> Tensor:
        """Makes this a result of the graph, by default named out0, out1, ..."""
        self.graph.output(self, name)
        return self

    def retrieve(self, name: str | None = None) -> Tensor:
        """Makes this a result of the graph, as `output` does."""
        return self.output(name)

    def keep(self) -> Tensor:
        """Has this computed and readable with `numpy()`, without being among the results."""
        self.graph.output(self, hidden=True)
        return self

    def numpy(self) -> Array:
        """The elements: those of the graph's last execution if this was an output, else computed.

        What was not executed is compiled (once, whatever the inputs' values) and run on the inputs
        set; States are read, never assigned. Raises InputError where an input has no value,
        GraphError while `scan` or `lm.jit` record a function.
        """
        return self.graph.result(self.value)

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:
        """Adds the gradients of this scalar to `grad` of the inputs and weights it depends on.

        They are Tensors of the graph: output them, or read them with `numpy()`. `gradient` comes in
        from above where this is no scalar. `retain_graph` and `create_graph` change nothing: graphs
        stay, and gradients can be differentiated again. Raises as `lm.grad`.
        """
        self.graph.backward(self, gradient)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` has found so far, of an input or a weight."""
        attrs = self.value.node.attrs
        variable = attrs.parameter if isinstance(attrs, WeightAttrs) else self.value
        return self.graph.gradients.get(variable)

    def item(self) -> Any:
        """The only element as a Python number, computed as by `numpy`; ShapeError for several."""
        return self._single("item").item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers, computed as by `numpy`."""
        return self.numpy().tolist()

    def _single(self, wanted: str) -> Array:
        count = self.numel()
        array = self.numpy() if count == 1 or not isinstance(count, int) else None
        if array is None or array.size != 1:
            count = count if array is None else array.size
            raise ShapeError(
                f"{wanted} of {describe(self)}: it has {count} elements, not one; use "
                f"{'any() or all(), or lm.where for choices' if wanted == 'bool' else 'tolist()'}"
            )
        return array

    @property
    def state(self) -> State:
        """The State this reads; raises GraphError if it is another kind of value."""
        attrs = self.value.node.attrs
        if isinstance(attrs, StateAttrs):
            return attrs.state
        raise GraphError(f"state: {describe(self)} does not read a State; use cx.state(...)")

    @property
    def parameter(self) -> Parameter:
        """The Parameter behind a Weight; raises GraphError for other values."""
        attrs = self.value.node.attrs
        if isinstance(attrs, WeightAttrs):
            return attrs.parameter
        raise GraphError(f"parameter: {describe(self)} is not a Weight; use cx.weight(...)")

    # --- where it is, as PyTorch asks

    is_cuda = False

    @property
    def requires_grad(self) -> bool:
        """Does it follow from what `requires_grad_` was called of, or from a Parameter that is
        trained? Setting it calls `requires_grad_`.
        """
        return has_gradient(self)

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.requires_grad_(requires_grad)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """This itself: `backward` finds gradients of all inputs, `lm.grad` of what it is told.

        What is computed from other values becomes one of its own: from here on neither a view nor
        an equal value is taken for it, so derivatives in it are of what reads it.
        """
        if not requires_grad:
            self.graph.variables.discard(self.value.node)
        elif self.dtype.is_float:
            if self.value.node.args:
                self.value = as_variable(self).value
            self.graph.variables.add(self.value.node)
        return self

    @property
    def device(self) -> str:
        """The name of the device that its graph is for."""
        return self.graph.device or "cpu"

    def cpu(self) -> Tensor:
        """This itself, as torch.Tensor.cpu of a tensor there."""
        return self

    def is_contiguous(self) -> bool:
        """True: a Tensor has no strides before it is compiled."""
        return True

    @property
    def data(self) -> Tensor:
        """This itself: there are no gradients that would look at it."""
        return self

    # --- Python's manners

    if not TYPE_CHECKING:  # or every attribute would be Any

        def __getattr__(self, name: str) -> Any:
            raise absent(self, name, lambda attribute: hasattr(Tensor, attribute))

    def __repr__(self) -> str:
        elements = self.graph.known(self.value)
        shown = "" if elements is None else f"{shown_elements(elements, 'Tensor(')}, "
        return f"Tensor({shown}{describe(self)}, {self.graph.origin(self.value)})"

    def _repr_html_(self) -> str:
        elements = self.graph.known(self.value)
        shown = "" if elements is None else shown_elements(elements, "")
        return card(f"Tensor {describe(self)}", [("is", self.graph.origin(self.value))], shown)

    def __len__(self) -> int:
        if self.ndim == 0:
            raise ShapeError("len: a 0-d tensor has no length")
        extent = self.extents[0]
        if not extent.is_const:
            raise ShapeError(f"len: the first extent is {extent}, not a literal; use x.shape[0]")
        return extent.value

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._single("bool").item())

    def __float__(self) -> float:
        return float(self._single("float").item())

    def __int__(self) -> int:
        return int(self._single("int").item())

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise TypeError(f"{describe(self)} is no integer, so it is no index; cast it")
        return int(self._single("index").item())

    def __format__(self, spec: str) -> str:
        return format(self._single("format").item(), spec) if spec else str(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _with_elements(function, args, kwargs)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:  # fmt: skip
        return dlpack.capsule_of(
            self.numpy(), stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __contains__(self, item: Any) -> bool:
        return bool(reductions.any(self == item))

    # --- operators

    # fmt: off
    def __add__(self, other: Operand) -> Tensor: return binary.add(self, other)
    def __radd__(self, other: Operand) -> Tensor: return binary.add(other, self)
    def __sub__(self, other: Operand) -> Tensor: return binary.sub(self, other)
    def __rsub__(self, other: Operand) -> Tensor: return binary.sub(other, self)
    def __mul__(self, other: Operand) -> Tensor: return binary.mul(self, other)
    def __rmul__(self, other: Operand) -> Tensor: return binary.mul(other, self)
    def __truediv__(self, other: Operand) -> Tensor: return binary.div(self, other)
    def __rtruediv__(self, other: Operand) -> Tensor: return binary.div(other, self)
    def __floordiv__(self, other: Operand) -> Tensor: return binary.floor_div(self, other)
    def __rfloordiv__(self, other: Operand) -> Tensor: return binary.floor_div(other, self)
    def __mod__(self, other: Operand) -> Tensor: return binary.mod(self, other)
    def __rmod__(self, other: Operand) -> Tensor: return binary.mod(other, self)
    def __pow__(self, other: Operand) -> Tensor: return exponential.pow(self, other)
    def __rpow__(self, other: Operand) -> Tensor: return exponential.pow(other, self)
    def __divmod__(self, other: Operand) -> combine.Pair: return combine.divmod(self, other)
    def __rdivmod__(self, other: Operand) -> combine.Pair: return combine.divmod(other, self)
    def __matmul__(self, other: Operand) -> Tensor: return matmul.matmul(self, other)
    def __rmatmul__(self, other: Operand) -> Tensor: return matmul.matmul(other, self)
    def __and__(self, other: Operand) -> Tensor: return binary.bit_and(self, other)
    def __rand__(self, other: Operand) -> Tensor: return binary.bit_and(other, self)
    def __or__(self, other: Operand) -> Tensor: return binary.bit_or(self, other)
    def __ror__(self, other: Operand) -> Tensor: return binary.bit_or(other, self)
    def __xor__(self, other: Operand) -> Tensor: return binary.bit_xor(self, other)
    def __rxor__(self, other: Operand) -> Tensor: return binary.bit_xor(other, self)
    def __lshift__(self, other: Operand) -> Tensor: return binary.shift_left(self, other)
    def __rlshift__(self, other: Operand) -> Tensor: return binary.shift_left(other, self)
    def __rshift__(self, other: Operand) -> Tensor: return binary.shift_right(self, other)
    def __rrshift__(self, other: Operand) -> Tensor: return binary.shift_right(other, self)
    def __lt__(self, other: Operand) -> Tensor: return binary.less(self, other)
    def __le__(self, other: Operand) -> Tensor: return binary.less_equal(self, other)
    def __gt__(self, other: Operand) -> Tensor: return binary.less(other, self)
    def __ge__(self, other: Operand) -> Tensor: return binary.less_equal(other, self)
    def __eq__(self, other: Operand) -> Tensor: return binary.equal(self, other)  # type: ignore[override]
    def __ne__(self, other: Operand) -> Tensor: return binary.not_equal(self, other)  # type: ignore[override]
    def __neg__(self) -> Tensor: return unary.neg(self)
    def __pos__(self) -> Tensor: return self
    def __abs__(self) -> Tensor: return unary.abs(self)
    def __invert__(self) -> Tensor: return unary.invert(self)
    def __getitem__(self, key: Any) -> Tensor: return subscript(self, key)
    # fmt: on

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise TypeError(
            f"x[...] = v: {describe(self)} does not change; use index_put, slice_scatter or where, "
            "which give a new Tensor"
        )

    # --- beside the functions of the table of names

    itemsize = property(conversion.element_size)
    nbytes = property(conversion.nbytes)
    ndimension = Handle.dim

    def where(self, condition: Operand, other: Operand) -> Tensor:
        """This where `condition` is true, else `other`, as torch.Tensor.where."""
        return binary.where(condition, self, other)

    @property
    def T(self) -> Tensor:
        """All dims in reverse order."""
        return views.permute(self, *reversed(range(self.ndim)))

    @property
    def real(self) -> Tensor:
        """This itself: there are no complex dtypes."""
        return self

    @property
    def H(self) -> Tensor:
        """The dims of a matrix exchanged, as torch.Tensor.H of real numbers."""
        return views.t(self)

    @property
    def mH(self) -> Tensor:
        """The last two dims exchanged, as torch.Tensor.mH of real numbers."""
        return views.transpose(self, -1, -2)

    @property
    def mT(self) -> Tensor:
        """The last two dims exchanged."""
        return views.transpose(self, -1, -2)


# --- NumPy's functions of Tensors -----------------------------------------------------------------

_UFUNCS = offered("numpy")


def _ufunc(function: Any, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """`np.exp(t)`: recorded, in Luminal's dtypes. `arr += t` and the like: NumPy's, of elements."""
    ours = _UFUNCS.get(function.__name__)
    # np.add.reduce and out= have no lazy form: NumPy computes them of the elements.
    if ours is None or method != "__call__" or options:
        return getattr(function, method)(*_numpys(inputs), **_numpys(options))
    graph = graph_of(function.__name__, inputs)
    return ours(*(graph.constant(x) if is_array(x) else x for x in inputs))


def _with_elements(function: Any, args: Any, kwargs: Any) -> Any:
    """`np.concatenate([t, t])`: NumPy's, of the elements."""
    return function(*_numpys(args), **_numpys(kwargs))


def _numpys(data: Any) -> Any:
    """Data with arrays for the Tensors in it."""
    if is_tensor(data):
        return data.numpy()
    if isinstance(data, dict):
        return {name: _numpys(value) for name, value in data.items()}
    if type(data) in (list, tuple):
        return type(data)(map(_numpys, data))
    return data


beside_complex(Tensor)
methods_with_suggestions(Tensor)
