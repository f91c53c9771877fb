"""NumPy's functions of Tensors: `np.exp(t)` and `array + t` record, all else reads the elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from luminal.frontend.handle import is_tensor
from luminal.frontend.names.table import offered
from luminal.frontend.pointwise.binary import graph_of
from luminal.memory.data import is_array

UFUNCS = offered("numpy")


def ufunc(function: Any, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """`np.exp(t)`: recorded, in Luminal's dtypes. `arr += t` and the like: NumPy's, of elements."""
    ours = UFUNCS.get(function.__name__)
    if ours is None or method != "__call__" or options:
        return getattr(function, method)(*_elements(inputs), **_elements(options))
    graph = graph_of(function.__name__, inputs)
    return ours(*(graph.constant(x) if is_array(x) else x for x in inputs))


def function(function: Any, args: Any, kwargs: Any) -> Any:
    """`np.concatenate([t, t])`: NumPy's, of the elements."""
    return function(*_elements(args), **_elements(kwargs))


def _elements(data: Any) -> Any:
    """Data with arrays for the Tensors in it."""
    if is_tensor(data):
        return data.numpy()
    if isinstance(data, dict):
        return {name: _elements(each) for name, each in data.items()}
    if type(data) in (list, tuple):
        return type(data)(map(_elements, data))
    return data
