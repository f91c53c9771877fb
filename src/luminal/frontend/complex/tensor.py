"""Complex numbers: a pair of real Tensors of one shape, and what is done with both.

There is no complex primitive, and no complex dtype in a graph. A ComplexTensor is made by
`lm.complex`, `lm.view_as_complex`, `lm.polar` or `lm.fft`, and every operation on it records
operations on its two parts, so gradients, compiles and devices know nothing of it. Whatever moves
elements or adds them up does the same to both parts (LINEAR); a product of several factors is that
of their parts, with the powers of i (PRODUCTS); the rest is written out below.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.complex_dtypes import ComplexDType, complex64, complex128, complex_dtype_of
from luminal.base.errors import DTypeError
from luminal.base.near_names import suggestion
from luminal.frontend import conversion, creation
from luminal.frontend.complex import matrices, statistics
from luminal.frontend.complex.functions import FUNCTIONS, quotient
from luminal.frontend.complex.parts import (
    as_complex,
    bound_to,
    is_complex_number,
    linear,
    product,
    where_complex,
)
from luminal.frontend.foreign import type_and_device
from luminal.frontend.handle import Array, Pair, is_tensor
from luminal.frontend.names.table import offered
from luminal.frontend.pointwise.binary import graph_of, where

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
BY_NAME = (LINEAR, PRODUCTS, MADE, FUNCTIONS)
OF_COMPLEX = matrices.OF_COMPLEX | statistics.OF_COMPLEX
"""What stands in the place of functions of real Tensors, by these."""


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
    def requires_grad(self) -> bool:
        """Does a part of it follow from what `requires_grad_` was called of? See `Tensor`."""
        return any(part.requires_grad for part in self.parts)

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.requires_grad_(requires_grad)

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
        if isinstance(other, ComplexTensor) or is_complex_number(other):
            b = as_complex(other, self)
            return ComplexTensor(*quotient(self.real, self.imag, b.real, b.imag))
        return ComplexTensor(self.real / other, self.imag / other)

    def __rtruediv__(self, other: Any) -> ComplexTensor:
        if is_complex_number(other):
            return as_complex(other, self) / self
        return ComplexTensor(*quotient(other, None, self.real, self.imag))

    def __pow__(self, other: Any) -> ComplexTensor:
        if isinstance(other, int | float) and abs(other) <= 64 and other == int(other):
            return (self if other >= 0 else self.reciprocal())._power(abs(int(other)))
        power = as_complex(other, self)
        is_zero = self == 0
        # No logarithm of 0, whose gradient would be NaN.
        elsewhere = (where_complex(is_zero, 1, self).log() * other).exp()
        at_zero = where(power == 0, 1, where(power.real > 0, 0, math.nan))
        return where_complex(is_zero, ComplexTensor(at_zero, at_zero * 0), elsewhere)

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

    def div(self, other: Any, *, rounding_mode: None = None) -> ComplexTensor:
        """z / other, which may be real; quotients of complex numbers are not rounded."""
        if rounding_mode is not None:
            raise DTypeError(f"div: rounding_mode={rounding_mode!r} of complex numbers; leave it")
        return self / other

    def vdot(self, other: Any) -> ComplexTensor:
        """The sum of conj(z) * other of two vectors: 0-d."""
        return matrices.vdot(self, other)

    def eq(self, other: Any) -> Any:
        """True where both parts are equal."""
        return self == other

    def ne(self, other: Any) -> Any:
        """True where a part differs."""
        return self != other

    def equal(self, other: Any) -> bool:
        """Have both one shape and equal elements? Computed at once, as torch.equal."""
        b = as_complex(other, self)
        return self.shape == b.shape and all(map(conversion.equal, self.parts, b.parts))

    def to(self, *targets: Any, dtype: Any = None, **options: Any) -> ComplexTensor:
        """z in another complex dtype, or what `Tensor.to` does with a device. Raises DTypeError for
        a real dtype, in which imaginary parts would be lost.
        """
        targets = (*targets, *([] if dtype is None else [dtype]))
        asked, _ = type_and_device([x for x in targets if complex_dtype_of(x) is None], None, None)
        if asked is not None:
            raise DTypeError(
                f"to: {self!r} as {dtypes.dtype_of(asked).name} would lose its imaginary part; "
                "take z.real"
            )
        kinds = [_real_of(x) for x in targets]
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
    subtract, divide, true_divide, not_equal = sub, div, div, ne
    absolute, conj_physical, contiguous, resolve_conj, cpu = abs, conj, __pos__, __pos__, __pos__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a ComplexTensor has no attribute {name!r}", name=name, obj=self)
        function = _methods().get(name, _unused)
        if any(name in names for names in BY_NAME) or function in OF_COMPLEX:
            return partial(self.apply, name, function, self)
        fix = suggestion(name, [*dir(self), *itertools.chain(*BY_NAME)])
        raise AttributeError(
            f"a ComplexTensor has no {name!r}{fix}; compute with z.real and z.imag, or "
            "lm.view_as_real(z)"
        )

    # --- functions of lm

    def apply(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function of `luminal` under this name, with ComplexTensors among its arguments."""
        if function in OF_COMPLEX:
            bound = bound_to(function, args, kwargs)
            first, *others = bound.args
            return OF_COMPLEX[function](as_complex(first, self), *others, **bound.kwargs)
        if name in LINEAR:
            return linear(function, args, kwargs)
        if name in PRODUCTS:
            return product(function, *args, **kwargs)
        if name in FUNCTIONS:
            return ComplexTensor(*FUNCTIONS[name](self.real, self.imag))
        if name in MADE:
            return getattr(creation, name)(*args, **kwargs)
        if name == "where":
            return where_complex(*args, **kwargs)
        if name in ("real", "imag"):
            return getattr(self, name)
        method = getattr(ComplexTensor, name, None)
        if not callable(method) or name.startswith("_"):
            raise DTypeError(
                f"{name}: takes real Tensors, got a ComplexTensor; compute with z.real and z.imag, "
                "or lm.view_as_real(z)"
            )
        bound = bound_to(function, args, kwargs)  # which may name the operands in its own way
        first, *others = bound.args
        return method(as_complex(first, self), *others, **bound.kwargs)


def _unused(z: Any) -> Any:
    """Stands for the function of real Tensors, where those have none of the name."""
    raise NotImplementedError


@cache
def _methods() -> dict[str, Callable[..., Any]]:
    return offered("method")


def _unmarked(value: Any) -> Any:
    """What `requires_grad_` has made a value of its own."""
    while value.node.op.name == "Detach":
        value = value.node.args[0]
    return value


def _real_of(target: Any) -> Any:
    """What `to` of a part is asked for where the whole is asked for a complex dtype."""
    kind = complex_dtype_of(target)
    return target if kind is None else kind.real
