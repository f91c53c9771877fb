"""Complex numbers: a pair of real Tensors of one shape, and what is done with both.

There is no complex primitive, and no complex dtype in a graph. A ComplexTensor is made by
`lm.complex`, `lm.view_as_complex`, `lm.polar` or `lm.fft`, and every operation on it records
operations on its two parts, so gradients, compiles and devices know nothing of it. Whatever moves
elements or adds them up does the same to both parts (LINEAR); a product of several factors is that
of their parts, with the powers of i (PRODUCTS); the rest is written out below.
"""

from __future__ import annotations

import inspect
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, reduce, update_wrapper
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.complex_dtypes import ComplexDType, complex64, complex128, complex_dtype_of
from luminal.base.errors import DTypeError, ShapeError
from luminal.base.near_names import suggestion
from luminal.frontend import creation
from luminal.frontend.complex_functions import FUNCTIONS, quotient
from luminal.frontend.handle import Array, Pair, is_tensor
from luminal.frontend.names.table import offered
from luminal.frontend.pointwise.binary import graph_of, where
from luminal.memory.parameter import Parameter
from luminal.memory.state import State

LINEAR = frozenset(
    "cat concat concatenate stack hstack vstack dstack reshape view flatten ravel unflatten "
    "squeeze unsqueeze transpose swapaxes swapdims permute movedim moveaxis t expand broadcast_to "
    "repeat tile flip fliplr flipud roll rot90 narrow select index_select take_along_dim gather "
    "chunk split tensor_split unbind diagonal diag tril triu pad clone detach sum mean cumsum diff "
    "atleast_1d atleast_2d atleast_3d repeat_interleave unfold masked_select masked_fill rearrange "
    "trace neg positive scatter_add index_add index_copy".split()
)
"""What is done to both parts alike."""
MADE = ("new_zeros", "new_ones", "new_full")
"""Methods that make a Tensor in the dtype of another."""
PRODUCTS = frozenset(
    "mul multiply matmul mm bmm mv einsum outer ger dot inner tensordot kron".split()
)
"""What is linear in each of its operands."""


class ComplexTensor(Pair):
    """A Tensor of complex numbers: `real` and `imag` are Tensors of float32 or float64.

    Methods and functions follow torch's of complex tensors. What is computed has gradients through
    both parts; a variable of `lm.grad` is real.
    """

    __slots__ = ("imag", "real")
    __array_ufunc__ = None  # NumPy's operators leave the work to ours

    def __init__(self, real: Any, imag: Any) -> None:
        self.real, self.imag = real, imag
        Pair.in_use = True

    @classmethod
    def of(cls, real: Any, imag: Any) -> Any:
        """The ComplexTensor of two Tensors; of two arrays an array of NumPy."""
        if not isinstance(real, np.ndarray | np.generic):
            return cls(real, imag)
        kind = complex128 if real.dtype == np.float64 else complex64
        array: Array = np.empty(np.shape(real), kind.numpy)
        array.real, array.imag = real, imag
        return array

    @property
    def parts(self) -> list[Any]:
        """The real part and the imaginary one."""
        return [self.real, self.imag]

    def _apart(self) -> Any:
        """(..., 2) of floats: `view_as_real`."""
        return offered("lm")["stack"](self.parts, -1)

    # --- what is known of it

    @property
    def dtype(self) -> ComplexDType:
        """complex64, or complex128 of float64."""
        return complex128 if self.real.dtype is dtypes.float64 else complex64

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of both parts."""
        return self.real.shape

    @property
    def extents(self) -> Any:
        """The shape as Expressions."""
        return self.real.extents

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.real.ndim

    def dim(self) -> int:
        """The number of dimensions."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the extent of one dim."""
        return self.real.size(dim)

    def numel(self) -> Any:
        """The number of elements."""
        return self.real.numel()

    @property
    def graph(self) -> Any:
        """The graph that records both parts."""
        return graph_of("complex", [self.real, self.imag])

    def is_complex(self) -> bool:
        """True: its numbers are complex."""
        return True

    def is_floating_point(self) -> bool:
        """False: complex numbers are no floats."""
        return False

    # --- derivatives

    def requires_grad_(self, requires_grad: bool = True) -> ComplexTensor:
        """This itself: `backward` finds gradients of all inputs, `lm.grad` of what it is told. See
        `Tensor.requires_grad_`.
        """
        for part in self.parts:
            part.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> Any:
        """The gradient that `backward` has found so far, of an input or a Parameter; else None."""
        views = [_unmarked(part.value) for part in self.parts]
        pairs = self.graph.wrap(views[0].node.args[0]) if views[0].node.args else None
        # Of a leaf both are what `_paired` records of it.
        if pairs is None or [part.value for part in pairs._paired().parts] != views:
            return None
        gradient = pairs.grad
        return gradient._paired() if is_tensor(gradient) else gradient

    def __len__(self) -> int:
        return len(self.real)

    def __repr__(self) -> str:
        return f"ComplexTensor({self.dtype.name}{list(self.shape)})"

    # --- elements

    def numpy(self) -> Array:
        """The elements as a complex array of NumPy."""
        array: Array = self.of(self.real.numpy(), self.imag.numpy())
        return array

    def item(self) -> complex:
        """The one element as a complex number of Python."""
        return complex(self.numpy().item())

    def tolist(self) -> Any:
        """The elements as complex numbers of Python, in nested lists."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.numpy(), dtype)

    def output(self, name: str | None = None) -> ComplexTensor:
        """Makes both parts results of the graph: `name.real` and `name.imag`."""
        self.real.output(f"{name}.real" if name else None)
        self.imag.output(f"{name}.imag" if name else None)
        return self

    # --- arithmetic

    def __add__(self, other: Any) -> ComplexTensor:
        b = as_complex(other, self)
        return ComplexTensor(self.real + b.real, self.imag + b.imag)

    def __sub__(self, other: Any) -> ComplexTensor:
        b = as_complex(other, self)
        return ComplexTensor(self.real - b.real, self.imag - b.imag)

    def __rsub__(self, other: Any) -> ComplexTensor:
        return -self + other

    def __mul__(self, other: Any) -> ComplexTensor:
        return product(operator.mul, self, other)

    def __matmul__(self, other: Any) -> ComplexTensor:
        return product(operator.matmul, self, other)

    def __rmatmul__(self, other: Any) -> ComplexTensor:
        return product(operator.matmul, other, self)

    def __truediv__(self, other: Any) -> ComplexTensor:
        if isinstance(other, ComplexTensor) or _is_complex(other):
            b = as_complex(other, self)
            return ComplexTensor(*quotient(self.real, self.imag, b.real, b.imag))
        return ComplexTensor(self.real / other, self.imag / other)

    def __rtruediv__(self, other: Any) -> ComplexTensor:
        if _is_complex(other):
            return as_complex(other, self) / self
        return ComplexTensor(*quotient(other, None, self.real, self.imag))

    def __pow__(self, other: Any) -> ComplexTensor:
        if isinstance(other, int | float) and abs(other) <= 64 and other == int(other):
            return (self if other >= 0 else self.reciprocal())._power(abs(int(other)))
        power = as_complex(other, self)
        is_zero = self == 0
        # No logarithm of 0, whose gradient would be NaN.
        elsewhere = (_where(is_zero, 1, self).log() * other).exp()
        at_zero = where(power == 0, 1, where(power.real > 0, 0, math.nan))
        return _where(is_zero, ComplexTensor(at_zero, at_zero * 0), elsewhere)

    def __rpow__(self, other: Any) -> ComplexTensor:
        return as_complex(other, self) ** self

    def _power(self, n: int) -> ComplexTensor:
        """By squares: exact where the parts are."""
        if n == 0:
            return creation.ones_like(self)  # type: ignore[return-value, arg-type]
        half = self._power(n // 2) if n > 1 else None
        if half is None:
            return self
        return half * half * self if n % 2 else half * half

    def __neg__(self) -> ComplexTensor:
        return ComplexTensor(-self.real, -self.imag)

    def __pos__(self) -> ComplexTensor:
        return self

    __radd__, __rmul__ = __add__, __mul__
    __hash__ = object.__hash__

    def __eq__(self, other: Any) -> Any:
        b = as_complex(other, self)
        return (self.real == b.real) & (self.imag == b.imag)

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)

    def __abs__(self) -> Any:
        return self.real.hypot(self.imag)

    def __getitem__(self, key: Any) -> ComplexTensor:
        return ComplexTensor(self.real[key], self.imag[key])

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(
            "z[...] = v: a ComplexTensor does not change; use lm.cat, nn.functional.pad or lm.where"
        )

    def reciprocal(self) -> ComplexTensor:
        """1 / z: no square overflows, and 1 / inf is 0."""
        return 1 / self

    # --- parts and functions

    def abs(self) -> Any:
        """The distance from 0; its gradient at 0 is 0."""
        return abs(self)

    def angle(self) -> Any:
        """The angle in radians, -pi..pi."""
        return self.imag.atan2(self.real)

    def conj(self) -> ComplexTensor:
        """The conjugate: the imaginary part has the other sign."""
        return ComplexTensor(self.real, -self.imag)

    def sgn(self) -> ComplexTensor:
        """z / |z|, and 0 where z is 0."""
        size = abs(self)
        return self / size.where(size != 0, 1)

    def isnan(self) -> Any:
        """True where a part is NaN."""
        return self.real.isnan() | self.imag.isnan()

    def isinf(self) -> Any:
        """True where a part is infinite, also beside NaN."""
        return self.real.isinf() | self.imag.isinf()

    def isfinite(self) -> Any:
        """True where both parts are finite."""
        return self.real.isfinite() & self.imag.isfinite()

    def isreal(self) -> Any:
        """True where the imaginary part is 0."""
        return self.imag == 0

    def square(self) -> ComplexTensor:
        """z * z, as of reals."""
        return self * self

    def pow(self, exponent: Any) -> ComplexTensor:
        """z to a power: by products for small ints, else exp(exponent * log(z))."""
        return self**exponent

    def add(self, other: Any, *, alpha: Any = 1) -> ComplexTensor:
        """z + alpha * other, which may be real."""
        return self + (other if alpha == 1 else other * alpha)

    def sub(self, other: Any, *, alpha: Any = 1) -> ComplexTensor:
        """z - alpha * other, which may be real."""
        return self - (other if alpha == 1 else other * alpha)

    def div(self, other: Any) -> ComplexTensor:
        """z / other, which may be real."""
        return self / other

    def to(self, *targets: Any, **options: Any) -> ComplexTensor:
        """z in another complex dtype, or what `Tensor.to` does with a device."""
        kinds = [_real_of(target) for target in targets]
        return ComplexTensor(self.real.to(*kinds, **options), self.imag.to(*kinds, **options))

    @property
    def T(self) -> ComplexTensor:
        """All dims in reverse order."""
        return ComplexTensor(self.real.T, self.imag.T)

    @property
    def mT(self) -> ComplexTensor:
        """The last two dims exchanged."""
        return ComplexTensor(self.real.mT, self.imag.mT)

    @property
    def mH(self) -> ComplexTensor:
        """The last two dims exchanged, and conjugate."""
        return self.mT.conj()

    def adjoint(self) -> ComplexTensor:
        """The last two dims exchanged, and conjugate."""
        return self.mH

    H = mH
    absolute, conj_physical, contiguous, resolve_conj, cpu = abs, conj, __pos__, __pos__, __pos__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a ComplexTensor has no attribute {name!r}", name=name, obj=self)
        if name in LINEAR or name in PRODUCTS or name in MADE or name in FUNCTIONS:
            return partial(self.apply, name, _methods().get(name, _unused), self)
        fix = suggestion(name, [*dir(self), *LINEAR, *PRODUCTS, *MADE, *FUNCTIONS])
        raise AttributeError(
            f"a ComplexTensor has no {name!r}{fix}; compute with z.real and z.imag, or "
            "lm.view_as_real(z)"
        )

    # --- functions of lm

    def apply(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function of `luminal` under this name, with ComplexTensors among its arguments."""
        if name in LINEAR:
            return linear(function, args, kwargs)
        if name in PRODUCTS:
            return product(partial(function, **kwargs), *args)
        if name in FUNCTIONS:
            return ComplexTensor(*FUNCTIONS[name](self.real, self.imag))
        if name in MADE:
            return getattr(creation, name)(*args, **kwargs)
        if name == "where":
            return _where(*args, **kwargs)
        if name in ("real", "imag"):
            return getattr(self, name)
        method = getattr(ComplexTensor, name, None)
        if callable(method) and isinstance(args[0], ComplexTensor):
            return method(*args, **kwargs)
        if name in _OPERATORS and len(args) == 2:
            return getattr(operator, _OPERATORS[name])(*args)
        raise DTypeError(
            f"{name}: takes real Tensors, got a ComplexTensor; compute with z.real and z.imag, or "
            "lm.view_as_real(z)"
        )


def _unused(z: Any) -> Any:
    """Stands for the function of real Tensors, where those have none of the name."""
    raise NotImplementedError


@cache
def _methods() -> dict[str, Callable[..., Any]]:
    return offered("method")


_OPERATORS = {
    "add": "add", "sub": "sub", "subtract": "sub", "div": "truediv", "divide": "truediv",
    "true_divide": "truediv", "equal": "eq", "eq": "eq", "not_equal": "ne", "ne": "ne",
    "pow": "pow", "multiply": "mul",
}  # fmt: skip


def _unmarked(value: Any) -> Any:
    """What `requires_grad_` has made a value of its own."""
    while value.node.op.name == "Detach":
        value = value.node.args[0]
    return value


def as_complex(x: Any, like: ComplexTensor) -> ComplexTensor:
    """A number, an array or a Tensor as a ComplexTensor beside `like`."""
    if isinstance(x, ComplexTensor):
        return x
    graph = like.graph
    if _is_complex(x):
        return _constant(x, like.real)
    if isinstance(x, Parameter | State):
        x = x.as_tensor()
        if isinstance(x, ComplexTensor):
            return x
    # Functions of it are computed in its dtype, which is the result's.
    dtype = like.real.dtype
    real = x.cast(dtypes.promote(x.dtype, dtype)) if is_tensor(x) else graph.constant(x, dtype)
    return ComplexTensor(real, creation.zeros_like(real))


def linear(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function of the real parts and that of the imaginary ones, put together again."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    if isinstance(
        value := bound.arguments.get("value"), int | float | complex | np.number
    ):  # of padding and of masks
        bound.arguments["value"] = complex(value)
    args, kwargs = bound.args, bound.kwargs
    parts = [
        function(
            *(part_of(x, part) for x in args), **{k: part_of(x, part) for k, x in kwargs.items()}
        )
        for part in ("real", "imag")
    ]
    return joined(*parts)


def part_of(x: Any, part: str) -> Any:
    """The real or the imaginary parts of an argument: of what is complex, and of real Tensors of
    floats beside it. Integers and bools are places and masks.
    """
    if isinstance(x, ComplexTensor | complex):
        return getattr(x, part)
    if isinstance(x, list | tuple) and any(isinstance(y, ComplexTensor) for y in x):
        some = next(y for y in x if isinstance(y, ComplexTensor))
        return [getattr(as_complex(y, some), part) for y in x]
    if isinstance(x, Parameter | State):
        x = x.as_tensor()
    is_imaginary = is_tensor(x) and x.dtype.is_float and part == "imag"
    return creation.zeros_like(x) if is_imaginary else x


def joined(real: Any, imag: Any) -> Any:
    """Real parts and imaginary ones put together, in tuples and lists too."""
    if isinstance(real, tuple | list):
        return type(real)(map(joined, real, imag))
    return ComplexTensor(real, imag)


def product(function: Callable[..., Any], *args: Any) -> ComplexTensor:
    """The sum of the function of each choice of parts of its complex operands, by powers of i."""
    args = tuple(x.as_tensor() if isinstance(x, Parameter | State) else x for x in args)
    some = next(x for arg in args for x in _each(arg) if isinstance(x, ComplexTensor))
    args = tuple(as_complex(x, some) if _is_complex(x) else x for x in args)
    spread = [[*arg] if isinstance(arg, list | tuple) else arg for arg in args]
    places = [x for arg in spread for x in _each(arg)]
    complexes = [k for k, x in enumerate(places) if isinstance(x, ComplexTensor)]
    sums: list[list[Any]] = [[], []]
    for choice in itertools.product((0, 1), repeat=len(complexes)):
        chosen = list(places)
        for k, is_imag in zip(complexes, choice, strict=True):
            chosen[k] = places[k].imag if is_imag else places[k].real
        rest = iter(chosen)
        value = function(
            *([next(rest) for _ in arg] if isinstance(arg, list) else next(rest) for arg in spread)
        )
        power = sum(choice)  # of i: 1, i, -1, -i
        sums[power % 2].append(-value if power % 4 >= 2 else value)
    return ComplexTensor(*(reduce(operator.add, terms) for terms in sums))


def _each(arg: Any) -> Sequence[Any]:
    return arg if isinstance(arg, list | tuple) else (arg,)


def _where(condition: Any, a: Any, b: Any) -> ComplexTensor:
    some = next(x for x in (a, b, condition) if isinstance(x, ComplexTensor))
    a, b = as_complex(a, some), as_complex(b, some)
    return ComplexTensor(where(condition, a.real, b.real), where(condition, a.imag, b.imag))


_REFLECTED = {
    "__add__": "__radd__", "__radd__": "__add__", "__sub__": "__rsub__", "__rsub__": "__sub__",
    "__mul__": "__rmul__", "__rmul__": "__mul__", "__eq__": "__eq__", "__ne__": "__ne__",
    "__truediv__": "__rtruediv__", "__rtruediv__": "__truediv__",
    "__matmul__": "__rmatmul__", "__rmatmul__": "__matmul__",
    "__pow__": "__rpow__", "__rpow__": "__pow__",
}  # fmt: skip


def beside_complex(kind: type) -> None:
    """Has the operators of Tensors give ComplexTensors where the other operand is complex."""
    for name, reflected in _REFLECTED.items():
        setattr(kind, name, _or_complex(reflected, getattr(kind, name)))
    kind.__array_ufunc__ = _of_array(kind.__array_ufunc__)  # type: ignore[attr-defined]


_UFUNCS = {
    np.add: "__add__", np.subtract: "__sub__", np.multiply: "__mul__",
    np.true_divide: "__truediv__", np.matmul: "__matmul__", np.equal: "__eq__",
    np.not_equal: "__ne__", np.power: "__pow__",
}  # fmt: skip


def _of_array(operate: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's operators where a complex array stands left of a Tensor."""

    def operator(self: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc in _UFUNCS and method == "__call__" and _is_complex(inputs[0]):
            return getattr(_constant(inputs[0], self), _UFUNCS[ufunc])(inputs[1])
        return operate(self, ufunc, method, *inputs, **options)

    return update_wrapper(operator, operate)


def _or_complex(reflected: str, operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        if isinstance(other, Parameter | State) and isinstance(other.dtype, ComplexDType):
            other = self.graph.constant(other)
        if isinstance(other, Pair) or _is_complex(other):
            pair = other if isinstance(other, Pair) else _constant(other, self)
            return getattr(pair, reflected)(self)
        return operate(self, other)

    return update_wrapper(operator, operate)


def _is_complex(x: Any) -> bool:
    """Is it a complex number, or an array of such?"""
    return isinstance(x, complex) or (isinstance(x, np.ndarray | np.generic) and np.iscomplexobj(x))


def _constant(x: Any, beside: Any) -> ComplexTensor:
    """A complex number, or an array of such, beside a real Tensor."""
    if isinstance(x, complex):
        kind = beside.dtype if beside.dtype is dtypes.float64 else dtypes.float32
        return ComplexTensor(*(beside.graph.constant(part, kind) for part in (x.real, x.imag)))
    return ComplexTensor(*(beside.graph.constant(part.copy()) for part in (x.real, x.imag)))


def _real_of(target: Any) -> Any:
    """What `to` of a part is asked for where the whole is asked for a complex dtype."""
    kind = complex_dtype_of(target)
    return target if kind is None else kind.real


# --- what makes them, and takes them apart --------------------------------------------------------


def complex_(real: Any, imag: Any) -> ComplexTensor:
    """real + i * imag, of two Tensors of one float dtype, which broadcast. As torch.complex."""
    real, imag = _floats("complex", real, imag)
    return ComplexTensor(real, imag)


def polar(abs: Any, angle: Any) -> ComplexTensor:
    """The complex number of an absolute value and an angle in radians. As torch.polar."""
    size, angle = _floats("polar", abs, angle)
    return ComplexTensor(size * angle.cos(), size * angle.sin())


def view_as_complex(x: Any) -> ComplexTensor:
    """(..., 2) of floats as (...) of complex numbers. As torch.view_as_complex."""
    (x,) = _floats("view_as_complex", x)
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError(f"view_as_complex: the shape is {x.shape}; the last dim must be 2")
    return x._paired()


def view_as_real(z: ComplexTensor | Parameter | State) -> Any:
    """(...) of complex numbers as (..., 2) of floats. As torch.view_as_real."""
    if isinstance(z, Parameter | State):
        z = z.as_tensor()
    if not isinstance(z, ComplexTensor):
        raise DTypeError(f"view_as_real: {z!r} is not complex; lm.complex(re, im) makes one")
    return z._apart()


def imag(z: ComplexTensor) -> Any:
    """The imaginary part. As torch.imag, it is refused of real Tensors."""
    if not isinstance(z, ComplexTensor):
        raise DTypeError(f"imag: {z!r} is not complex; its imaginary part would be 0")
    return z.imag


def _floats(what: str, *values: Any) -> tuple[Any, ...]:
    """Tensors of float32 or float64 that have one shape."""
    held = [x.as_tensor() if isinstance(x, Parameter | State) else x for x in values]
    graph = graph_of(what, held)
    tensors = [graph.constant(x) for x in held]
    kinds = {x.dtype for x in tensors}
    if len(kinds) > 1 or not kinds <= {dtypes.float32, dtypes.float64}:
        names = ", ".join(x.dtype.name for x in tensors)
        raise DTypeError(f"{what}: got {names}; it takes float32 or float64, cast others first")
    return offered("lm")["broadcast_tensors"](*tensors) if len(tensors) > 1 else tuple(tensors)
