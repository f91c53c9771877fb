"""Arrays of other libraries as Tensors of the default graph, and results as arrays of others.

x = lm.from_dlpack(torch_tensor)                    # in, without a copy
y = torch.from_dlpack(x * 2)                        # computed, and out without a copy
z = torch.from_dlpack(lm.to_dlpack(results["z"]))   # NumPy itself hands on no bfloat16
"""

from __future__ import annotations

from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import DTypeError
from luminal.frontend.foreign import placed
from luminal.frontend.handle import Pair, is_tensor, value_of
from luminal.frontend.tensor import Tensor
from luminal.memory.data import Array, array_of, complex_array_of
from luminal.memory.dlpack import Holder
from luminal.session.default_graph import tensor


def from_dlpack(x: Any) -> Tensor:
    """An Input that has the array of `x` as its value, in one memory with it.

    `x` offers `__dlpack__`: a tensor of PyTorch or JAX, a NumPy array. Raises DTypeError for what
    does not, InputError for arrays on other devices.
    """
    if is_tensor(x) or isinstance(x, Pair):
        return x  # type: ignore[return-value]
    if not hasattr(x, "__dlpack__"):
        kind = type(x).__name__
        raise DTypeError(f"from_dlpack: a {kind} has no __dlpack__; for lists there is lm.tensor")
    return tensor(_array("from_dlpack", x), copy=False)


def to_dlpack(x: Any) -> Holder:
    """Something for the `from_dlpack` of other libraries, of any array, bfloat16 too.

    They share the memory where it may be written, else they get a copy.
    """
    return Holder(array_of(x, None, "to_dlpack"))


@placed
def as_tensor(data: Any, dtype: Any = None) -> Tensor:
    """Data as an Input with that value, a Tensor as it is; in `dtype`, if one is given."""
    data = value_of(data)
    if is_tensor(data) or isinstance(data, Pair):
        return data if dtype is None else data.to(dtype)  # type: ignore[return-value, union-attr]
    return tensor(_array("as_tensor", data, dtype), copy=False)


asarray = as_tensor


def _array(what: str, data: Any, dtype: Any = None) -> Array:
    """An array of real or of complex numbers, in `dtype`, if one is given."""
    numbers = complex_array_of(data, dtype, what)
    if numbers is not None:
        return numbers
    return array_of(data, None if dtype is None else dtypes.dtype_of(dtype), what)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """An Input that has a NumPy array as its value, in one memory with it."""
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"from_numpy: a {type(array).__name__} is no NumPy array; use lm.tensor")
    return tensor(array, copy=False)
